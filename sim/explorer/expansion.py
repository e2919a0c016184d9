"""The next event of a graph, and the choices for it; compiled.

The search is that of TruSt (Kokologiannakis et al., POPL 2022): a read reads
any write that is there, and a write that comes later may be read by it
instead, provided that all that is undone for that was added by default.  An
await is issued once a write that ends it can be read, so a poll that fails is
never an event.
"""

from __future__ import annotations

from .change import everyone_arrived
from .choices import ask, list_ends, list_places, list_reads, offer
from .compiled import compiled, entry
from .events import (
    at,
    frame_at,
    thread_at,
)
from .layout import (
    ARRIVE,
    ARRIVED,
    AT_TURNS,
    AWAIT,
    BEFORE,
    BLOCK_NOW,
    BROKEN,
    CHANGE,
    COUNT,
    DEPART,
    DEPARTED,
    FAILED_THREAD,
    FENCE,
    FENCED,
    FIRST,
    FOLD,
    FORWARD,
    FROZEN,
    HELD,
    INITIAL,
    ISSUED,
    KIND,
    LANE,
    LAST,
    LEAF,
    LOAD,
    MISSING,
    NEXT_KIND,
    NEXT_LANE,
    NEXT_OPERATION,
    NEXT_PARTNER,
    NEXT_THREAD,
    NONE,
    NOTHING,
    OFFERED,
    OP_KIND,
    OP_LOCATION,
    OP_VALUE,
    OPERATION,
    PENDING,
    READ,
    STATE_NOW,
    STORE,
    TAKE,
    TAKEN,
    THREADS,
    TOP,
    UNREADY,
    UPDATE,
    VALUE,
    WRITE,
    Array,
    Tables,
)
from .lookup import ABSENT
from .twins import is_held


@compiled
def expand(t: Tables, m: Array, f: int) -> int:
    """Choose the next event and list the choices for it."""
    m[f + OFFERED] = 0
    m[f + TAKEN] = 0
    m[HELD] = 0
    for thread in range(m[THREADS]):
        if m[thread_at(m, f, thread) + PENDING] != 0:
            status = _complete_update(t, m, f, thread)
            if status != UNREADY:
                return status
    for place in range(m[THREADS]):
        status = _issue(t, m, f, m[m[AT_TURNS] + place])
        if status != UNREADY:
            return status
    return LEAF


@compiled
def _find_read(m: Array, f: int, thread: int, lane: int) -> int:
    """Read of a lane of the block that a thread is in."""
    event = m[thread_at(m, f, thread) + LAST]
    while m[at(m, f, event) + LANE] != lane or m[at(m, f, event) + KIND] != READ:
        event = m[at(m, f, event) + BEFORE]
    return event


@compiled
def _choose(m: Array, f: int, thread: int, lane: int, operation: int, kind: int, partner: int) -> None:
    """Note what the next event is."""
    m[f + NEXT_THREAD], m[f + NEXT_LANE], m[f + NEXT_OPERATION] = thread, lane, operation
    m[f + NEXT_KIND], m[f + NEXT_PARTNER] = kind, partner


@compiled
def _complete_update(t: Tables, m: Array, f: int, thread: int) -> int:
    """Issue the write of an update whose read is there."""
    there = thread_at(m, f, thread)
    while m[there + PENDING] != 0:
        lane = 0
        while (m[there + PENDING] >> lane) & 1 == 0:
            lane += 1
        read = _find_read(m, f, thread, lane)
        operation = m[at(m, f, read) + OPERATION]
        value = ask(t, m, CHANGE, operation, m[at(m, f, read) + VALUE])
        if value == ABSENT:
            return MISSING
        if value != NOTHING:
            _choose(m, f, thread, lane, operation, WRITE, read)
            return list_places(t, m, f, value)
        m[there + PENDING] &= ~(1 << lane)
    return UNREADY


@compiled
def _issue(t: Tables, m: Array, f: int, thread: int) -> int:
    """Issue the next operation of a thread, if there is one that can be."""
    there = thread_at(m, f, thread)
    status = _reach(t, m, f, thread)
    if status != NONE:
        return status
    state = m[there + STATE_NOW]
    for lane in range(t.states[COUNT, state]):
        if (m[there + ISSUED] >> lane) & 1 == 0:
            status = _issue_lane(t, m, f, thread, lane, t.states[FIRST, state] + lane)
            if status == NONE and is_held(m, f, thread):
                m[HELD], m[f + OFFERED], status = 1, 0, UNREADY
            if status != UNREADY:
                return status
    return UNREADY


@compiled
def _reach(t: Tables, m: Array, f: int, thread: int) -> int:
    """Take a thread to operations that were not issued; ``UNREADY`` if it has none."""
    there = thread_at(m, f, thread)
    while True:
        count = t.states[COUNT, m[there + STATE_NOW]]
        if count == BROKEN:
            return FAILED_THREAD
        if count <= 0:
            return UNREADY
        if m[there + ISSUED] != (1 << count) - 1:
            return NONE
        if m[there + FROZEN]:
            return UNREADY
        if _advance(t, m, f, thread) == ABSENT:
            return MISSING


@entry
def reach_all(t: Tables, m: Array) -> int:
    """Take every thread of the top frame to its next operations, if these are to be chosen from now."""
    f = frame_at(m, m[TOP])
    if m[f + TAKEN] >= 0:
        return NONE
    for thread in range(m[THREADS]):
        if m[thread_at(m, f, thread) + PENDING] == 0 and _reach(t, m, f, thread) == MISSING:
            return MISSING
    return NONE


@compiled
def _advance(t: Tables, m: Array, f: int, thread: int) -> int:
    """Take a thread to its next block."""
    there = thread_at(m, f, thread)
    state = m[there + STATE_NOW]
    first, count, reads = t.states[FIRST, state], t.states[COUNT, state], 0
    for lane in range(count):
        kind = t.operations[OP_KIND, first + lane]
        if kind in (LOAD, UPDATE, TAKE):
            reads += 1
            state = ask(t, m, FOLD, state, m[at(m, f, _find_read(m, f, thread, lane)) + VALUE])
            if state == ABSENT:
                return ABSENT
    if reads == 0:
        state = ask(t, m, FOLD, state, 0)
        if state == ABSENT:
            return ABSENT
    m[there + STATE_NOW] = state
    m[there + BLOCK_NOW] += 1
    m[there + ISSUED] = 0
    return state


@compiled
def _issue_lane(t: Tables, m: Array, f: int, thread: int, lane: int, operation: int) -> int:
    """Issue one operation, if that is possible now."""
    kind = t.operations[OP_KIND, operation]
    if kind == STORE:
        _choose(m, f, thread, lane, operation, WRITE, -1)
        return list_places(t, m, f, t.operations[OP_VALUE, operation])
    if kind in (LOAD, UPDATE):
        _choose(m, f, thread, lane, operation, READ, -1)
        return list_reads(t, m, f, t.operations[OP_LOCATION, operation])
    if kind in (AWAIT, TAKE):
        _choose(m, f, thread, lane, operation, READ, -1)
        return list_ends(t, m, f, operation)
    if kind == DEPART and not everyone_arrived(t, m, f, thread, operation):
        return UNREADY
    event = FENCED if kind == FENCE else ARRIVED if kind == ARRIVE else DEPARTED
    _choose(m, f, thread, lane, operation, event, -1)
    offer(m, f, FORWARD, INITIAL, 0)
    return NONE
