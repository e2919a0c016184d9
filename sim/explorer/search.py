"""The search: depth first through the choices, each class of executions once; compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .change import add_event, copy_frame, revisit
from .choices import written
from .compiled import compiled, entry
from .consistency import consistent
from .events import at, count_writes, frame_at, is_before, last_there, last_write, nth, set_at, thread_at
from .expansion import expand
from .layout import (
    AT_CHOICES,
    AWAIT,
    BEFORE_THERE,
    BLOCK,
    BLOCKED,
    BRANCHES,
    CAPACITY,
    CHANGE,
    COMPLETE,
    COUNT,
    CUT,
    CUT_SHORT,
    DONE,
    EARLIER,
    FAILED_THREAD,
    FINGERPRINT,
    FORWARD,
    FRAMES,
    FULL,
    HELD,
    HIGH,
    INITIAL,
    KIND,
    LANE,
    LAPSE,
    LAPSED,
    LEAF,
    LOCATION,
    LOCATIONS,
    MERGED,
    MODEL,
    NEXT_KIND,
    NEXT_OPERATION,
    NEXT_PARTNER,
    NONE,
    OFFERED,
    ONWARD,
    OP_KIND,
    OP_LOCATION,
    OP_VALUE,
    OPERATION,
    ORIGIN,
    PAUSED,
    READ,
    REJECTED,
    REVISIT,
    SEED,
    SEQUENTIAL,
    SHARD,
    SHARDS,
    SIZE,
    SKIPPED,
    SOURCE,
    SPLIT,
    STARVED,
    STATE_NOW,
    STEPS,
    STUCK,
    TAKE,
    TAKEN,
    TEST,
    THREAD,
    THREADS,
    TICKET,
    TOP,
    UNSTABLE,
    UNSTABLE_AT,
    VALUE,
    VERDICT,
    WAITS,
    WRITE,
    Array,
    Tables,
)
from .lookup import look_up
from .places import place_write

Shares = npt.NDArray[np.float64]
"""Part of the search below each frame; the last entry is the part that is done."""

LARGEST = (1 << 31) - 1
"""A prime: fingerprints are remainders of it."""

HALF = (1 << 32) - 1
"""Bits of half a word."""


@entry
def search(t: Tables, m: Array, shares: Shares, budget: int, report: bool) -> int:
    """Go on until something is missing, the budget of steps ends, or all is done.

    A class whose threads do not all end is handed over, in the frame above the
    top one; with ``report`` every class is.
    """
    for _ in range(budget):
        number = m[TOP]
        if number < 0:
            return DONE
        f = frame_at(m, number)
        if number + 2 >= m[FRAMES] or m[f + SIZE] + 2 >= m[CAPACITY] or t.locations.shape[1] > m[LOCATIONS]:
            return FULL
        if m[f + TAKEN] < 0:
            status = _look(t, m, shares, number, report)
            if status == LEAF:
                continue
            if status != NONE:
                return LEAF if status == DONE else status
        if not _step(t, m, shares, number):
            return UNSTABLE
        m[STEPS] += 1
    return PAUSED


@compiled
def _look(t: Tables, m: Array, shares: Shares, number: int, report: bool) -> int:
    """List the choices of a frame; a class that has none left is counted, and ``DONE`` if it is to be handed over."""
    f = frame_at(m, number)
    status = expand(t, m, f)
    if status == NONE:
        return NONE
    m[f + TAKEN] = -1
    if status in (LEAF, FAILED_THREAD):
        shares[-1] += shares[number]
        m[TOP] -= 1
    if status != LEAF or (_is_shallow(m, f) and not _is_mine(m, f)):
        return status
    _count(t, m, f)
    return LEAF if not report and (m[VERDICT] == COMPLETE or m[VERDICT] == BLOCKED) else DONE


@compiled
def _step(t: Tables, m: Array, shares: Shares, number: int) -> bool:
    """Take the next choice of a frame, in place if it is the last one; False if an await turned out unstable."""
    f = frame_at(m, number)
    taken, offered = m[f + TAKEN], m[f + OFFERED]
    if offered == 0:
        m[TOP] -= 1
        shares[-1] += shares[number]
        return True
    if taken == 0:
        m[f + ORIGIN] = _draw(m, offered)
    m[f + TAKEN] += 1
    choice = f + m[AT_CHOICES] + 3 * ((taken + m[f + ORIGIN]) % offered)
    kind, other, position = m[choice], m[choice + 1], m[choice + 2]
    share, target = shares[number] / offered, number
    if taken + 1 < offered:
        target = number + 1
        copy_frame(m, number)
    shares[target] = share
    onward = m[ONWARD] == 0 or _goes_on(t, m, f, kind, other, position)
    allowed = onward and _apply(t, m, frame_at(m, target), kind, other, position)
    if m[UNSTABLE_AT] >= 0:
        return False
    if not allowed:
        m[REJECTED] += 1
    elif offered > 1:
        m[frame_at(m, target) + BRANCHES] += 1
        if m[SHARDS] > 1 and m[frame_at(m, target) + BRANCHES] == m[SPLIT]:
            allowed = _is_mine(m, frame_at(m, target))
    if allowed:
        m[frame_at(m, target) + TAKEN] = -1
        m[TOP] = target
    else:
        shares[-1] += share
        if target == number:
            m[TOP] -= 1
    return True


@compiled
def _goes_on(t: Tables, m: Array, f: int, kind: int, other: int, position: int) -> bool:
    """Whether a choice undoes nothing; under sc also that the event is the last one of its location."""
    if kind != FORWARD or m[MODEL] != SEQUENTIAL:
        return kind == FORWARD
    operation = m[f + NEXT_OPERATION]
    location = t.operations[OP_LOCATION, operation]
    if m[f + NEXT_KIND] == WRITE:
        return m[f + NEXT_PARTNER] >= 0 or position == count_writes(m, f, location)
    ends = t.operations[OP_KIND, operation] in (AWAIT, TAKE)
    return m[f + NEXT_KIND] != READ or ends or other == last_write(m, f, location)


@compiled
def _draw(m: Array, count: int) -> int:
    """The choice to begin with: the first, or a random one where executions are sampled."""
    if m[SEED] == 0:
        return 0
    m[SEED] = (m[SEED] * 1103515245 + 12345) % (1 << 31) | 1 << 31
    return (m[SEED] >> 12) % count


@compiled
def _is_shallow(m: Array, f: int) -> bool:
    """Whether every shard comes to a class on its way to the split."""
    return m[SHARDS] > 1 and m[f + BRANCHES] < m[SPLIT]


@compiled
def _is_mine(m: Array, f: int) -> bool:
    """Deal what begins at the split, and the classes before it, to the shards in turn."""
    m[TICKET] += 1
    _mark(m, f)
    if m[TICKET] % m[SHARDS] == m[SHARD]:
        return True
    m[SKIPPED] += 1
    return False


@compiled
def _mark(m: Array, f: int) -> None:
    """Take a graph that is dealt into the fingerprint, which is the same in all shards if all deal out the same."""
    for index in range(m[f + SIZE]):
        event = nth(m, f, index)
        here = at(m, f, event)
        for part in (THREAD, BLOCK, LANE, KIND, SOURCE):
            _fold(m, m[here + part] + 2)
        earlier = set_at(m, f, event, EARLIER)
        for word in range((m[f + HIGH] + 63) // 64):
            _fold(m, m[earlier + word] & HALF)
            _fold(m, (m[earlier + word] >> 32) & HALF)


@compiled
def _fold(m: Array, number: int) -> None:
    """Take a number into the fingerprint."""
    m[FINGERPRINT] = (m[FINGERPRINT] * 48271 + number) % LARGEST


@compiled
def _apply(t: Tables, m: Array, f: int, kind: int, other: int, position: int) -> bool:
    """Make a choice; False if the model forbids the graph."""
    operation, partner = m[f + NEXT_OPERATION], m[f + NEXT_PARTNER]
    location = t.operations[OP_LOCATION, operation]
    if m[f + NEXT_KIND] != WRITE:
        value = 0
        if kind == LAPSE:
            m[f + NEXT_KIND] = STARVED
        elif m[f + NEXT_KIND] == READ:
            value = written(t, m, f, location, other)
        return consistent(m, f, m[MODEL], add_event(t, m, f, other, value), -1)
    value = t.operations[OP_VALUE, operation]
    if partner >= 0:
        value = look_up(t.keys, t.results, CHANGE, operation, m[at(m, f, partner) + VALUE])
    event = add_event(t, m, f, INITIAL, value)
    if kind == FORWARD:
        placed = place_write(m, f, event, position)
    else:
        placed = revisit(t, m, f, other, position, event, kind == LAPSE)
    if not placed or not consistent(m, f, m[MODEL], event, other if kind == REVISIT else -1):
        return False
    if t.locations[MERGED, location]:
        _judge_waits(t, m, f, event)
    return True


@compiled
def _judge_waits(t: Tables, m: Array, f: int, write: int) -> None:
    """Find waits whose values must be told apart: those that do not stay satisfied once they are."""
    location = m[at(m, f, write) + LOCATION]
    read = last_there(m, f, location)
    while read >= 0:
        here = at(m, f, read)
        if m[here + WAITS] == 2 and m[here + KIND] == READ:
            ends = look_up(t.keys, t.results, TEST, m[here + OPERATION], m[at(m, f, write) + VALUE]) != 0
            later = is_before(m, f, m[here + SOURCE], write)
            if ends != later or not (later or is_before(m, f, write, m[here + SOURCE])):
                m[UNSTABLE_AT] = location
        read = m[here + BEFORE_THERE]


@compiled
def _count(t: Tables, m: Array, f: int) -> None:
    """Count a graph to which nothing can be added."""
    if m[HELD]:
        m[BLOCKED] += 1
        m[VERDICT] = BLOCKED
        return
    starved, waiting, cut = False, False, False
    for index in range(m[f + SIZE]):
        here = at(m, f, nth(m, f, index))
        if m[here + KIND] == STARVED:
            starved = True
            last = written(t, m, f, m[here + LOCATION], last_write(m, f, m[here + LOCATION]))
            if look_up(t.keys, t.results, TEST, m[here + OPERATION], last) != 0:
                m[BLOCKED] += 1
                m[VERDICT] = BLOCKED
                return
    for thread in range(m[THREADS]):
        ending = t.states[COUNT, m[thread_at(m, f, thread) + STATE_NOW]]
        waiting |= ending > 0
        cut |= ending == CUT
    m[VERDICT] = CUT_SHORT if cut else LAPSED if starved else STUCK if waiting else COMPLETE
    m[m[VERDICT]] += 1
