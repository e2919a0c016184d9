"""Reading order 4 of 11: which rank owns which global id.

A request's tokens are dealt to W ranks in runs of S tokens, S being the
interleave: rank 0 gets tokens 0..S-1, rank 1 the next S, and so on around.
A token is then named twice, by its global id within the request and by its
local index on the rank that owns it.  On one rank the local index grows with
the global id, so "lowest local index" and "lowest global id" are the same tie
rule there.

Positions are those of int32; the arithmetic is done in int64, where no
intermediate product can overflow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tiebreak.errors import InputError

from .order import LARGEST_ID

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Interleaved ownership of global ids.

    Attributes:
        world_size: Number of ranks W, at least 1.
        interleave: Consecutive tokens S that one rank owns, at least 1.
    """

    world_size: int
    interleave: int

    def __post_init__(self) -> None:
        for name in ("world_size", "interleave"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(name, value=value, limit="must be an integer of at least 1")
        if int(self.world_size) * int(self.interleave) > LARGEST_ID:
            raise InputError(
                "world_size * interleave",
                value=int(self.world_size) * int(self.interleave),
                limit=f"must be at most {LARGEST_ID}",
            )

    @property
    def period(self) -> int:
        """Tokens after which the ownership pattern repeats, W * S."""
        return self.world_size * self.interleave

    def owner(self, global_id: ArrayLike) -> Positions:
        """Rank that owns a global id.

        Meaning:
            ``owner(g) = (g div S) mod W``.
        Shapes:
            Integers of any shape to int64 of that shape.
        Errors:
            ``InputError`` for a negative id, one above 2**31 - 1, or anything
            but integers.
        Source:
            https://github.com/vllm-project/vllm/pull/46076.
        """
        position = _positions("global id", global_id)
        return position // self.interleave % self.world_size

    def local_index(self, global_id: ArrayLike) -> Positions:
        """Index of a global id on the rank that owns it.

        Meaning:
            ``local(g) = (g div (W * S)) * S + g mod S``.
        Shapes:
            Integers of any shape to int64 of that shape.
        Errors:
            As ``owner``.
        Source:
            https://github.com/vllm-project/vllm/pull/46076.
        """
        position = _positions("global id", global_id)
        return position // self.period * self.interleave + position % self.interleave

    def global_id(self, rank: ArrayLike, local_index: ArrayLike) -> Positions:
        """Global id of a local index.

        Meaning:
            ``global(rank, l) = (l div S) * W * S + rank * S + l mod S``, the
            inverse of (``owner``, ``local_index``).  The result may exceed
            int32; ``packing.pack`` rejects it there.
        Shapes:
            Integers of shapes that broadcast, to int64 of the joint shape.
        Errors:
            ``InputError`` for a rank outside 0..W-1, or a local index that is
            negative, above 2**31 - 1 or not an integer.
        Source:
            https://github.com/vllm-project/vllm/pull/46076.
        """
        position = _positions("local index", local_index)
        offset = self._ranks(rank) * self.interleave + position % self.interleave
        return position // self.interleave * self.period + offset

    def local_length(self, rank: ArrayLike, length: ArrayLike) -> Positions:
        """Number of tokens of a request that a rank owns.

        Meaning:
            How many global ids below ``length`` the rank owns: S for every
            full period, and its part of the last one.  Zero is an answer: a
            request shorter than W * S leaves ranks empty, and they still take
            part in the exchange.
        Shapes:
            Integers of shapes that broadcast, to int64 of the joint shape.
        Errors:
            ``InputError`` for a rank outside 0..W-1, or a length that is
            negative, above 2**31 - 1 or not an integer.
        Source:
            https://github.com/vllm-project/vllm/pull/27518, whose first form
            had an off-by-one (L=8, W=4 gave 3 per rank instead of 2).
        """
        total = _positions("length", length)
        remainder = total % self.period - self._ranks(rank) * self.interleave
        partial: Positions = np.clip(remainder, 0, self.interleave)
        return total // self.period * self.interleave + partial

    def _ranks(self, rank: ArrayLike) -> Positions:
        ranks = _positions("rank", rank)
        if np.any(ranks >= self.world_size):
            raise InputError("rank", value=int(ranks.max()), limit=f"must be below the world size {self.world_size}")
        return ranks


def _positions(what: str, value: ArrayLike) -> Positions:
    """Integers within 0..2**31-1 as int64."""
    array = np.asarray(value)
    if array.size == 0:
        return array.astype(np.int64)
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"dtype of {what}", value=str(array.dtype), limit="must be an integer type")
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > LARGEST_ID:
        raise InputError(what, value=low if low < 0 else high, limit=f"must be within 0..{LARGEST_ID}")
    return array.astype(np.int64)
