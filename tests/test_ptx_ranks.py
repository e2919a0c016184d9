"""Compiled kernels of several ranks: clean on every target, and every seeded fault of a lowering is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tiebreak.backends import Outcome
from tiebreak.backends.host import HostProgram, Implementation
from tiebreak.backends.ptx import MAX_POLLS, PtxBackend
from tiebreak.errors import InputError
from tiebreak.impl.kernels_state import ERROR_KIND, INDEX_RANGE, NO_ERROR
from tiebreak.mutants.catalogue import MUTANTS as MUTANTS_OF_THE_SOURCE
from tiebreak.mutants.loader import load_mutated
from tiebreak.ptx.lowering_mutants import LOWERING_MUTANTS, LoweringMutant, Substitution
from tiebreak.ptx.ranks import make_session
from tiebreak.ptx.targets import ARCHITECTURES
from tiebreak.sim.fabric import SimulatedFabric, simulate
from tiebreak.sim.machine import Settings
from tiebreak.sim.schedulers.registry import make_scheduler
from tiebreak.verify.case import draw_cases
from tiebreak.verify.judgement import judge
from tiebreak.verify.scenario import Scenario

TRITON = Scenario(
    transport="symmetric", implementation="triton", launches="separate", rows=2, k=3, local=4, length=12, epochs=3
)
FUSED = Scenario(transport="symmetric", launches="fused", contract="set", rows=2, k=2, local=2, length=6, epochs=2)
SCHEDULES = {2: ("default", "random:1"), 3: ("pct:1:1:3",)}
MUTANTS = [mutant for mutant in LOWERING_MUTANTS.values() if not mutant.sound]
VARIANTS = [mutant for mutant in LOWERING_MUTANTS.values() if mutant.sound]
KILLS = {"race-free", "initialised-memory", "in-bounds", "progress"}


def as_parameter(mutant: LoweringMutant, *before: Any) -> Any:
    """Return a parameter of a test, which compiles a CuTeDSL kernel if it is about the fused merge."""
    marks = [pytest.mark.cutedsl] if mutant.scenario.launches == "fused" else []
    return pytest.param(*before, mutant, marks=marks, id=mutant.name)


def require_clean(architecture: str, scenario: Scenario, schedule: str) -> None:
    """Run a scenario and see that nothing is wrong."""
    assert judge(scenario, PtxBackend(f"ptx:{architecture}").run(scenario, schedule)) == []


@pytest.mark.parametrize("world_size", SCHEDULES)
@pytest.mark.parametrize("discipline", ["alternating", "acknowledged"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_compiled_exchanges_are_clean(architecture, world_size, discipline):
    scenario = replace(TRITON, ranks=world_size, discipline=discipline, kind="ties")
    for schedule in SCHEDULES[world_size]:
        require_clean(architecture, scenario, schedule)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_compiled_merges_by_owner_are_clean(architecture):
    require_clean(architecture, replace(TRITON, rows=3, row_counts=3, owner_rows=2, epochs=4), "random:1")


@pytest.mark.parametrize("form", ["graph", "starts", "turn-over", "all-gather", "one resident CTA"])
def test_other_forms_of_a_merge_are_clean(form):
    changes = {
        "graph": {"mode": "graph", "rows": 1, "epochs": 4},
        "starts": {"starts": True, "rows": 3, "kind": "special"},
        "turn-over": {"epoch": 2**63 - 3, "epochs": 5, "rows": 1},
        "all-gather": {"transport": "all-gather"},
        "one resident CTA": {"residency": 1},
    }[form]
    require_clean("sm_90a", replace(TRITON, **changes), "random:2")


@pytest.mark.parametrize("fault", ["fewer-rows", "dead", "one-fewer"])
def test_survivors_of_a_fault_end_in_the_error_that_names_it(fault):
    scenario = replace(TRITON, fault=fault, rows=2, k=2, local=2, length=6)
    outcome = PtxBackend("ptx:sm_90a").run(scenario, "random:1")
    assert judge(scenario, outcome) == []
    assert any(error is not None for error in outcome.errors)


@pytest.mark.cutedsl
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_compiled_merges_in_one_launch_are_clean(architecture):
    require_clean(architecture, FUSED, "random:1")


@pytest.mark.cutedsl
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_merge_that_fails_before_it_sends_uses_no_packets(monkeypatch, mode):
    scenario = replace(FUSED, mode=mode, epochs=3)
    warmed = []

    def warm_up(fabric, state, launch):
        # As on GPUs, whose kernels are loaded by a launch with an error on record.
        state[ERROR_KIND.value] = INDEX_RANGE.value
        launch()
        fabric.synchronize()
        state[ERROR_KIND.value] = NO_ERROR.value
        warmed.append(fabric.rank)

    monkeypatch.setattr(SimulatedFabric, "warm_up", warm_up)
    outputs: list[list[object]] = [[], []]
    hosts = [HostProgram(Implementation(), scenario, draw_cases(scenario), own, MAX_POLLS) for own in outputs]
    scheduler = make_scheduler("random:2")
    scheduler.begin()
    session = make_session("tiebreak.impl", "sm_100a")
    execution = simulate(hosts, scheduler, Settings(tolerate_stalls=True), session=session)
    assert warmed == [0, 1] or warmed == [1, 0]
    assert judge(scenario, Outcome(outputs, execution.errors)) == []


@pytest.mark.cutedsl
@pytest.mark.parametrize("form", ["three ranks", "graph", "dead", "a full row", "waiting CTAs fill the device"])
def test_other_forms_of_a_merge_in_one_launch(form):
    changes = {
        "three ranks": {"ranks": 3, "data_points": False},
        "graph": {"mode": "graph", "row_counts": 3, "epochs": 4},
        "dead": {"fault": "dead"},
        "a full row": {"rows": 1, "local": 128, "length": 512, "kind": "ties", "data_points": False},
        "waiting CTAs fill the device": {"residency": 1},
    }[form]
    require_clean("sm_100a", replace(FUSED, **changes), "random:2")


@pytest.mark.parametrize(("place", "mutant"), [as_parameter(mutant, place) for place, mutant in enumerate(MUTANTS)])
def test_what_a_lowering_loses_is_found(place, mutant):
    fused = mutant.scenario.launches == "fused"
    backend = PtxBackend(f"ptx:{'sm_100a' if fused else ARCHITECTURES[place % 3]}", edit=mutant.edit)
    outcomes = (judge(mutant.scenario, backend.run(mutant.scenario, schedule)) for schedule in mutant.schedules)
    found = next((findings for findings in outcomes if findings), [])
    assert {finding.property for finding in found} & KILLS
    assert any("PTX line" in finding.message for finding in found)


@pytest.mark.parametrize("variant", [as_parameter(variant) for variant in VARIANTS])
def test_another_correct_lowering_is_clean(variant):
    backend = PtxBackend("ptx:sm_90a", edit=variant.edit)
    for schedule in variant.schedules:
        assert judge(variant.scenario, backend.run(variant.scenario, schedule)) == []


@pytest.mark.parametrize(
    "name",
    [
        "publish-before-push",
        "one-buffer-where-two-are-needed",
        "gpu-scope-wait",
        "no-barrier-before-advance",
        "relaxed-returned",
        "equality-wait",
    ],
)
def test_bugs_in_the_source_are_found_in_what_it_compiles_to(name):
    mutant = MUTANTS_OF_THE_SOURCE[name]
    scenario = replace(mutant.scenario, implementation="triton", launches="separate")
    backend = PtxBackend("ptx:sm_90a", load_mutated(mutant.name, mutant.edits))
    outcomes = (judge(scenario, backend.run(scenario, schedule)) for schedule in mutant.schedules)
    found = next((findings for findings in outcomes if findings), [])
    assert {finding.property for finding in found} & set(mutant.properties)


def test_a_race_names_both_accesses_the_missing_edge_and_the_source():
    mutant = LOWERING_MUTANTS["wait-relaxed"]
    outcome = PtxBackend("ptx:sm_90a", edit=mutant.edit).run(mutant.scenario, "default")
    (_, message) = outcome.violations[0]
    assert "published_rows" in message
    assert "no chain of release.sys to acquire.sys" in message
    assert "publish: PTX line" in message
    assert "wait: PTX line" in message
    assert message.count("at kernels_exchange.py:") >= 2
    assert "relaxed.sys" in outcome.table


def test_a_schedule_replays():
    mutant = LOWERING_MUTANTS["acknowledge-relaxed"]
    backend = PtxBackend("ptx:sm_90a", edit=mutant.edit)
    first = backend.run(mutant.scenario, "random:7")
    again = backend.run(mutant.scenario, f"replay:{first.schedule}")
    assert first.violations
    assert (again.violations, again.steps, again.table) == (first.violations, first.steps, first.table)


def test_compiled_and_interpreted_kernels_agree_bit_for_bit():
    from tiebreak.backends.simulated import SimulatedBackend

    scenario = replace(TRITON, kind="special", ranks=3)
    compiled = PtxBackend("ptx:sm_121a").run(scenario, "random:3")
    interpreted = SimulatedBackend().run(scenario, "random:3")
    for ours, theirs in zip(compiled.outputs, interpreted.outputs, strict=True):
        assert all((mine == other).all() for mine, other in zip(ours, theirs, strict=True))


def test_a_poll_that_cannot_succeed_is_not_scheduled():
    cases = draw_cases(TRITON)
    outputs: list[list[object]] = [[], []]
    hosts = [HostProgram(Implementation(), TRITON, cases, own, MAX_POLLS) for own in outputs]
    scheduler = make_scheduler("random:5")
    scheduler.begin()
    execution = simulate(hosts, scheduler, session=make_session("tiebreak.impl", "sm_90a"))
    assert not execution.violations
    polls: dict[str, list[tuple[str, str]]] = {}
    for event in execution.trace.events:
        if event.action.startswith("load acquire"):
            polls.setdefault(event.agent, []).append((event.place, event.value))
    assert polls
    for own in polls.values():
        # The last poll of one wait, and the first by each of two instructions of the next.
        assert not [place for place in range(len(own) - 3) if len(set(own[place : place + 4])) == 1]


def test_an_edit_that_finds_nothing_is_refused():
    mutant = replace(LOWERING_MUTANTS["publish-relaxed"], edits=(Substitution(old="no such text", new=""),))
    outcome = PtxBackend("ptx:sm_90a", edit=mutant.edit).run(mutant.scenario, "default")
    assert all(isinstance(error, InputError) for error in outcome.errors if error is not None)
    assert any("no such text" in str(error) for error in outcome.errors)


def test_an_unknown_target_is_refused():
    with pytest.raises(InputError, match="sm_80"):
        PtxBackend("ptx:sm_80").run(TRITON, "default")
