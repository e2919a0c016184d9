"""The PTX memory consistency model; compiled.

Axioms of Lustig, Sahasrabuddhe, Giroux, "A Formal Analysis of the NVIDIA PTX
Memory Consistency Model", ASPLOS 2019, https://doi.org/10.1145/3297858.3304043,
and of the PTX ISA, chapter "Memory Consistency Model".  Coherence is a partial
order and only as large as it must be: it relates writes that are morally
strong or in causality order, and what follows.  The order of fence.sc
operations is not part of an execution; some order must satisfy the axioms.
"""

from __future__ import annotations

from .causality import collect_causes, morally_strong
from .compiled import compiled, entry
from .events import at, drop, holds, last_there, nth, put, same_thread, scratch_at, set_at, unite
from .layout import (
    AT_CAUSES,
    AT_ORDERS,
    BEFORE_THERE,
    BLOCK,
    EARLIER,
    FENCED,
    HAPPENS,
    KIND,
    LOCATION,
    ORDER,
    PARTNER,
    READ,
    SC_ORDER,
    SIZE,
    SOURCE,
    STRONGEST,
    TOO_MANY,
    WORDS,
    WRITE,
    Array,
)

FENCES = 20
"""fence.sc operations of one execution: their permutations are numbered."""
ORDERS = 5_040
"""Orders of them that are tried one after the other, those apart that base causality rules out."""


@compiled
def allows(m: Array, f: int, event: int) -> bool:
    """Whether some order of the fences makes the graph of a frame an execution.

    ``event`` was added; with at most one fence.sc only its location can have
    become inconsistent.
    """
    if m[f + STRONGEST] < 2:
        _copy_orders_there(m, f, m[at(m, f, event) + LOCATION])
        return _allows_location(m, f, m[at(m, f, event) + LOCATION], event)
    return find_order(m, f, 0) >= 0


@compiled
def _count_permutations(items: int) -> int:
    """Orders of so many items."""
    permutations = 1
    for number in range(2, items + 1):
        permutations *= number
    return permutations


@compiled
def _count_fences(m: Array, f: int) -> int:
    """fence.sc operations of a graph."""
    fences = 0
    for index in range(m[f + SIZE]):
        here = at(m, f, nth(m, f, index))
        fences += m[here + KIND] == FENCED and m[here + ORDER] == 5
    return fences


@entry
def find_order(m: Array, f: int, permutation: int) -> int:
    """The first order of the fences, from a number on, that allows a graph; -1 if there is no further one.

    It leaves behind, at ``AT_ORDERS``, the writes before each in coherence order.
    """
    fences, tried = _count_fences(m, f), 0
    if fences > FENCES:
        m[TOO_MANY] = 1
        return -1
    permutation = _skip_contradictions(m, f, fences, permutation)
    while permutation >= 0:
        if tried == ORDERS:
            m[TOO_MANY] = 1
            return -1
        tried += 1
        copy_orders(m, f)
        # What happens before an event is closed as it is; only orders between fences add to it.
        if (fences < 2 or _order_fences(m, f, fences, permutation)) and _allows_all(m, f):
            return permutation
        permutation = _skip_contradictions(m, f, fences, permutation + 1)
    return -1


