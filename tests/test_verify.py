"""The main job: planning, judging, shrinking, replaying, and its command line."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tiebreak.backends import Outcome
from tiebreak.backends.reference import SpecBackend
from tiebreak.backends.registry import NAMES, expand_names, make_backend
from tiebreak.errors import InputError, MissingBackendError, PeerTimeoutError
from tiebreak.mutants.catalogue import MUTANTS
from tiebreak.report.model import decode_report
from tiebreak.sim.fabric import SimulatedFabric
from tiebreak.verify import checks, runner
from tiebreak.verify.case import KINDS, draw_cases
from tiebreak.verify.command import require_clean
from tiebreak.verify.families import FAMILIES, PTX_STRIDES, Effort
from tiebreak.verify.job import Request, replay_scenario, run_request
from tiebreak.verify.judgement import judge
from tiebreak.verify.mutation import mutated_backend
from tiebreak.verify.oracle import select_row
from tiebreak.verify.runner import applies, plan_tasks, property_names
from tiebreak.verify.scenario import CONTRACTS, Scenario, parse_scenario
from tiebreak.verify.shrinking import smaller_scenarios

QUIET = Console(quiet=True)


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tiebreak", *words], capture_output=True, text=True, check=False)


@given(
    st.builds(
        Scenario,
        ranks=st.integers(1, 8),
        kind=st.sampled_from(list(KINDS)),
        seed=st.integers(0, 2**40),
        starts=st.booleans(),
        discipline=st.sampled_from(["alternating", "acknowledged"]),
        epoch=st.sampled_from([0, 2**63 - 3]),
    )
)
def test_scenario_texts_round_trip(scenario: Scenario) -> None:
    assert parse_scenario(scenario.text()) == scenario


@pytest.mark.parametrize(
    "text",
    ["", "ranks", "ranks=two", "ranks=0", "k=0", "rows=-1", "fault=dead,ranks=1", "speed=3", "starts=yes", "mode=lazy"],
)
def test_a_malformed_scenario_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_scenario(text)


def test_an_unknown_distribution_is_refused() -> None:
    with pytest.raises(InputError, match="kinds are"):
        draw_cases(Scenario(kind="lucky"))


def test_the_oracle_orders_special_values_as_measured_on_public_kernels() -> None:
    words = {
        "nan": 0x7FC00000, "inf": 0x7F800000, "one": 0x3F800000, "zero": 0x0, "minus zero": 0x80000000,
        "minus one": 0xBF800000, "minus inf": 0xFF800000, "minus nan": 0xFFC00000,
    }  # fmt: skip
    names = list(words)

    def order(preset: str) -> list[str]:
        return [names[number] for number in select_row(words.values(), range(8), 8, preset)]

    assert order("vllm-cutedsl") == names
    assert order("vllm-triton") == [*names[1:7], "nan", "minus nan"]
    assert order("ieee") == order("vllm-triton")
    assert order("torch") == ["nan", "minus nan", *names[1:7]]


def test_every_scenario_is_planned_once_and_more_rounds_extend_fewer() -> None:
    for family in FAMILIES:
        small = list(family.plan("sim:alternating", Effort(rounds=1)))
        large = list(family.plan("sim:alternating", Effort(rounds=2)))
        assert len(set(small)) == len(small)
        assert set(small) <= set(large)


def test_one_rank_alone_has_no_peer_that_could_fail() -> None:
    faults = next(family for family in FAMILIES if family.property == "faults-named")
    assert list(faults.plan("sim:alternating", Effort(ranks=(1,)))) == []
    assert {scenario.ranks for scenario, _ in faults.plan("sim:alternating", Effort(ranks=(1, 2, 3)))} == {2, 3}


def test_every_property_is_run_on_some_backend() -> None:
    planned = set()
    for task in plan_tasks(NAMES, Effort()):
        if task.check >= 0:
            planned.add(runner.CHECKS[task.check].property)
        else:
            planned.update(runner.judged_properties(FAMILIES[task.family], task.backend))
    assert planned == set(property_names())
    assert not any(applies(family, "spec") for family in FAMILIES if family.flags or family.schedules)


def test_long_runs_of_compiled_selectors_meet_full_and_padded_rows_of_the_public_shape(monkeypatch) -> None:
    class Selector(SpecBackend):
        def select(self, gathered, k, preset, arrangement, contract="order"):
            seen.append((gathered.shape, (gathered[..., 1] < 0).any(), contract))
            return super().select(gathered, k, preset, arrangement, contract)

    seen: list[tuple[object, ...]] = []
    long = Effort(level="deep")
    monkeypatch.setattr(checks, "PUBLIC_SHAPE", (1, 2, 40, 8))
    assert list(checks.check_public_shape(Selector(), long)) == []
    monkeypatch.setattr(Selector, "name", "ptx:sm_100a")
    assert list(checks.check_public_shape(Selector(), Effort())) == [] == seen
    trials = list(checks.check_public_shape(Selector(), long))
    assert len({trial.label for trial in trials}) == len(seen) == 4 * len(KINDS)
    assert not any(trial.message for trial in trials)
    assert {each[1:] for each in seen} == {(padded, contract) for padded in (True, False) for contract in CONTRACTS}
    monkeypatch.setattr(SpecBackend, "select", lambda *_: np.full((1, 8), 7, np.int32))
    assert all(trial.message for trial in checks.check_public_shape(Selector(), long))


def test_a_replayed_graph_is_given_the_column_offsets_of_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a graph reads must live as long as it, and be written anew like everything else that it reads."""
    upload, forgotten = SimulatedFabric.upload, []

    def forget(self: SimulatedFabric, tensor: torch.Tensor, name: str) -> torch.Tensor:
        if name.startswith("starts"):
            forgotten.append(name)
            tensor = torch.full_like(tensor, 2**30)
        return upload(self, tensor, name)

    monkeypatch.setattr(SimulatedFabric, "upload", forget)
    scenario = Scenario(rows=3, epochs=3, row_counts=2, starts=True, mode="graph", data_points=False)
    assert judge(scenario, make_backend("sim:alternating").run(scenario, "default")) == []
    assert len(forgotten) >= 2


