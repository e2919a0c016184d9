"""Runs a captured file, given with ``--input``, on the chosen backends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tiebreak.backends import Backend
from tiebreak.inputs.captured import CapturedInput, load_input
from tiebreak.report.model import Cell, Failure

from .checks import Trial, check_scores, try_selection
from .families import Effort


def run_captured(path: Path, effort: Effort, backends: Sequence[Backend]) -> tuple[list[Cell], list[str]]:
    """Return one cell per backend for a captured file.

    Scores are sharded over the ranks; candidates are selected as they are.

    Raises:
        InputError: The file is malformed.
    """
    captured = load_input(path)
    return [_run(captured, path, effort, backend) for backend in backends], [str(captured)]


def _run(captured: CapturedInput, path: Path, effort: Effort, backend: Backend) -> Cell:
    begun = time.monotonic()
    trials = list(_trials(captured, effort, backend))
    wrong = next((trial for trial in trials if trial.message), None)
    ranks = " ".join(f"--ranks {rank}" for rank in effort.ranks)
    failures = (
        ()
        if wrong is None
        else (
            Failure(
                property="captured-input",
                backend=backend.name,
                message=f"{wrong.label}: {wrong.message}",
                schedule="",
                table="",
                replay=f"tiebreak verify --input {path} --backend {backend.name} --preset {effort.preset} {ranks}",
            ),
        )
    )
    return Cell(
        property="captured-input",
        backend=backend.name,
        executions=len(trials),
        inputs=len({trial.label for trial in trials}),
        result="failed" if failures else "passed",
        seconds=round(time.monotonic() - begun, 3),
        failures=failures,
    )


def _trials(captured: CapturedInput, effort: Effort, backend: Backend) -> Iterator[Trial]:
    if captured.form == "scores":
        yield from check_scores(backend, effort, captured.scores, captured.lengths, captured.name)
        return
    gathered = np.stack([captured.scores.view(np.int32), captured.ids], axis=-1)
    for k in sorted({1, min(256, captured.ids.shape[1]), captured.ids.shape[1]}):
        wrong = try_selection(backend, gathered, gathered[None], k, effort.preset, "row-major")
        yield Trial(f"{captured.name} k={k}", wrong)
