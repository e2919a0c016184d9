"""Programs that are interpreted once per history: the same executions and findings without the interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tiebreak.backends import Outcome
from tiebreak.backends.simulated import SimulatedBackend
from tiebreak.mutants.catalogue import MUTANTS
from tiebreak.mutants.loader import load_mutated
from tiebreak.sim.fabric import SimulatedFabric, run_ranks
from tiebreak.sim.histories import Histories
from tiebreak.verify.scenario import Scenario

SMALL = Scenario(transport="symmetric", rows=1, k=2, local=2, length=8, owner_rows=0)
CASES = {
    "sound": SMALL,
    "three ranks, by owner, replayed": replace(SMALL, ranks=3, owner_rows=1, mode="graph", discipline="acknowledged"),
    "dies": replace(SMALL, fault="dies", fault_rank=1, fault_step=30),
    "late": replace(SMALL, fault="late", fault_rank=0, fault_step=25),
    "stalled": replace(SMALL, fault="stalled", fault_rank=1, fault_step=40),
    "skips": replace(SMALL, fault="skips", fault_rank=0, fault_step=1),
}


def see(outcome: Outcome) -> tuple[object, ...]:
    """All that an execution shows."""
    outputs = [[output.tolist() for output in own] for own in outcome.outputs]
    errors = [repr(error) for error in outcome.errors]
    return outputs, errors, outcome.violations, outcome.schedule, outcome.table, outcome.rank_steps, outcome.struck


@pytest.mark.parametrize("name", CASES)
def test_an_execution_is_the_same_without_the_interpreter(name: str) -> None:
    histories = Histories()
    backend = SimulatedBackend(session=histories.open)
    expected = see(SimulatedBackend().run(CASES[name], "default"))
    assert see(backend.run(CASES[name], "default")) == expected
    interpreted, performed = histories.interpreted, histories.performed
    assert interpreted > 0
    assert see(backend.run(CASES[name], "default")) == expected
    assert histories.interpreted == interpreted, "nothing is new the second time"
    assert histories.performed > performed


def test_the_interpreter_goes_on_where_a_history_is_new() -> None:
    histories = Histories()
    backend = SimulatedBackend(session=histories.open)
    for schedule in ("default", "random:1", "pct:2:1:3"):
        expected = see(SimulatedBackend().run(SMALL, schedule))
        assert see(backend.run(SMALL, schedule)) == expected
    before = histories.interpreted
    # Other values at the same places: what programs read decides.
    other = replace(SMALL, seed=7)
    assert see(backend.run(other, "default")) == see(SimulatedBackend().run(other, "default"))
    assert histories.interpreted > before
    assert histories.performed > 0


@pytest.mark.parametrize("name", ["relaxed-publish", "no-wait-for-publish", "one-buffer-where-two-are-needed"])
def test_findings_name_the_same_lines(name: str) -> None:
    mutant = MUTANTS[name]
    package = load_mutated(mutant.name, mutant.edits)
    plain = SimulatedBackend(mutant.scenario.backend, package)
    histories = Histories()
    backend = SimulatedBackend(mutant.scenario.backend, package, histories.open)
    found = 0
    for schedule in mutant.schedules[:3]:
        expected = see(plain.run(mutant.scenario, schedule))
        assert see(backend.run(mutant.scenario, schedule)) == expected
        interpreted = histories.interpreted
        assert see(backend.run(mutant.scenario, schedule)) == expected
        assert histories.interpreted == interpreted
        found += bool(expected[2])
    assert found


def test_memory_lies_where_it_lay_and_holds_what_it_should() -> None:
    def host(fabric: SimulatedFabric) -> tuple[int, list[float], int, list[int]]:
        given = fabric.upload(torch.tensor([1.0, 2.0 + fabric.rank]), "given")
        fresh = torch.empty(3, dtype=torch.int32)
        content = fresh.tolist()
        fresh.zero_()
        return given.data_ptr(), given.tolist(), fresh.data_ptr(), content

    histories = Histories()
    first, second = (run_ranks(host, 2, session=histories.open) for _ in range(2))
    assert first == second
    assert [given for _, given, _, _ in first] == [[1.0, 2.0], [1.0, 3.0]]
    assert len({address for one in first for address in (one[0], one[2])}) == 4
    assert all(content == [0x7FA5A5A5] * 3 for *_, content in second), "poison, whatever the last execution left"
