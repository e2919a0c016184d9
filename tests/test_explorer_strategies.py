"""Executions that are drawn: allowed ones only, all of them in the end, and failures that each strategy finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import pytest
from typer.testing import CliRunner

from tiebreak.cli import app
from tiebreak.sim.explorer.exploration import Exploration, Options
from tiebreak.sim.explorer.families import FAMILIES, Steps, flag_barrier, straight
from tiebreak.sim.explorer.operations import Load, Order, Store, at_least
from tiebreak.sim.explorer.program import Program, parallel
from tiebreak.sim.explorer.sampling import count_accesses
from tiebreak.sim.explorer.strategies import STRATEGIES, Pct, Pos, Strategy, Surw, Turn

MODELS = ("sc", "rc11", "ptx")


def strategy_of(name: str, program: Program) -> Strategy:
    return STRATEGIES[name](lambda: count_accesses(program))


def sampled_keys(name: str, program: Program, model: str, number: int) -> Counter[Hashable]:
    keys: Counter[Hashable] = Counter()
    exploration = Exploration(program, Options(model), visit=lambda execution: keys.update([execution.key]))
    assert str(exploration.sample(number, strategy=strategy_of(name, program))) == f"SAMPLED({number})"
    assert keys.total() == exploration.counts.complete == number
    return keys


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("family", ["mp", "sb", "iriw", "two_plus_two_w", "corr", "isa2"])
def test_samples_are_classes_of_the_program(name: str, model: str, family: str) -> None:
    program = FAMILIES[family]()
    classes: set[Hashable] = set()
    Exploration(program, Options(model), visit=lambda execution: classes.add(execution.key)).run()
    found = sampled_keys(name, program, model, 40)
    assert found.keys() <= classes and len(found) > 1


@pytest.mark.parametrize("name", STRATEGIES)
def test_samples_reach_every_class(name: str) -> None:
    assert len(sampled_keys(name, FAMILIES["sb"](), "sc", 60)) == 3
    assert len(sampled_keys(name, FAMILIES["sb"](), "rc11", 60)) == 4
    assert len(sampled_keys(name, flag_barrier(2, 3), "ptx", 150)) == 9


def lost_update() -> Program:
    def count() -> Steps:
        value = yield Load("x")
        yield Store("x", value + 1)
        yield Store(("done", value), 1)

    def check() -> Steps:
        yield at_least(("done", 0), 1)
        yield at_least(("done", 1), 1)

    return parallel("count", count, count, check)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("model", MODELS)
def test_lost_update_is_found(name: str, model: str) -> None:
    program = lost_update()
    exploration = Exploration(program, Options(model))
    exploration.sample(200, strategy=strategy_of(name, program))
    assert [failure.property for failure in exploration.failures] == ["progress"]
    assert exploration.samples < 200


def test_selectively_uniform_walk_is_uniform() -> None:
    many = straight(*(Store("x", number) for number in range(1, 8)))
    program = parallel("orders", many, straight(Store("x", 9)))
    found = sampled_keys("surw", program, "sc", 400)
    assert len(found) == 8 and min(found.values()) > 25, "400 samples of 8 orders"
    skewed = sampled_keys("pos", program, "sc", 400)
    assert min(skewed.values()) < min(found.values()), "priorities favour some orders"


def test_priorities_of_pct_drop() -> None:
    strategy = Pct(depth=2, steps=1)
    strategy.begin(0)
    turns = [Turn(thread, 0, "x", True) for thread in range(3)]
    first = strategy.rank(turns, None)
    assert strategy.rank(turns, turns[first[0]]) == first, "the one drop was due at the first step"
    strategy = Pct(depth=2, steps=2)
    for seed in range(20):
        strategy.begin(seed)
        first = strategy.rank(turns, None)
        second = strategy.rank(turns, turns[first[0]])
        assert second in (first, [*first[1:], first[0]])


def test_priorities_of_pos_change_where_operations_race() -> None:
    strategy = Pos()
    strategy.begin(0)
    turns = [Turn(0, 1, "x", True), Turn(1, 0, "x", False), Turn(2, 0, "y", True)]
    orders = {tuple(strategy.rank(turns, Turn(3, 0, "x", True))) for _ in range(50)}
    assert len({order.index(1) for order in orders}) > 1
    strategy.begin(0)
    assert len({tuple(strategy.rank(turns, Turn(3, 0, "z", True))) for _ in range(50)}) == 1


def test_walk_has_others_wait_at_the_location() -> None:
    strategy = Surw([{"x": 1}, {"x": 1}, {"y": 1}])
    for seed in range(20):
        strategy.begin(seed)
        order = strategy.rank([Turn(0, 0, "x", True), Turn(1, 0, "x", True), Turn(2, 0, "y", True)], None)
        assert order[-1] in (0, 1)


@pytest.mark.parametrize("strategy", ["random:20", "pct:20", "pct:20:2", "pos:20", "surw:20"])
def test_command_samples_kernels(strategy: str) -> None:
    result = CliRunner().invoke(app, ["explore", "merge", "--ranks", "2", "--strategy", strategy])
    assert result.exit_code == 0
    assert "SAMPLED(20)" in result.output


@pytest.mark.parametrize("strategy", ["pct", "pct:x", "pct:5:x", "pct:5:2:1", "pos:5:3", "random:", "best:5", ""])
def test_command_refuses_other_strategies(strategy: str) -> None:
    assert CliRunner().invoke(app, ["explore", "mp", "--strategy", strategy]).exit_code != 0


def test_race_is_sampled() -> None:
    program = parallel("race", straight(Store("x", 1, Order.WEAK)), straight(Load("x", Order.WEAK)))
    exploration = Exploration(program, Options("ptx", races=True))
    exploration.sample(5, strategy=Pct())
    assert [failure.property for failure in exploration.failures] == ["race"]
