"""The partial order of sequentially consistent operations that RC11 asks for; compiled.

Lahav, Vafeiadis, Kang, Hur, Dreyer, "Repairing Sequential Consistency in C/C++11", PLDI 2017: psc, the union of
psc_base and psc_F, has no cycle.
"""

from __future__ import annotations

from .compiled import compiled
from .events import at, drop, holds, is_before, nth, put, scratch_at, set_at
from .layout import (
    BLOCK,
    FENCED,
    HAPPENS,
    KIND,
    LOCATION,
    ORDER,
    PARTNER,
    READ,
    SIZE,
    SOURCE,
    THREAD,
    WAITS,
    WORDS,
    WRITE,
    Array,
)

STRONGEST = 5
"""Order of a sequentially consistent operation."""


@compiled
def orders_strongest(m: Array, f: int) -> bool:
    """Whether the sequentially consistent operations of a frame have an order."""
    left, remaining = scratch_at(m, 2), 0
    for word in range(m[WORDS]):
        m[left + word] = 0
    for index in range(m[f + SIZE]):
        event = nth(m, f, index)
        if m[at(m, f, event) + ORDER] == STRONGEST:
            put(m, left, event)
            remaining += 1
    before = remaining + 1
    while 1 < remaining < before:
        before = remaining
        for index in range(m[f + SIZE]):
            event = nth(m, f, index)
            if holds(m, left, event) and not _follows_any(m, f, left, event):
                drop(m, left, event)
                remaining -= 1
    return remaining <= 1


@compiled
def _follows_any(m: Array, f: int, left: int, event: int) -> bool:
    """Whether an operation comes after another one of a set."""
    for index in range(m[f + SIZE]):
        other = nth(m, f, index)
        if other != event and holds(m, left, other) and _precedes(m, f, other, event):
            return True
    return False


@compiled
def _precedes(m: Array, f: int, first: int, second: int) -> bool:
    """Whether psc relates two sequentially consistent operations.

    For two fences psc_base is part of psc_F: what it adds to happens-before has an access at either end.
    """
    fences = m[at(m, f, first) + KIND] == FENCED and m[at(m, f, second) + KIND] == FENCED
    if fences and happens(m, f, first, second):
        return True
    for index in range(m[f + SIZE]):
        start = nth(m, f, index)
        if not _leads(m, f, first, start):
            continue
        for place in range(m[f + SIZE]):
            end = nth(m, f, place)
            if not _arrives(m, f, end, second):
                continue
            if _communicates(m, f, start, end, fences) or (not fences and _is_ordered(m, f, start, end)):
                return True
    return False


@compiled
def happens(m: Array, f: int, first: int, second: int) -> bool:
    """Whether one event happens before another."""
    return holds(m, set_at(m, f, second, HAPPENS), first)


@compiled
def _leads(m: Array, f: int, operation: int, start: int) -> bool:
    """Whether an event is an operation or, of a fence, happens after it."""
    return start == operation or (m[at(m, f, operation) + KIND] == FENCED and happens(m, f, operation, start))


@compiled
def _arrives(m: Array, f: int, end: int, operation: int) -> bool:
    """Whether an event is an operation or, of a fence, happens before it."""
    return end == operation or (m[at(m, f, operation) + KIND] == FENCED and happens(m, f, end, operation))


@compiled
def _communicates(m: Array, f: int, first: int, second: int, extended: bool) -> bool:
    """Coherence or from-read between two accesses of a location; extended: through reads-from as well."""
    a, b = at(m, f, first), at(m, f, second)
    accesses = m[a + KIND] <= WRITE and m[b + KIND] <= WRITE and first != second
    if not accesses or m[a + LOCATION] != m[b + LOCATION]:
        return False
    if (m[a + KIND] == READ and m[a + WAITS] >= 2) or (m[b + KIND] == READ and m[b + WAITS] >= 2):
        return False
    write = first if m[a + KIND] == WRITE else m[a + SOURCE]
    if m[b + KIND] == WRITE:
        return is_before(m, f, write, second)
    if not extended:
        return False
    return is_before(m, f, write, m[b + SOURCE]) or (m[a + KIND] == WRITE and first == m[b + SOURCE])


@compiled
def _is_ordered(m: Array, f: int, first: int, second: int) -> bool:
    """Program order, happens-before at one location, or happens-before between accesses of other locations."""
    if _is_in_program_order(m, f, first, second):
        return True
    if first == second or not happens(m, f, first, second):
        return False
    a, b = at(m, f, first), at(m, f, second)
    if m[a + KIND] <= WRITE and m[b + KIND] <= WRITE and m[a + LOCATION] == m[b + LOCATION]:
        return True
    for index in range(m[f + SIZE]):
        after = nth(m, f, index)
        if not _is_elsewhere(m, f, first, after):
            continue
        for place in range(m[f + SIZE]):
            before = nth(m, f, place)
            if _is_elsewhere(m, f, before, second) and happens(m, f, after, before):
                return True
    return False


@compiled
def _is_in_program_order(m: Array, f: int, first: int, second: int) -> bool:
    """Whether a thread performs one event before another."""
    a, b = at(m, f, first), at(m, f, second)
    if m[a + THREAD] != m[b + THREAD]:
        return False
    return m[a + BLOCK] < m[b + BLOCK] or (m[b + KIND] == WRITE and m[b + PARTNER] == first)


@compiled
def _is_elsewhere(m: Array, f: int, first: int, second: int) -> bool:
    """Whether two events are in program order and not accesses of one location."""
    a, b = at(m, f, first), at(m, f, second)
    same = m[a + KIND] <= WRITE and m[b + KIND] <= WRITE and m[a + LOCATION] == m[b + LOCATION]
    return not same and _is_in_program_order(m, f, first, second)
