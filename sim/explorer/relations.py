"""What precedes an event: by program order and reads-from, and by happens-before; compiled.

Events are added with nothing after them, so these sets are complete when an
event is added.  Happens-before is that of RC11 (Lahav et al., PLDI 2017), with
release sequences and fences, or the base causality of PTX; CTA barriers
synchronise all who took part.
"""

from __future__ import annotations

from .causality import observe
from .compiled import compiled
from .events import at, last_there, put, same_thread, set_at, thread_at, unite
from .layout import (
    ANCHOR,
    ARRIVED,
    BEFORE,
    BEFORE_THERE,
    BLOCK,
    DEPARTED,
    FENCED,
    HAPPENS,
    KIND,
    LAST,
    LOCATION,
    MODEL,
    ORDER,
    PARTNER,
    PREFIX,
    PTX,
    READ,
    RELEASED,
    SOURCE,
    STRANDS,
    THREAD,
    VALUE,
    WORDS,
    WRITE,
    Array,
)
from .twins import follow_twins

ALL_STRANDS = -1
"""See ``operations.ALL_STRANDS``."""


@compiled
def acquires(order: int) -> bool:
    """Whether an order is acquire or stronger."""
    return order == 2 or order >= 4


@compiled
def releases(order: int) -> bool:
    """Whether an order is release or stronger."""
    return order >= 3


@compiled
def relate(m: Array, f: int, event: int) -> None:
    """Compute ``PREFIX``, ``HAPPENS`` and ``RELEASED`` of an event anew."""
    here = at(m, f, event)
    start = set_at(m, f, event, PREFIX)
    for word in range(3 * m[WORDS]):
        m[start + word] = 0
    _follow_thread(m, f, event)
    if m[here + BLOCK] == m[ANCHOR]:
        follow_twins(m, f, event, m[here + THREAD])
    kind = m[here + KIND]
    if kind == READ and m[here + SOURCE] >= 0:
        unite(m, start, set_at(m, f, m[here + SOURCE], PREFIX))
        put(m, start, m[here + SOURCE])
    elif kind == WRITE and m[here + PARTNER] >= 0:
        _follow(m, f, event, m[here + PARTNER])
    elif kind == DEPARTED:
        _join(m, f, event)
    if m[MODEL] == PTX:
        observe(m, f, event)
    else:
        _synchronise(m, f, event)


@compiled
def _synchronise(m: Array, f: int, event: int) -> None:
    """Release and acquire, as RC11 has them."""
    here = at(m, f, event)
    kind = m[here + KIND]
    if kind == READ and m[here + SOURCE] >= 0 and acquires(m[here + ORDER]):
        unite(m, set_at(m, f, event, HAPPENS), set_at(m, f, m[here + SOURCE], RELEASED))
    elif kind == WRITE and m[here + ORDER] > 0:
        _release(m, f, event)
    elif kind == FENCED and acquires(m[here + ORDER]):
        _acquire_by_fence(m, f, event)


@compiled
def _follow(m: Array, f: int, event: int, other: int) -> None:
    """Put an event after another one and all before it, in both orders."""
    for which in range(PREFIX, HAPPENS + 1):
        unite(m, set_at(m, f, event, which), set_at(m, f, other, which))
        put(m, set_at(m, f, event, which), other)


@compiled
def _follow_thread(m: Array, f: int, event: int) -> None:
    """Put an event after those of the block before it; it happens after those in common strands only.

    Events before one in which all strands take part need not be looked at.
    """
    here = at(m, f, event)
    block, joined = m[here + BLOCK], -1
    other = m[thread_at(m, f, m[here + THREAD]) + LAST]
    while other >= 0:
        there = at(m, f, other)
        if m[there + BLOCK] < joined:
            break
        if m[there + BLOCK] == block - 1:
            unite(m, set_at(m, f, event, PREFIX), set_at(m, f, other, PREFIX))
            put(m, set_at(m, f, event, PREFIX), other)
        if m[there + BLOCK] < block and m[there + STRANDS] & m[here + STRANDS] != 0:
            unite(m, set_at(m, f, event, HAPPENS), set_at(m, f, other, HAPPENS))
            put(m, set_at(m, f, event, HAPPENS), other)
        if m[there + BLOCK] < block and m[there + STRANDS] == ALL_STRANDS:
            joined = m[there + BLOCK]
        other = m[there + BEFORE]


@compiled
def _join(m: Array, f: int, event: int) -> None:
    """Put a departure after the arrivals of its phase."""
    here = at(m, f, event)
    other = last_there(m, f, m[here + LOCATION])
    while other >= 0:
        there = at(m, f, other)
        if m[there + KIND] == ARRIVED and m[there + VALUE] == m[here + VALUE]:
            _follow(m, f, event, other)
        other = m[there + BEFORE_THERE]


@compiled
def _acquire_by_fence(m: Array, f: int, event: int) -> None:
    """Put a fence after what the reads before it would have acquired."""
    here = at(m, f, event)
    other = m[thread_at(m, f, m[here + THREAD]) + LAST]
    while other >= 0:
        there = at(m, f, other)
        earlier = m[there + KIND] == READ and m[there + BLOCK] < m[here + BLOCK] and same_thread(m, here, there)
        if earlier and m[there + SOURCE] >= 0 and m[there + ORDER] > 0:
            unite(m, set_at(m, f, event, HAPPENS), set_at(m, f, m[there + SOURCE], RELEASED))
        other = m[there + BEFORE]


@compiled
def _release(m: Array, f: int, event: int) -> None:
    """What an acquire that reads a write happens after."""
    here, released = at(m, f, event), set_at(m, f, event, RELEASED)
    if releases(m[here + ORDER]):
        unite(m, released, set_at(m, f, event, HAPPENS))
        put(m, released, event)
    partner = m[here + PARTNER]
    if partner >= 0 and m[at(m, f, partner) + SOURCE] >= 0:
        unite(m, released, set_at(m, f, m[at(m, f, partner) + SOURCE], RELEASED))
    other = last_there(m, f, m[here + LOCATION])
    while other >= 0:
        there = at(m, f, other)
        earlier = same_thread(m, here, there) and m[there + BLOCK] < m[here + BLOCK]
        if earlier and m[there + KIND] == WRITE and releases(m[there + ORDER]):
            unite(m, released, set_at(m, f, other, HAPPENS))
            put(m, released, other)
        other = m[there + BEFORE_THERE]
    other = m[thread_at(m, f, m[here + THREAD]) + LAST]
    while other >= 0:
        there = at(m, f, other)
        earlier = same_thread(m, here, there) and m[there + BLOCK] < m[here + BLOCK]
        if earlier and m[there + KIND] == FENCED and releases(m[there + ORDER]):
            unite(m, released, set_at(m, f, other, HAPPENS))
            put(m, released, other)
        other = m[there + BEFORE]
