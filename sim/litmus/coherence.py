"""Coherence orders that extend what is forced, for many executions at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tiebreak.sim.litmus.relations import Relation, compose, reverse


@dataclass(frozen=True)
class Batch:
    """Executions of one skeleton.

    Attributes:
        owner: Index of the candidate that each execution belongs to, [executions].
        reads_from: From writes to the reads that take their value, [executions, events, events].
        coherence: Transitive order of the writes of a location, same shape.
    """

    owner: NDArray[np.int64]
    reads_from: Relation
    coherence: Relation

    def __len__(self) -> int:
        return len(self.owner)

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Batch:
        """Some of the executions."""
        return Batch(self.owner[index], self.reads_from[index], self.coherence[index])

    @property
    def from_read(self) -> Relation:
        """From a read to the writes that come after what it read."""
        return compose(reverse(self.reads_from), self.coherence)


def order_writes(batch: Batch, pairs: Iterable[tuple[int, int]], accept: Callable[[Batch], NDArray[np.bool_]]) -> Batch:
    """Order each pair of writes both ways where it is not ordered yet; drop what is not accepted.

    Args:
        batch: Executions with what is forced of the coherence order.
        pairs: Pairs of writes that must be ordered.
        accept: Which executions keep the axioms so far; more coherence never makes one keep them again.
    """
    batch = batch.take(accept(batch))
    for first, second in pairs:
        ordered = batch.coherence[:, first, second] | batch.coherence[:, second, first]
        open_ = np.flatnonzero(~ordered)
        if not open_.size:
            continue
        index = np.concatenate([np.arange(len(batch)), open_])
        choice = np.concatenate([~ordered, np.zeros(open_.size, bool)])
        other = np.concatenate([np.zeros(len(batch), bool), np.ones(open_.size, bool)])
        batch = batch.take(index)
        coherence = batch.coherence.copy()
        coherence[choice] |= extension(coherence[choice], first, second)
        coherence[other] |= extension(coherence[other], second, first)
        batch = Batch(batch.owner, batch.reads_from, coherence)
        batch = batch.take(accept(batch))
    return batch


def extension(relation: Relation, first: int, second: int) -> Relation:
    """What a transitive relation gains when ``first`` is put before ``second``."""
    before = relation[:, :, first].copy()
    before[:, first] = True
    after = relation[:, second, :].copy()
    after[:, second] = True
    return before[:, :, None] & after[:, None, :]
