"""Which events PTX puts before which: moral strength, observation, synchronisation, causality; compiled.

Definitions of the PTX ISA, chapter "Memory Consistency Model", sections "Morally strong operations", "Release and
acquire patterns", "Observation order" and "Causality order".
"""

from __future__ import annotations

from .compiled import compiled
from .events import at, holds, last_there, nth, put, same_thread, set_at, thread_at, unite
from .layout import (
    BEFORE,
    BEFORE_THERE,
    BLOCK,
    CTA_OF,
    FENCED,
    GPU_OF,
    HAPPENS,
    KIND,
    LAST,
    LOCATION,
    ORDER,
    PARTNER,
    READ,
    RELEASED,
    SCOPE,
    SIZE,
    SOURCE,
    THREAD,
    WORDS,
    WRITE,
    Array,
)


@compiled
def _reaches(m: Array, a: int, b: int) -> bool:
    """Whether the scope of the event at an address includes the thread of another."""
    if m[a + SCOPE] == 2:
        return True
    return m[a + GPU_OF] == m[b + GPU_OF] and (m[a + SCOPE] == 1 or m[a + CTA_OF] == m[b + CTA_OF])


@compiled
def morally_strong(m: Array, f: int, first: int, second: int) -> bool:
    """Whether two events (of one location, or fences) are morally strong."""
    a, b = at(m, f, first), at(m, f, second)
    if same_thread(m, a, b) and (m[a + BLOCK] != m[b + BLOCK] or m[a + PARTNER] == second):
        return True
    return m[a + ORDER] > 0 and m[b + ORDER] > 0 and _reaches(m, a, b) and _reaches(m, b, a)


@compiled
def observe(m: Array, f: int, event: int) -> None:
    """Compute which release patterns an event belongs to or observes, and what that puts before it."""
    here, kind = at(m, f, event), m[at(m, f, event) + KIND]
    if kind == WRITE and m[here + ORDER] > 0:
        _begin_patterns(m, f, event)
    if kind == READ:
        source = m[here + SOURCE]
        if source >= 0 and morally_strong(m, f, source, event):
            unite(m, set_at(m, f, event, RELEASED), set_at(m, f, source, RELEASED))
    acquires = m[here + ORDER] == 2 or m[here + ORDER] >= 4
    if not acquires or kind == WRITE:
        return
    if kind == READ:
        _synchronise(m, f, event, event)
    other = m[thread_at(m, f, m[here + THREAD]) + LAST]
    while other >= 0:
        there = at(m, f, other)
        strong = m[there + KIND] == READ and m[there + ORDER] > 0 and m[there + BLOCK] < m[here + BLOCK]
        if strong and same_thread(m, here, there) and (kind == FENCED or m[there + LOCATION] == m[here + LOCATION]):
            _synchronise(m, f, other, event)
        other = m[there + BEFORE]


@compiled
def _begin_patterns(m: Array, f: int, event: int) -> None:
    """First events of the release patterns that end with a strong write, or that its update observes."""
    here, released = at(m, f, event), set_at(m, f, event, RELEASED)
    if m[here + ORDER] >= 3:
        put(m, released, event)
    if m[here + PARTNER] >= 0:
        unite(m, released, set_at(m, f, m[here + PARTNER], RELEASED))
    other = m[thread_at(m, f, m[here + THREAD]) + LAST]
    while other >= 0:
        there = at(m, f, other)
        releases = m[there + ORDER] >= 3 and m[there + BLOCK] < m[here + BLOCK] and same_thread(m, here, there)
        same = m[there + KIND] == WRITE and m[there + LOCATION] == m[here + LOCATION]
        if releases and (same or m[there + KIND] == FENCED):
            put(m, released, other)
        other = m[there + BEFORE]


@compiled
def _synchronise(m: Array, f: int, read: int, event: int) -> None:
    """Put the release patterns that a read observes before an acquire, where they are morally strong."""
    released, happens = set_at(m, f, read, RELEASED), set_at(m, f, event, HAPPENS)
    for index in range(m[f + SIZE]):
        start = nth(m, f, index)
        if holds(m, released, start) and morally_strong(m, f, start, event):
            unite(m, happens, set_at(m, f, start, HAPPENS))
            put(m, happens, start)


@compiled
def collect_causes(m: Array, f: int, event: int, happens: int, causes: int) -> None:
    """Writes of an event's location that come before it in causality order, as a set at an address."""
    for word in range(m[WORDS]):
        m[causes + word] = 0
    other = last_there(m, f, m[at(m, f, event) + LOCATION])
    while other >= 0:
        there = at(m, f, other)
        if holds(m, happens, other):
            if m[there + KIND] == WRITE:
                put(m, causes, other)
            elif m[there + KIND] == READ:
                _collect_observed(m, f, other, causes)
        other = m[there + BEFORE_THERE]


@compiled
def _collect_observed(m: Array, f: int, read: int, causes: int) -> None:
    """Writes that a read observes, through any chain of updates."""
    while read >= 0:
        source = m[at(m, f, read) + SOURCE]
        if source < 0 or not morally_strong(m, f, source, read):
            return
        put(m, causes, source)
        read = m[at(m, f, source) + PARTNER]
