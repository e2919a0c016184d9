"""The explorer against two oracles that share no code with it: brute force, and the axioms over all candidates."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.sim.explorer.enumeration import enumerate_classes
from tiebreak.sim.explorer.exploration import Exploration, Options
from tiebreak.sim.explorer.families import straight
from tiebreak.sim.explorer.models import LOAD_BUFFERING
from tiebreak.sim.explorer.operations import (
    Fence,
    Lanes,
    Load,
    Operation,
    Order,
    Scope,
    Store,
    add,
    at_least,
    compare_and_swap,
    equal_to,
)
from tiebreak.sim.explorer.program import Body, Program, Thread, parallel
from tiebreak.sim.litmus import evaluation, ptx
from tiebreak.sim.litmus import program as litmus
from tiebreak.sim.litmus.relations import Relation, is_cyclic
from tiebreak.sim.litmus.skeleton import Skeleton

LOCATIONS = st.sampled_from("xy")
READ_ORDERS = st.sampled_from([Order.WEAK, Order.RELAXED, Order.ACQUIRE])
WRITE_ORDERS = st.sampled_from([Order.WEAK, Order.RELAXED, Order.RELEASE])
UPDATE_ORDERS = st.sampled_from([Order.RELAXED, Order.ACQUIRE, Order.RELEASE, Order.ACQ_REL])
SCOPES = st.sampled_from([Scope.SYSTEM, Scope.SYSTEM, Scope.GPU, Scope.CTA])

LOADS = st.builds(Load, LOCATIONS, READ_ORDERS, SCOPES)
STORES = st.builds(Store, LOCATIONS, st.sampled_from([1, 2]), WRITE_ORDERS, SCOPES)
ADDITIONS = st.builds(add, LOCATIONS, st.just(1), UPDATE_ORDERS, SCOPES)
SWAPS = st.builds(compare_and_swap, LOCATIONS, st.sampled_from([0, 1]), st.just(2), UPDATE_ORDERS, SCOPES)
WAITS = st.builds(at_least, LOCATIONS, st.just(1)) | st.builds(equal_to, LOCATIONS, st.sampled_from([0, 1]))
FENCES = st.builds(Fence, st.sampled_from([Order.ACQUIRE, Order.RELEASE, Order.ACQ_REL]), SCOPES)
PLACES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=3)


@st.composite
def waiting_programs(draw: st.DrawFn) -> Program:
    """Up to six operations, waits and unordered lanes among them."""
    threads: list[list[Operation | Lanes]] = [[] for _ in range(draw(st.integers(2, 3)))]
    for _ in range(draw(st.integers(2, 5))):
        operation = draw(LOADS | STORES | ADDITIONS | SWAPS | WAITS | FENCES)
        lanes = draw(st.booleans()) and draw(st.booleans())
        block = Lanes((operation, draw(LOADS | STORES | WAITS))) if lanes else operation
        draw(st.sampled_from(threads)).append(block)
    return parallel("drawn", *[straight(*blocks) for blocks in threads])


@pytest.mark.parametrize("model", ["sc", "rc11"])
@given(program=waiting_programs())
def test_classes_are_those_of_brute_force(program: Program, model: str) -> None:
    seen: list[Hashable] = []
    options = Options(model=model, distinct=True, stop=False)
    exploration = Exploration(program, options, visit=lambda execution: seen.append(execution.key))
    exploration.run()
    complete, stuck = enumerate_classes(program, model)
    assert set(seen) == complete
    assert len(seen) == len(complete)
    assert bool(exploration.counts.stuck) == bool(stuck)
    assert exploration.counts.blocked == exploration.counts.redundant == 0


@st.composite
def straight_threads(draw: st.DrawFn, orders: tuple[Order, ...]) -> list[tuple[list[Operation], tuple[int, int]]]:
    """Up to six operations without waits, each thread with its CTA and GPU."""
    fences = st.builds(Fence, st.sampled_from(orders), SCOPES)
    threads: list[tuple[list[Operation], tuple[int, int]]] = [([], place) for place in draw(PLACES)]
    for _ in range(draw(st.integers(2, 6))):
        draw(st.sampled_from(threads))[0].append(draw(LOADS | STORES | STORES | ADDITIONS | fences))
    return threads


def to_program(threads: list[tuple[list[Operation], tuple[int, int]]]) -> Program:
    def body_of(index: int, operations: list[Operation]) -> Body:
        def body() -> Iterator[Operation]:
            registers = []
            for number, operation in enumerate(operations):
                value = yield operation
                if value is not None:
                    registers.append((f"P{index}:r{number}", value))
            return registers

        return body

    return Program(
        tuple(Thread(body_of(index, ops), cta=cta, gpu=gpu) for index, (ops, (cta, gpu)) in enumerate(threads))
    )


def to_litmus(threads: list[tuple[list[Operation], tuple[int, int]]]) -> litmus.Program:
    scopes = {Scope.CTA: "cta", Scope.GPU: "gpu", Scope.SYSTEM: "sys"}

    def instruction(number: int, operation: Operation) -> object:
        order = operation.order.name.lower()
        scope = scopes[operation.scope]
        if isinstance(operation, Fence):
            return litmus.Fence(order, scope)
        address = litmus.Address(str(operation.location))
        if isinstance(operation, Load):
            return litmus.Load(f"r{number}", address, order, scope)
        if isinstance(operation, Store):
            return litmus.Store(address, operation.value, order, scope)
        return litmus.Update(f"r{number}", address, "add", (1,), order, scope)

    return litmus.Program(
        threads=tuple(
            litmus.Thread(
                f"P{index}",
                tuple(instruction(number, operation) for number, operation in enumerate(operations)),
                litmus.Placement(cta=cta, gpu=gpu),
            )
            for index, (operations, (cta, gpu)) in enumerate(threads)
        )
    )


def explored_outcomes(program: Program, model: str) -> tuple[set[object], Exploration]:
    found: set[object] = set()

    def visit(execution: object) -> None:
        registers = [register for result in execution.results for register in result or ()]
        found.update(tuple(sorted([*registers, *memory.items()])) for memory in execution.memories)

    exploration = Exploration(program, Options(model=model, distinct=True, stop=False), visit=visit)
    exploration.run()
    return found, exploration


@pytest.fixture
def without_load_buffering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave to the oracle the executions in which program order and reads-from have no cycle."""

    def find_consistent(skeleton: Skeleton, reads_from: Relation) -> object:
        kept = np.flatnonzero(~is_cyclic(reads_from | skeleton.po | skeleton.rmw))
        batch = ptx.find_consistent(skeleton, reads_from[kept])
        return type(batch)(kept[batch.owner], batch.reads_from, batch.coherence)

    monkeypatch.setitem(evaluation._CONSISTENT, "ptx", find_consistent)