@compiled
def _skip_contradictions(m: Array, f: int, fences: int, permutation: int) -> int:
    """The first permutation, from a number on, in which every fence comes after those before it in base causality.

    -1 if there is none.  Others need not be tried: if they allow a graph, so
    does one that has the same order wherever it matters.
    """
    while permutation < _count_permutations(fences):
        block = _find_contradiction(m, f, fences, permutation)
        if block == 0:
            return permutation
        permutation = (permutation // block + 1) * block
    return -1


@compiled
def _find_contradiction(m: Array, f: int, fences: int, permutation: int) -> int:
    """How many permutations begin like one up to a fence that comes too early; 0 if none does."""
    taken = scratch_at(m, 2)
    for word in range(m[WORDS]):
        m[taken + word] = 0
    for left in range(fences, 0, -1):
        block = _count_permutations(left - 1)
        fence = _nth_fence(m, f, taken, permutation // block)
        permutation %= block
        happens = set_at(m, f, fence, HAPPENS)
        for index in range(m[f + SIZE]):
            other = nth(m, f, index)
            there = at(m, f, other)
            late = m[there + KIND] == FENCED and m[there + ORDER] == SC_ORDER and not holds(m, taken, other)
            if late and holds(m, happens, other):
                return block
        put(m, taken, fence)
    return 0


@compiled
def copy_orders(m: Array, f: int) -> None:
    """Begin with base causality without an order of fences, and with coherence as chosen."""
    for index in range(m[f + SIZE]):
        event = nth(m, f, index)
        for word in range(m[WORDS]):
            m[m[AT_CAUSES] + event * m[WORDS] + word] = m[set_at(m, f, event, HAPPENS) + word]
            m[m[AT_ORDERS] + event * m[WORDS] + word] = m[set_at(m, f, event, EARLIER) + word]


@compiled
def _copy_orders_there(m: Array, f: int, location: int) -> None:
    """Likewise, for the events of one location."""
    event = last_there(m, f, location)
    while event >= 0:
        for word in range(m[WORDS]):
            m[m[AT_CAUSES] + event * m[WORDS] + word] = m[set_at(m, f, event, HAPPENS) + word]
            m[m[AT_ORDERS] + event * m[WORDS] + word] = m[set_at(m, f, event, EARLIER) + word]
        event = m[at(m, f, event) + BEFORE_THERE]


@compiled
def _nth_fence(m: Array, f: int, taken: int, number: int) -> int:
    """A fence.sc, counted among those not in a set."""
    for index in range(m[f + SIZE]):
        event = nth(m, f, index)
        here = at(m, f, event)
        if m[here + KIND] == FENCED and m[here + ORDER] == 5 and not holds(m, taken, event):
            if number == 0:
                return event
            number -= 1
    return -1


@compiled
def _order_fences(m: Array, f: int, fences: int, permutation: int) -> bool:
    """Add a numbered order of the fences to base causality; False if they contradict each other."""
    taken, words = scratch_at(m, 2), m[WORDS]
    for word in range(words):
        m[taken + word] = 0
    for left in range(fences, 0, -1):
        block = _count_permutations(left - 1)
        fence = _nth_fence(m, f, taken, permutation // block)
        permutation %= block
        causes = m[AT_CAUSES] + fence * words
        for index in range(m[f + SIZE]):
            other = nth(m, f, index)
            if holds(m, taken, other) and morally_strong(m, f, other, fence):
                put(m, causes, other)
        put(m, taken, fence)
    return _close(m, f)


@compiled
def _close(m: Array, f: int) -> bool:
    """Close base causality transitively; False if it has a cycle."""
    words, changed = m[WORDS], True
    while changed:
        changed = False
        for index in range(m[f + SIZE]):
            causes = m[AT_CAUSES] + nth(m, f, index) * words
            for place in range(m[f + SIZE]):
                other = nth(m, f, place)
                if not holds(m, causes, other):
                    continue
                for word in range(words):
                    more = m[m[AT_CAUSES] + other * words + word] & ~m[causes + word]
                    changed = changed or more != 0
                    m[causes + word] |= more
    for index in range(m[f + SIZE]):
        event = nth(m, f, index)
        if holds(m, m[AT_CAUSES] + event * words, event):
            return False
    return True


@compiled
def _allows_all(m: Array, f: int) -> bool:
    """Whether the axioms hold at every location under the order of fences at hand."""
    for index in range(m[f + SIZE]):
        event = nth(m, f, index)
        here = at(m, f, event)
        if m[here + KIND] > WRITE or last_there(m, f, m[here + LOCATION]) != event:
            continue
        if not _extend_coherence(m, f, m[here + LOCATION]) or not _allows_location(m, f, m[here + LOCATION], -1):
            return False
    return True


@compiled
def _extend_coherence(m: Array, f: int, location: int) -> bool:
    """Add to coherence what causality forces, and close it; False if it has a cycle."""
    causes, words = scratch_at(m, 3), m[WORDS]
    event = last_there(m, f, location)
    while event >= 0:
        if m[at(m, f, event) + KIND] == WRITE:
            collect_causes(m, f, event, m[AT_CAUSES] + event * words, causes)
            unite(m, m[AT_ORDERS] + event * words, causes)
        event = m[at(m, f, event) + BEFORE_THERE]
    changed = True
    while changed:
        changed = False
        event = last_there(m, f, location)
        while event >= 0:
            changed = _absorb(m, f, event) or changed
            event = m[at(m, f, event) + BEFORE_THERE]
    event = last_there(m, f, location)
    while event >= 0:
        if holds(m, m[AT_ORDERS] + event * words, event):
            return False
        event = m[at(m, f, event) + BEFORE_THERE]
    return True


@compiled
def _absorb(m: Array, f: int, event: int) -> bool:
    """Put before a write what is before those before it; whether that was anything new."""
    words, changed = m[WORDS], False
    orders = m[AT_ORDERS] + event * words
    other = last_there(m, f, m[at(m, f, event) + LOCATION])
    while other >= 0:
        if holds(m, orders, other):
            for word in range(words):
                more = m[m[AT_ORDERS] + other * words + word] & ~m[orders + word]
                changed = changed or more != 0
                m[orders + word] |= more
        other = m[at(m, f, other) + BEFORE_THERE]
    return changed


@compiled
def _precedes(m: Array, first: int, second: int) -> bool:
    """Whether coherence, as extended, has one write before another."""
    if second < 0:
        return False
    return first < 0 or holds(m, m[AT_ORDERS] + second * m[WORDS], first)


@compiled
def _allows_location(m: Array, f: int, location: int, added: int) -> bool:
    """Coherence, causality, atomicity, and sequential consistency of one location.

    ``added`` is the one event without which they are known to hold, or -1.
    """
    causes = scratch_at(m, 3)
    event = last_there(m, f, location)
    while event >= 0:
        here = at(m, f, event)
        if m[here + KIND] <= WRITE:
            collect_causes(m, f, event, m[AT_CAUSES] + event * m[WORDS], causes)
            if not _agrees(m, f, event, causes):
                return False
            if m[here + KIND] == WRITE and m[here + PARTNER] >= 0 and not _is_atomic(m, f, event):
                return False
        event = m[here + BEFORE_THERE]
    # A cycle would go through the event that was added.
    return (added >= 0 and not _is_followed(m, f, added)) or _is_sequential(m, f, location)


@compiled
def _is_followed(m: Array, f: int, event: int) -> bool:
    """Whether an event of its location follows an event by program order or morally strong communication."""
    other = last_there(m, f, m[at(m, f, event) + LOCATION])
    while other >= 0:
        if other != event and m[at(m, f, other) + KIND] <= WRITE and _follows(m, f, other, event):
            return True
        other = m[at(m, f, other) + BEFORE_THERE]
    return False


@compiled
def _agrees(m: Array, f: int, event: int, causes: int) -> bool:
    """Whether a write comes after all writes that cause it, and a read reads none before one that causes it."""
    here = at(m, f, event)
    other = last_there(m, f, m[here + LOCATION])
    while other >= 0:
        if m[at(m, f, other) + KIND] == WRITE and holds(m, causes, other):
            if m[here + KIND] == WRITE and not _precedes(m, other, event):
                return False
            if m[here + KIND] == READ and _precedes(m, m[here + SOURCE], other):
                return False
        if m[here + KIND] == WRITE and _reads_early(m, f, other, event):
            return False
        other = m[at(m, f, other) + BEFORE_THERE]
    return True


@compiled
def _reads_early(m: Array, f: int, read: int, write: int) -> bool:
    """Whether a read takes its value from a write that it comes before, by an order of the fences."""
    there = at(m, f, read)
    reads = m[there + KIND] == READ and m[there + SOURCE] == write
    return reads and holds(m, m[AT_CAUSES] + write * m[WORDS], read)


@compiled
def _is_atomic(m: Array, f: int, write: int) -> bool:
    """Whether no morally strong write is between the halves of an update."""
    read = m[at(m, f, write) + PARTNER]
    source = m[at(m, f, read) + SOURCE]
    other = last_there(m, f, m[at(m, f, write) + LOCATION])
    while other >= 0:
        if m[at(m, f, other) + KIND] == WRITE and other != write and _precedes(m, other, write):
            between = other != source and _precedes(m, source, other)
            if between and morally_strong(m, f, read, other) and morally_strong(m, f, other, write):
                return False
        other = m[at(m, f, other) + BEFORE_THERE]
    return True


@compiled
def _is_sequential(m: Array, f: int, location: int) -> bool:
    """Whether morally strong communication at a location and program order have no cycle."""
    left = scratch_at(m, 3)
    for word in range(m[WORDS]):
        m[left + word] = 0
    remaining, event = 0, last_there(m, f, location)
    while event >= 0:
        if m[at(m, f, event) + KIND] <= WRITE:
            put(m, left, event)
            remaining += 1
        event = m[at(m, f, event) + BEFORE_THERE]
    before = -1
    while remaining != before:
        before = remaining
        event = last_there(m, f, location)
        while event >= 0:
            if holds(m, left, event) and not _follows_any(m, f, event, left):
                drop(m, left, event)
                remaining -= 1
            event = m[at(m, f, event) + BEFORE_THERE]
    return remaining == 0


@compiled
def _follows_any(m: Array, f: int, event: int, left: int) -> bool:
    """Whether an event follows one of a set by program order or morally strong communication."""
    other = last_there(m, f, m[at(m, f, event) + LOCATION])
    while other >= 0:
        if other != event and holds(m, left, other) and _follows(m, f, event, other):
            return True
        other = m[at(m, f, other) + BEFORE_THERE]
    return False


@compiled
def _follows(m: Array, f: int, event: int, other: int) -> bool:
    """Whether an event follows another one of its location directly."""
    here, there = at(m, f, event), at(m, f, other)
    if same_thread(m, here, there) and m[there + BLOCK] < m[here + BLOCK]:
        return True
    if m[here + KIND] == WRITE and m[here + PARTNER] == other:
        return True
    if not morally_strong(m, f, event, other):
        return False
    if m[here + KIND] == READ:
        return m[there + KIND] == WRITE and m[here + SOURCE] == other
    return _precedes(m, other if m[there + KIND] == WRITE else m[there + SOURCE], event) and (
        m[there + KIND] == WRITE or m[there + SOURCE] != event
    )
