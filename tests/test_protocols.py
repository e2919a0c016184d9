"""Flag protocols in the explorer: the correct ones are proved, every mutant is killed, and shown in few events."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations

import pytest
from typer.testing import CliRunner

from tiebreak.cli import app
from tiebreak.errors import InputError, MissingBackendError, SimulationError
from tiebreak.explore import fused, mutation
from tiebreak.explore.fused import FUSED_MUTANTS
from tiebreak.explore.mutation import OPTIONS, list_correct, list_mutants, run_correct, run_explored
from tiebreak.explore.shortest import find_counterexample, find_failures
from tiebreak.mutants.protocols import PROTOCOL_MUTANTS, PROTOCOLS
from tiebreak.sim.explorer.counterexample import explain, replay
from tiebreak.sim.explorer.exploration import Exploration, explore
from tiebreak.sim.explorer.families import Steps, straight
from tiebreak.sim.explorer.layout import WRITE
from tiebreak.sim.explorer.operations import Load, Order, Store, at_least, equal_to
from tiebreak.sim.explorer.program import Program, parallel
from tiebreak.sim.explorer.schedule import collect_needs, order_events
from tiebreak.sim.protocols.push import ALTERNATING
from tiebreak.sim.protocols.rows import ROWS
from tiebreak.verify import job
from tiebreak.verify.scenario import Scenario


@pytest.mark.parametrize("name", PROTOCOLS)
def test_correct_protocol_is_proved(name: str) -> None:
    assert run_correct(name).verdict == "PROVED"


@pytest.mark.parametrize("name", PROTOCOL_MUTANTS)
def test_mutant_is_killed_and_drawn(name: str) -> None:
    result = run_explored(name)
    assert result.killed, result.message
    assert result.property in PROTOCOL_MUTANTS[name].failures
    example = result.counterexample
    assert example is not None and (example.replayed, example.attempts) == (10, 10)
    assert 'stroke="#d00"' in example.diagram
    assert "-> " in example.table and example.table.count("\n") >= 2


def test_catalogue_is_large_and_names_its_sources() -> None:
    assert len(PROTOCOL_MUTANTS) >= 80 and len(list_mutants()) >= 100
    assert all(mutant.source.startswith("https://") and mutant.rule for mutant in PROTOCOL_MUTANTS.values())
    assert len({(str(mutant.changed), mutant.protocol.name) for mutant in PROTOCOL_MUTANTS.values()}) == len(
        PROTOCOL_MUTANTS
    )
    kinds = {kind for mutant in PROTOCOL_MUTANTS.values() for kind in mutant.failures}
    assert kinds == {
        "race",
        "assertion",
        "lost signal",
        "signal never sent",
        "deadlock",
        "livelock",
        "starvation by residency",
    }


def test_kernels_of_a_mutant_are_explored() -> None:
    result = run_explored("merge/relaxed-publish")
    assert result.killed and result.property == "race"
    assert result.replay == "tiebreak explore merge --mutant relaxed-publish --awaits merged"
    assert result.counterexample is not None and "published_rows" in result.counterexample.table


def test_mutant_without_a_proof_of_its_protocol_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "PROTOCOLS", {**PROTOCOLS, "alternating": ALTERNATING.resize(slots=1)})
    monkeypatch.setattr(job, "list_correct", lambda: ["alternating", "relay"])
    names = ["alternating/no-wait", "relay/relaxed-wait"]
    monkeypatch.setitem(job.CHECKERS, "explorer", (names, run_explored))
    result = CliRunner().invoke(app, ["mutants", "--checker", "explorer", "--workers", "1"])
    assert result.exit_code == 1
    assert "killed by the explorer: 1 of 2" in result.output
    assert "correct: alternating: FAILED(assertion)" in result.output and "correct: relay: PROVED" in result.output


def test_every_mutant_belongs_to_something_correct() -> None:
    # Beside what mutants change there are the fused merge of more epochs, and its variants.
    others = set(list_correct()) - {mutation.find_correct(name) for name in list_mutants()}
    assert {name.partition("/")[0] for name in others} == {"fused"}
    assert {mutation.find_correct(name) for name in list_mutants()} <= set(list_correct())


def test_mutants_of_the_fused_merge_are_in_the_list() -> None:
    names = [name.removeprefix("fused/") for name in list_mutants() if name.startswith("fused/")]
    assert names == [*FUSED_MUTANTS] and len(names) >= 14
    assert all(mutant.source.startswith("https://") for mutant in FUSED_MUTANTS.values())
    assert {mutation.find_correct(f"fused/{name}") for name in names} == {
        "fused/epochs=1",
        "fused/epochs=1,local=2,k=2,length=4",
        "fused/epochs=2,mode=graph",
    }
    assert any("packets-one-by-one" in name for name in list_correct())


@pytest.mark.cutedsl
def test_mutant_of_the_fused_merge_is_killed_and_drawn() -> None:
    result = run_explored("fused/fused-packets-gpu")
    assert result.killed and result.property == "race"
    assert result.replay == "tiebreak explore fused --mutant fused-packets-gpu --awaits merged --set epochs=1"
    example = result.counterexample
    assert example is not None and (example.replayed, example.attempts) == (10, 10)
    assert 'stroke="#d00"' in example.diagram and "packets" in example.table


@pytest.mark.cutedsl
@pytest.mark.parametrize("name", ["fused/epochs=1", "fused/packets-one-by-one/epochs=1,local=2,k=2,length=4"])
def test_fused_merge_and_its_variant_are_proved(name: str) -> None:
    proof = run_correct(name)
    assert (proof.verdict, proof.classes) == ("PROVED", 1)


def test_a_list_that_cannot_be_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(scenario: Scenario) -> None:
        raise SimulationError("host", value="CuTeDSL is not installed")

    monkeypatch.setattr(fused, "find_compiler", lambda: None)
    monkeypatch.setattr(fused, "record_run", record)
    monkeypatch.setattr(job, "run_in_workers", lambda *_: pytest.fail("something was run"))
    for checker in ("explorer", "both"):
        error = CliRunner().invoke(app, ["mutants", "--checker", checker]).exception
        assert isinstance(error, MissingBackendError) and "pip install" in str(error)


def test_a_variant_without_a_proof_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "PROTOCOLS", {**PROTOCOLS, "alternating": ALTERNATING.resize(slots=1)})
    monkeypatch.setattr(job, "list_correct", lambda: ["alternating", "relay"])
    monkeypatch.setitem(job.CHECKERS, "explorer", (["relay/relaxed-wait"], run_explored))
    result = CliRunner().invoke(app, ["mutants", "--checker", "explorer", "--workers", "1"])
    assert result.exit_code == 1
    assert "killed by the explorer: 1 of 1" in result.output


def test_commands_show_a_mutant_and_refuse_others() -> None:
    run = CliRunner()
    shown = run.invoke(app, ["explore", "relay", "--mutant", "relaxed-signal", "--awaits", "merged"])
    assert (
        shown.exit_code == 1 and "-> load data" in shown.output and "executed again 10 times out of 10" in shown.output
    )
    proved = run.invoke(app, ["explore", "alternating", "--ranks", "3", "--set", "lanes=1", "--awaits", "merged"])
    assert proved.exit_code == 0 and "PROVED" in proved.output
    for arguments in (
        ["explore", "relay", "--mutant", "none"],
        ["explore", "relay", "--mutant", "relaxed-wait", "--ranks", "3"],
        ["explore", "relay", "--set", "slots=0"],
        ["mutants", "--checker", "nobody"],
    ):
        assert isinstance(run.invoke(app, arguments).exception, InputError), arguments


def test_steps_are_found_by_name() -> None:
    with pytest.raises(InputError, match="step is 'fence'"):
        ALTERNATING.drop("fence")
    moved = ALTERNATING.move("publish", before="push")
    assert [step.name for step in moved.steps][:3] == ["begin", "publish", "push"]


class TestLiveness:
    """Threads that wait for ever, told apart."""

    def reason(self, program: Program) -> str:
        return explore(program, OPTIONS).failures[0].message

    def test_cycle_of_waits(self) -> None:
        crossed = [straight(at_least(a, 1), Store(b, 1)) for a, b in ("xy", "yz", "zx")]
        assert self.reason(parallel("ring", *crossed)).startswith("deadlock: thread 0 -> thread 2 -> thread 1 -> ")

    def test_signal_that_was_overwritten(self) -> None:
        passing = parallel("passing", straight(equal_to("flag", 1)), straight(Store("flag", 1), Store("flag", 2)))
        assert self.reason(passing).startswith("lost signal: thread 0 never saw store flag = 1")

    def test_signal_that_nobody_sends(self) -> None:
        alone = parallel("alone", straight(at_least("flag", 2)), straight(Store("flag", 1)))
        assert self.reason(alone).startswith("signal never sent: nobody is left to end the wait of thread 0")

    def test_room_decides(self) -> None:
        full = self.reason(ROWS.resize(residency=1).program)
        assert full.startswith("starvation by residency: thread ") and "has no room, which thread" in full
        assert str(explore(ROWS.resize(residency=2).program, OPTIONS).conclusion) == "PROVED"

    def test_rows_of_one_rank_wait_for_no_room(self) -> None:
        lone = ROWS.resize(ranks=1, residency=1)
        assert str(explore(lone.program, OPTIONS).conclusion) == "PROVED"

    def test_ranks_that_give_way_for_ever(self) -> None:
        mutant = PROTOCOL_MUTANTS["locks/give-way-for-ever"]
        failure = find_failures(mutant.changed.program, replace(OPTIONS, steps=mutant.steps)).failures[0]
        assert failure.message.startswith("livelock: thread 0 repeats 3 steps, thread 1 repeats 3 steps")

    def poll(self, *others: Store) -> Exploration:
        def spin() -> Steps:
            while (yield Load("flag")) == 0:
                pass

        threads = (spin, straight(*others)) if others else (spin,)
        return explore(parallel("poll", *threads), replace(OPTIONS, steps=12))

    def test_poll_of_what_nobody_writes(self) -> None:
        assert self.poll().failures[0].message.startswith("livelock: thread 0 repeats 1 steps")
        assert self.poll(Store("other", 1)).failures[0].message.startswith("livelock: thread 0 repeats 1 steps")

    def test_poll_that_sees_the_value_in_the_end_is_no_livelock(self) -> None:
        assert str(self.poll(Store("flag", 1)).conclusion) == "BOUNDED(12)"


class TestShortness:
    """Fewest switches, then fewest events."""

    def example(self) -> Program:
        writer = straight(Store("d", 1, Order.WEAK), Store("f", 1), Store("e", 1, Order.WEAK))
        middle = straight(at_least("f", 1), Store("g", 1))
        reader = straight(at_least("g", 1), Load("d", Order.WEAK), Load("e", Order.WEAK))
        return parallel("three", writer, middle, reader)

    def test_switches_are_as_few_as_any_order_has(self) -> None:
        failures = find_failures(self.example(), OPTIONS).failures
        assert failures
        for failure in failures:
            events = failure.execution.events
            needs = collect_needs(failure.execution, failure.events or ())
            threads = {number: events[number].thread for number in needs}

            def switches(order: list[int], threads: dict[int, int] = threads) -> int:
                return sum(threads[a] != threads[b] for a, b in pairwise(order))

            assert len(needs) <= 8
            orders = [
                list(order)
                for order in permutations(needs)
                if all(needs[number] <= set(order[:place]) for place, number in enumerate(order))
            ]
            assert switches(order_events(failure.execution, needs)) == min(map(switches, orders))

    def test_shortest_of_all_failures_is_shown(self) -> None:
        program = PROTOCOL_MUTANTS["alternating/epoch-advanced-by-a-reader"].changed.program
        failures = find_failures(program, OPTIONS).failures
        sizes = [explain(program, failure).size for failure in failures]
        assert len(set(sizes)) > 1
        assert find_counterexample(program, OPTIONS, None, ()).size == min(sizes)

    def test_what_does_not_matter_is_left_out(self) -> None:
        program = PROTOCOL_MUTANTS["groups/opposite-order"].changed.program
        example = explain(program, explore(program, OPTIONS).failures[0])
        # Both ranks store and release their first message; nothing was read.
        assert [event.kind for event in example.schedule] == [WRITE] * 4

    def test_execution_is_that_of_the_program(self) -> None:
        wrong = PROTOCOL_MUTANTS["alternating/no-wait"].changed.program
        example = explain(wrong, explore(wrong, OPTIONS).failures[0])
        assert replay(wrong, example)
        assert not replay(ALTERNATING.program, example)

    def test_search_for_others_ends_early_where_nothing_fails(self) -> None:
        exploration = find_failures(ROWS.resize(epochs=2).program, OPTIONS, persist=False)
        assert not exploration.failures and not exploration.finished
        assert isinstance(exploration, Exploration)
