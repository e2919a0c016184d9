"""The choices for the next event: which write it reads, where it stands, and who may read it instead; compiled."""

from __future__ import annotations

from .change import add_event, is_maximal, withdraw
from .compiled import compiled
from .consistency import consistent
from .events import (
    at,
    count_writes,
    holds,
    is_before,
    last_there,
    last_write,
    nth,
    put,
    rank_within,
    scratch_at,
    set_at,
)
from .layout import (
    AT_CHOICES,
    AT_USED,
    AWAIT,
    BEFORE_THERE,
    CHOICES,
    FAIR,
    FORWARD,
    FULL,
    INITIAL,
    KIND,
    LAPSE,
    LOCATION,
    MERGED,
    MISS_ID,
    MISS_KIND,
    MISS_VALUE,
    MISSING,
    MODEL,
    NEXT_OPERATION,
    NEXT_PARTNER,
    NONE,
    OFFERED,
    OP_KIND,
    OP_LOCATION,
    OPERATION,
    PARTNER,
    PREFIX,
    PTX,
    READ,
    REJECTED,
    REVISIT,
    SIZE,
    SOURCE,
    START,
    TEST,
    TOO_MANY,
    UNREADY,
    VALUE,
    WAITS,
    WORDS,
    WRITE,
    Array,
    Tables,
)
from .lookup import ABSENT, look_up
from .places import MANY, are_in_line, count_rivals, first_places, forced_places, is_closed, least_place

LARGE = 128
"""Events of a graph from which copying it costs more than trying an event."""


@compiled
def ask(t: Tables, m: Array, kind: int, index: int, value: int) -> int:
    """Look something up, and leave the question behind if nobody knows."""
    result = look_up(t.keys, t.results, kind, index, value)
    if result == ABSENT:
        m[MISS_KIND], m[MISS_ID], m[MISS_VALUE] = kind, index, value
    return result


@compiled
def offer(m: Array, f: int, kind: int, event: int, position: int) -> None:
    """Add a choice; those beyond the room are counted only."""
    count = m[f + OFFERED]
    if count < m[CHOICES]:
        place = f + m[AT_CHOICES] + 3 * count
        m[place], m[place + 1], m[place + 2] = kind, event, position
    m[f + OFFERED] = count + 1


@compiled
def finish(m: Array, f: int) -> int:
    """Status once the choices are listed."""
    return FULL if m[f + OFFERED] > m[CHOICES] else NONE


@compiled
def list_reads(t: Tables, m: Array, f: int, location: int) -> int:
    """Writes of a location that may be read.

    Where graphs are large, those that the model forbids are left out at once: each choice has a graph of its own.
    """
    list_sources(m, f, location)
    if m[f + OFFERED] == 1 or m[f + OFFERED] > m[CHOICES] or m[f + SIZE] < LARGE:
        return finish(m, f)
    kept = 0
    for index in range(m[f + OFFERED]):
        write = m[f + m[AT_CHOICES] + 3 * index + 1]
        if _can_read(t, m, f, location, write):
            m[f + m[AT_CHOICES] + 3 * kept + 1] = write
            kept += 1
    m[REJECTED] += m[f + OFFERED] - kept
    m[f + OFFERED] = kept
    return NONE


@compiled
def list_sources(m: Array, f: int, location: int) -> None:
    """Every write of a location may be read."""
    event = last_there(m, f, location)
    while event >= 0:
        if m[at(m, f, event) + KIND] == WRITE:
            offer(m, f, FORWARD, event, 0)
        event = m[at(m, f, event) + BEFORE_THERE]
    offer(m, f, FORWARD, INITIAL, 0)


@compiled
def written(t: Tables, m: Array, f: int, location: int, write: int) -> int:
    """Value of a write, the initial one included."""
    return t.locations[START, location] if write == INITIAL else m[at(m, f, write) + VALUE]


@compiled
def list_ends(t: Tables, m: Array, f: int, operation: int) -> int:
    """Writes that end a wait and can be read; without any, the wait is not issued."""
    location = t.operations[OP_LOCATION, operation]
    list_sources(m, f, location)
    if m[f + OFFERED] > m[CHOICES]:
        return FULL
    kept, last, stays = 0, last_write(m, f, location), True
    for index in range(m[f + OFFERED]):
        write = m[f + m[AT_CHOICES] + 3 * index + 1]
        ends = ask(t, m, TEST, operation, written(t, m, f, location, write))
        if ends == ABSENT:
            return MISSING
        if write == last and not ends:
            stays = False
        if ends and (write == last or _can_read(t, m, f, location, write)):
            m[f + m[AT_CHOICES] + 3 * kept + 1] = write
            kept += 1
    m[f + OFFERED] = kept
    if kept == 0:
        return UNREADY
    if t.locations[MERGED, location] and t.operations[OP_KIND, operation] == AWAIT:
        _keep_first(m, f)
    elif m[FAIR] and not stays:
        offer(m, f, LAPSE, INITIAL, 0)
    return finish(m, f)


