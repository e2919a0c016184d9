"""Checks that need no schedule: the order, the layouts, the theorem, the model, real input.

Each check yields one ``Trial`` per input; a trial without a message passed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiebreak.backends import Backend
from tiebreak.backends.registry import on_ptx_machine
from tiebreak.errors import TiebreakError
from tiebreak.inputs.captured import default_input
from tiebreak.spec import exchange, fused, packing, theorem
from tiebreak.spec.layout import Layout
from tiebreak.spec.search import Exploration

from .case import KINDS, Ids, Recipe, Scores, build_case
from .families import Effort
from .oracle import select_row
from .scenario import CONTRACTS

SHAPES: tuple[tuple[int, ...], ...] = (
    (1, 4, 4, 3),
    (2, 3, 5, 7),
    (3, 1, 0, 2),
    (2, 2, 9, 40),
    (0, 2, 4, 4),
    (4, 2, 16, 16),
)
"""Rows, ranks, candidates per rank and slots of selections."""

PUBLIC_SHAPE = (4, 2, 4096, 2048)
"""A selection as decoders make it."""

PADDING = 0.2
"""Share of candidates that are padding."""


@dataclass(frozen=True)
class Trial:
    """One input of a check; ``message`` says what was wrong, empty for a pass."""

    label: str
    message: str = ""


@dataclass(frozen=True)
class Check:
    """A property that is checked input by input on a backend.

    Attributes:
        property: Row of the summary table.
        meaning: The property in one sentence.
        run: Yields the trials for a backend and an effort.
        spec_only: Whether it concerns the spec alone.

    A check that is not about the spec alone concerns single kernels, which do
    not depend on the transport: it runs on one of the simulated backends, and on every target of the PTX machine.
    """

    property: str
    meaning: str
    run: Callable[[Backend, Effort], Iterator[Trial]]
    spec_only: bool = False


def check_selection(backend: Backend, effort: Effort) -> Iterator[Trial]:
    """Compare selections of gathered candidates with the oracle, in every arrangement and under both contracts."""
    for number in range(effort.rounds):
        for trial, (shape, kind) in enumerate(itertools.product(SHAPES, KINDS)):
            if effort.keeps(trial):
                # Every kind meets both contracts, each in half of the shapes.
                contract = CONTRACTS[(number + trial // len(KINDS) + trial) % 2]
                arrangement = ("row-major", "rank-major", "peers")[(number + shape[-1]) % 3]
                yield _try_kind(backend, effort, number, shape, kind, arrangement, contract, PADDING)


def check_public_shape(backend: Backend, effort: Effort) -> Iterator[Trial]:
    """Compare selections of decoders' size with the oracle, in long runs of compiled selectors.

    Rows without padding fill the registers of their CTA, others are read again in every pass.
    """
    if effort.level == "deep" and on_ptx_machine(backend.name):
        for kind, contract, padding in itertools.product(KINDS, CONTRACTS, (0.0, PADDING)):
            yield _try_kind(backend, effort, 0, PUBLIC_SHAPE, kind, "row-major", contract, padding)


def _try_kind(
    backend: Backend,
    effort: Effort,
    number: int,
    shape: tuple[int, ...],
    kind: str,
    arrangement: str,
    contract: str,
    padding: float,
) -> Trial:
    """Draw candidates of a kind and select from them."""
    rows, ranks, local, k = shape
    random = np.random.default_rng([effort.seed, number, rows, ranks, local])
    gathered = draw_gathered(random, kind, ranks, rows, local, padding)
    sizes = f"rows={rows} ranks={ranks} local={local} k={k} padding={padding}"
    label = f"{arrangement} {contract} {kind} {sizes} seed={effort.seed},{number}"
    given = packing.gather_row_major(list(gathered)) if arrangement == "row-major" else gathered
    return Trial(label, try_selection(backend, given, gathered, k, effort.preset, arrangement, contract))


def try_selection(
    backend: Backend,
    given: Ids,
    gathered: Ids,
    k: int,
    preset: str,
    arrangement: str,
    contract: str = "order",
    expected: Ids | None = None,
) -> str:
    """Select on a backend; return how the result differs from the oracle, or nothing.

    Args:
        backend: The backend.
        given: Candidates in the form that ``arrangement`` names.
        gathered: The same candidates, int32 [ranks, rows, local, 2].
        k: Slots per row.
        preset: Order preset.
        arrangement: See ``Backend.select``.
        contract: See ``Backend.select``.
        expected: Ids to expect instead of the oracle's, int32 [rows, k].
    """
    try:
        actual = backend.select(given, k, preset, arrangement, contract)
    except TiebreakError as error:
        return str(error)
    if expected is None:
        return compare_selection(gathered, k, preset, actual, contract)
    return "" if (actual == expected).all() else _first_difference(expected[0], actual[0])


def draw_gathered(
    random: np.random.Generator, kind: str, ranks: int, rows: int, local: int, padding: float = PADDING
) -> Ids:
    """Draw packed candidates [ranks, rows, local, 2] with a share of padding, duplicates and ids of any size."""
    gathered = np.empty((ranks, rows, local, 2), dtype=np.int32)
    for rank in range(ranks):
        gathered[rank, ..., 0] = KINDS[kind](random, (rows, local)).view(np.int32)
    ids = random.choice([0, 1, 5, 2**24 + 1, 2**30 - 1], (ranks, rows, local)) if kind == "special" else None
    drawn = random.integers(0, 2**30, (ranks, rows, local)) if ids is None else ids
    gathered[..., 1] = np.where(random.random((ranks, rows, local)) < padding, -1, drawn)
    return gathered


def compare_selection(gathered: Ids, k: int, preset: str, actual: Ids, contract: str = "order") -> str:
    """Return how a selection from packed candidates [ranks, rows, local, 2] differs from the oracle, or nothing."""
    rows = gathered.shape[1]
    if actual.shape != (rows, k):
        return f"shape {actual.shape}, not {(rows, k)}"
    for row in range(rows):
        pairs = gathered[:, row].reshape(-1, 2)
        expected = select_row(pairs[:, 0].view(np.uint32).tolist(), pairs[:, 1].tolist(), k, preset, contract)
        if actual[row].tolist() != expected:
            return f"row {row}: expected {expected}, got {actual[row].tolist()}"
    return ""


def check_localise(backend: Backend, effort: Effort) -> Iterator[Trial]:
    """Require the ranks' localised ids to partition the merged ones, in order, by plain arithmetic."""
    for number, (ranks, interleave, k) in enumerate(itertools.product((1, 2, 3, 4, 8), (1, 2, 4, 64), (1, 7, 24))):
        if not effort.keeps(number):
            continue
        random = np.random.default_rng([effort.seed, ranks, interleave, k])
        ids = random.integers(-1, 4 * ranks * interleave, (3, k)).astype(np.int32)
        wrong = ""
        for rank in range(ranks):
            try:
                local, counts = backend.localise(ids, rank, ranks, interleave)
            except TiebreakError as error:
                wrong = str(error)
                break
            wrong = wrong or _compare_localised(ids, rank, ranks, interleave, local, counts)
        yield Trial(f"ranks={ranks} interleave={interleave} k={k}", wrong)