def test_the_judge_notices_each_way_to_be_wrong() -> None:
    scenario = Scenario(ranks=2, epochs=1, rows=1, k=2, local=2, length=5, kind="random")
    right = SpecBackend().run(scenario, "default")
    assert judge(scenario, right) == []
    wrong = [[np.array(output) for output in outputs] for outputs in right.outputs]
    wrong[1][0][0] = wrong[1][0][0][::-1]
    named = {finding.property for finding in judge(scenario, Outcome(wrong, [None, None]))}
    assert named == {"exact-order", "agreement"}
    assert [one.property for one in judge(scenario, Outcome([right.outputs[0], []], [None, None]))] == ["progress"]
    for reported, broken in (
        ("race", "race-free"),
        ("uninitialised-read", "initialised-memory"),
        ("deadlock", "progress"),
    ):
        outcome = replace(right, violations=[(reported, "")])
        assert [finding.property for finding in judge(scenario, outcome)] == [broken]


def test_the_judge_requires_the_right_error_of_the_survivors() -> None:
    scenario = Scenario(ranks=3, epochs=1, rows=1, fault="dead")
    error = PeerTimeoutError("late", peer=1, epoch=1, flag="published")
    found = judge(scenario, Outcome([[], [], []], [error, None, None]))
    assert "blames rank 1" in found[0].message
    assert "rank 1 should end with PeerTimeoutError" in found[1].message


