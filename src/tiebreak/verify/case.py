"""Merge problems as data: what each rank holds, drawn from a short recipe.

A recipe is small enough for a replay command; the arrays follow from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tiebreak.errors import InputError
from tiebreak.inputs.captured import default_input
from tiebreak.spec.layout import Layout
from tiebreak.spec.merge import local_topk
from tiebreak.spec.order import resolve_preset

from .oracle import select_row
from .text import format_fields

Scores = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

SPECIALS = np.array(
    [
        0xFFC00000,
        0x7FC00000,
        0x7F800000,
        0xFF800000,
        0x00000000,
        0x80000000,
        0x00000001,
        0x80000001,
        0x3F800000,
        0xBF800000,
    ],
    dtype=np.uint32,
).view(np.float32)
"""NaN of both signs, both infinities, both zeros, both smallest subnormals, 1 and -1."""


def _draw_random(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    return random.standard_normal(shape).astype(np.float32)


def _draw_ties(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    return random.integers(0, 3, shape).astype(np.float32)


def _draw_equal(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    return np.ones(shape, dtype=np.float32)


def _draw_plateau(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    return np.maximum(random.standard_normal(shape), 0).astype(np.float32)


def _draw_special(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    return SPECIALS[random.integers(0, SPECIALS.size, shape)]


def _draw_neighbours(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    bits = np.uint32(0x3F800000) + random.integers(0, 4, shape).astype(np.uint32)
    return bits.view(np.float32)


def _draw_zeros(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    return np.array([0.0, -0.0, -1.0], dtype=np.float32)[random.integers(0, 3, shape)]


def _draw_outliers(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    scores = random.standard_normal(shape)
    return np.where(random.random(shape) < 0.01, scores * 1e30, scores).astype(np.float32)


def _draw_subnormal(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    bits = random.integers(0, 2**23, shape) | random.integers(0, 2, shape) << 31
    return bits.astype(np.uint32).view(np.float32)


def _draw_bits(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    return random.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)


def _draw_digits(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    shift = int(random.integers(0, 24))
    return (0x40000000 ^ random.integers(0, 256, shape) << shift).astype(np.uint32).view(np.float32)


def _draw_captured(random: np.random.Generator, shape: tuple[int, int]) -> Scores:
    scores = default_input().scores
    rows = random.integers(0, scores.shape[0], shape[0])
    columns = np.arange(shape[1]) % scores.shape[1]
    return np.ascontiguousarray(scores[rows[:, None], columns])


KINDS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Scores]] = {
    "random": _draw_random,
    "ties": _draw_ties,
    "equal": _draw_equal,
    "plateau": _draw_plateau,
    "special": _draw_special,
    "neighbours": _draw_neighbours,
    "zeros": _draw_zeros,
    "outliers": _draw_outliers,
    "subnormal": _draw_subnormal,
    "bits": _draw_bits,
    "digits": _draw_digits,
    "captured": _draw_captured,
}
"""Score distributions by name: distinct, few values, one value, half exact zeros, special values,
adjacent floats, zeros of both signs above -1, a few far larger than the rest, subnormals, every bit
pattern, values that differ in one digit of 8 bits only, rows of the shipped captured scores."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to draw a sequence of merges.

    Attributes:
        ranks: World size.
        interleave: Interleave size of the layout, in tokens.
        rows: Rows (queries) per merge.
        k: Ids that a merge returns per row.
        local: Candidates that each rank contributes per row.
        length: Longest context in tokens; rows get different lengths up to it.
        kind: Score distribution, see ``KINDS``.
        preset: Order preset.
        seed: Seed of the scores and lengths.
        epochs: Number of merges, each with fresh data.
        starts: Whether rows have a column offset (``row_starts``), as in prefill.
        row_counts: How many numbers of rows there are; each merge draws one of ``rows``,
            ``rows - 1`` and so on.
        contract: Order of the ids: ``order`` (best first) or ``set`` (that of the
            candidates, rank by rank).
    """

    ranks: int = 2
    interleave: int = 1
    rows: int = 2
    k: int = 4
    local: int = 4
    length: int = 16
    kind: str = "ties"
    preset: str = "ieee"
    seed: int = 0
    epochs: int = 2
    starts: bool = False
    row_counts: int = 1
    contract: str = "order"

    def text(self) -> str:
        """Return ``field=value`` pairs of the fields that differ from their defaults."""
        return format_fields(self)


@dataclass(frozen=True)
class MergeCase:
    """One merge: inputs of every rank and the output that every rank must return.

    Attributes:
        scores: Per rank fp32 [rows, width]; the width may be 0.
        local_indices: Per rank int32 [rows, local], -1 padded, relative to the row's start.
        row_starts: Column of each row's first score, int32 [rows], or None; the same on all ranks.
        expected: Global ids, int32 [rows, k].
    """

    scores: list[Scores]
    local_indices: list[Ids]
    row_starts: list[Ids] | None
    expected: Ids


def draw_cases(recipe: Recipe) -> list[MergeCase]:
    """Return the merges of a recipe, one per epoch.

    Raises:
        InputError: The score distribution or the preset is unknown.
    """
    if recipe.kind not in KINDS:
        raise InputError("kind", value=recipe.kind, limit=f"kinds are {', '.join(KINDS)}", remedy="name one of them")
    resolve_preset(recipe.preset)
    return [_draw_case(recipe, np.random.default_rng([recipe.seed, epoch])) for epoch in range(recipe.epochs)]


def _draw_case(recipe: Recipe, random: np.random.Generator) -> MergeCase:
    if recipe.row_counts > 1:
        recipe = replace(recipe, rows=recipe.rows - int(random.integers(recipe.row_counts)), row_counts=1)
    lengths = random.integers(0, recipe.length + 1, recipe.rows)
    if recipe.rows:
        lengths[int(random.integers(recipe.rows))] = recipe.length
    if recipe.interleave <= recipe.length:
        return build_case(recipe, KINDS[recipe.kind](random, (recipe.rows, recipe.length)), lengths)
    # A context that reaches the second block would not fit: every rank holds the start of its first block.
    shards = [KINDS[recipe.kind](random, (recipe.rows, recipe.length)) for _ in range(recipe.ranks)]
    return _select_locally(recipe, shards, [lengths.astype(np.int32)] * recipe.ranks)


def build_case(recipe: Recipe, scores: Scores, lengths: npt.NDArray[np.int64]) -> MergeCase:
    """Shard whole-context scores [rows, length] over the ranks and select locally."""
    layout = Layout(recipe.ranks, recipe.interleave)
    positions = np.arange(scores.shape[1])
    owner = layout.owner(positions)
    shards = [np.ascontiguousarray(scores[:, owner == rank]) for rank in range(recipe.ranks)]
    owned = [np.asarray(layout.local_length(rank, lengths), dtype=np.int32) for rank in range(recipe.ranks)]
    return _select_locally(recipe, shards, owned)


def _select_locally(recipe: Recipe, shards: list[Scores], lengths: list[Ids]) -> MergeCase:
    """Select each rank's candidates by the total order, and say what the merge must return."""
    placed = [_place(shard, recipe.starts) for shard in shards]
    starts = [start for _, start in placed] if recipe.starts else None
    indices = [
        local_topk(scores, lengths[rank], recipe.local, recipe.preset, start if recipe.starts else None)
        for rank, (scores, start) in enumerate(placed)
    ]
    return MergeCase([scores for scores, _ in placed], indices, starts, _expect(recipe, shards, lengths, indices))


