"""Sequential consistency: some interleaving of whole threads explains an execution (Lamport, 1979).

Orders, scopes and proxies play no part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiebreak.sim.litmus.coherence import Batch, order_writes
from tiebreak.sim.litmus.relations import Relation, close, compose, is_cyclic, is_inhabited, restrict
from tiebreak.sim.litmus.skeleton import Skeleton


def find_consistent(skeleton: Skeleton, reads_from: Relation) -> Batch:
    """The executions that keep the axioms, with every total coherence order that does."""
    order = program_order(skeleton)
    coherence = np.broadcast_to(skeleton.initial, reads_from.shape).copy()

    def accept(part: Batch) -> NDArray[np.bool_]:
        from_read = part.from_read
        atomic = ~is_inhabited(compose(from_read, part.coherence) & skeleton.rmw)
        return atomic & ~is_cyclic(order | part.reads_from | part.coherence | from_read)

    return order_writes(
        Batch(np.arange(len(reads_from)), reads_from, coherence), skeleton.write_pairs(skeleton.loc), accept
    )


def program_order(skeleton: Skeleton) -> Relation:
    """Program order among accesses and fences, and what barriers put between those of different threads."""
    others = skeleton.kind != "barrier"
    return restrict(others, close(skeleton.po | skeleton.meetings), others)
