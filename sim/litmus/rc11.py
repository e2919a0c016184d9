"""RC11: Lahav, Vafeiadis, Kang, Hur, Dreyer, "Repairing Sequential Consistency in C/C++11", PLDI 2017.

Scopes and proxies play no part.  Weak accesses are non-atomic ones whose races are defined: they take part in
coherence and synchronise nothing.  Barriers are program order between threads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
from tiebreak.sim.litmus.sc import program_order
from tiebreak.sim.litmus.skeleton import Skeleton


def find_consistent(skeleton: Skeleton, reads_from: Relation) -> Batch:
    """The executions that keep the axioms, with every total coherence order that does."""
    order = program_order(skeleton)
    happens_before = close(order | _synchronises(skeleton, reads_from))
    coherence = np.broadcast_to(skeleton.initial, reads_from.shape).copy()
    batch = Batch(np.arange(len(reads_from)), reads_from, coherence)
    batch = batch.take(~is_cyclic(order | reads_from))

    def accept(part: Batch) -> NDArray[np.bool_]:
        from_read, before = part.from_read, happens_before[part.owner]
        communication = close(part.reads_from | part.coherence | from_read)
        coherent = ~is_reflexive(compose(before, optional(communication)))
        atomic = ~is_inhabited(compose(from_read, part.coherence) & skeleton.rmw)
        return coherent & atomic & ~is_cyclic(_partial_sc(skeleton, part, order, before, communication))

    return order_writes(batch, skeleton.write_pairs(skeleton.loc), accept)


def _synchronises(skeleton: Skeleton, reads_from: Relation) -> Relation:
    """Synchronises-with: from a release, through its release sequence, to an acquire."""
    po, atomic = skeleton.po, ~skeleton.has_order("weak")
    same = optional(po & skeleton.loc)
    head = restrict(skeleton.is_write, same, skeleton.is_write & atomic)
    sequence = compose(head, optional(close(compose(reads_from, skeleton.rmw))))
    release = (skeleton.is_write | skeleton.is_fence) & skeleton.has_order("release", "acq_rel", "sc")
    acquire = (skeleton.is_read | skeleton.is_fence) & skeleton.has_order("acquire", "acq_rel", "sc")
    before = restrict(release, optional(restrict(skeleton.is_fence, po, skeleton.is_write)), skeleton.is_write)
    after = restrict(skeleton.is_read & atomic, optional(restrict(skeleton.is_read, po, skeleton.is_fence)), acquire)
    return compose(before, sequence, reads_from, after)


def _partial_sc(
    skeleton: Skeleton, part: Batch, order: Relation, before: Relation, communication: Relation
) -> Relation:
    """The partial SC order psc, which must be acyclic."""
    strongest = skeleton.has_order("sc")
    fence = np.diag(strongest & skeleton.is_fence)
    access = np.diag(strongest & skeleton.is_access)
    elsewhere = order & ~skeleton.loc
    base = order | compose(elsewhere, before, elsewhere) | before & skeleton.loc | part.coherence | part.from_read
    left = access | compose(fence, optional(before))
    right = access | compose(optional(before), fence)
    fences = compose(fence, before | compose(before, communication, before), fence)
    return compose(left, base, right) | fences
