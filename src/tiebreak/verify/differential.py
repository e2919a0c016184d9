"""Selections as one line of text, a backend held against the spec on them, and a corpus of those that failed.

A corpus is a folder with one file per failure, a line ``selection FIELD=VALUE,...``
or ``merge SCENARIO``.  What failed once on a GPU is run on every backend from
then on, on simulated ranks too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiebreak.backends import Backend, Packed
from tiebreak.backends.reference import SpecBackend
from tiebreak.errors import InputError, TiebreakError
from tiebreak.spec import packing

from .case import KINDS
from .command import require_clean
from .scenario import Scenario, parse_scenario
from .text import format_fields, parse_fields

ARRANGEMENTS = ("row-major", "rank-major", "peers")
IDENTITIES = ("spread", "dense", "repeated")
LARGEST_ID = 2**30 - 1
"""Largest id that every preset carries."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """One selection of gathered candidates, drawn from a seed.

    Attributes:
        ranks: Sources W of candidates.
        rows: Rows.
        local: Candidates per source and row.
        k: Slots per row.
        preset: Order preset.
        contract: ``order`` or ``set``.
        arrangement: ``row-major``, ``rank-major`` or ``peers``.
        implementation: Selection kernel, see ``Backend.select``.
        kind: Score distribution, see ``case.KINDS``.
        identities: ``spread`` over all ids, ``dense`` from 0 in random order, or ``repeated`` ones.
        padding: Per cent of the candidates that are padding.
        seed: Seed of scores, ids and padding.
    """

    ranks: int = 1
    rows: int = 1
    local: int = 1
    k: int = 1
    preset: str = "ieee"
    contract: str = "order"
    arrangement: str = "row-major"
    implementation: str = "auto"
    kind: str = "ties"
    identities: str = "spread"
    padding: int = 0
    seed: int = 0

    def text(self) -> str:
        """Return ``field=value`` pairs of the fields that differ from their defaults."""
        return format_fields(self)

    def draw(self) -> Packed:
        """Return the candidates in rank-major form, int32 [ranks, rows, local, 2]."""
        random = np.random.default_rng(self.seed)
        shape = (self.ranks, self.rows, self.local)
        gathered = np.empty((*shape, 2), dtype=np.int32)
        drawn = KINDS[self.kind](random, (self.ranks * self.rows, self.local))
        gathered[..., 0] = drawn.view(np.int32).reshape(shape)
        gathered[..., 1] = self._draw_ids(random)
        padded = random.random(shape) < self.padding / 100
        gathered[padded, 1] = random.choice([-1, -2, -(2**31)], int(padded.sum()))
        return gathered

    def _draw_ids(self, random: np.random.Generator) -> Packed:
        """Return ids, distinct within a row unless they are ``repeated``."""
        shape, count = (self.ranks, self.rows, self.local), self.ranks * self.local
        if self.identities == "repeated":
            return random.integers(0, max(count // 2, 1), shape).astype(np.int32)
        distance = 1 if self.identities == "dense" else LARGEST_ID // max(count, 1)
        rows = [random.permutation(count) * distance for _ in range(self.rows)]
        whole = np.array(rows, dtype=np.int32).reshape(self.rows, self.ranks, self.local)
        return whole.transpose(1, 0, 2)


def compare_with_spec(backend: Backend, selection: Selection) -> str:
    """Return how a backend's selection differs from the spec's, or nothing."""
    gathered = selection.draw()
    if selection.arrangement == "row-major":
        gathered = packing.gather_row_major(list(gathered))
    arguments = (gathered, selection.k, selection.preset, selection.arrangement, selection.contract)
    expected = SpecBackend().select(*arguments)
    try:
        actual = backend.select(*arguments, selection.implementation)
    except TiebreakError as error:
        return f"{type(error).__name__}: {error}"
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, not {expected.shape}"
    wrong = np.argwhere(actual != expected)
    if not len(wrong):
        return ""
    row, slot = (int(index) for index in wrong[0])
    return (
        f"{len(wrong)} slots differ, the first in row {row}, slot {slot}: "
        f"expected id {expected[row, slot]}, got {actual[row, slot]}"
    )


def require_same(backend: Backend, selection: Selection) -> None:
    """Hold a selection against the spec, for use in tests.

    Raises:
        AssertionError: It differs; the message says where, and what was selected from.
    """
    message = compare_with_spec(backend, selection)
    if message:
        raise AssertionError(f"{backend.name}: {message}\nselection {selection.text()}")


def save_failure(folder: Path, failing: Selection | Scenario) -> Path:
    """Add a failing input to a corpus, and return its file; the same input has the same file."""
    line = f"{'merge' if isinstance(failing, Scenario) else 'selection'} {failing.text()}\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{line.partition(' ')[0]}-{hashlib.sha256(line.encode()).hexdigest()[:12]}.txt"
    path.write_text(line, encoding="utf-8")
    return path


def load_failure(path: Path) -> Selection | Scenario:
    """Read one file of a corpus.

    Raises:
        InputError: It is no line of a corpus.
    """
    kind, _, text = path.read_text(encoding="utf-8").strip().partition(" ")
    if kind == "merge":
        return parse_scenario(text)
    if kind == "selection":
        return parse_fields(Selection, text)
    raise InputError(
        f"corpus file {path}", value=kind, limit="starts with selection or merge", remedy="correct or remove it"
    )


def rerun(backend: Backend, failing: Selection | Scenario) -> None:
    """Run an input of a corpus again, on any backend.

    Raises:
        AssertionError: A property is broken.
    """
    if isinstance(failing, Scenario):
        require_clean(backend, failing, "default")
    else:
        require_same(backend, failing)


@contextmanager
def keep_failure(folder: Path) -> Iterator[Callable[[Backend, Selection | Scenario], None]]:
    """Yield ``rerun``, and add the last input that failed to a corpus; after shrinking that is the smallest."""
    failing: list[Selection | Scenario] = []

    def run(backend: Backend, drawn: Selection | Scenario) -> None:
        try:
            rerun(backend, drawn)
        except AssertionError:
            failing.append(drawn)
            raise

    try:
        yield run
    finally:
        if failing:
            save_failure(folder, failing[-1])
