"""Shards as plain data, what follows from all of them, and pytest-xdist as what drives them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tiebreak.errors import InputError, ReplayError, WorkerError
from tiebreak.explore import shards
from tiebreak.explore import union as union_module
from tiebreak.explore.cluster import Distribution
from tiebreak.explore.command import ExploreRequest
from tiebreak.explore.counts import Expectation, read_manifest
from tiebreak.explore.shards import Part, Plan, Subject, Task, close_program, explore_shard, plan_shards
from tiebreak.explore.union import Union
from tiebreak.sim.explorer import exploration as module
from tiebreak.sim.explorer.exploration import Options
from tiebreak.sim.explorer.families import FAMILIES, Steps, straight
from tiebreak.sim.explorer.operations import Load, Order, Store, at_least
from tiebreak.sim.explorer.program import Program, parallel
from tiebreak.sim.explorer.refinement import Refinement
from tiebreak.sim.explorer.verdicts import Verdict

BARRIER = ExploreRequest("flag_barrier", ("ranks=4", "epochs=2"))
LOST_SIGNAL = ExploreRequest("flag_barrier", ("ranks=2", "epochs=2", "wait==="))


class Inline(Executor):
    """Runs what is submitted at once, but for what is held for ever, and what breaks."""

    def __init__(
        self, holds: Callable[[Task], bool] = lambda _: False, breaks: Callable[[Task], bool] = lambda _: False
    ):
        self.holds, self.breaks = holds, breaks
        self.tasks: list[Task] = []
        self.futures: list[Future[Any]] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        task = msgspec.json.decode(arguments[0], type=Task)
        self.tasks.append(task)
        self.futures.append(future)
        if self.holds(task):
            return future
        if self.breaks(task):
            future.set_exception(RuntimeError("the worker died"))
            return future
        try:
            future.set_result(function(*arguments, **options))
        except Exception as error:
            future.set_exception(error)
        return future


def explore_all(request: ExploreRequest, number: int, **options: Any) -> tuple[Union, Inline]:
    union, executor = Union(plan_shards(request, number)), Inline(**options)
    Distribution(union, executor).run()
    return union, executor


def run_part(plan: Plan, shard: int) -> Part:
    return msgspec.json.decode(explore_shard(msgspec.json.encode(Task(plan, shard, 60.0))), type=Part)


@pytest.fixture(scope="module")
def barrier() -> tuple[Plan, list[Part]]:
    plan = plan_shards(BARRIER, 3)
    return plan, [run_part(plan, shard) for shard in range(3)]


def is_small(expectation: Expectation) -> bool:
    return expectation.classes is not None and expectation.classes <= 6000


@pytest.mark.parametrize("expectation", [*filter(is_small, read_manifest())], ids=str)
def test_counts_of_shards_are_those_of_the_manifest(expectation: Expectation) -> None:
    parameters = tuple(f"{name}={str(value).lower()}" for name, value in expectation.arguments.items())
    awaits = "merged" if expectation.merge else "distinct"
    request = ExploreRequest(expectation.program, parameters, model=expectation.model, awaits=awaits)
    union, executor = explore_all(request, 3)
    counts = union.counts
    assert str(union.conclusion) == "PROVED"
    assert (counts.complete, counts.stuck, counts.blocked) == (expectation.classes, 0, 0)
    assert {task.shard for task in executor.tasks} == {0, 1, 2}


def test_shards_are_of_like_size(barrier: tuple[Plan, list[Part]]) -> None:
    plan, parts = barrier
    assert plan.split > 1 and parts[0].dealt[0] >= shards.PARTS_PER_SHARD * 3
    assert min(part.counts.complete for part in parts) > 463 // 6


def test_no_more_shards_than_parts_unless_they_are_asked_for() -> None:
    merged = ExploreRequest("flag_barrier", ("ranks=2", "epochs=2"), awaits="merged")
    assert plan_shards(merged, 8, exactly=False).shards == 1
    assert plan_shards(merged, 8).shards == 8
    union, _ = explore_all(merged, 8)
    assert (str(union.conclusion), union.counts.complete) == ("PROVED", 1)


@pytest.mark.parametrize(("program", "classes"), [("locks", 6), ("reset", 1), ("pads", 1)])
def test_shards_begin_anew_with_what_one_of_them_found_out(program: str, classes: int) -> None:
    union, _ = explore_all(ExploreRequest(program, awaits="merged"), 3)
    assert (str(union.conclusion), union.counts.complete) == ("PROVED", classes)
    assert union.plan.refinement.apart


def test_rounds_go_on_until_shards_know_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing is found out before the shards begin.
    monkeypatch.setattr(shards, "_look_ahead", lambda plan, *_: [(3, 3, plan.refinement)])
    union, executor = explore_all(ExploreRequest("locks", awaits="merged"), 3)
    assert union.rounds > 0 and union.plan.refinement.apart
    assert (str(union.conclusion), union.counts.complete) == ("PROVED", 6)
    assert len({task.plan.refinement for task in executor.tasks}) == union.rounds + 1


def pass_messages() -> Program:
    """A value that only seems to be settled, passed on by two flags."""

    def take(flag: str) -> Steps:
        yield at_least(flag, 1, Order.RELAXED)
        return (yield Load("data", Order.WEAK))

    give = straight(Store("data", 1, Order.WEAK), Store("first", 1), Store("second", 1))
    return parallel("messages", give, lambda: take("first"), lambda: take("second"))


def test_shards_of_a_settled_program_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Plan.make_options

    def settle(plan: Plan, shard: int) -> Options:
        return replace(make(plan, shard), settle=True, races=False)

    monkeypatch.setattr(Plan, "make_options", settle)
    monkeypatch.setattr(shards, "_look_ahead", lambda plan, *_: [(1, 1, plan.refinement)])
    monkeypatch.setitem(FAMILIES, "messages", pass_messages)
    union, executor = explore_all(ExploreRequest("messages"), 2)
    assert union.rounds == 1 and union.plan.refinement.visible >= {"'data'"}
    assert executor.tasks[0].plan.refinement.visible == frozenset()
    alone = module.explore(pass_messages(), Options("ptx"))
    assert (str(union.conclusion), union.counts.complete) == ("PROVED", alone.counts.complete)


def test_missing_shard_is_not_proved(barrier: tuple[Plan, list[Part]]) -> None:
    plan, parts = barrier
    union = Union(plan)
    for part in parts[:2]:
        union.add(part)
    assert str(union.conclusion) == "UNKNOWN(1 of 3 shards are missing, 2 the first)"
    union.add(parts[2])
    assert str(union.conclusion) == "PROVED"


def test_shard_that_was_there_is_refused(barrier: tuple[Plan, list[Part]]) -> None:
    plan, parts = barrier
    union = Union(plan)
    union.add(parts[0])
    with pytest.raises(InputError, match="shard is 0; one that has not come to its end"):
        union.add(parts[0])
    with pytest.raises(InputError, match="shard is 3; from 0 to 2"):
        union.add(msgspec.structs.replace(parts[0], shard=3))


@pytest.mark.parametrize(
    "other",
    [ExploreRequest("flag_barrier", ("ranks=3", "epochs=2")), replace(BARRIER, model="sc"),
     replace(BARRIER, awaits="merged"), replace(BARRIER, steps=9)],
)  # fmt: skip
def test_shard_of_another_program_is_refused(barrier: tuple[Plan, list[Part]], other: ExploreRequest) -> None:
    with pytest.raises(InputError, match="of the plan"):
        Union(plan_shards(other, 3)).add(barrier[1][0])


@pytest.mark.parametrize("change", [{"dealt": (1, 2)}, {"found": Refinement(apart=frozenset(["'x'"]))}])
def test_shards_that_divide_the_search_otherwise_prove_nothing(
    barrier: tuple[Plan, list[Part]], change: dict[str, Any]
) -> None:
    plan, parts = barrier
    union = Union(plan)
    for part in (*parts[:2], msgspec.structs.replace(parts[2], **change)):
        union.add(part)
    assert str(union.conclusion) == "UNKNOWN(shards did not divide the search alike)"


def test_failure_of_a_shard_cancels_the_others() -> None:
    def is_last(task: Task) -> bool:
        return task.shard == 3

    union, executor = explore_all(LOST_SIGNAL, 4, holds=is_last)
    assert str(union.conclusion) == "FAILED(progress)"
    assert union.pictures is not None and "lost signal" in union.pictures.table
    assert union.pictures.diagram.startswith("<svg") and "digraph" in union.pictures.graph
    assert executor.futures[3].cancelled()


def test_cut_short_is_bounded() -> None:
    union, _ = explore_all(ExploreRequest("inc", ("n=3",), steps=1), 2)
    assert str(union.conclusion) == "BOUNDED(1)" and union.counts.cut > 0


def test_unsupported_operation_decides() -> None:
    union, _ = explore_all(ExploreRequest("alternating", ("ranks=2",), awaits="merged"), 2)
    assert union.conclusion.verdict is Verdict.PROVED
    union.parts[0] = msgspec.structs.replace(union.parts[0], unsupported="something")
    assert union.is_decided and str(union.conclusion) == "UNSUPPORTED(something)"


def test_lost_shard_leaves_what_is_resumable(tmp_path: Path) -> None:
    def is_lost(task: Task) -> bool:
        return task.shard == 1

    union, _ = explore_all(BARRIER, 3, breaks=is_lost)
    why = "1 of 3 shards are missing, 1 the first: RuntimeError: the worker died"
    assert str(union.conclusion) == f"UNKNOWN({why})"
    union.save(tmp_path / "checkpoint")
    again, executor = Union.resume(tmp_path / "checkpoint", Subject.name(BARRIER), 3), Inline()
    Distribution(again, executor).run()
    assert [task.shard for task in executor.tasks] == [1]
    assert (str(again.conclusion), again.counts.complete) == ("PROVED", 463)


def test_shard_goes_on_from_the_checkpoint_that_came_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "CHUNK", 40)
    ticks = iter(range(1 << 30))
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(ticks)))
    union, executor = Union(plan_shards(BARRIER, 2)), Inline()
    looks: list[int] = []
    Distribution(union, executor, first=60.0).run(is_stopped=lambda: looks.append(1) or len(looks) > 3)
    assert union.conclusion.verdict is Verdict.UNKNOWN and 0 < union.progress < 1
    assert any(task.state for task in executor.tasks)
    union.save(tmp_path / "checkpoint")
    again = Union.resume(tmp_path / "checkpoint", Subject.name(BARRIER))
    done = again.counts.complete
    Distribution(again, Inline()).run()
    assert (str(again.conclusion), again.counts.complete) == ("PROVED", 463) and done < 463


def test_checkpoint_of_other_shards_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, subject = tmp_path / "checkpoint", Subject.name(BARRIER)
    Union(plan_shards(BARRIER, 3)).save(path)
    with pytest.raises(ReplayError, match="4 shards of Subject"):
        Union.resume(path, subject, 4)
    with pytest.raises(ReplayError, match="any shards of Subject"):
        Union.resume(path, Subject.name(replace(BARRIER, model="sc")))
    monkeypatch.setattr(union_module, "identify", lambda: {"sources": "others"})
    with pytest.raises(ReplayError, match="of the same versions"):
        Union.resume(path, subject)
    path.write_bytes(b"\xff nothing")
    with pytest.raises(ReplayError, match="one of several shards"):
        Union.resume(path, subject)


@pytest.mark.parametrize("entry", ["tiebreak", "sources", "python", "triton"])
def test_worker_with_other_sources_refuses(entry: str) -> None:
    plan = plan_shards(BARRIER, 2)
    other = msgspec.structs.replace(plan, identity={**plan.identity, entry: "another"})
    with pytest.raises(WorkerError, match=f"'{entry}': .*'{entry}': 'another'.*the same packages"):
        Distribution(Union(other), Inline()).run()


def test_kernels_travel_by_name() -> None:
    request = ExploreRequest("merge", ("ranks=3", "epochs=2"))
    try:
        union, _ = explore_all(request, 2)
    finally:
        close_program()
    assert (str(union.conclusion), union.counts.complete) == ("PROVED", 25)


DRIVEN = """
import os
from pathlib import Path

import pytest
from tiebreak.explore.shards import explore_shard

HERE = Path(__file__).parent


@pytest.mark.parametrize("shard", range(4))
def test_shard(shard):
    part = explore_shard((HERE / f"task-{shard}").read_bytes())
    (HERE / f"part-{shard}").write_bytes(part)
    (HERE / f"worker-{shard}").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_pytest_xdist_drives_shards(tmp_path: Path) -> None:
    plan = plan_shards(BARRIER, 4)
    for shard in range(4):
        (tmp_path / f"task-{shard}").write_bytes(msgspec.json.encode(Task(plan, shard, 60.0)))
    (tmp_path / "test_driven.py").write_text(DRIVEN)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
    assert len({(tmp_path / f"worker-{shard}").read_text() for shard in range(4)}) == 2
    union = Union(plan)
    for shard in range(4):
        union.add(msgspec.json.decode((tmp_path / f"part-{shard}").read_bytes(), type=Part))
    assert (str(union.conclusion), union.counts.complete) == ("PROVED", 463)
