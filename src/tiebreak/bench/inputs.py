"""Inputs of the benchmarks: scores of three kinds, and ids as the ranks of a striped layout offer them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tiebreak.errors import InputError
from tiebreak.spec.layout import Layout
from tiebreak.spec.order import Ids, Scores
from tiebreak.spec.packing import Candidates, gather_rank_major, pack
from tiebreak.spec.selection import select

from .model import Shape

INTERLEAVE = 64
"""Consecutive tokens that one rank owns."""

SHARD_FACTOR = 2
"""Tokens that a rank holds per candidate that it offers."""

DISTINCT_TIES = 16
"""Distinct values of tie-heavy scores."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], Scores]


def draw_random(generator: np.random.Generator, shape: tuple[int, ...]) -> Scores:
    """Normal fp32 scores."""
    return generator.standard_normal(shape, dtype=np.float32)


def draw_tie_heavy(generator: np.random.Generator, shape: tuple[int, ...]) -> Scores:
    """Scores of ``DISTINCT_TIES`` values, each equally likely."""
    values = np.linspace(-2.0, 2.0, DISTINCT_TIES, dtype=np.float32)
    return values[generator.integers(0, DISTINCT_TIES, shape)]


def draw_all_equal(generator: np.random.Generator, shape: tuple[int, ...]) -> Scores:
    """One value everywhere."""
    return np.full(shape, generator.standard_normal(dtype=np.float32), dtype=np.float32)


KINDS: Mapping[str, Draw] = MappingProxyType(
    {"random": draw_random, "tie-heavy": draw_tie_heavy, "all-equal": draw_all_equal}
)
"""Kinds of scores by name."""


def check_kinds(names: Iterable[str]) -> list[str]:
    """Return kinds of scores that all exist.

    Raises:
        InputError: One does not.
    """
    names = list(names)
    for name in names:
        if name not in KINDS:
            raise InputError("kind of input", value=name, limit=f"must be one of {', '.join(KINDS)}")
    return names


@dataclass(frozen=True)
class InputSet:
    """One input on all ranks, and what is right.

    Attributes:
        scores: Per rank, float32 ``[rows, width]``.
        local_indices: Per rank, int32 ``[rows, L]``: its candidates, relative to its shard.
        gathered: int32 ``[W, rows, L, 2]``: the candidates that the ranks offer.
        expected: int32 ``[rows, k]`` of the specification, best first.
    """

    scores: list[Scores]
    local_indices: list[Ids]
    gathered: Candidates
    expected: Ids

    @property
    def candidates(self) -> Candidates:
        """The candidates row by row, int32 ``[rows, W * L, 2]``."""
        world_size, rows, width, _ = self.gathered.shape
        return np.ascontiguousarray(np.swapaxes(self.gathered, 0, 1)).reshape(rows, world_size * width, 2)


def draw_input(kind: str, shape: Shape, world_size: int, seed: int) -> InputSet:
    """Draw one input; the same arguments give the same input.

    Each rank offers distinct tokens of its shard in random order.

    Args:
        kind: Name in ``KINDS``.
        shape: Rows, candidates of all ranks, and k.
        world_size: Ranks; must divide the candidates.
        seed: Seed.

    Raises:
        InputError: An unknown kind, or candidates that the ranks cannot share evenly.
    """
    check_kinds([kind])
    if world_size < 1 or shape.candidates % world_size:
        raise InputError("candidates", value=shape.candidates, limit=f"must be a multiple of the {world_size} ranks")
    generator = np.random.default_rng(seed)
    offered = shape.candidates // world_size
    width = SHARD_FACTOR * offered
    # One value per input, not per rank, where all are equal.
    scores = list(KINDS[kind](generator, (world_size, shape.rows, width)))
    indices = [_draw_indices(generator, shape.rows, width, offered) for _ in range(world_size)]
    layout = Layout(world_size, INTERLEAVE)
    shards = [pack(scores[rank], indices[rank], rank, layout) for rank in range(world_size)]
    gathered = gather_rank_major(shards)
    flat = np.swapaxes(gathered, 0, 1).reshape(shape.rows, shape.candidates, 2)
    words = np.ascontiguousarray(flat[..., 0]).view(np.float32)
    expected = select(words, np.ascontiguousarray(flat[..., 1]), shape.k)
    return InputSet(scores, indices, gathered, expected)


def natural_world_size(shape: Shape) -> int:
    """Ranks that would offer k candidates each; 1 where that does not come out even."""
    return shape.candidates // shape.k if shape.candidates % shape.k == 0 else 1


def _draw_indices(generator: np.random.Generator, rows: int, width: int, count: int) -> Ids:
    """Distinct local indices per row, in random order."""
    columns = np.tile(np.arange(width, dtype=np.int32), (rows, 1))
    return np.ascontiguousarray(generator.permuted(columns, axis=1)[:, :count])
