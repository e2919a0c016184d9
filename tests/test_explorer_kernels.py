"""The explorer on the Triton kernels of the exchange: proved as they are, and mutants of them killed."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tiebreak.cli import app
from tiebreak.errors import UnsupportedOperationError
from tiebreak.explore.merges import explore_merge, open_merge
from tiebreak.mutants.catalogue import MUTANTS
from tiebreak.mutants.loader import load_mutated
from tiebreak.sim.explorer.counterexample import explain
from tiebreak.sim.explorer.exploration import Exploration, Options, explore
from tiebreak.verify.families import base_scenario
from tiebreak.verify.scenario import Scenario

SMALLEST = {"rows": 1, "k": 1, "local": 1, "length": 1}


def scenario_of(discipline: str = "alternating", **fields: int) -> Scenario:
    return base_scenario(f"sim:{discipline}", **{"ranks": 2, "epochs": 2, **SMALLEST, **fields})


def explore_mutant(name: str, scenario: Scenario) -> Exploration:
    mutant = MUTANTS[name]
    package = load_mutated(mutant.name, mutant.edits)
    return explore_merge(scenario, Options("ptx", merge_awaits=True, races=True), package)


@pytest.mark.parametrize("discipline", ["alternating", "acknowledged"])
def test_exchange_is_proved(discipline: str) -> None:
    exploration = explore_merge(scenario_of(discipline), Options("ptx", merge_awaits=True, races=True))
    assert str(exploration.conclusion) == "PROVED"
    assert (exploration.counts.complete, exploration.counts.blocked) == (1, 0)
    assert exploration.counts.runs == len(exploration.program.threads) == 4


def test_exchange_has_the_classes_of_its_flags() -> None:
    exploration = explore_merge(scenario_of(), Options("ptx", distinct=True, races=True))
    assert str(exploration.conclusion) == "PROVED"
    assert (exploration.counts.complete, exploration.counts.redundant) == (3, 0)


@pytest.mark.parametrize(
    ("name", "discipline", "epochs", "property"),
    [
        ("relaxed-publish", "alternating", 2, "race"),
        ("relaxed-wait", "alternating", 2, "race"),
        ("gpu-scope-publish", "alternating", 2, "race"),
        ("gpu-scope-wait", "alternating", 2, "race"),
        ("publish-before-push", "alternating", 2, "race"),
        ("no-wait-for-publish", "alternating", 2, "race"),
        ("equality-wait", "alternating", 2, "progress"),
        ("relaxed-acknowledge", "acknowledged", 3, "race"),
    ],
)
def test_mutant_is_killed(name: str, discipline: str, epochs: int, property: str) -> None:
    exploration = explore_mutant(name, scenario_of(discipline, epochs=epochs))
    assert exploration.failures[0].property == property


def test_failure_of_kernels_is_played_again() -> None:
    mutant = MUTANTS["equality-wait"]
    options = Options("ptx", merge_awaits=True, races=True)
    with open_merge(scenario_of(), load_mutated(mutant.name, mutant.edits)) as (program, check):
        example = explain(program, explore(program, options, check).failures[0])
    assert example.replayed == 10


def test_host_that_changes_inputs_is_unsupported() -> None:
    with pytest.raises(UnsupportedOperationError, match="between launches"):
        explore_merge(base_scenario("sim:alternating", ranks=2, mode="graph", **SMALLEST), Options("ptx"))


def test_command_explores_a_merge() -> None:
    result = CliRunner().invoke(app, ["explore", "merge", "--ranks", "2", "--epochs", "1", "--awaits", "merged"])
    assert result.exit_code == 0
    assert "merge rows=1,k=1,local=1,length=1,epochs=1 under PTX" in result.output and "PROVED" in result.output
