"""Litmus programs as programs of the explorer, so that the two can be compared.

Only the programs are translated.  What they may do, the explorer finds step by step and the oracle by axioms.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import singledispatch
from typing import Any, cast

from tiebreak.errors import SimulationError, UnsupportedOperationError
from tiebreak.sim.explorer import operations as ops
from tiebreak.sim.explorer.execution import Execution
from tiebreak.sim.explorer.exploration import Exploration, Options
from tiebreak.sim.explorer.program import Program as ExploredProgram
from tiebreak.sim.explorer.program import Thread as ExploredThread
from tiebreak.sim.explorer.verdicts import Verdict
from tiebreak.sim.litmus import program as p
from tiebreak.sim.litmus.candidates import locations_of, registers_of
from tiebreak.sim.litmus.evaluation import Outcome
from tiebreak.sim.litmus.values import calculate

_ORDERS: dict[p.Order, ops.Order] = {
    "weak": ops.Order.WEAK,
    "relaxed": ops.Order.RELAXED,
    "acquire": ops.Order.ACQUIRE,
    "release": ops.Order.RELEASE,
    "acq_rel": ops.Order.ACQ_REL,
    "sc": ops.Order.SC,
}
_SCOPES: dict[p.Scope, ops.Scope] = {
    "cta": ops.Scope.CTA,
    "cluster": ops.Scope.CTA,
    "gpu": ops.Scope.GPU,
    "sys": ops.Scope.SYSTEM,
}
_Registers = dict[str, p.Value]
_Run = Generator[ops.Operation | ops.Lanes, Any, Any]


def translate(program: p.Program) -> ExploredProgram:
    """The same program for the explorer; each thread returns its registers, sorted by name.

    Raises:
        UnsupportedOperationError: It has clusters of several CTAs, proxies, aliases, a quorum, or goes backwards.
    """
    if program.aliases:
        raise UnsupportedOperationError("alias")
    if any(thread.placement.cluster is not None for thread in program.threads):
        raise UnsupportedOperationError("cluster")
    threads = tuple(
        ExploredThread(
            lambda index=index: _run(program, index),  # type: ignore[misc]
            thread.name,
            thread.placement.cta,
            thread.placement.gpu,
        )
        for index, thread in enumerate(program.threads)
    )
    return ExploredProgram(threads, dict(program.memory.items()), program.name or "program")


def explore_outcomes(program: p.Program, model: str) -> tuple[frozenset[Outcome], int]:
    """Every final state that the explorer reaches, and the number of classes of executions.

    Raises:
        UnsupportedOperationError: The explorer has no meaning for a part of the program.
        SimulationError: It did not come to an end.
    """
    found: set[Outcome] = set()
    names = [sorted(registers_of(program, index)) for index in range(len(program.threads))]
    places = locations_of(program)

    def visit(execution: Execution) -> None:
        registers = [
            (f"{thread.name}:{name}", value)
            for thread, own, result in zip(program.threads, names, execution.results, strict=True)
            for name, value in zip(own, result, strict=True)
        ]
        for memory in execution.memories:
            final = [(place, memory.get(place, program.memory.get(place, 0))) for place in places]
            state = sorted([*registers, *final], key=lambda entry: entry[0])
            found.add(cast("Outcome", tuple(state)))

    exploration = Exploration(translate(program), Options(model=model), visit=visit)
    conclusion = exploration.run()
    if conclusion.verdict is Verdict.UNSUPPORTED:
        raise UnsupportedOperationError(conclusion.detail)
    if not exploration.finished:
        raise SimulationError(program.name or "exploration", limit=str(conclusion))
    return frozenset(found), exploration.counts.complete


def _run(program: p.Program, index: int) -> _Run:
    """Run a thread: issue its operations and return its registers."""
    thread = program.threads[index]
    registers: _Registers = {**dict.fromkeys(registers_of(program, index), 0), **dict(thread.registers)}
    labels = {step.name: at for at, step in enumerate(thread.instructions) if isinstance(step, p.Label)}
    counter = 0
    while counter < len(thread.instructions):
        step = thread.instructions[counter]
        counter += 1
        if isinstance(step, p.Branch):
            if step.comparison is None or calculate(step.comparison, *_values((step.left, step.right), registers)):
                if labels[step.label] < counter:
                    raise UnsupportedOperationError("loop")
                counter = labels[step.label]
        elif isinstance(step, p.Move):
            registers[step.register] = _value(step.value, registers)
        elif isinstance(step, p.Compute):
            registers[step.register] = calculate(step.operation, *_values((step.left, step.right), registers))
        elif isinstance(step, p.Barrier):
            yield _barrier(program, thread, step)
        elif not isinstance(step, p.Label):
            read = yield _operation(step, registers)
            if isinstance(step, p.Load | p.Update) and step.register is not None:
                registers[step.register] = read
    return tuple(value for _, value in sorted(registers.items()))


@singledispatch
def _operation(step: object, registers: Mapping[str, p.Value]) -> ops.Operation:
    raise UnsupportedOperationError(type(step).__name__)


@_operation.register
def _(step: p.Load, registers: Mapping[str, p.Value]) -> ops.Operation:
    return ops.Load(_place(step, registers), _ORDERS[step.order], _SCOPES[step.scope])


@_operation.register
def _(step: p.Store, registers: Mapping[str, p.Value]) -> ops.Operation:
    value = _value(step.value, registers)
    return ops.Store(_place(step, registers), value, _ORDERS[step.order], _SCOPES[step.scope])


@_operation.register
def _(step: p.Fence, registers: Mapping[str, p.Value]) -> ops.Operation:
    return ops.Fence(_ORDERS[step.order], _SCOPES[step.scope])


@_operation.register
def _(step: p.Update, registers: Mapping[str, p.Value]) -> ops.Operation:
    place, order, scope = _place(step, registers), _ORDERS[step.order], _SCOPES[step.scope]
    operands = _values(step.operands, registers)
    if step.operation == "cas":
        return ops.compare_and_swap(place, operands[0], operands[1], order, scope)
    if step.operation == "exch":
        return ops.exchange(place, operands[0], order, scope)

    def change(old: ops.Value) -> ops.Value:
        assert isinstance(old, int | p.Address)
        return calculate(step.operation, old, operands[0])

    return ops.Update(place, change, order, scope, f"{step.operation} {operands[0]}")


def _barrier(program: p.Program, thread: p.Thread, step: p.Barrier) -> ops.Barrier:
    """A barrier that all threads of the CTA reach which name it."""
    if step.quorum is not None or not step.waits or any(isinstance(part, p.Register) for part in step.key):
        raise UnsupportedOperationError("barrier with a quorum, an arrival or a register")
    here = thread.placement.domain("cta")
    participants = sum(
        other.placement.domain("cta") == here
        and any(isinstance(one, p.Barrier) and one.key == step.key for one in other.instructions)
        for other in program.threads
    )
    return ops.Barrier((here, step.key), participants)


def _place(step: p.Load | p.Store | p.Update, registers: Mapping[str, p.Value]) -> str:
    address = _value(step.address, registers)
    if step.proxy != "generic" or not isinstance(address, p.Address):
        raise UnsupportedOperationError("access through a proxy, or of no location")
    return address.location


def _value(operand: p.Operand, registers: Mapping[str, p.Value]) -> p.Value:
    return registers.get(operand.name, 0) if isinstance(operand, p.Register) else operand


def _values(operands: tuple[p.Operand, ...], registers: Mapping[str, p.Value]) -> tuple[p.Value, ...]:
    return tuple(_value(operand, registers) for operand in operands)
