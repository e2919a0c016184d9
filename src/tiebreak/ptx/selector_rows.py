"""Rows of candidates that lead a selector down each of its paths.

Whether two threads race can only be seen where both run.  A selector takes
other ways for few and many candidates at the cut, for scores and for ids that
tie, for rows that fill its registers and for those that do not; each row here
is made for one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

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
    for row in _draw_plain(generator, 3 * capacity if specialization.streamed else capacity, most):
        yield row
        yield replace(row, name=f"{row.name}; a NaN", scores=_put(row.scores, np.nan))
        yield replace(row, name=f"{row.name}; not full", scores=row.scores[:-2], ids=row.ids[:-2])
    yield from _draw_special(generator, capacity, most // 2)
    for count in (2, 34, capacity // 2 + 2):
        scores, ids = _normal(generator, count), _spread_ids(generator, count)
        yield SelectorRow(f"{count} candidates", scores, ids, min(most, max(1, count // 2)))
    yield SelectorRow("all selected", _normal(generator, 66), _spread_ids(generator, 66), min(most, 80))


def _draw_plain(generator: np.random.Generator, count: int, most: int) -> Iterator[SelectorRow]:
    """Yield rows that differ in how many candidates tie or nearly tie at the cut."""
    half, ids = most // 2, _spread_ids(generator, count)
    normal, ones = _normal(generator, count), np.ones(count, np.float32)
    for k in (1, half, most - 1, most):
        yield SelectorRow(f"normal, best {k}", normal, ids, k)
    levels = generator.integers(0, 8, count).astype(np.float32)
    for k in (half, most - 1, most):
        yield SelectorRow(f"eight levels, best {k}", levels, ids, k)
    yield SelectorRow("all equal", ones, ids, half)
    yield SelectorRow("all equal, best 1", ones, ids, 1)
    yield SelectorRow("all equal, neighbouring ids", ones, np.arange(count, dtype=np.int32), half)
    yield SelectorRow("all equal, one id", ones, np.full(count, 7, np.int32), half)
    yield SelectorRow("all equal, few ids", ones, generator.integers(0, 3, count, dtype=np.int32), half)
    yield SelectorRow("all equal, ids in clusters", ones, _cluster_ids(generator, count), half)
    yield from _draw_crowds(generator, count, half)
    crowded = _normal(generator, count)
    crowded[0] = 1e30
    yield SelectorRow("one far ahead", crowded, ids, half)
    yield SelectorRow("many magnitudes", _spread_magnitudes(generator, count, half), ids, half)
    yield SelectorRow("neighbouring floats", np.float32(1) + np.arange(count, dtype=np.float32) * 2**-23, ids, half)


def _draw_crowds(generator: np.random.Generator, count: int, half: int) -> Iterator[SelectorRow]:
    """Yield rows with few, some and many candidates in the bin of the cut: different, of one score, and of one id."""
    ids = _spread_ids(generator, count)
    for crowd in (4, 12, 40, 63, 65, 200):
        scores = np.linspace(0, 1, count, dtype=np.float32)
        first = max(0, count - half - crowd // 2)
        near = slice(first, first + crowd)
        scores[near] = scores[first] + np.arange(scores[near].size, dtype=np.float32) * np.float32(1e-7)
        yield SelectorRow(f"{crowd} at the cut", generator.permutation(scores), ids, half)
        scores[near] = scores[first]
        yield SelectorRow(f"{crowd} tied at the cut", generator.permutation(scores), ids, half)
        twins = np.full_like(ids, 5)
        yield SelectorRow(f"{crowd} twins at the cut", generator.permutation(scores), twins, half)
        better = int((scores > scores[first]).sum())
        yield SelectorRow(f"{crowd} twins at the cut, best one", generator.permutation(scores), twins, better + 1)
    scores = np.linspace(0, 1, count, dtype=np.float32)
    first = max(0, count - half - 50)
    tied = scores[first : first + 130]
    tied[:] = tied[0] + np.maximum(0, np.arange(tied.size, dtype=np.float32) - 99) * np.float32(1e-6)
    yield SelectorRow("100 tied beside others at the cut", generator.permutation(scores), ids, half)


def _draw_special(generator: np.random.Generator, count: int, half: int) -> Iterator[SelectorRow]:
    """Yield rows with zeros of both signs, infinities, NaN and padding."""
    normal, ids = _normal(generator, count), _spread_ids(generator, count)
    zeros = np.where(generator.random(count) < 0.5, np.float32(0), -np.float32(0)).astype(np.float32)
    yield SelectorRow("both zeros", zeros, ids, half)
    mixed = np.where(generator.random(count) < 0.2, zeros, normal).astype(np.float32)
    yield SelectorRow("zeros among others", mixed, ids, half)
    for name, value in (("infinity", np.inf), ("minus infinity", -np.inf), ("NaN", np.nan)):
        yield SelectorRow(f"some {name}", _put(normal, value, max(2, count // 5)), ids, half)
        yield SelectorRow(f"all {name}", np.full(count, value, np.float32), ids, half)
    padded = ids.copy()
    padded[generator.random(count) < 0.7] = -1
    yield SelectorRow("mostly padding", normal, padded, half)
    yield SelectorRow("mostly padding, tied", np.ones_like(normal), padded, max(1, half // 8))
    yield SelectorRow("all padding", normal, np.full_like(ids, -1), half)


def _put(scores: npt.NDArray[np.float32], value: float, step: int = 0) -> npt.NDArray[np.float32]:
    """A copy with ``value`` at the start, and every ``step`` candidates."""
    changed = scores.copy()
    changed[:: step or changed.size] = value
    return changed


def _cluster_ids(generator: np.random.Generator, count: int) -> npt.NDArray[np.int32]:
    """Distinct ids in two runs far apart, so that bins of ids have to be divided again."""
    half = count // 2
    ids = np.concatenate([np.arange(half), LARGE_ID + np.arange(count - half)])
    return generator.permutation(ids).astype(np.int32)


def _spread_magnitudes(generator: np.random.Generator, count: int, better: int) -> npt.NDArray[np.float32]:
    """Scores of all magnitudes, of which ``better`` exceed 1: a range divided evenly leaves most in one bin.

    Thousands of bins divide a range by e^8.3 at most, so the cut is still among many after the fourth time.
    """
    exponents = np.where(np.arange(count) < better, generator.uniform(0, 85, count), generator.uniform(-85, 0, count))
    return generator.permutation(np.exp(exponents)).astype(np.float32)


def _normal(generator: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    return generator.standard_normal(count).astype(np.float32)


def _spread_ids(generator: np.random.Generator, count: int) -> npt.NDArray[np.int32]:
    """Distinct ids up to ``LARGE_ID``, in no order."""
    step = LARGE_ID // count
    return (generator.permutation(count) * step).astype(np.int32)
