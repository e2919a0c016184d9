"""Data races of an execution; compiled."""

from __future__ import annotations

from .causality import collect_causes, morally_strong
from .compiled import compiled, entry
from .events import at, holds, last_there, nth, same_thread, scratch_at, set_at
from .layout import (
    AT_CAUSES,
    BEFORE_THERE,
    BLOCK,
    HAPPENS,
    KIND,
    LOCATION,
    MODEL,
    ORDER,
    PARTNER,
    PTX,
    SIZE,
    STRONGEST,
    WORDS,
    WRITE,
    Array,
)
from .ptx import copy_orders, find_order

NO_RACE = -1


@entry
def find_race(m: Array, f: int, after: int) -> int:
    """Two events that race, as places in the sequence: the first times the number of events plus the second, or -1.

    The first pair whose number is above ``after``.

    Under PTX accesses of one location, one of them a write, race if they are
    not morally strong and not in causality order (PTX ISA, "Data-race");
    otherwise if one is weak and neither happens before the other.
    """
    if m[MODEL] != PTX or m[f + STRONGEST] < 2:
        copy_orders(m, f)
        return _find_race(m, f, after)
    permutation = find_order(m, f, 0)
    while permutation >= 0:
        race = _find_race(m, f, after)
        if race != NO_RACE:
            return race
        permutation = find_order(m, f, permutation + 1)
    return NO_RACE


@compiled
def _find_race(m: Array, f: int, after: int) -> int:
    """Two events that race under the order of fences at hand."""
    for index in range(max(0, after) // max(1, m[f + SIZE]), m[f + SIZE]):
        event, found = nth(m, f, index), NO_RACE
        if m[at(m, f, event) + KIND] == WRITE:
            other = last_there(m, f, m[at(m, f, event) + LOCATION])
            while other >= 0:
                if _race(m, f, event, other):
                    number = index * m[f + SIZE] + _find_place(m, f, other)
                    if number > after and (found == NO_RACE or number < found):
                        found = number
                other = m[at(m, f, other) + BEFORE_THERE]
        if found != NO_RACE:
            return found
    return NO_RACE


@compiled
def _find_place(m: Array, f: int, event: int) -> int:
    """Place of an event in the sequence."""
    place = 0
    while nth(m, f, place) != event:
        place += 1
    return place


@compiled
def _race(m: Array, f: int, write: int, other: int) -> bool:
    """Whether a write and another access race."""
    here, there = at(m, f, write), at(m, f, other)
    if write == other or m[there + KIND] > WRITE or m[here + LOCATION] != m[there + LOCATION]:
        return False
    if same_thread(m, here, there) and (m[here + BLOCK] != m[there + BLOCK] or m[here + PARTNER] == other):
        return False
    if m[MODEL] != PTX:
        if m[here + ORDER] > 0 and m[there + ORDER] > 0:
            return False
        return not holds(m, set_at(m, f, other, HAPPENS), write) and not holds(m, set_at(m, f, write, HAPPENS), other)
    if morally_strong(m, f, write, other):
        return False
    return not _causes(m, f, write, other) and not _causes(m, f, other, write)


@compiled
def _causes(m: Array, f: int, first: int, second: int) -> bool:
    """Whether an event is before another one of its location in causality order."""
    before = m[AT_CAUSES] + second * m[WORDS]
    if holds(m, before, first):
        return True
    collect_causes(m, f, second, before, scratch_at(m, 3))
    return m[at(m, f, first) + KIND] == WRITE and holds(m, scratch_at(m, 3), first)