def _expect(recipe: Recipe, shards: list[Scores], lengths: list[Ids], indices: list[Ids]) -> Ids:
    """Return what every rank must return, by the oracle.

    Where every rank contributes at least k candidates this is the selection
    over all tokens, as if they had never been sharded; where it contributes
    fewer, only those candidates can be meant.
    """
    layout = Layout(recipe.ranks, recipe.interleave)
    expected = np.full((recipe.rows, recipe.k), -1, dtype=np.int32)
    for row in range(recipe.rows):
        bits: list[int] = []
        ids: list[int] = []
        for rank, shard in enumerate(shards):
            offered = np.arange(int(lengths[rank][row]))
            if recipe.local < recipe.k:
                offered = indices[rank][row][indices[rank][row] >= 0]
            bits += shard.view(np.uint32)[row, offered].tolist()
            ids += np.asarray(layout.global_id(rank, offered)).tolist()
        expected[row] = select_row(bits, ids, recipe.k, recipe.preset)
        if recipe.contract == "set":
            expected[row] = _order_as_offered(expected[row], [part[row] for part in indices], layout)
    return expected


def _order_as_offered(chosen: Ids, offered: list[Ids], layout: Layout) -> Ids:
    """Return the chosen ids in the order in which the ranks offer them, -1 behind."""
    ids = [np.asarray(layout.global_id(rank, part[part >= 0])) for rank, part in enumerate(offered)]
    wanted = set(chosen.tolist())
    kept = [number for part in ids for number in part.tolist() if number in wanted]
    return np.array(kept + [-1] * (len(chosen) - len(kept)), dtype=np.int32)


def _place(shard: Scores, starts: bool) -> tuple[Scores, Ids]:
    """Lay rows out side by side, as packed prefill does, when ``starts`` is set."""
    rows, width = shard.shape
    if not starts:
        return shard, np.zeros(rows, dtype=np.int32)
    packed = np.full((rows, rows * width), np.float32(np.nan))
    for row in range(rows):
        packed[row, row * width : (row + 1) * width] = shard[row]
    return packed, (np.arange(rows) * width).astype(np.int32)
