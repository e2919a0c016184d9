"""Changes of the graph of a frame: an event more or less, and a read revisited; compiled."""

from __future__ import annotations

from .compiled import compiled
from .events import (
    at,
    drop,
    frame_at,
    holds,
    is_before,
    last_there,
    nth,
    put,
    scratch_at,
    set_at,
    thread_at,
)
from .layout import (
    ARRIVED,
    AT_EVENTS,
    AT_LOCATIONS,
    AT_SEQUENCE,
    AT_USED,
    AWAIT,
    BEFORE,
    BEFORE_THERE,
    BLOCK,
    BLOCK_NOW,
    CTA,
    CTA_OF,
    DEPARTED,
    EARLIER,
    FROZEN,
    GPU,
    GPU_OF,
    HIGH,
    INITIAL,
    ISSUED,
    KIND,
    LANE,
    LAST,
    LOCATION,
    LOCATIONS,
    MERGED,
    MODEL,
    NEXT_KIND,
    NEXT_LANE,
    NEXT_OPERATION,
    NEXT_PARTNER,
    NEXT_THREAD,
    OP_KIND,
    OP_LOCATION,
    OP_ORDER,
    OP_SCOPE,
    OP_STRANDS,
    OP_VALUE,
    OPERATION,
    ORDER,
    PARTNER,
    PENDING,
    PREFIX,
    PTX,
    READ,
    RECORD,
    ROOT,
    SC_ORDER,
    SCOPE,
    SIZE,
    SOURCE,
    STARVED,
    STATE,
    STATE_NOW,
    STRANDS,
    STRONGEST,
    TAKE,
    TEST,
    THREAD,
    THREADS,
    UPDATE,
    VALUE,
    WAITS,
    WORDS,
    WRITE,
    Array,
    Tables,
)
from .lookup import look_up
from .places import place_after_source, place_write
from .relations import relate


@compiled
def copy_frame(m: Array, number: int) -> None:
    """Copy the graph of a frame to the next one."""
    source, target = frame_at(m, number), frame_at(m, number + 1)
    for place in range(m[AT_EVENTS] + m[source + HIGH] * m[RECORD]):
        m[target + place] = m[source + place]


@compiled
def add_event(t: Tables, m: Array, f: int, source: int, value: int) -> int:
    """Add the chosen event, its place in coherence order left open; returns its slot."""
    event = 0
    while holds(m, f + m[AT_USED], event):
        event += 1
    put(m, f + m[AT_USED], event)
    m[f + HIGH] = max(m[f + HIGH], event + 1)
    here, operation, kind = at(m, f, event), m[f + NEXT_OPERATION], m[f + NEXT_KIND]
    thread = thread_at(m, f, m[f + NEXT_THREAD])
    m[here + OPERATION] = operation
    m[here + LOCATION] = t.operations[OP_LOCATION, operation]
    m[here + ORDER] = t.operations[OP_ORDER, operation]
    m[here + SCOPE] = t.operations[OP_SCOPE, operation]
    m[here + STRANDS] = t.operations[OP_STRANDS, operation]
    m[here + THREAD] = m[f + NEXT_THREAD]
    m[here + CTA_OF], m[here + GPU_OF] = t.places[CTA, m[f + NEXT_THREAD]], t.places[GPU, m[f + NEXT_THREAD]]
    m[here + BLOCK] = m[thread + BLOCK_NOW]
    m[here + LANE] = m[f + NEXT_LANE]
    m[here + STATE] = m[thread + STATE_NOW]
    m[here + KIND] = kind
    m[here + SOURCE] = source
    m[here + PARTNER] = m[f + NEXT_PARTNER]
    m[here + VALUE] = value
    m[here + WAITS] = 0
    if kind == READ and t.operations[OP_KIND, operation] == AWAIT:
        m[here + WAITS] = 1 + t.locations[MERGED, m[here + LOCATION]]
    elif kind == READ and t.operations[OP_KIND, operation] == TAKE:
        m[here + WAITS] = 1
    elif kind == READ and t.operations[OP_KIND, operation] == UPDATE:
        m[here + WAITS] = -1
    for word in range(m[WORDS]):
        m[set_at(m, f, event, EARLIER) + word] = 0
    if kind in (ARRIVED, DEPARTED):
        m[here + VALUE] = count_arrivals(m, f, m[here + LOCATION], m[here + THREAD]) - (kind == DEPARTED)
    relate(m, f, event)
    m[f + m[AT_SEQUENCE] + m[f + SIZE]] = event
    m[f + SIZE] += 1
    _enlist(m, f, event)
    _mark(m, f, event)
    return event


