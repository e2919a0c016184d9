"""Whether places of threads are in order in an execution graph, and what a class comes down to at its end; compiled."""

from __future__ import annotations

import numpy as np

from .compiled import compiled, entry
from .events import at, holds, last_there, nth, set_at, thread_at
from .layout import (
    BEFORE,
    BEFORE_THERE,
    BLOCK,
    EARLIER,
    HAPPENS,
    KIND,
    LOCATIONS,
    SIZE,
    STATE_NOW,
    THREAD,
    THREADS,
    VALUE,
    WRITE,
    Array,
)


@entry
def find_unordered(m: Array, f: int, pairs: Array) -> int:
    """The first of some pairs of places that is not in order, or -1.

    A pair is a thread and a block, which something comes after all that is
    before it in; then threads and blocks, as many as there are, up to a thread
    -1: something else comes before any of these.  They are in order if one of
    the latter is or happens before something right before the former.
    """
    slots = np.full((m[THREADS], m[f + SIZE] + 2), -1)
    for index in range(m[f + SIZE]):
        event = nth(m, f, index)
        here = at(m, f, event)
        if m[here + BLOCK] < slots.shape[1]:
            slots[m[here + THREAD], m[here + BLOCK]] = event
    for number in range(len(pairs)):
        second = _find(slots, pairs[number, 0], pairs[number, 1] - 1)
        place, found = 2, False
        while not found and place < pairs.shape[1] and pairs[number, place] >= 0:
            found = _is_followed(m, f, _find(slots, pairs[number, place], pairs[number, place + 1]), second)
            place += 2
        if not found:
            return number
    return -1


@compiled
def _find(slots: Array, thread: int, block: int) -> int:
    """The event that was added last of a block of a thread, or -1."""
    if block < 0 or block >= slots.shape[1]:
        return -1
    return int(slots[thread, block])


@compiled
def _is_followed(m: Array, f: int, first: int, second: int) -> bool:
    """Whether an event of the first one's block is, or happens before, an event of the second one's block."""
    end = second
    while end >= 0 and m[at(m, f, end) + BLOCK] == m[at(m, f, second) + BLOCK]:
        happens, start = set_at(m, f, end, HAPPENS), first
        while start >= 0 and m[at(m, f, start) + BLOCK] == m[at(m, f, first) + BLOCK]:
            if start == end or holds(m, happens, start):
                return True
            start = m[at(m, f, start) + BEFORE]
        end = m[at(m, f, end) + BEFORE]
    return False


@entry
def summarise(m: Array, f: int, summary: Array) -> int:
    """Write down the state of each thread, and location and value of each last write; returns how many numbers.

    -1 if a location has several last writes.
    """
    length = int(m[THREADS])
    for thread in range(m[THREADS]):
        summary[thread] = m[thread_at(m, f, thread) + STATE_NOW]
    for location in range(m[LOCATIONS]):
        last = _find_last(m, f, location)
        if last == MANY:
            return -1
        if last >= 0:
            summary[length], summary[length + 1] = location, m[at(m, f, last) + VALUE]
            length += 2
    return length


MANY = -2
"""Several writes without one after them."""


@compiled
def _find_last(m: Array, f: int, location: int) -> int:
    """The write after all others of a location; -1 if there is none, ``MANY`` if there are several."""
    last, event = -1, last_there(m, f, location)
    while event >= 0:
        if m[at(m, f, event) + KIND] == WRITE and not _is_overwritten(m, f, location, event):
            if last >= 0:
                return MANY
            last = event
        event = m[at(m, f, event) + BEFORE_THERE]
    return last


@compiled
def _is_overwritten(m: Array, f: int, location: int, write: int) -> bool:
    """Whether a write of a location comes after another one."""
    event = last_there(m, f, location)
    while event >= 0:
        if m[at(m, f, event) + KIND] == WRITE and holds(m, set_at(m, f, event, EARLIER), write):
            return True
        event = m[at(m, f, event) + BEFORE_THERE]
    return False
