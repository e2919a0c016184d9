"""Where a new write can stand in coherence order; compiled.

Under ``sc`` and ``rc11`` the writes of a location are in one line, and a place
is the number of writes before it.  Under ``ptx`` a write is put before or
after each write that it is morally strong with, and a place is a word with a
bit for each that comes before, in the order in which ``BEFORE_THERE`` lists
them; what is in causality order comes before in any case.
"""

from __future__ import annotations

from .causality import collect_causes, morally_strong
from .compiled import compiled
from .events import at, holds, is_before, last_there, put, rank, rank_within, scratch_at, set_at, unite
from .layout import (
    BEFORE_THERE,
    EARLIER,
    HAPPENS,
    KIND,
    LOCATION,
    MODEL,
    PARTNER,
    PREFIX,
    PTX,
    SEQUENTIAL,
    SOURCE,
    WORDS,
    WRITE,
    Array,
)

MANY = 16
"""Morally strong writes of which every order is tried, where they are not in one line."""


@compiled
def least_place(m: Array, f: int, write: int, kept: int) -> int:
    """Writes of a set that come before a write in any case, where writes are in one line."""
    least = 0
    before = set_at(m, f, write, PREFIX if m[MODEL] == SEQUENTIAL else HAPPENS)
    other = last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        there = at(m, f, other)
        if m[there + KIND] <= WRITE and holds(m, before, other):
            least = max(least, rank_within(m, f, other if m[there + KIND] == WRITE else m[there + SOURCE], kept))
        other = m[there + BEFORE_THERE]
    return least


@compiled
def _is_rival(m: Array, f: int, write: int, other: int, kept: int) -> bool:
    """Whether another write must be ordered with a write."""
    if other == write or m[at(m, f, other) + KIND] != WRITE or not holds(m, kept, other):
        return False
    return morally_strong(m, f, write, other)


@compiled
def count_rivals(m: Array, f: int, write: int, kept: int) -> int:
    """Writes of a set that must be ordered with a write."""
    total, other = 0, last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        total += _is_rival(m, f, write, other, kept)
        other = m[at(m, f, other) + BEFORE_THERE]
    return total


@compiled
def forced_places(m: Array, f: int, write: int, kept: int) -> int:
    """Bits of the rivals that cause a write."""
    causes, bits, number = scratch_at(m, 3), 0, 0
    collect_causes(m, f, write, set_at(m, f, write, HAPPENS), causes)
    other = last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        if _is_rival(m, f, write, other, kept):
            if holds(m, causes, other):
                bits |= 1 << number
            number += 1
        other = m[at(m, f, other) + BEFORE_THERE]
    return bits


@compiled
def is_closed(m: Array, f: int, write: int, kept: int, bits: int) -> bool:
    """Whether no rival that comes after a write is before one that comes before it."""
    number, other = 0, last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        if _is_rival(m, f, write, other, kept):
            if (bits >> number) & 1 and not _has_all_before(m, f, write, kept, bits, other):
                return False
            number += 1
        other = m[at(m, f, other) + BEFORE_THERE]
    return True


@compiled
def _has_all_before(m: Array, f: int, write: int, kept: int, bits: int, chosen: int) -> bool:
    """Whether all rivals before a chosen one are chosen too."""
    number, other = 0, last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        if _is_rival(m, f, write, other, kept):
            if (bits >> number) & 1 == 0 and is_before(m, f, other, chosen):
                return False
            number += 1
        other = m[at(m, f, other) + BEFORE_THERE]
    return True


@compiled
def place_write(m: Array, f: int, write: int, place: int) -> bool:
    """Put a write into coherence order; False if that would close a circle."""
    if m[MODEL] == PTX:
        return _place_among(m, f, write, place)
    own, location = set_at(m, f, write, EARLIER), m[at(m, f, write) + LOCATION]
    event = last_there(m, f, location)
    while event >= 0:
        if event != write and m[at(m, f, event) + KIND] == WRITE and rank(m, f, event) <= place:
            put(m, own, event)
        event = m[at(m, f, event) + BEFORE_THERE]
    event = last_there(m, f, location)
    while event >= 0:
        if event != write and m[at(m, f, event) + KIND] == WRITE and not holds(m, own, event):
            put(m, set_at(m, f, event, EARLIER), write)
        event = m[at(m, f, event) + BEFORE_THERE]
    return True


@compiled
def place_after_source(m: Array, f: int, write: int) -> int:
    """The place of an update's write, right after what it reads, where writes are in one line."""
    return rank(m, f, m[at(m, f, m[at(m, f, write) + PARTNER]) + SOURCE])


@compiled
def _place_among(m: Array, f: int, write: int, bits: int) -> bool:
    """Put a write before and after its rivals, and keep the order transitive."""
    own, causes, everything = set_at(m, f, write, EARLIER), scratch_at(m, 3), scratch_at(m, 2)
    for word in range(m[WORDS]):
        m[everything + word] = -1
    collect_causes(m, f, write, set_at(m, f, write, HAPPENS), causes)
    number, other = 0, last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        rival = _is_rival(m, f, write, other, everything)
        if holds(m, causes, other) or (rival and (bits >> number) & 1):
            put(m, own, other)
            unite(m, own, set_at(m, f, other, EARLIER))
        number += rival
        other = m[at(m, f, other) + BEFORE_THERE]
    number, other = 0, last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        if _is_rival(m, f, write, other, everything):
            if (bits >> number) & 1 == 0 and not _put_after(m, f, write, other):
                return False
            number += 1
        other = m[at(m, f, other) + BEFORE_THERE]
    return True


@compiled
def _put_after(m: Array, f: int, write: int, rival: int) -> bool:
    """Put a rival, and all writes after it, after a write; False if one of them is before it."""
    own, other = set_at(m, f, write, EARLIER), last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        if m[at(m, f, other) + KIND] == WRITE and (other == rival or is_before(m, f, rival, other)):
            if holds(m, own, other):
                return False
            unite(m, set_at(m, f, other, EARLIER), own)
            put(m, set_at(m, f, other, EARLIER), write)
        other = m[at(m, f, other) + BEFORE_THERE]
    return True


@compiled
def are_in_line(m: Array, f: int, write: int, kept: int) -> bool:
    """Whether the rivals of a write are ordered among one another."""
    rivals, total = count_rivals(m, f, write, kept), 0
    other = last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        if _is_rival(m, f, write, other, kept):
            total += count_before(m, f, write, kept, other)
        other = m[at(m, f, other) + BEFORE_THERE]
    return 2 * total == rivals * (rivals - 1)


@compiled
def count_before(m: Array, f: int, write: int, kept: int, rival: int) -> int:
    """Rivals of a write that are before one of them."""
    total, other = 0, last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        total += _is_rival(m, f, write, other, kept) and is_before(m, f, other, rival)
        other = m[at(m, f, other) + BEFORE_THERE]
    return total


@compiled
def first_places(m: Array, f: int, write: int, kept: int, count: int) -> int:
    """Bits of the first rivals in line."""
    bits, number, other = 0, 0, last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        if _is_rival(m, f, write, other, kept):
            if count_before(m, f, write, kept, other) < count:
                bits |= 1 << number
            number += 1
        other = m[at(m, f, other) + BEFORE_THERE]
    return bits