@compiled
def _enlist(m: Array, f: int, event: int) -> None:
    """Make an event the last one of its thread and its location."""
    here = at(m, f, event)
    thread = thread_at(m, f, m[here + THREAD])
    m[here + BEFORE] = m[thread + LAST]
    m[thread + LAST] = event
    place = f + m[AT_LOCATIONS] + m[here + LOCATION]
    m[here + BEFORE_THERE] = m[place]
    m[place] = event
    m[f + STRONGEST] += m[here + ORDER] == SC_ORDER


@compiled
def _mark(m: Array, f: int, event: int) -> None:
    """Note that a lane was issued, whether its write is still missing, and whether it waits for ever."""
    here = at(m, f, event)
    thread, bit = thread_at(m, f, m[here + THREAD]), 1 << m[here + LANE]
    m[thread + ISSUED] |= bit
    if m[here + KIND] == STARVED:
        m[thread + FROZEN] = 1
    elif m[here + WAITS] == -1 and m[here + PARTNER] < 0:
        m[thread + PENDING] |= bit
    elif m[here + KIND] == WRITE and m[here + PARTNER] >= 0:
        m[thread + PENDING] &= ~bit
        m[at(m, f, m[here + PARTNER]) + PARTNER] = event


@compiled
def withdraw(m: Array, f: int) -> None:
    """Take back the event that was added last, a write that has no place yet or a read."""
    event = nth(m, f, m[f + SIZE] - 1)
    here = at(m, f, event)
    thread, bit = thread_at(m, f, m[here + THREAD]), 1 << m[here + LANE]
    m[f + SIZE] -= 1
    drop(m, f + m[AT_USED], event)
    m[f + STRONGEST] -= m[here + ORDER] == SC_ORDER
    m[thread + LAST] = m[here + BEFORE]
    m[f + m[AT_LOCATIONS] + m[here + LOCATION]] = m[here + BEFORE_THERE]
    if m[here + KIND] == WRITE and m[here + PARTNER] >= 0:
        m[thread + PENDING] |= bit
        m[at(m, f, m[here + PARTNER]) + PARTNER] = -1
    else:
        m[thread + ISSUED] &= ~bit
        m[thread + PENDING] &= ~bit


@compiled
def count_arrivals(m: Array, f: int, location: int, thread: int) -> int:
    """How often a thread has arrived at a barrier."""
    total, event = 0, last_there(m, f, location)
    while event >= 0:
        total += m[at(m, f, event) + KIND] == ARRIVED and m[at(m, f, event) + THREAD] == thread
        event = m[at(m, f, event) + BEFORE_THERE]
    return total


@compiled
def everyone_arrived(t: Tables, m: Array, f: int, thread: int, operation: int) -> bool:
    """Whether all participants have arrived as often as a thread that wants to depart."""
    location, arrived = t.operations[OP_LOCATION, operation], 0
    phase = count_arrivals(m, f, location, thread) - 1
    event = last_there(m, f, location)
    while event >= 0:
        arrived += m[at(m, f, event) + KIND] == ARRIVED and m[at(m, f, event) + VALUE] == phase
        event = m[at(m, f, event) + BEFORE_THERE]
    return arrived >= t.operations[OP_VALUE, operation]


@compiled
def revisit(t: Tables, m: Array, f: int, read: int, position: int, write: int, lapse: bool) -> bool:
    """Have an earlier read, or a wait that is never to end, see a write that was just added.

    What was added after the read goes, except what the write needs; its place
    in coherence order is one among the writes that stay.  False if coherence
    would have a circle.
    """
    kept = scratch_at(m, 0)
    for word in range(m[WORDS]):
        m[kept + word] = m[set_at(m, f, write, PREFIX) + word]
    put(m, kept, write)
    for index in range(m[f + SIZE]):
        event = nth(m, f, index)
        put(m, kept, event)
        if event == read:
            break
    if lapse:
        m[at(m, f, read) + KIND] = STARVED
        m[at(m, f, read) + SOURCE] = INITIAL
    _keep(t, m, f, kept)
    if m[at(m, f, write) + PARTNER] >= 0 and m[MODEL] != PTX:
        position = place_after_source(m, f, write)
    if not place_write(m, f, write, position):
        return False
    if not lapse:
        m[at(m, f, read) + SOURCE] = write
        m[at(m, f, read) + VALUE] = m[at(m, f, write) + VALUE]
        relate(m, f, read)
    return True