@compiled
def _keep_first(m: Array, f: int) -> None:
    """Of the writes that end a wait leave the first in coherence order, which gives the least order."""
    choices = f + m[AT_CHOICES]
    first = m[choices + 1]
    for index in range(1, m[f + OFFERED]):
        if is_before(m, f, m[choices + 3 * index + 1], first):
            first = m[choices + 3 * index + 1]
    m[choices + 1] = first
    m[f + OFFERED] = 1


@compiled
def _can_read(t: Tables, m: Array, f: int, location: int, write: int) -> bool:
    """Whether the model lets the chosen read read a write."""
    event = add_event(t, m, f, write, written(t, m, f, location, write))
    allowed = consistent(m, f, m[MODEL], event, -1)
    withdraw(m, f)
    return allowed


@compiled
def list_places(t: Tables, m: Array, f: int, value: int) -> int:
    """Places of the chosen write in coherence order, and the reads that it may be read by."""
    location, partner = t.operations[OP_LOCATION, m[f + NEXT_OPERATION]], m[f + NEXT_PARTNER]
    write = add_event(t, m, f, INITIAL, value)
    status = _list_readers(t, m, f, location, partner, write)
    withdraw(m, f)
    return status


@compiled
def _list_readers(t: Tables, m: Array, f: int, location: int, partner: int, write: int) -> int:
    """List the choices for a write that was added for a moment."""
    _offer_places(m, f, FORWARD, INITIAL, write, f + m[AT_USED], count_writes(m, f, location) - 1)
    read, prefix = last_there(m, f, location), set_at(m, f, write, PREFIX)
    while read >= 0:
        here = at(m, f, read)
        kind = REVISIT
        if m[here + WAITS] > 0 and m[here + KIND] == READ:
            ends = ask(t, m, TEST, m[here + OPERATION], m[at(m, f, write) + VALUE])
            if ends == ABSENT:
                return MISSING
            kind = REVISIT if ends else LAPSE
        possible = m[here + KIND] == READ and m[here + WAITS] < 2 and read != partner
        if possible and (kind == REVISIT or m[FAIR] == 1) and not holds(m, prefix, read):
            _offer_revisit(t, m, f, kind, read, write)
        read = m[here + BEFORE_THERE]
    return finish(m, f)


@compiled
def _offer_places(m: Array, f: int, kind: int, read: int, write: int, kept: int, count: int) -> None:
    """Offer each place of a write among the writes of a set, of which there are so many at its location."""
    if m[MODEL] == PTX:
        _offer_orders(m, f, kind, read, write, kept)
    elif m[at(m, f, write) + PARTNER] >= 0:
        source = m[at(m, f, m[at(m, f, write) + PARTNER]) + SOURCE]
        offer(m, f, kind, read, rank_within(m, f, source, kept))
    else:
        least = count if kind == LAPSE else least_place(m, f, write, kept)
        for position in range(least, count + 1):
            offer(m, f, kind, read, position)


@compiled
def _offer_orders(m: Array, f: int, kind: int, read: int, write: int, kept: int) -> None:
    """Offer each way to put a write before and after the writes that it must be ordered with."""
    rivals = count_rivals(m, f, write, kept)
    forced = forced_places(m, f, write, kept)
    if kind == LAPSE:
        offer(m, f, kind, read, (1 << rivals) - 1)
    elif are_in_line(m, f, write, kept):
        for count in range(rivals + 1):
            bits = first_places(m, f, write, kept, count)
            if forced & ~bits == 0:
                offer(m, f, kind, read, bits)
    else:
        m[TOO_MANY] = max(m[TOO_MANY], rivals > MANY)
        for bits in range(1 << min(rivals, MANY)):
            if forced & ~bits == 0 and is_closed(m, f, write, kept, bits):
                offer(m, f, kind, read, bits)


@compiled
def _offer_revisit(t: Tables, m: Array, f: int, kind: int, read: int, write: int) -> None:
    """Offer that a read reads the chosen write, unless something that would go was not added by default."""
    known, prefix, kept = scratch_at(m, 0), set_at(m, f, write, PREFIX), scratch_at(m, 1)
    for word in range(m[WORDS]):
        m[known + word] = m[prefix + word]
        m[kept + word] = m[prefix + word]
    reached, location, count = False, m[at(m, f, read) + LOCATION], 0
    for index in range(m[f + SIZE] - 1):
        event = nth(m, f, index)
        put(m, known, event)
        if event == read:
            reached = True
        if not reached or event == read:
            put(m, kept, event)
        if reached and not holds(m, prefix, event) and not is_maximal(t, m, f, event, known):
            return
        there = at(m, f, event)
        count += m[there + KIND] == WRITE and m[there + LOCATION] == location and holds(m, kept, event)
    _offer_places(m, f, kind, read, write, kept, count)