def test_smaller_scenarios_are_smaller_and_end() -> None:
    fields = {"ranks": 4, "rows": 5, "row_counts": 6, "owner_rows": 2, "kind": "ties", "seed": 9}
    scenario, steps = Scenario(**fields, starts=True, mode="graph", launches="separate"), 0
    while smaller := list(smaller_scenarios(scenario)):
        scenario, steps = smaller[0], steps + 1
        assert steps < 100
    assert (scenario.ranks, scenario.rows, scenario.k, scenario.epochs, scenario.kind) == (2, 1, 1, 1, "equal")
    assert (scenario.row_counts, scenario.owner_rows) == (1, Scenario.owner_rows)
    assert scenario.launches == Scenario.launches


def test_a_clean_run_reports_every_cell_and_exits_0(tmp_path: Path) -> None:
    request = Request(
        quick=True, backends=("spec", "sim:alternating"), only=("exact-order", "theorem"), workers=1, report=tmp_path
    )
    assert run_request(request, QUIET) == 0
    report = decode_report((tmp_path / "report.json").read_bytes())
    assert {(cell.property, cell.backend) for cell in report.cells} == {
        (name, backend) for name in ("exact-order", "theorem") for backend in ("spec", "sim:alternating")
    }
    assert all(cell.executions for cell in report.cells if cell.result == "passed")
    assert {path.name for path in tmp_path.iterdir()} >= {"report.json", "index.html", "junit.xml"}


def test_a_broken_implementation_exits_1_with_a_replay_that_fails_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = MUTANTS["tie-to-highest-id"]
    broken = mutated_backend(mutant)
    monkeypatch.setattr(runner, "make_backend", lambda name: broken)
    request = Request(quick=True, backends=("sim:alternating",), only=("exact-order",), workers=1, report=tmp_path)
    assert run_request(request, QUIET) == 1
    (cell,) = json.loads((tmp_path / "report.json").read_text())["cells"]
    failure = cell["failures"][0]
    assert "expected" in failure["message"]
    words = shlex.split(failure["replay"])
    assert words[:2] == ["tiebreak", "replay"]
    scenario, schedule = words[2], words[words.index("--schedule") + 1]
    assert parse_scenario(scenario).ranks == 2
    assert replay_scenario(scenario, schedule, "sim:alternating", mutant.name, QUIET) == 1
    assert replay_scenario(scenario, schedule, "sim:alternating", "", QUIET) == 0