def _compare_localised(ids: Ids, rank: int, ranks: int, interleave: int, local: Ids, counts: Ids) -> str:
    for row, given in enumerate(ids.tolist()):
        owned = [one for one in given if one >= 0 and one // interleave % ranks == rank]
        positions = [one // (interleave * ranks) * interleave + one % interleave for one in owned]
        expected = positions + [-1] * (len(given) - len(positions))
        actual = local[row].tolist()
        if actual != expected or counts[row] != len(owned):
            return f"rank {rank} row {row}: expected {len(owned)} in {expected}, got {counts[row]} in {actual}"
    return ""


def check_real_input(backend: Backend, effort: Effort) -> Iterator[Trial]:
    """Merge captured indexer scores, whole rows sharded over the ranks."""
    captured = default_input()
    yield from check_scores(backend, effort, captured.scores, captured.lengths, captured.name)


def check_scores(
    backend: Backend,
    effort: Effort,
    scores: Scores,
    lengths: np.ndarray[tuple[int, ...], np.dtype[np.int32]],
    name: str,
) -> Iterator[Trial]:
    """Shard given scores over the ranks, select on every backend, and compare with the whole row."""
    k = min(256, scores.shape[1])
    for ranks in effort.ranks:
        recipe = Recipe(ranks=ranks, rows=scores.shape[0], k=k, local=k, length=scores.shape[1], preset=effort.preset)
        case = build_case(recipe, scores, lengths.astype(np.int64))
        layout = Layout(ranks, recipe.interleave)
        packed = [packing.pack(case.scores[rank], case.local_indices[rank], rank, layout) for rank in range(ranks)]
        gathered = packing.gather_rank_major(packed)
        for row in filter(effort.keeps, range(scores.shape[0])):
            part, expected = gathered[:, row : row + 1], case.expected[row : row + 1]
            wrong = try_selection(backend, part, part, k, effort.preset, "rank-major", expected=expected)
            yield Trial(f"{name} row {row} ranks={ranks} k={k}", wrong)


def _first_difference(expected: Ids, actual: Ids) -> str:
    slot = int(np.flatnonzero(expected != actual)[0])
    return f"slot {slot}: expected id {expected[slot]}, got {actual[slot]}"


def check_theorem(backend: Backend, effort: Effort) -> Iterator[Trial]:
    """Check the end-to-end theorem exhaustively on up to 6 candidates and 3 ranks."""
    for report in theorem.check_all():
        message = "" if report.holds else f"{report.failures} of {report.cases} cases: {report.counterexamples[:1]}"
        yield Trial(report.name, message)


def check_model(backend: Backend, effort: Effort) -> Iterator[Trial]:
    """Explore the exchange as a transition system, and each named variation of it."""
    results: list[Exploration[Any]] = [*exchange.check_variations(), *fused.check_fused_variations()]
    for result in results:
        yield Trial(result.name, "" if result.as_stated else result.message)


CHECKS = (
    Check(
        "selection",
        "gathered candidates of every arrangement give the k best ids under both contracts",
        check_selection,
    ),
    Check(
        "public-shape",
        "4 rows of 8192 candidates give the 2048 best ids under both contracts (compiled selectors, --deep)",
        check_public_shape,
    ),
    Check("localise", "the ranks' shares of a merged row partition it, in order", check_localise),
    Check("real-input", "captured indexer scores give the ids of the unsharded row", check_real_input),
    Check("theorem", "k per rank suffices for ids under one total order, and for scores always", check_theorem, True),
    Check(
        "protocol-model", "the exchange keeps its invariants, and every named variation breaks one", check_model, True
    ),
)
