"""Verdicts, failures, shards, checkpoints, samples and counterexamples of the explorer, and its command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiebreak.cli import app
from tiebreak.errors import InputError, ReplayError, UnsupportedOperationError
from tiebreak.explore.pictures import draw_diagram, write_graph, write_trace
from tiebreak.explore.table import draw_table
from tiebreak.sim.explorer import exploration as module
from tiebreak.sim.explorer.checkpoint import resume, save
from tiebreak.sim.explorer.counterexample import explain
from tiebreak.sim.explorer.exploration import Exploration, Options, explore
from tiebreak.sim.explorer.families import Steps, flag_barrier, mp, straight
from tiebreak.sim.explorer.models import find_model
from tiebreak.sim.explorer.operations import Barrier, Lanes, Load, Order, Scope, Store, at_least, equal_to
from tiebreak.sim.explorer.program import Program, Thread, parallel
from tiebreak.sim.explorer.verdicts import Verdict

MODELS = ("sc", "rc11", "ptx")


def message_passing(store: Order = Order.RELEASE, wait: Order = Order.ACQUIRE, scope: Scope = Scope.SYSTEM) -> Program:
    """Plain data behind a flag."""

    def consume() -> Steps:
        yield at_least("flag", 1, wait, scope)
        value = yield Load("data", Order.WEAK)
        assert value == 1, f"the data is {value}"

    return parallel("MP", straight(Store("data", 1, Order.WEAK), Store("flag", 1, store, scope)), consume)


@pytest.mark.parametrize("model", MODELS)
def test_released_data_is_proved(model: str) -> None:
    exploration = explore(message_passing(), Options(model, races=True))
    assert exploration.conclusion.verdict is Verdict.PROVED
    assert exploration.counts.complete == 1


@pytest.mark.parametrize("model", ["rc11", "ptx"])
@pytest.mark.parametrize(("store", "wait"), [(Order.RELAXED, Order.ACQUIRE), (Order.RELEASE, Order.RELAXED)])
def test_data_can_be_stale_without_release_or_acquire(model: str, store: Order, wait: Order) -> None:
    exploration = explore(message_passing(store, wait), Options(model))
    assert [failure.message for failure in exploration.failures] == ["the data is 0"]


@pytest.mark.parametrize("model", MODELS)
def test_race_is_found_also_where_the_value_is_right(model: str) -> None:
    exploration = explore(message_passing(Order.RELAXED), Options(model, races=True, stop=False))
    assert "race" in [failure.property for failure in exploration.failures]


def test_scope_counts_under_ptx_only() -> None:
    narrow = message_passing(scope=Scope.GPU)
    assert explore(narrow, Options("rc11", races=True)).conclusion.verdict is Verdict.PROVED
    assert explore(narrow, Options("ptx")).conclusion.verdict is Verdict.FAILED
    same = Program(tuple(Thread(thread.body, thread.name, cta=index) for index, thread in enumerate(narrow.threads)))
    assert explore(same, Options("ptx", races=True)).conclusion.verdict is Verdict.PROVED


@pytest.mark.parametrize("store", [Order.RELEASE, Order.RELAXED])
def test_release_after_a_barrier_covers_the_other_threads(store: Order) -> None:
    writer = straight(Store("data", 1, Order.WEAK), Barrier("cta", 2))
    signaller = straight(Barrier("cta", 2), Store("flag", 1, store))
    reader = message_passing().threads[1].body
    threads = (Thread(writer, gpu=0), Thread(signaller, gpu=0), Thread(reader, gpu=1))
    verdict = explore(Program(threads), Options("ptx", races=True)).conclusion.verdict
    assert verdict is (Verdict.PROVED if store is Order.RELEASE else Verdict.FAILED)


def test_barrier_has_phases() -> None:
    def rank(own: int, peer: int) -> Steps:
        for epoch in (1, 2, 3):
            yield Store(own, epoch, Order.WEAK)
            yield Barrier("cta", 2)
            value = yield Load(peer, Order.WEAK)
            assert value == epoch
            yield Barrier("cta", 2)

    exploration = explore(parallel("phases", lambda: rank(0, 1), lambda: rank(1, 0)), Options("ptx", races=True))
    assert exploration.conclusion.verdict is Verdict.PROVED
    assert exploration.counts.complete == 1


def test_barrier_that_nobody_else_reaches_is_a_deadlock() -> None:
    exploration = explore(parallel("alone", straight(Barrier("cta", 2)), straight()))
    message = "signal never sent: nobody is left to end the wait of thread 0; waits for ever: thread 0: barrier cta"
    assert exploration.failures[0].message == message


def test_lanes_that_wait_are_not_those_that_ran_before() -> None:
    lanes = Lanes((at_least("x", 1), at_least("x", 1)))
    exploration = explore(parallel("lanes", straight(Lanes((Load("x"), Load("x"))), lanes), straight()))
    message = exploration.failures[0].message
    assert message.startswith("signal never sent: nobody is left to end the wait of thread 0")
    assert message.count("thread 0: wait until x >= 1") == 2


def test_lost_signal_is_reported_with_what_everybody_waits_for() -> None:
    crossed = parallel("crossed", *[straight(at_least(a, 1), Store(b, 1)) for a, b in ("xy", "yx")])
    exploration = explore(crossed, Options("ptx"))
    assert str(exploration.conclusion) == "FAILED(progress)"
    assert "thread 0: wait until x >= 1 (acquire.sys), which stays 0; thread 1" in exploration.failures[0].message


@pytest.mark.parametrize("merge", [False, True])
def test_value_that_passes_by_starves_a_wait_for_equality(merge: bool) -> None:
    passing = parallel("passing", straight(equal_to("flag", 1)), straight(Store("flag", 1), Store("flag", 2)))
    assert str(explore(passing, Options("sc", merge)).conclusion) == "FAILED(progress)"
    assert explore(passing, Options("sc", merge, fair=False)).conclusion.verdict is Verdict.PROVED


def test_merged_awaits_tell_values_apart_that_do_not_stay() -> None:
    stays = parallel("stays", straight(at_least("x", 1)), straight(Store("x", 1), Store("x", 2)))
    assert [explore(stays, Options("sc", merge)).counts.complete for merge in (False, True)] == [2, 1]
    goes = parallel("goes", straight(equal_to("x", 1)), straight(Store("x", 1), Store("x", 2), Store("x", 1)))
    assert [explore(goes, Options("sc", merge)).counts.complete for merge in (False, True)] == [2, 2]


def test_merged_await_may_end_late() -> None:
    def waits() -> Steps:
        yield Store("y", 1)
        yield at_least("x", 1)

    def writes() -> Steps:
        yield Store("x", 1)
        yield Store("x", 2)
        return (yield Load("y"))

    results: set[object] = set()
    program = parallel("late", waits, writes)
    exploration = Exploration(program, Options("sc", True), visit=lambda execution: results.add(execution.results))
    exploration.run()
    assert results == {(None, 0), (None, 1)}
    assert exploration.counts.complete == 2


def test_endless_thread_is_bounded() -> None:
    def body() -> Steps:
        number = 0
        while True:
            number += 1
            yield Store("x", number)

    exploration = explore(parallel("endless", body), Options(steps=5))
    assert str(exploration.conclusion) == "BOUNDED(5)"
    assert exploration.counts.cut == 1


def test_unsupported_operation_is_named() -> None:
    def body() -> Steps:
        yield Load("x")
        raise UnsupportedOperationError("multimem.red")

    assert str(explore(parallel("unsupported", body)).conclusion) == "UNSUPPORTED(multimem.red)"


def test_check_sees_every_complete_execution() -> None:
    def check(execution: object) -> str | None:
        return "flag without data" if execution.results[1] == (1, 0) else None

    assert explore(mp(), Options("sc"), check).conclusion.verdict is Verdict.PROVED
    assert str(explore(mp(), Options("rc11"), check).conclusion) == "FAILED(check)"


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_counts_of_shards_add_up(shards: int) -> None:
    parts = [explore(flag_barrier(4, 2), Options(shard=shard, shards=shards)) for shard in range(shards)]
    assert sum(part.counts.complete for part in parts) == 463
    assert all(part.counts.complete > 0 and part.conclusion.verdict is Verdict.UNKNOWN for part in parts)


def test_shards_have_no_class_in_common() -> None:
    keys: list[object] = []
    for shard in range(4):
        options = Options("rc11", shard=shard, shards=4, split=3)
        Exploration(flag_barrier(3, 2), options, visit=lambda execution: keys.append(execution.key)).run()
    assert len(keys) == len(set(keys)) == 24


@pytest.mark.parametrize("merge", [False, True])
def test_checkpoint_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: bool) -> None:
    monkeypatch.setattr(module, "CHUNK", 40)
    program = flag_barrier(3, 2, "==", 2) if merge else flag_barrier(3, 2)
    whole = explore(program, Options("ptx", merge)).counts
    part = Exploration(program, Options("ptx", merge))
    part.run(pause=lambda: part.counts.steps > 10)
    assert part.conclusion.verdict is Verdict.UNKNOWN
    assert part.counts.complete < whole.complete
    save(part, tmp_path / "checkpoint")
    again = resume(tmp_path / "checkpoint", program)
    again.run()
    assert (again.counts.complete, again.counts.steps) == (whole.complete, whole.steps)
    assert again.conclusion.verdict is Verdict.PROVED


def test_checkpoint_of_another_program_is_refused(tmp_path: Path) -> None:
    save(Exploration(flag_barrier(2, 2)), tmp_path / "checkpoint")
    with pytest.raises(ReplayError, match="flag barrier, 2 ranks"):
        resume(tmp_path / "checkpoint", flag_barrier(3, 2))


def test_samples_are_called_samples() -> None:
    exploration = Exploration(flag_barrier(3, 2), Options("ptx"))
    assert str(exploration.sample(25, seed=3)) == "SAMPLED(25)"
    assert exploration.counts.complete == 25
    failing = Exploration(message_passing(Order.RELAXED), Options("ptx"))
    assert failing.sample(200).verdict is Verdict.FAILED


def test_progress_and_estimate_end_at_the_whole() -> None:
    exploration = explore(flag_barrier(3, 2))
    assert exploration.progress == pytest.approx(1.0)
    assert exploration.estimate == pytest.approx(24.0)


def test_counterexample_is_short_and_played_again() -> None:
    program = message_passing(Order.RELAXED)
    failing = explore(program, Options("ptx", races=True))
    example = explain(program, failing.failures[0])
    assert (len(example.schedule), example.switches, example.replayed, example.attempts) == (4, 1, 10, 10)
    table = draw_table(program, example)
    assert "-> store data = 1 (weak)" in table and "executed again 10 times out of 10" in table
    assert draw_diagram(program, example).count("stroke-dasharray") == 1
    trace = json.loads(write_trace(program, example))["traceEvents"]
    assert sorted({record["ph"] for record in trace}) == ["M", "X", "f", "s"]
    assert "label=missing, color=red" in write_graph(program, example)


def test_counterexample_leaves_out_what_does_not_matter() -> None:
    base = message_passing(Order.RELAXED)
    program = Program((*base.threads, Thread(straight(Store("other", 1), Load("other")), gpu=2)))
    example = explain(program, explore(program, Options("ptx")).failures[0])
    assert {event.thread for event in example.schedule} == {0, 1}


def test_replay_notices_another_program() -> None:
    program = message_passing(Order.RELAXED)
    failure = explore(program, Options("ptx")).failures[0]
    assert explain(message_passing(Order.RELEASE), failure).replayed == 0


def test_wrong_options_are_refused() -> None:
    with pytest.raises(InputError, match="memory model is 'tso'"):
        find_model("tso")
    with pytest.raises(InputError, match="shard is 2"):
        Options(shard=2, shards=2)
    with pytest.raises(InputError, match="lanes is 63"):
        explore(parallel("wide", straight(Lanes(tuple(Store(lane, 1) for lane in range(63))))))
    with pytest.raises(InputError, match="a barrier stands alone"):
        explore(parallel("mixed", straight(Lanes((Barrier("cta", 1), Store("x", 1))))))


def test_many_events_and_locations_fit() -> None:
    stores = straight(*[Store(("row", row), row) for row in range(300)], Store("flag", 1, Order.RELEASE))
    loads = straight(at_least("flag", 1), *[Load(("row", row)) for row in range(300)])
    exploration = explore(parallel("rows", stores, loads), Options("ptx", races=True))
    assert exploration.conclusion.verdict is Verdict.PROVED
    assert exploration.counts.complete == 1


def run_command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["explore", *arguments])
    return result.exit_code, result.output


def test_command_proves_the_barrier() -> None:
    code, output = run_command("flag_barrier", "--ranks", "3", "--epochs", "2")
    assert code == 0
    assert "PROVED" in output and "complete 24" in output and "not produced: load buffering" in output


def test_command_shows_the_failure(tmp_path: Path) -> None:
    code, output = run_command(
        "flag_barrier", "--ranks", "2", "--epochs", "2", "--set", "wait===", "--report", str(tmp_path)
    )
    assert code == 1
    assert "FAILED(progress)" in output and "for ever" in output
    assert {path.name for path in tmp_path.iterdir()} == {"schedule.svg", "schedule.trace.json", "execution.dot"}


def test_command_leaves_a_checkpoint_when_time_is_up(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    arguments = ("flag_barrier", "--ranks", "3", "--epochs", "3", "--checkpoint", str(checkpoint))
    code, output = run_command(*arguments, "--seconds", "1e-9")
    assert code == 3 and checkpoint.exists() and "UNKNOWN" in output
    code, output = run_command(*arguments)
    assert code == 0 and not checkpoint.exists() and "complete 576" in output


@pytest.mark.parametrize(
    "arguments",
    [("nothing",), ("flag_barrier",), ("mp", "--set", "n=2"), ("mp", "--strategy", "all"), ("mp", "--awaits", "none"),
     ("mp", "--shard", "1")],
)  # fmt: skip
def test_command_refuses_misuse(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["explore", *arguments])
    assert isinstance(result.exception, InputError)