def test_a_captured_file_of_candidates_is_selected_on_every_backend(tmp_path: Path) -> None:
    path = tmp_path / "captured.npz"
    scores = np.array([[1, 1, 0, 2]], dtype=np.float32)
    np.savez(path, candidate_scores=scores, candidate_ids=np.array([[9, 3, -1, 4]], dtype=np.int32))
    assert run_request(Request(input=path, backends=("spec", "sim:alternating"), report=tmp_path / "out"), QUIET) == 0
    cells = json.loads((tmp_path / "out" / "report.json").read_text())["cells"]
    assert [(cell["property"], cell["result"]) for cell in cells] == [("captured-input", "passed")] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verify", "--backend", "fpga"], "backend is 'fpga'"),
        (["verify", "--backend", "cuda"], "torch sees none"),
        (["verify", "--ranks", "0"], "--ranks is 0"),
        (["verify", "--preset", "alphabetical"], "alphabetical"),
        (["verify", "--quick", "--deep"], "exclude each other"),
        (["verify", "--only", "beauty"], "properties are"),
        (["verify", "--only", "theorem", "--backend", "sim"], "says nothing about sim:alternating"),
        (["verify", "--input", "nowhere.npz"], "nowhere.npz"),
        (["verify", "--target", "nowhere:nothing"], "nowhere"),
        (["replay", "ranks=2", "--schedule", "fast"], "forms are"),
        (["replay", "ranks=2", "--backend", "sim:acknowledged"], "the scenario belongs to sim:alternating"),
        (["replay", "ranks=2", "--mutant", "gremlin"], "mutants are"),
        (["replay", "ranks=2", "--schedule", "replay:1:r7.p0"], "step 1 of the schedule"),
        (["verify", "--report", "/dev/null/report"], "must be a folder that can be written"),
        (["verify", "--sideways"], "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_misuse_exits_2_and_says_why(words: list[str], message: str) -> None:
    result = run_command(*words)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_failing_test_prints_the_events_and_one_replay_command() -> None:
    mutant = MUTANTS["relaxed-publish"]
    with pytest.raises(AssertionError) as caught:
        require_clean(mutated_backend(mutant), mutant.scenario, "random:4")
    text = str(caught.value)
    assert text.startswith("race-free: ")
    assert "step | rank 0" in text
    (replay,) = [line for line in text.splitlines() if line.startswith("replay: tiebreak replay ")]
    words = shlex.split(replay)
    assert (
        replay_scenario(words[3], words[words.index("--schedule") + 1], mutant.scenario.backend, mutant.name, QUIET)
        == 1
    )


@pytest.mark.parametrize(
    "request_",
    [
        Request(replay_input="k=1;0:0"),
        Request(target="torch:topk", backends=("spec",)),
        Request(target="torch:topk", ranks=(2,)),
        Request(target="torch:topk", only=("theorem",)),
        Request(input=Path("captured.npz"), only=("theorem",)),
    ],
    ids=["replay-input", "backend", "ranks", "only", "input"],
)
def test_an_option_without_effect_is_refused(request_: Request) -> None:
    with pytest.raises(InputError, match="has no effect"):
        run_request(request_, QUIET)


def test_backends_by_name() -> None:
    assert expand_names(["sim", "spec", "sim:alternating"]) == [
        "sim:alternating",
        "sim:acknowledged",
        "sim:all-gather",
        "spec",
    ]
    assert make_backend("spec").name == "spec"
    with pytest.raises(MissingBackendError):
        expand_names(["cuda"])
    with pytest.raises(InputError, match="it stands for"):
        make_backend("sim")
    assert {make_backend(name).name for name in NAMES} == set(NAMES)
    assert Scenario(transport="all-gather").backend == "sim:all-gather"


@pytest.mark.parametrize(("backend", "message"), [("cuda", "torch sees none"), ("tpu", "backends are")])
def test_pytest_refuses_a_backend_that_cannot_run(backend: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing(backend):\n    pass\n")
    command = [sys.executable, "-m", "pytest", f"--backend={backend}", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr + result.stdout


def test_pytest_runs_a_body_per_backend_and_prints_the_choice(tmp_path: Path) -> None:
    (tmp_path / "test_body.py").write_text("def test_body(backend, world_size, schedule):\n    assert backend.name\n")
    command = [sys.executable, "-m", "pytest", "-v", "--ranks=2", "--schedule=random:7", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    assert "tiebreak: backend spec, sim; ranks 2; schedule random:7" in result.stdout
    assert "[spec-world_size=2-schedule=random:7]" in result.stdout
    assert "backend sim:all-gather: 1 passed, 0 failed" in result.stdout


def test_every_field_of_a_scenario_is_documented() -> None:
    documented = (Scenario.__doc__ or "") + (Scenario.__mro__[1].__doc__ or "")
    assert all(f"{field.name}:" in documented for field in fields(Scenario))


@pytest.mark.cutedsl
def test_targets_of_the_ptx_machine_share_the_inputs_out() -> None:
    """Each runs kernels of its own, so each runs the checks; a long run leaves nothing out."""
    names = expand_names(["ptx"])
    tasks = plan_tasks(["sim:alternating", *names], Effort())
    planned = {backend: {task.check for task in tasks if task.backend == backend} - {-1} for backend in names}
    assert len({frozenset(each) for each in planned.values()}) == 1 and all(planned.values())
    for level, stride in PTX_STRIDES.items():
        kept = [{number for number in range(48) if Effort(level=level).on(name).keeps(number)} for name in names]
        assert all(len(each) == 48 // stride for each in kept)
        assert len(set().union(*kept)) == min(48, 3 * 48 // stride)
    assert Effort(level="quick").on("sim:alternating").stride == 1
