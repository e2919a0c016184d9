"""The explorer on the Triton kernels of the exchange: proved as they are, and mutants of them killed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tiebreak.cli import app
from tiebreak.errors import UnsupportedOperationError
from tiebreak.explore.merges import explore_merge, open_merge
from tiebreak.mutants.catalogue import MUTANTS
from tiebreak.mutants.loader import load_mutated
from tiebreak.sim.explorer.counterexample import explain
from tiebreak.sim.explorer.execution import Execution
from tiebreak.sim.explorer.exploration import Exploration, Options, explore
from tiebreak.sim.explorer.layout import READ, WRITE
from tiebreak.verify.families import base_scenario
from tiebreak.verify.scenario import Scenario

SMALLEST: dict[str, int | str] = {"rows": 1, "k": 1, "local": 1, "length": 1}


SETTLED = Options("ptx", merge_awaits=True, races=True, settle=True)


def scenario_of(discipline: str = "alternating", **fields: int | str) -> Scenario:
    return base_scenario(f"sim:{discipline}", **{"ranks": 2, "epochs": 2, **SMALLEST, **fields})


def explore_mutant(name: str, scenario: Scenario, settle: bool) -> Exploration:
    mutant = MUTANTS[name]
    package = load_mutated(mutant.name, mutant.edits)
    return explore_merge(scenario, replace(SETTLED, settle=settle), package)


@pytest.mark.parametrize(
    ("ranks", "mode", "discipline"),
    [
        (2, "eager", "acknowledged"),
        (2, "graph", "alternating"),
        (3, "eager", "alternating"),
        (4, "graph", "acknowledged"),
    ],
)
def test_settled_exchange_is_proved(ranks: int, mode: str, discipline: str) -> None:
    exploration = explore_merge(scenario_of(discipline, ranks=ranks, epochs=3, mode=mode), SETTLED)
    assert str(exploration.conclusion) == "PROVED"
    assert (exploration.counts.complete, exploration.counts.blocked) == (1, 0)
    assert exploration.counts.runs == len(exploration.program.threads) == ranks * ranks
    flags = ranks * (ranks - 1) * (1 if discipline == "alternating" else 2)
    assert exploration.settling is not None
    assert len(exploration.settling.visible) == flags, "only the flags of peers are left to the search"


def test_exchange_of_eight_ranks_is_proved() -> None:
    exploration = explore_merge(scenario_of(ranks=8, epochs=2), SETTLED)
    assert str(exploration.conclusion) == "PROVED"
    assert exploration.counts.complete == 1 and len(exploration.program.threads) == 64


def test_settled_exchange_has_the_classes_of_its_flags() -> None:
    scenario = scenario_of(ranks=3, epochs=3, mode="graph")
    exploration = explore_merge(scenario, Options("ptx", races=True, settle=True))
    assert str(exploration.conclusion) == "PROVED"
    assert exploration.counts.complete == 25 * 25


def test_graph_replays_take_fresh_data() -> None:
    with open_merge(scenario_of(epochs=3, mode="graph")) as (program, check):
        found: list[Execution] = []
        exploration = Exploration(program, SETTLED, check, visit=found.append)
        exploration.run()
    (execution,) = found
    scores = [event.value for event in execution.events if (event.location, event.kind) == ("r0.scores0+0", WRITE)]
    assert len(set(scores)) == 3, "another score before every replay"
    loads = [event for event in execution.events if (event.location, event.kind) == ("r0.out0+0", READ)]
    assert [execution.events[event.source or 0].value for event in loads] == [event.value for event in loads]
    assert len(loads) == 2, "the host reads each result but the last before it overwrites it"


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
    exploration = explore_mutant(name, scenario_of(discipline, epochs=epochs), settle=True)
    assert exploration.failures[0].property == property


def test_mutant_is_killed_also_in_a_whole_search() -> None:
    failures = explore_mutant("gpu-scope-publish", scenario_of(), settle=False).failures
    assert failures[0].property == "race"


def test_failure_of_kernels_is_played_again() -> None:
    mutant = MUTANTS["equality-wait"]
    options = Options("ptx", merge_awaits=True, races=True)
    with open_merge(scenario_of(), load_mutated(mutant.name, mutant.edits)) as (program, check):
        example = explain(program, explore(program, options, check).failures[0])
    assert example.replayed == 10


@pytest.mark.parametrize("name", ["relaxed-publish", "one-buffer-where-two-are-needed"])
def test_mutant_is_killed_in_graph_replays(name: str) -> None:
    failures = explore_mutant(name, scenario_of(epochs=3, mode="graph"), settle=True).failures
    assert failures[0].property == "race"


def test_all_gather_is_unsupported() -> None:
    with pytest.raises(UnsupportedOperationError, match="all-gather"):
        explore_merge(base_scenario("sim:all-gather", ranks=2, **SMALLEST), Options("ptx"))


def test_command_explores_a_merge() -> None:
    result = CliRunner().invoke(app, ["explore", "merge", "--ranks", "2", "--epochs", "1", "--awaits", "merged"])
    assert result.exit_code == 0
    assert "merge rows=1,k=1,local=1,length=1,epochs=1 under PTX" in result.output and "PROVED" in result.output
