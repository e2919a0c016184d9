"""A rank dies, is late, stalls or leaves a merge out: nobody hangs and no result is silently wrong."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tiebreak.backends import Outcome
from tiebreak.backends.cuda import CudaBackend
from tiebreak.backends.ptx import PtxBackend
from tiebreak.backends.simulated import SimulatedBackend
from tiebreak.errors import InputError, PeerLostError, PeerTimeoutError, WorkspaceError
from tiebreak.mutants.catalogue import MUTANTS
from tiebreak.sim.fabric import SimulatedFabric, simulate
from tiebreak.sim.faults import Fault, FaultKind
from tiebreak.sim.histories import Histories
from tiebreak.sim.machine import Execution, Settings
from tiebreak.sim.schedulers.registry import make_scheduler
from tiebreak.verify.command import require_clean
from tiebreak.verify.families import Effort, base_scenario, plan_fault_matrix
from tiebreak.verify.finding import Finding
from tiebreak.verify.judgement import judge
from tiebreak.verify.mutation import mutated_backend
from tiebreak.verify.runner import TaskResult, collect_cells
from tiebreak.verify.scenario import STEP_FAULTS, Scenario, parse_scenario
from tiebreak.verify.shrinking import smaller_scenarios
from tiebreak.verify.strikes import Strikes, find_vacuous, join_strikes
from tiebreak.verify.survivors import expect_results

NO_IDS = np.empty((0, 0), np.int32)
DISCIPLINES = ("alternating", "acknowledged")
HISTORIES = Histories()
"""What programs did in the scenarios of this file, as a run of the matrix keeps it."""


def run_gathers(fault: Fault | None, ranks: int = 2, rounds: int = 3) -> Execution:
    """Every host gathers its rank so many times."""

    def host(fabric: SimulatedFabric) -> int:
        return sum(sum(fabric.gather_objects(fabric.rank)) for _ in range(rounds))

    scheduler = make_scheduler("default")
    scheduler.begin()
    return simulate([host] * ranks, scheduler, Settings(fault=fault))


class TestMachine:
    """What a fault does to simulated ranks."""

    def test_steps_are_counted_per_rank(self):
        execution = run_gathers(None)
        assert execution.results == [3, 3]
        assert sum(execution.rank_steps) == execution.steps
        assert execution.rank_steps == [4, 4]

    @pytest.mark.parametrize("step", range(4))
    def test_who_waits_for_a_dead_rank_hears_of_it(self, step: int):
        execution = run_gathers(Fault("dies", 1, step), ranks=3)
        assert execution.rank_steps[1] == step
        assert execution.results[1] is None
        assert execution.errors[1] is None
        if step < 3:
            assert all(isinstance(execution.errors[rank], PeerLostError) for rank in (0, 2))
            assert "rank 1" in str(execution.errors[0]) or "rank 2" in str(execution.errors[0])
        else:
            assert [execution.results[rank] for rank in (0, 2)] == [9, 9]

    def test_a_rank_that_dies_after_its_last_step_harms_nobody(self):
        execution = run_gathers(Fault("dies", 0, 99))
        assert execution.results == [3, 3]
        assert execution.violations == []

    @pytest.mark.parametrize("kind", STEP_FAULTS)
    def test_a_fault_strikes_at_each_step_and_nowhere_else(self, kind: FaultKind):
        steps = run_gathers(None).rank_steps[0]
        struck = [run_gathers(Fault(kind, 0, step)).struck for step in range(steps + 2)]
        assert struck == [True] * steps + [False] * 2
        assert not run_gathers(None).struck

    @pytest.mark.parametrize("kind", ["late", "stalled"])
    @pytest.mark.parametrize("step", range(5))
    def test_a_rank_that_comes_back_is_waited_for(self, kind: FaultKind, step: int):
        execution = run_gathers(Fault(kind, 0, step))
        assert execution.results == [3, 3]
        assert execution.violations == []

    def test_a_late_rank_goes_on_after_all_others_stopped(self):
        order: list[int] = []

        def host(fabric: SimulatedFabric) -> None:
            for _ in range(2):
                order.append(fabric.rank)
                fabric.gather_objects(None)

        scheduler = make_scheduler("default")
        scheduler.begin()
        simulate([host] * 3, scheduler, Settings(fault=Fault("late", 0, 0)))
        assert order[:3] == [1, 2, 0]

    def test_a_host_that_ends_without_an_error_is_still_waited_for(self):
        hosts = [lambda fabric: fabric.gather_objects(0), lambda fabric: None]
        scheduler = make_scheduler("default")
        scheduler.begin()
        execution = simulate(hosts, scheduler)
        assert [violation.property for violation in execution.violations] == ["deadlock"]


def small_matrix(discipline: str, ranks: int) -> list[Scenario]:
    """A sample of the matrix that meets every kind of fault."""
    whole = [job for job, _ in plan_fault_matrix(f"sim:{discipline}", Effort(ranks=(ranks,), level="deep"))]
    skips = [scenario for scenario in whole if scenario.fault == "skips"]
    return [*skips[:: ranks * 2], *whole[20 :: 43 if ranks == 2 else 97]]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_nobody_hangs_and_no_result_is_wrong(discipline: str, ranks: int):
    backend = SimulatedBackend(f"sim:{discipline}", session=HISTORIES.open)
    scenarios = small_matrix(discipline, ranks)
    assert {scenario.fault for scenario in scenarios} == {"skips", *STEP_FAULTS}
    ends: Counter[tuple[str, str]] = Counter()
    for scenario in scenarios:
        outcome = backend.run(scenario, "default")
        assert judge(scenario, outcome) == [], scenario.text()
        ends.update((scenario.fault, type(error).__name__) for error in outcome.errors)
    assert ends["skips", "PeerTimeoutError"] > 0
    assert ends["dies", "PeerTimeoutError"] + ends["dies", "PeerLostError"] > 0
    assert ends["late", "NoneType"] == sum(ends[key] for key in ends if key[0] == "late")


def test_the_whole_matrix_is_every_step_of_every_rank():
    effort = Effort(ranks=(2, 3, 4, 8), level="deep")
    matrix = [scenario for scenario, _ in plan_fault_matrix("sim:alternating", effort)]
    assert {scenario.ranks for scenario in matrix} == {2, 3}
    for ranks in (2, 3):
        for owner_rows in (0, 1):
            part = [one for one in matrix if (one.ranks, one.owner_rows) == (ranks, owner_rows)]
            sound = replace(part[0], fault="none", fault_rank=0, fault_step=0)
            steps = SimulatedBackend("sim:alternating").run(sound, "default").rank_steps
            struck = {(one.fault_rank, one.fault_step, one.fault) for one in part if one.fault in STEP_FAULTS}
            assert struck == {
                (rank, step, fault) for rank in range(ranks) for step in range(steps[rank]) for fault in STEP_FAULTS
            }
            left_out = {(one.fault_rank, one.fault_step) for one in part if one.fault == "skips"}
            assert left_out == {(rank, epoch) for rank in range(ranks) for epoch in range(sound.epochs)}


def test_deaths_in_a_publication_end_in_the_named_error():
    # Somewhere between its first step and its last the rank dies when only the flags are missing.
    backend = SimulatedBackend("sim:alternating")
    sound = base_scenario("sim:alternating", rows=1, k=2, local=2, length=8, owner_rows=0)
    last = backend.run(sound, "default").rank_steps[1]
    kinds = set()
    for step in range(0, last, 6):
        scenario = replace(sound, fault="dies", fault_rank=1, fault_step=step)
        outcome = backend.run(scenario, "default")
        assert judge(scenario, outcome) == []
        kinds.add(type(outcome.errors[0]))
        if isinstance(outcome.errors[0], PeerTimeoutError):
            assert outcome.errors[0].peer == 1
            assert (outcome.outputs[0][-1] == -1).all()
    assert kinds == {PeerLostError, PeerTimeoutError}


def test_an_implementation_that_forgets_its_timeouts_is_caught():
    backend = mutated_backend(MUTANTS["timeout-not-recorded"])
    caught = 0
    for step in (20, 30, 40):
        scenario = base_scenario(
            backend.name, rows=1, k=2, local=2, length=8, fault="dies", fault_rank=1, fault_step=step
        )
        caught += bool(judge(scenario, backend.run(scenario, "default")))
    assert caught > 0


def fused_matrix(ranks: int) -> list[Scenario]:
    """The matrix of the fused merge."""
    return [job for job, _ in plan_fault_matrix("ptx:sm_100a", Effort(ranks=(ranks,), level="deep"))]


@pytest.mark.cutedsl
@pytest.mark.parametrize("ranks", [2, 3])
def test_survivors_of_the_fused_merge_end_in_the_error_that_names_the_rank(ranks: int):
    whole = fused_matrix(ranks)
    strikes, backend = Strikes(), PtxBackend("ptx:sm_100a")
    faults = [scenario for scenario in whole if scenario.fault != "none"]
    assert all(scenario.launches == "fused" for scenario in whole)
    for scenario in [*faults[:1], *faults[40 :: 61 if ranks == 2 else 211]]:
        outcome = backend.run(scenario, "default")
        findings = judge(scenario, outcome)
        assert findings == [], scenario.text()
        strikes.note(scenario, outcome, findings)
    assert strikes.struck == strikes.scenarios and set(strikes.scenarios) == {"skips", *STEP_FAULTS}
    assert strikes.ends["skips: PeerTimeoutError"] > 0
    assert strikes.ends["dies: PeerTimeoutError"] + strikes.ends["stalled: PeerTimeoutError"] > 0
    assert {end for end in strikes.ends if end.startswith("late")} == {"late: all merges"}


@pytest.mark.cutedsl
def test_the_matrix_of_the_fused_merge_is_every_step_of_every_rank():
    for sound, *faults in map(fused_matrix, (2, 3)):
        steps = PtxBackend("ptx:sm_100a").run(sound, "default").rank_steps
        assert sound.fault == "none" and sound.launches == "fused"
        struck = {(one.fault_rank, one.fault_step, one.fault) for one in faults if one.fault in STEP_FAULTS}
        assert struck == {
            (rank, step, fault) for rank in range(sound.ranks) for step in range(steps[rank]) for fault in STEP_FAULTS
        }


class TestStrikes:
    """Counts of what became of faults."""

    sound = Scenario(ranks=2, epochs=2)
    dies = Scenario(ranks=2, fault="dies", fault_rank=1, fault_step=2)

    def test_a_run_says_what_struck_what_hung_and_what_was_wrong(self):
        strikes = Strikes()
        strikes.note(self.sound, Outcome([[], []], [None, None], rank_steps=[2, 3]), [])
        timeout = PeerTimeoutError("wait", peer=1, epoch=2, flag="published")
        strikes.note(self.dies, Outcome([[], []], [timeout, None], struck=True), [])
        hung = Outcome([[], []], [None, None], [("deadlock", "nobody moves")], struck=True)
        strikes.note(self.dies, hung, [Finding("progress", "nobody moves")])
        strikes.note(self.dies, Outcome([[], []], [None, None]), [Finding("exact-order", "3 instead of 4")])
        dies, late, skips, stalled = join_strikes([strikes, Strikes()]).counts()
        assert (dies.scenarios, dies.struck, dies.places, dies.hangs, dies.wrong) == (3, 2, 5, 1, 1)
        assert (late.places, late.scenarios, stalled.places, skips.places) == (5, 0, 5, 4)
        assert strikes.ends == {"dies: PeerTimeoutError": 1, "dies: all merges": 2}
        assert find_vacuous([dies]) == "dies struck at 2 of 5"

    @pytest.mark.parametrize(("struck", "result"), [(True, "passed"), (False, "failed")])
    def test_a_sample_whose_faults_do_not_strike_fails(self, struck: bool, result: str):
        part = TaskResult("sim:alternating")
        part.count(["fault-matrix"], self.dies.text())
        part.strikes["fault-matrix"] = Strikes()
        part.strikes["fault-matrix"].note(self.dies, Outcome([[], []], [None, None], struck=struck), [])
        (cell,) = collect_cells([part], ["sim:alternating"], ["fault-matrix"])
        assert cell.result == result
        assert [failure.message for failure in cell.failures] == ([] if struck else ["dies struck at 0 of 1"])

    def test_a_whole_matrix_that_lacks_a_step_fails(self):
        backend = SimulatedBackend()
        plan = [job for job, _ in plan_fault_matrix(backend.name, Effort(ranks=(2,), level="deep"))]
        strikes = Strikes()
        strikes.note(plan[0], backend.run(plan[0], "default"), [])
        assert plan[0].fault == "none"
        for scenario in plan[1:]:
            if scenario.owner_rows == plan[0].owner_rows and scenario.fault != "none":
                left = scenario.epochs - (scenario.fault == "skips")
                strikes.note(scenario, Outcome([[NO_IDS] * left] * 2, [None, None], struck=True), [])
        assert find_vacuous(strikes.counts()) == ""
        strikes.struck["late"] -= 1
        assert find_vacuous(strikes.counts()).startswith("late struck at ")


class TestJudgement:
    """The judge of survivors notices each way to be wrong."""

    scenario = Scenario(ranks=2, epochs=2, rows=1, k=2, local=2, length=5, kind="random", fault="dies", fault_rank=1)
    right = expect_results(scenario)
    nothing = np.full((1, 2), -1, np.int32)
    timeout = PeerTimeoutError("wait", peer=1, epoch=2, flag="published")

    def judge(self, outputs: list[np.ndarray], error: Exception | None) -> list[str]:
        outcome = Outcome([outputs, []], [error, None])
        return [finding.property for finding in judge(self.scenario, outcome)]

    def test_accepts_results_and_named_errors(self):
        assert self.judge(self.right, None) == []
        assert self.judge([self.right[0], self.nothing], self.timeout) == []
        assert self.judge([], PeerLostError("rank 1")) == []

    def test_notices_wrong_ids(self):
        assert self.judge([self.right[0][:, ::-1].copy(), self.right[1]], None) == ["exact-order"]
        assert "exact-order" in self.judge([self.right[0], self.right[1] + 1], self.timeout)

    def test_notices_a_failure_that_nobody_is_told_of(self):
        assert self.judge([self.right[0], self.nothing], None) == ["progress"]

    def test_notices_ids_after_a_failure(self):
        assert self.judge([self.nothing, self.right[1]], self.timeout) == ["exact-order"]

    def test_notices_a_rank_that_ends_early(self):
        assert self.judge(self.right[:1], None) == ["progress"]

    def test_notices_other_errors_and_wrong_names(self):
        assert self.judge([], WorkspaceError("closed")) == ["progress"]
        itself = PeerTimeoutError("wait", peer=0, epoch=1, flag="published")
        outcome = Outcome([[], []], [None, itself])
        stalled = replace(self.scenario, fault="stalled", fault_rank=1)
        messages = [finding.message for finding in judge(stalled, outcome)]
        assert any("blames rank 0, which is well" in message for message in messages)

    def test_knows_what_ranks_merge_that_are_out_of_step(self):
        skips = replace(self.scenario, fault="skips", fault_rank=1, fault_step=1)
        assert (expect_results(skips)[0] == self.right[0]).all()
        assert expect_results(skips)[1].size == 0
        first = expect_results(replace(skips, fault_step=0))
        assert first[0].shape == self.right[0].shape
        assert (first[0] != self.right[0]).any()


class TestScenario:
    """Faults have a place exactly where they can have one."""

    @pytest.mark.parametrize(
        ("fields", "name"),
        [
            ({"fault": "dead", "fault_rank": 1}, "fault_rank or fault_step"),
            ({"fault_step": 3}, "fault_rank or fault_step"),
            ({"fault": "dies", "fault_rank": 2}, "fault_rank"),
            ({"fault": "skips", "fault_step": 2}, "fault_step"),
            ({"fault": "late", "fault_step": -1}, "fault_step"),
        ],
    )
    def test_others_are_refused(self, fields: dict, name: str):
        with pytest.raises(InputError, match=name):
            Scenario(**fields)

    def test_it_is_one_line_of_text(self):
        scenario = Scenario(ranks=3, fault="stalled", fault_rank=2, fault_step=17)
        assert parse_scenario(scenario.text()) == scenario

    def test_it_can_be_made_smaller(self):
        scenario = Scenario(ranks=3, epochs=3, fault="skips", fault_rank=2, fault_step=2)
        assert all(one.fault_rank < one.ranks and one.fault_step < one.epochs for one in smaller_scenarios(scenario))

    def test_gpus_refuse_it(self):
        with pytest.raises(InputError, match="simulated ranks"):
            CudaBackend("cuda:alternating").run(Scenario(fault="dies"), "-")


HOSTS = """
import sys, types, torch.distributed as dist
from tiebreak.errors import PeerLostError
from tiebreak.impl.torch_fabric import TorchFabric
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
fabric = types.SimpleNamespace(rank=rank, world_size=2, _host_group=dist.group.WORLD)
assert TorchFabric.gather_objects(fabric, rank) == [0, 1]
if rank == 0:
    try:
        TorchFabric.gather_objects(fabric, rank)
    except PeerLostError as error:
        print("lost:", error)
"""


def test_a_process_group_that_loses_a_rank_says_so(tmp_path: Path):
    command = [sys.executable, "-c", HOSTS]
    hosts = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    output, _ = hosts[0].communicate(timeout=120)
    hosts[1].communicate(timeout=120)
    assert output.startswith("lost: a peer of rank 0")


def test_the_default_backends_run_the_faults_by_name():
    # A scenario of the matrix is replayed like any other.
    scenario = base_scenario(
        "sim:acknowledged", rows=1, k=2, local=2, length=8, fault="dies", fault_rank=0, fault_step=30
    )
    require_clean(SimulatedBackend("sim:acknowledged"), scenario, "random:3")
