"""The axioms of the PTX memory consistency model (PTX ISA 7.5 and later, chapter "Memory Consistency Model").

Lustig, Sahasrabuddhe, Giroux, "A Formal Analysis of the NVIDIA PTX Memory Consistency Model", ASPLOS 2019,
https://doi.org/10.1145/3297858.3304043, states them for the generic proxy; "Mixed-Proxy Extensions for the NVIDIA PTX
Memory Consistency Model", ISCA 2022, adds proxies and aliases.  No-thin-air holds by the way candidates are listed.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from tiebreak.errors import UnsupportedOperationError
from tiebreak.sim.litmus.coherence import Batch, order_writes
from tiebreak.sim.litmus.relations import (
    Relation,
    close,
    compose,
    is_cyclic,
    is_inhabited,
    is_reflexive,
    optional,
    restrict,
)
from tiebreak.sim.litmus.skeleton import Skeleton


def find_consistent(skeleton: Skeleton, reads_from: Relation) -> Batch:
    """The executions that keep the axioms, with the least coherence order that does.

    Writes that race are ordered only as far as something forces it; more order would forbid more and show nothing new.

    Args:
        skeleton: Events.
        reads_from: [candidates, events, events].

    Raises:
        UnsupportedOperationError: An access has an order that PTX does not have.
    """
    if (skeleton.is_access & skeleton.has_order("sc")).any():
        raise UnsupportedOperationError("access of order sc")
    found = [batch for order in _fence_orders(skeleton) if len(batch := _consistent_under(skeleton, reads_from, order))]
    if not found:
        return Batch(np.zeros(0, np.int64), reads_from[:0], reads_from[:0])
    return Batch(*(np.concatenate([getattr(part, name) for part in found]) for name in _FIELDS))


_FIELDS = ("owner", "reads_from", "coherence")


def _fence_orders(skeleton: Skeleton) -> list[Relation]:
    """Orders of the fence.sc operations: every morally strong pair, either way, program order kept."""
    strong = skeleton.is_fence & skeleton.has_order("sc")
    fences = np.flatnonzero(strong)
    fixed = restrict(strong, skeleton.po, strong)
    free = [
        (first, second)
        for first, second in product(fences, fences)
        if first < second and skeleton.morally_strong[first, second] and not fixed[first, second]
    ]
    orders = []
    for choice in product((False, True), repeat=len(free)):
        order = fixed.copy()
        for (first, second), turned in zip(free, choice, strict=True):
            order[(second, first) if turned else (first, second)] = True
        if not is_cyclic(order):
            orders.append(order)
    return orders


def _consistent_under(skeleton: Skeleton, reads_from: Relation, fence_order: Relation) -> Batch:
    """The executions that keep the axioms under one order of the fences."""
    observation = find_observation(skeleton, reads_from)
    base = find_base_causality(skeleton, observation, fence_order)
    cause = find_causality(skeleton, observation, base)
    writes = restrict(skeleton.is_write, cause & skeleton.loc, skeleton.is_write)
    coherence = close(writes | skeleton.initial)
    batch = Batch(np.arange(len(reads_from)), reads_from, coherence)
    batch = batch.take(~is_reflexive(compose(fence_order, base)))

    def accept(part: Batch) -> Relation:
        from_read = part.from_read
        accepted: Relation = ~is_reflexive(part.coherence)
        accepted &= ~is_reflexive(compose(part.reads_from | from_read, cause[part.owner]))
        accepted &= _is_atomic(skeleton, part.coherence, from_read)
        accepted &= _is_sequential_per_location(skeleton, part, from_read)
        return accepted

    return order_writes(batch, skeleton.write_pairs(skeleton.morally_strong), accept)


def find_observation(skeleton: Skeleton, reads_from: Relation) -> Relation:
    """Observation order: morally strong reads-from, through any chain of read-modify-writes."""
    strong: Relation = reads_from & skeleton.morally_strong
    return compose(strong, optional(close(compose(skeleton.rmw, strong))))


def find_base_causality(skeleton: Skeleton, observation: Relation, fence_order: Relation) -> Relation:
    """Base causality order: program order, synchronisation, and what follows transitively."""
    strong = skeleton.is_access & ~skeleton.has_order("weak")
    po, po_loc = skeleton.po, skeleton.po & skeleton.vloc
    strong_write, strong_read = strong & skeleton.is_write, strong & skeleton.is_read
    release = skeleton.is_write & skeleton.has_order("release")
    acquire = skeleton.is_read & skeleton.has_order("acquire")
    release_fence = skeleton.is_fence & skeleton.has_order("release", "acq_rel", "sc")
    acquire_fence = skeleton.is_fence & skeleton.has_order("acquire", "acq_rel", "sc")
    release_pattern = restrict(release, optional(po_loc), strong_write) | restrict(release_fence, po, strong_write)
    acquire_pattern = restrict(strong_read, optional(po_loc), acquire) | restrict(strong_read, po, acquire_fence)
    synchronises = skeleton.morally_strong & compose(release_pattern, observation, acquire_pattern)
    return close(synchronises | po | fence_order | skeleton.meetings)


def find_causality(skeleton: Skeleton, observation: Relation, base: Relation) -> Relation:
    """Causality order: what of base causality holds across proxies, also after an observation."""
    preserved = _preserve(skeleton, base)
    return preserved | compose(observation, preserved)


def _preserve(skeleton: Skeleton, base: Relation) -> Relation:
    """Proxy-preserved base causality: one address through the generic proxy, or through fences of the proxies used."""
    generic = skeleton.is_access & skeleton.generic
    same = base & skeleton.vloc
    kept = restrict(generic, same, generic) | (same & skeleton.same_proxy & skeleton.same_cta)
    fences = skeleton.kind == "proxy fence"
    if not fences.any():
        return kept
    identity = np.eye(skeleton.size, dtype=bool) & generic
    near = base & skeleton.same_proxy & skeleton.same_cta
    leave = identity | restrict(skeleton.is_access, near, fences)
    enter = identity | restrict(fences, near, skeleton.is_access)
    alias = np.eye(skeleton.size, dtype=bool) & fences & np.array([event.proxy == "alias" for event in skeleton.events])
    return kept | compose(leave, base, enter) & skeleton.vloc | compose(leave, base, alias, base, enter) & skeleton.loc


def _is_atomic(skeleton: Skeleton, coherence: Relation, from_read: Relation) -> Relation:
    """Atomicity: no morally strong write between the halves of a read-modify-write."""
    between = compose(from_read & skeleton.morally_strong, coherence & skeleton.morally_strong)
    return ~is_inhabited(between & skeleton.rmw)


def _is_sequential_per_location(skeleton: Skeleton, batch: Batch, from_read: Relation) -> Relation:
    """SC per location: morally strong communication does not contradict program order."""
    communication = batch.reads_from | batch.coherence | from_read | skeleton.po & skeleton.loc
    return ~is_cyclic(communication & skeleton.morally_strong)
