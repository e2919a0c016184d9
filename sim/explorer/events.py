"""Events of a frame: where they are, sets of them, and the order of writes; compiled."""

from __future__ import annotations

import numpy as np

from .compiled import compiled
from .layout import (
    AT_EVENTS,
    AT_LOCATIONS,
    AT_SCRATCH,
    AT_SEQUENCE,
    AT_THREADS,
    BEFORE_THERE,
    EARLIER,
    FIELDS,
    FRAME,
    HEADER,
    INITIAL,
    KIND,
    RECORD,
    STRANDS,
    THREAD,
    THREAD_RECORD,
    WORDS,
    WRITE,
    Array,
)


@compiled
def frame_at(m: Array, number: int) -> int:
    """Address of a frame."""
    return HEADER + number * m[FRAME]


@compiled
def at(m: Array, f: int, event: int) -> int:
    """Address of an event."""
    return f + m[AT_EVENTS] + event * m[RECORD]


@compiled
def thread_at(m: Array, f: int, thread: int) -> int:
    """Address of a thread."""
    return f + m[AT_THREADS] + thread * THREAD_RECORD


@compiled
def nth(m: Array, f: int, index: int) -> int:
    """Event at a place of the sequence."""
    return m[f + m[AT_SEQUENCE] + index]


@compiled
def last_there(m: Array, f: int, location: int) -> int:
    """Event that was added last at a location, or -1; ``BEFORE_THERE`` leads to the others."""
    return m[f + m[AT_LOCATIONS] + location]


@compiled
def set_at(m: Array, f: int, event: int, which: int) -> int:
    """Address of a set of an event."""
    return f + m[AT_EVENTS] + event * m[RECORD] + FIELDS + which * m[WORDS]


@compiled
def scratch_at(m: Array, number: int) -> int:
    """Address of a set that is needed for a moment, 0 or 1."""
    return m[AT_SCRATCH] + number * m[WORDS]


@compiled
def same_thread(m: Array, a: int, b: int) -> bool:
    """Whether one thread performs the events at two addresses, and the same strands of it."""
    return m[a + THREAD] == m[b + THREAD] and m[a + STRANDS] == m[b + STRANDS]


@compiled
def holds(m: Array, members: int, event: int) -> bool:
    """Whether the set at an address has a member."""
    return (m[members + (event >> 6)] >> (event & 63)) & 1 == 1


@compiled
def put(m: Array, members: int, event: int) -> None:
    """Add a member to the set at an address."""
    m[members + (event >> 6)] |= np.int64(1) << np.int64(event & 63)


@compiled
def drop(m: Array, members: int, event: int) -> None:
    """Remove a member from the set at an address."""
    m[members + (event >> 6)] &= ~(np.int64(1) << np.int64(event & 63))


@compiled
def unite(m: Array, members: int, others: int) -> None:
    """Add all members of another set."""
    for word in range(m[WORDS]):
        m[members + word] |= m[others + word]


@compiled
def count_bits(bits: int) -> int:
    """Members in one word."""
    total = 0
    while bits != 0:
        bits &= bits - 1
        total += 1
    return total


@compiled
def rank(m: Array, f: int, write: int) -> int:
    """Writes before one in coherence order, and itself; 0 for the initial write."""
    if write == INITIAL:
        return 0
    earlier, total = set_at(m, f, write, EARLIER), 1
    for word in range(m[WORDS]):
        total += count_bits(m[earlier + word])
    return total


@compiled
def rank_within(m: Array, f: int, write: int, members: int) -> int:
    """Likewise, of the writes in a set only."""
    if write == INITIAL:
        return 0
    earlier, total = set_at(m, f, write, EARLIER), 1
    for word in range(m[WORDS]):
        total += count_bits(m[earlier + word] & m[members + word])
    return total


@compiled
def is_before(m: Array, f: int, first: int, second: int) -> bool:
    """Whether coherence has one write before another, the initial one included."""
    if second == INITIAL:
        return False
    return first == INITIAL or holds(m, set_at(m, f, second, EARLIER), first)


@compiled
def last_write(m: Array, f: int, location: int) -> int:
    """The write of a location that is last in coherence order."""
    last, event = INITIAL, last_there(m, f, location)
    while event >= 0:
        if m[at(m, f, event) + KIND] == WRITE and (last == INITIAL or is_before(m, f, last, event)):
            last = event
        event = m[at(m, f, event) + BEFORE_THERE]
    return last


@compiled
def count_writes(m: Array, f: int, location: int) -> int:
    """Writes of a location."""
    total, event = 0, last_there(m, f, location)
    while event >= 0:
        total += m[at(m, f, event) + KIND] == WRITE
        event = m[at(m, f, event) + BEFORE_THERE]
    return total