@pytest.mark.parametrize("model", ["sc", "rc11"])
@given(threads=straight_threads((Order.ACQUIRE, Order.RELEASE, Order.ACQ_REL)))
def test_outcomes_are_those_of_the_axioms(threads: list[tuple[list[Operation], tuple[int, int]]], model: str) -> None:
    found, exploration = explored_outcomes(to_program(threads), model)
    assert found == evaluation.outcomes(to_litmus(threads), model)
    assert exploration.counts.redundant == exploration.counts.blocked == 0


@pytest.mark.usefixtures("without_load_buffering")
@given(threads=straight_threads((Order.ACQ_REL, Order.SC, Order.SC)))
def test_outcomes_under_ptx_are_all_but_load_buffering(
    threads: list[tuple[list[Operation], tuple[int, int]]],
) -> None:
    found, exploration = explored_outcomes(to_program(threads), "ptx")
    assert found == evaluation.outcomes(to_litmus(threads), "ptx")
    assert exploration.counts.redundant == exploration.counts.blocked == 0


def test_fences_of_order_sc_that_program_order_puts_in_order_are_many() -> None:
    fences = [Fence(Order.SC)] * 5
    bodies = [straight(Store(own, 1), *fences, Load(other)) for own, other in ("xy", "yx")]
    results: set[object] = set()
    exploration = Exploration(
        parallel("SB with fences", *bodies), Options("ptx"), visit=lambda execution: results.add(execution.results)
    )
    assert str(exploration.run()) == "PROVED"
    assert results == {((0,), (1,)), ((1,), (0,)), ((1,), (1,))}


def test_load_buffering_is_the_limit() -> None:
    results: set[object] = set()
    Exploration(LOAD_BUFFERING.program, Options("ptx"), visit=lambda execution: results.add(execution.results)).run()
    assert LOAD_BUFFERING.results not in results
    threads = [([Load(read), Store(write, 1)], (0, index)) for index, (read, write) in enumerate(("xy", "yx"))]
    allowed = {tuple(value for name, value in outcome if ":" in name) for outcome in evaluation.outcomes(
        to_litmus(threads), "ptx")}  # fmt: skip
    assert LOAD_BUFFERING.results in allowed


def test_programs_with_load_buffering_race() -> None:
    threads = [
        ([Load(a, Order.WEAK), Store(b, 1, Order.WEAK)], (0, index)) for index, (a, b) in enumerate(("xy", "yx"))
    ]
    exploration = Exploration(to_program(threads), Options("ptx", races=True))
    exploration.run()
    assert [failure.property for failure in exploration.failures] == ["race"]
