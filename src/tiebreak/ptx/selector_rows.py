"""Rows of candidates that lead a selector down each of its paths.

Whether two threads race can only be seen where both run.  A selector takes
other ways for few and many candidates at the cut, for scores and for ids that
tie, for rows that fill its registers and for those that do not; each row here
is made for one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiebreak.impl.specialization import SelectorSpecialization

LARGE_ID = 2**30


@dataclass(frozen=True)
class SelectorRow:
    """A row, and how many of its candidates to select.

    Attributes:
        name: What it is like.
        scores: float32[count].
        ids: int32[count]; -1 is padding.
        k: Ids to select.
    """

    name: str
    scores: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int32]
    k: int

    @property
    def candidates(self) -> npt.NDArray[np.int32]:
        """The row as a selector reads it: int32[count, 2], score bits and id."""
        return np.ascontiguousarray(np.stack([self.scores.view(np.int32), self.ids], axis=1))


def draw_rows(specialization: SelectorSpecialization, seed: int = 0) -> Iterator[SelectorRow]:
    """Yield rows for every path of a selector; all counts are even, so that candidates can be read in pairs."""
    generator = np.random.default_rng(seed)
    capacity = specialization.capacity
    most = min(capacity, specialization.slots or capacity)
    counts = (capacity + 2, 3 * capacity) if specialization.streamed else (capacity,)
    for count in counts:
        yield from _draw_full(generator, count, most)
    for count in (2, 34, capacity // 2 + 2, capacity - 2):
        scores, ids = _normal(generator, count), _spread_ids(generator, count)
        yield SelectorRow(f"short {count}", scores, ids, min(most, max(1, count // 2)))
    yield SelectorRow("short, all selected", _normal(generator, 66), _spread_ids(generator, 66), min(most, 80))
    yield SelectorRow("short, tied", np.ones(capacity - 2, np.float32), _spread_ids(generator, capacity - 2), most // 2)


def _draw_full(generator: np.random.Generator, count: int, most: int) -> Iterator[SelectorRow]:
    """Yield rows of one length."""
    half, ids = most // 2, _spread_ids(generator, count)
    normal = _normal(generator, count)
    for k in (1, half, most - 1, most):
        yield SelectorRow(f"normal, best {k}", normal, ids, k)
    levels = generator.integers(0, 8, count).astype(np.float32)
    ones = np.ones(count, np.float32)
    yield SelectorRow("eight levels", levels, ids, half)
    yield SelectorRow("all equal", ones, ids, half)
    yield SelectorRow("all equal, best 1", ones, ids, 1)
    yield SelectorRow("all equal, neighbouring ids", ones, np.arange(count, dtype=np.int32), half)
    yield SelectorRow("all equal, one id", ones, np.full(count, 7, np.int32), half)
    yield SelectorRow("all equal, few ids", ones, generator.integers(0, 3, count, dtype=np.int32), half)
    yield from _draw_bins(generator, count, half)
    yield from _draw_special(generator, normal, ids, half)


def _draw_bins(generator: np.random.Generator, count: int, half: int) -> Iterator[SelectorRow]:
    """Yield rows that crowd the bin of the cut: with few, some and many candidates, and bin within bin."""
    ids = _spread_ids(generator, count)
    for crowd in (4, 12, 40, 63, 65, 200):
        scores = np.linspace(0, 1, count, dtype=np.float32)
        cut = count - half
        near = slice(max(0, cut - crowd // 2), max(0, cut - crowd // 2) + crowd)
        scores[near] = scores[cut] + np.arange(scores[near].size, dtype=np.float32) * np.float32(1e-7)
        yield SelectorRow(f"{crowd} at the cut", generator.permutation(scores), ids, half)
        scores[near] = scores[cut]
        yield SelectorRow(f"{crowd} tied at the cut", generator.permutation(scores), ids, half)
        twins = ids.copy()
        twins[:] = 5
        yield SelectorRow(f"{crowd} twins at the cut", generator.permutation(scores), twins, half)
    crowded = _normal(generator, count)
    crowded[0] = 1e30
    yield SelectorRow("one far ahead", crowded, ids, half)
    spread = np.exp(generator.uniform(-60, 60, count)).astype(np.float32)
    yield SelectorRow("many magnitudes", spread, ids, half)
    yield SelectorRow("neighbouring floats", np.float32(1) + np.arange(count, dtype=np.float32) * 2**-23, ids, half)


def _draw_special(
    generator: np.random.Generator, normal: npt.NDArray[np.float32], ids: npt.NDArray[np.int32], half: int
) -> Iterator[SelectorRow]:
    """Yield rows with zeros of both signs, infinities, NaN, padding, and ties beside them."""
    zeros = np.where(generator.random(normal.size) < 0.5, np.float32(0), -np.float32(0)).astype(np.float32)
    yield SelectorRow("both zeros", zeros, ids, half)
    mixed = np.where(generator.random(normal.size) < 0.2, zeros, normal).astype(np.float32)
    yield SelectorRow("zeros among others", mixed, ids, half)
    for name, value in (("infinity", np.inf), ("minus infinity", -np.inf), ("NaN", np.nan)):
        some = normal.copy()
        some[:: max(2, normal.size // 5)] = value
        yield SelectorRow(f"some {name}", some, ids, half)
        yield SelectorRow(f"all {name}", np.full(normal.size, value, np.float32), ids, half)
    tied = np.ones_like(normal)
    tied[0] = np.nan
    yield SelectorRow("NaN before ties", tied, ids, half)
    yield SelectorRow("NaN before twins", tied, np.full_like(ids, 9), half)
    padded = ids.copy()
    padded[generator.random(ids.size) < 0.7] = -1
    yield SelectorRow("mostly padding", normal, padded, half)
    yield SelectorRow("mostly padding, tied", np.ones_like(normal), padded, max(1, half // 8))
    yield SelectorRow("all padding", normal, np.full_like(ids, -1), half)


def _normal(generator: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    return generator.standard_normal(count).astype(np.float32)


def _spread_ids(generator: np.random.Generator, count: int) -> npt.NDArray[np.int32]:
    """Distinct ids up to ``LARGE_ID``, in no order."""
    step = LARGE_ID // count
    return (generator.permutation(count) * step).astype(np.int32)
