"""Leaving out what is in order everywhere changes neither classes, nor failures, nor what executions look like."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.errors import InputError
from tiebreak.sim.explorer import exploration as module
from tiebreak.sim.explorer.checkpoint import resume, save
from tiebreak.sim.explorer.counterexample import explain
from tiebreak.sim.explorer.execution import Execution
from tiebreak.sim.explorer.exploration import Exploration, Options, explore
from tiebreak.sim.explorer.families import Steps, straight
from tiebreak.sim.explorer.judging import AtEnd
from tiebreak.sim.explorer.operations import (
    Await,
    Barrier,
    Lanes,
    Load,
    Operation,
    Order,
    Store,
    add,
    at_least,
    compare_and_swap,
    equal_to,
)
from tiebreak.sim.explorer.program import Body, Program, Thread, parallel
from tiebreak.sim.explorer.verdicts import Verdict

MODELS = ("sc", "rc11", "ptx")
WEAK, ACQUIRE, RELEASE = Order.WEAK, Order.ACQUIRE, Order.RELEASE

DATA = st.sampled_from(["a", "b", "c"])
FLAGS = st.sampled_from(["f", "g"])
ACCESSES = (
    st.builds(Load, DATA, st.just(WEAK))
    | st.builds(Store, DATA, st.integers(1, 2), st.just(WEAK))
    | st.builds(add, DATA, st.just(1))
)
SIGNALS = (
    st.builds(Store, FLAGS, st.just(1), st.sampled_from([Order.RELAXED, RELEASE]))
    | st.builds(at_least, FLAGS, st.just(1))
    | st.builds(equal_to, FLAGS, st.just(1))
    | st.builds(add, FLAGS, st.just(1), st.just(RELEASE))
)


@st.composite
def teams(draw: st.DrawFn) -> Program:
    """Two teams of one or two threads, which meet at two barriers, and up to seven blocks of operations."""
    sizes = [draw(st.integers(1, 2)) for _ in range(2)]
    places = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 2))
    bodies: dict[tuple[int, int, int], list[Operation | Lanes]] = {}
    for team, number, phase in draw(st.lists(places, min_size=3, max_size=7)):
        drawn = draw(st.lists(ACCESSES | SIGNALS, min_size=1, max_size=2))
        block = drawn[0] if len(drawn) == 1 else Lanes(tuple(drawn))
        bodies.setdefault((team, number % sizes[team], phase), []).append(block)
    threads = []
    for team, size in enumerate(sizes):
        for number in range(size):
            body: list[Operation | Lanes] = []
            for phase in range(3):
                body += bodies.get((team, number, phase), [])
                body += [Barrier((team, phase), size)] if phase < 2 else []
            threads.append(Thread(straight(*body), f"{team}.{number}", cta=number, gpu=team, team=team))
    return Program(tuple(threads), name="teams")


def classes_of(program: Program, options: Options) -> tuple[Exploration, dict[Hashable, Execution]]:
    found: dict[Hashable, Execution] = {}

    def note(execution: Execution) -> None:
        found[execution.key] = execution

    exploration = Exploration(program, options, visit=note)
    exploration.run()
    return exploration, found


@pytest.mark.parametrize("model", MODELS)
@given(program=teams())
def test_classes_are_those_of_the_whole_program(model: str, program: Program) -> None:
    whole, expected = classes_of(program, Options(model, stop=False))
    settled, found = classes_of(program, Options(model, stop=False, settle=True))
    assert found.keys() == expected.keys()
    assert [(found[key].results, found[key].memories) for key in found] == [
        (expected[key].results, expected[key].memories) for key in found
    ]
    assert (settled.counts.stuck, settled.counts.blocked) == (whole.counts.stuck, whole.counts.blocked)


@pytest.mark.parametrize("merge", [False, True])
@given(program=teams())
def test_races_are_those_of_the_whole_program(merge: bool, program: Program) -> None:
    whole = explore(program, Options("ptx", merge, races=True))
    settled = explore(program, Options("ptx", merge, races=True, settle=True))
    assert {failure.property for failure in settled.failures} == {failure.property for failure in whole.failures}


def message_passing(order: Order = RELEASE) -> Program:
    """Three words behind a flag, all of which are added up."""

    def consume() -> Steps:
        yield at_least("flag", 1)
        first = yield Load(0, WEAK)
        others = yield Lanes((Load(1, WEAK), Load(2, WEAK)))
        yield Store("sum", first + sum(others), WEAK)
        return first + sum(others)

    writes = [Store(word, word + 1, WEAK) for word in range(3)]
    return parallel("words", straight(*writes, Store("flag", 1, order)), consume)


@pytest.mark.parametrize("model", MODELS)
def test_words_behind_a_flag_are_settled(model: str) -> None:
    exploration, found = classes_of(message_passing(), Options(model, settle=True))
    assert str(exploration.conclusion) == "PROVED"
    assert exploration.settling is not None and exploration.settling.visible == {"'flag'"}
    assert exploration.counts.steps == 2, "the store and the wait"
    (execution,) = found.values()
    assert execution.results == (None or (), 6)
    assert execution.memory == {0: 1, 1: 2, 2: 3, "sum": 6, "flag": 1}
    assert len(execution.events) == 9


def test_race_on_what_looked_settled_is_found() -> None:
    exploration = explore(message_passing(Order.RELAXED), Options("ptx", races=True, settle=True))
    assert [failure.property for failure in exploration.failures] == ["race"]
    assert exploration.settling is not None and {"0", "1", "2"} <= exploration.settling.visible
    assert explain(exploration.program, exploration.failures[0]).replayed == 10


def rare_intruder(guarded: bool) -> Program:
    """A thread keeps a location for itself; another one writes it only if it reads the older of two values."""

    def own() -> Steps:
        yield Store("own", 1, WEAK)
        yield Store("flag", 1, RELEASE)
        value = yield Load("own", WEAK)
        return value

    def intrude() -> Steps:
        value = yield Load("flag", ACQUIRE)
        if value == (1 if guarded else 0):
            yield Store("own" if not guarded else "other", 2, WEAK)
        return value

    return parallel("intruder", own, intrude)


def test_location_that_another_thread_touches_in_some_executions_is_not_left_out() -> None:
    options = Options("ptx", races=True, settle=True)
    failing = explore(rare_intruder(guarded=False), options)
    assert [failure.property for failure in failing.failures] == ["race"]
    assert failing.settling is not None and "'own'" in failing.settling.visible
    proved = explore(rare_intruder(guarded=True), options)
    assert str(proved.conclusion) == "PROVED" and proved.counts.complete == 2
    assert proved.settling is not None and "'own'" not in proved.settling.visible


@pytest.mark.parametrize("model", MODELS)
def test_what_a_lock_protects_has_many_orders(model: str) -> None:
    def work() -> Steps:
        while (yield compare_and_swap("lock", 0, 1, ACQUIRE)) != 0:
            yield equal_to("lock", 0, Order.RELAXED)
        value = yield Load("count", WEAK)
        yield Store("count", value + 1, WEAK)
        yield Store("lock", 0, RELEASE)
        return value

    program = parallel("lock", work, work)
    whole, expected = classes_of(program, Options(model, fair=False, races=True))
    settled, found = classes_of(program, Options(model, fair=False, races=True, settle=True))
    assert found.keys() == expected.keys() and len(found) > 1
    assert {execution.results for execution in found.values()} == {(0, 1), (1, 0)}
    assert str(settled.conclusion) == str(whole.conclusion) == "PROVED"
    assert settled.settling is not None and "'count'" in settled.settling.visible, "its value depends on the order"


def test_order_that_differs_between_executions_stays_settled_where_values_agree() -> None:
    def work(own: int) -> Body:
        def run() -> Steps:
            yield compare_and_swap("turn", 0, own, Order.ACQ_REL)
            return ()

        return run

    def visit(own: int) -> Body:
        def run() -> Steps:
            yield Await("turn", lambda value: value == own, ACQUIRE)
            yield Store("shared", 7, WEAK)
            yield Store("turn", 3, RELEASE)

        return run

    program = parallel("turns", work(1), work(2), visit(1), visit(2))
    whole = explore(program, Options("ptx", fair=False, stop=False))
    settled = explore(program, Options("ptx", fair=False, stop=False, settle=True))
    assert (settled.counts.complete, settled.counts.stuck) == (whole.counts.complete, whole.counts.stuck)


@pytest.mark.parametrize("apart", [False, True])
def test_location_of_two_ctas_is_left_out_only_where_a_barrier_is_between_them(apart: bool) -> None:
    def first() -> Steps:
        yield Store("scratch", 1, WEAK)
        yield Barrier("end of kernel", 2)

    def second() -> Steps:
        if not apart:
            yield Store("scratch", 2, WEAK)
        yield Barrier("end of kernel", 2)
        if apart:
            yield Store("scratch", 2, WEAK)

    threads = tuple(Thread(body, gpu=0, cta=cta, team=0) for cta, body in enumerate((first, second)))
    exploration = explore(Program(threads), Options("ptx", races=True, settle=True))
    assert exploration.settling is not None
    assert [failure.property for failure in exploration.failures] == ([] if apart else ["race"])
    assert exploration.settling.visible == (set() if apart else {"'scratch'"})


def team_of_two(wait: bool) -> Program:
    """Two threads of a GPU hand a value over four barriers; another GPU signals one of them, or not."""

    def first() -> Steps:
        yield Store("value", 1, WEAK)
        for position in range(4):
            yield Barrier(position, 2)
        yield Store("out", 1, RELEASE)

    def second() -> Steps:
        yield Barrier(0, 2)
        if wait:
            yield at_least("signal", 1)
        for position in range(1, 4):
            yield Barrier(position, 2)
        value = yield Load("value", WEAK)
        yield Store("value", value + 1, WEAK)
        return value

    def outside() -> Steps:
        yield at_least("out", 1)

    team = (Thread(first, gpu=0, cta=0, team=0), Thread(second, gpu=0, cta=1, team=0))
    return Program((*team, Thread(outside, gpu=1)), name="team")


def test_quiet_barriers_are_left_out() -> None:
    exploration, found = classes_of(team_of_two(wait=False), Options("ptx", races=True, settle=True))
    assert str(exploration.conclusion) == "PROVED" and exploration.counts.steps == 2
    (execution,) = found.values()
    assert sum(isinstance(event.operation, Barrier) for event in execution.events) == 16
    assert execution.results[1] == 1


def test_nobody_passes_a_barrier_that_another_one_never_reaches() -> None:
    (failure,) = explore(team_of_two(wait=True), Options("ptx", settle=True)).failures
    (whole,) = explore(team_of_two(wait=True), Options("ptx")).failures
    assert failure.property == whole.property == "progress"
    assert failure.message == whole.message
    assert {event.key for event in failure.execution.events} == {event.key for event in whole.execution.events}


def test_team_whose_threads_leave_out_barriers_is_refused() -> None:
    bodies = straight(Barrier(0, 2), Barrier(1, 2)), straight(Barrier(0, 2))
    program = Program(tuple(Thread(body, gpu=0, cta=cta, team=0) for cta, body in enumerate(bodies)))
    assert explore(program, Options("ptx")).failures[0].property == "progress"
    with pytest.raises(InputError, match="the same barriers"):
        explore(program, Options("ptx", settle=True))


def test_barrier_of_others_than_the_team_stays() -> None:
    def signal() -> Steps:
        yield Store("value", 1, WEAK)
        yield Barrier("both", 2)

    def look() -> Steps:
        yield Barrier("both", 2)
        return (yield Load("value", WEAK))

    threads = (Thread(signal, gpu=0, team=0), Thread(look, gpu=1, team=1))
    exploration, found = classes_of(Program(threads), Options("ptx", races=True, settle=True))
    assert str(exploration.conclusion) == "PROVED" and exploration.counts.steps == 4
    assert [execution.results[1] for execution in found.values()] == [1]


def test_assertion_on_a_settled_value_fails() -> None:
    def check() -> Steps:
        yield Store("own", 1, WEAK)
        value = yield Load("own", WEAK)
        yield Load("shared")
        assert value == 2, f"own is {value}"

    exploration = explore(parallel("check", check, straight(Store("shared", 1))), Options("ptx", settle=True))
    assert [(failure.property, failure.message) for failure in exploration.failures] == [("assertion", "own is 1")]


def test_endless_settled_loop_is_cut_short() -> None:
    def body() -> Steps:
        while True:
            yield Load("x")

    assert str(explore(parallel("endless", body), Options(steps=50, settle=True)).conclusion) == "BOUNDED(50)"


def test_nothing_is_settled_beside_accesses_of_order_sc() -> None:
    program = parallel("sc", straight(Store("x", 1, Order.SC), Load("own", WEAK)), straight(Load("x", Order.SC)))
    exploration = explore(program, Options("rc11", settle=True))
    assert exploration.settling is not None and exploration.settling.everything
    assert exploration.counts.complete == explore(program, Options("rc11")).counts.complete == 2


def relay(rounds: int) -> Program:
    """Two threads count to each other, with a word of data behind each count."""

    def run(own: int) -> Body:
        def body() -> Steps:
            for number in range(1, rounds + 1):
                yield Store(("data", own), number, WEAK)
                yield Store(("flag", own), number, RELEASE)
                yield at_least(("flag", 1 - own), number)
                yield Load(("data", 1 - own) if number == rounds else ("data", own), WEAK)

        return body

    return parallel("relay", run(0), run(1))


def test_settled_search_goes_on_from_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options("ptx", races=True, settle=True)
    expected = explore(relay(4), options)
    monkeypatch.setattr(module, "CHUNK", 3)
    exploration = Exploration(relay(4), options)
    while exploration.counts.complete < 10:
        exploration.run(seconds=0.001)
    save(exploration, tmp_path / "checkpoint")
    resumed = resume(tmp_path / "checkpoint", relay(4))
    assert resumed.counts.complete == exploration.counts.complete
    assert str(resumed.run()) == "PROVED"
    assert resumed.counts.complete == expected.counts.complete == 27


def test_shards_of_a_settled_search_add_up() -> None:
    parts = [explore(relay(4), Options("ptx", settle=True, shard=part, shards=3, split=2)) for part in range(3)]
    assert sum(part.counts.complete for part in parts) == explore(relay(4), Options("ptx")).counts.complete
    assert min(part.counts.complete for part in parts) > 0


def test_shards_do_not_disagree_about_what_is_settled() -> None:
    program = message_passing(Order.RELAXED)
    parts = [explore(program, Options("ptx", settle=True, shard=part, shards=2, split=1)) for part in range(2)]
    assert [part.conclusion.verdict for part in parts].count(Verdict.UNSUPPORTED) == 1


def test_samples_of_a_settled_program() -> None:
    exploration = Exploration(relay(4), Options("ptx", races=True, settle=True))
    assert str(exploration.sample(20)) == "SAMPLED(20)"
    assert exploration.counts.complete == 20
    racing = Exploration(message_passing(Order.RELAXED), Options("ptx", races=True, settle=True))
    racing.sample(5)
    assert [failure.property for failure in racing.failures] == ["race"]


def test_property_of_the_end_is_judged_once_per_end() -> None:
    seen: list[Execution] = []

    def check(execution: Execution) -> str | None:
        seen.append(execution)
        return None if execution.memory["flag", 0] == 4 else "wrong"

    exploration = explore(relay(4), Options("ptx", settle=True), AtEnd(lambda execution: check(execution)))
    assert (str(exploration.conclusion), exploration.counts.complete, len(seen)) == ("PROVED", 27, 1)
    (failure,) = explore(relay(4), Options("ptx", settle=True), AtEnd(lambda _: "wrong")).failures
    assert (failure.property, failure.message) == ("check", "wrong")
