"""Which execution graphs a memory model allows; compiled.

A graph that was consistent gets one more event, or a read gets another source;
``consistent`` says whether the model still allows it.
"""

from __future__ import annotations

from .compiled import compiled
from .events import at, holds, is_before, last_there, nth, put, scratch_at, set_at
from .layout import (
    BEFORE_THERE,
    EARLIER,
    HAPPENS,
    KIND,
    LOCATION,
    PARTNER,
    PREFIX,
    PTX,
    READ,
    SEQUENTIAL,
    SIZE,
    SOURCE,
    STRONGEST,
    WAITS,
    WORDS,
    WRITE,
    Array,
)
from .partial_sc import orders_strongest
from .ptx import allows


@compiled
def consistent(m: Array, f: int, model: int, event: int, revisited: int) -> bool:
    """Whether a model allows the graph of a frame.

    ``event`` is the one that was added, ``revisited`` a read whose source it
    became, or -1.
    """
    if m[at(m, f, event) + KIND] > WRITE:
        return True
    if model == PTX:
        return allows(m, f, event)
    if m[at(m, f, event) + KIND] == WRITE and not _atomic(m, f, event):
        return False
    if model == SEQUENTIAL:
        return (revisited < 0 and _is_last(m, f, event)) or _sequential(m, f)
    if not _coherent(m, f, event) or (revisited >= 0 and not _coherent(m, f, revisited)):
        return False
    return m[f + STRONGEST] < 2 or orders_strongest(m, f)


@compiled
def _atomic(m: Array, f: int, write: int) -> bool:
    """Whether no update has a new write between what it reads and what it writes."""
    other = last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        there = at(m, f, other)
        if m[there + KIND] == WRITE and m[there + PARTNER] >= 0 and is_before(m, f, write, other):
            source = m[at(m, f, m[there + PARTNER]) + SOURCE]
            if source != write and not is_before(m, f, write, source):
                return False
        other = m[there + BEFORE_THERE]
    return True


@compiled
def _is_last(m: Array, f: int, event: int) -> bool:
    """Whether no edge leaves an event that was just added."""
    here = at(m, f, event)
    write = event if m[here + KIND] == WRITE else m[here + SOURCE]
    other = last_there(m, f, m[here + LOCATION])
    while other >= 0:
        if m[at(m, f, other) + KIND] == WRITE and is_before(m, f, write, other):
            return False
        other = m[at(m, f, other) + BEFORE_THERE]
    return True


@compiled
def _sequential(m: Array, f: int) -> bool:
    """Whether program order, reads-from, coherence and from-reads have no cycle.

    Events are taken away once all before them are; the order in which they
    were added is nearly one in which this works at once.
    """
    placed = scratch_at(m, 1)
    for word in range(m[WORDS]):
        m[placed + word] = 0
    left, before = m[f + SIZE], -1
    while left != before:
        before = left
        for index in range(m[f + SIZE]):
            event = nth(m, f, index)
            if not holds(m, placed, event) and _is_next(m, f, event, placed):
                put(m, placed, event)
                left -= 1
        if left == 0:
            return True
    return False


@compiled
def _is_next(m: Array, f: int, event: int, placed: int) -> bool:
    """Whether all events before one, in the order of a sequential execution, are placed."""
    prefix, earlier = set_at(m, f, event, PREFIX), set_at(m, f, event, EARLIER)
    for word in range(m[WORDS]):
        if (m[prefix + word] | m[earlier + word]) & ~m[placed + word] != 0:
            return False
    here = at(m, f, event)
    if m[here + KIND] != WRITE:
        return True
    read = last_there(m, f, m[here + LOCATION])
    while read >= 0:
        there = at(m, f, read)
        # What leaves open which value ended a wait may as well have read a later one.
        settles = m[there + KIND] == READ and m[there + WAITS] < 2 and read != m[here + PARTNER]
        if settles and not holds(m, placed, read) and is_before(m, f, m[there + SOURCE], event):
            return False
        read = m[there + BEFORE_THERE]
    return True


@compiled
def _coherent(m: Array, f: int, event: int) -> bool:
    """Whether an event without successors agrees with coherence (RC11: no cycle of happens-before and eco)."""
    here = at(m, f, event)
    write = event if m[here + KIND] == WRITE else m[here + SOURCE]
    happens = set_at(m, f, event, HAPPENS)
    other = last_there(m, f, m[here + LOCATION])
    while other >= 0:
        there = at(m, f, other)
        if m[there + KIND] <= WRITE and holds(m, happens, other):
            seen = other if m[there + KIND] == WRITE else m[there + SOURCE]
            if seen != write and is_before(m, f, write, seen):
                return False
        other = m[there + BEFORE_THERE]
    return True
