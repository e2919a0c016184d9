"""``tiebreak bench ptx``: what it counts, and that it checks the output first."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from tiebreak.bench import ptx
from tiebreak.bench.command import app
from tiebreak.bench.inputs import draw_input
from tiebreak.errors import MissingBackendError, SimulationError
from tiebreak.impl import kernel_store

ARCHITECTURE = "sm_100a"
ARGUMENTS = ("ptx", "--candidates", "256", "--k", "64", "--samples", "1", "--kind", "random")


@pytest.mark.cutedsl
def test_both_executions_count_the_same_instructions() -> None:
    plain, watched = ptx.measure_machine(256, 64, ["tie-heavy"], ARCHITECTURE, samples=1, seed=1)
    assert (plain.races, watched.races) == (False, True)
    assert plain.thread_instructions == watched.thread_instructions > 100 * ptx.THREADS
    assert plain.rate == plain.thread_instructions / plain.seconds


@pytest.mark.cutedsl
def test_a_wrong_output_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def shift(*arguments: Any) -> Any:
        drawn = draw_input(*arguments)
        drawn.expected[0, 0] += 1
        return drawn

    monkeypatch.setattr(ptx, "draw_input", shift)
    with pytest.raises(SimulationError, match="specification"):
        next(ptx.measure_machine(256, 64, ["random"], ARCHITECTURE, samples=1, seed=1))


@pytest.mark.cutedsl
def test_the_command_prints_a_row_per_execution() -> None:
    result = CliRunner().invoke(app, [*ARGUMENTS, "--arch", ARCHITECTURE])
    assert result.exit_code == 0, result.output
    assert result.output.count("random") == 2


def test_a_compiler_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_store, "find_compiler", lambda: None)
    monkeypatch.setenv("TIEBREAK_CACHE", "/nonexistent")
    with pytest.raises(MissingBackendError):
        next(ptx.measure_machine(256, 64, ["random"], "sm_90a", samples=1, seed=1))