@compiled
def _keep(t: Tables, m: Array, f: int, kept: int) -> None:
    """Remove all events but those of a set, and put the threads where their last events are."""
    size = m[f + SIZE]
    for index in range(size):
        event = nth(m, f, index)
        here = at(m, f, event)
        if not holds(m, kept, event) and m[here + KIND] == WRITE and m[here + PARTNER] >= 0:
            m[at(m, f, m[here + PARTNER]) + PARTNER] = -1
    for thread in range(m[THREADS]):
        there = thread_at(m, f, thread)
        m[there + BLOCK_NOW], m[there + STATE_NOW] = 0, t.places[ROOT, thread]
        m[there + ISSUED], m[there + PENDING], m[there + FROZEN], m[there + LAST] = 0, 0, 0, -1
    for location in range(m[LOCATIONS]):
        m[f + m[AT_LOCATIONS] + location] = -1
    for word in range(m[WORDS]):
        m[f + m[AT_USED] + word] = m[kept + word]
    m[f + SIZE], m[f + STRONGEST] = 0, 0
    for index in range(size):
        event = nth(m, f, index)
        if holds(m, kept, event):
            for word in range(m[WORDS]):
                m[set_at(m, f, event, EARLIER) + word] &= m[kept + word]
            m[f + m[AT_SEQUENCE] + m[f + SIZE]] = event
            m[f + SIZE] += 1
            _resume(m, f, event)


@compiled
def _resume(m: Array, f: int, event: int) -> None:
    """Put a thread where an event of it is."""
    here = at(m, f, event)
    thread = thread_at(m, f, m[here + THREAD])
    if m[here + BLOCK] > m[thread + BLOCK_NOW]:
        m[thread + ISSUED], m[thread + PENDING], m[thread + FROZEN] = 0, 0, 0
    m[thread + BLOCK_NOW], m[thread + STATE_NOW] = m[here + BLOCK], m[here + STATE]
    _enlist(m, f, event)
    _mark(m, f, event)


@compiled
def _would_read(t: Tables, m: Array, here: int, there: int) -> bool:
    """Whether what is at one address would read the write at another, unless it is an await that this does not end."""
    if m[here + WAITS] < 1:
        return True
    return look_up(t.keys, t.results, TEST, m[here + OPERATION], m[there + VALUE]) != 0


@compiled
def _is_preferred(m: Array, f: int, kind: int, other: int, write: int) -> bool:
    """Whether a write is after another one, or, for a read, unordered with it and of a later thread, block or lane."""
    if is_before(m, f, write, other):
        return True
    if m[MODEL] != PTX or kind == WRITE or other == write or is_before(m, f, other, write):
        return False
    a, b = at(m, f, other), at(m, f, write)
    if m[a + THREAD] != m[b + THREAD]:
        return m[a + THREAD] > m[b + THREAD]
    return m[a + BLOCK] > m[b + BLOCK] or (m[a + BLOCK] == m[b + BLOCK] and m[a + LANE] > m[b + LANE])


@compiled
def is_maximal(t: Tables, m: Array, f: int, event: int, known: int) -> bool:
    """Whether an event is as the explorer would add it by default to the events of a set.

    A write must be the last of its location and unread, a read read the last
    write (an await: the last that ends it).
    """
    here = at(m, f, event)
    kind = m[here + KIND]
    if kind > WRITE:
        return kind != STARVED
    write = event if kind == WRITE else m[here + SOURCE]
    if write >= 0 and not holds(m, known, write):
        return False
    if m[here + WAITS] == 2:
        return True
    other = last_there(m, f, m[here + LOCATION])
    while other >= 0:
        there = at(m, f, other)
        if not holds(m, known, other):
            pass
        elif m[there + KIND] == READ:
            if kind == WRITE and m[there + SOURCE] == event:
                return False
        elif m[there + KIND] == WRITE and _is_preferred(m, f, kind, other, write) and _would_read(t, m, here, there):
            return False
        other = m[there + BEFORE_THERE]
    return True
