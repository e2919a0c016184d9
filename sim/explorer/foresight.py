"""What a thread would do next if its waits ended."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from .execution import Execution
from .operations import Await, Lanes, Load, Location, Operation, Store, Update, Value
from .program import Program
from .schedule import find_writes

HORIZON = 1_000
"""Operations that a thread is run on for."""


class _Agreeable:
    """A value that is whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def foresee(program: Program, execution: Execution, thread: int) -> list[Operation] | None:
    """Operations that a thread would go on to issue from where it is, every wait granted.

    Where it then asserts something of a value that is not there yet, the value
    is taken to be right.  None if it cannot go on without the value that ends
    a wait.
    """
    agreed: set[int] = set()
    while True:
        issued: list[Operation] = []
        loads = [0]
        try:
            _run_on(program, execution, thread, issued, loads, agreed)
        except AssertionError:
            if loads[0] not in agreed:
                agreed.add(loads[0])
                continue
        except StopIteration:
            pass
        except RuntimeError:
            return None
        return issued


def _run_on(
    program: Program,
    execution: Execution,
    thread: int,
    operations: list[Operation],
    loads: list[int],
    agreed: set[int],
) -> None:
    """Run a thread on; ``loads`` counts what it loads, of which some are ``agreed`` to be right."""
    memory = dict(execution.memories[0])
    run: Generator[Operation | Lanes, Any, Any] = program.threads[thread].body()
    issued = next(run)
    for sent in execution.states[thread].sent:
        issued = run.send(sent)
    for _ in range(HORIZON):
        answers: list[object] = []
        for operation in issued.operations if isinstance(issued, Lanes) else (issued,):
            loads[0] += isinstance(operation, Load)
            right = isinstance(operation, Load) and loads[0] in agreed
            answers.append(_Agreeable() if right else _perform(program, memory, operation))
            if isinstance(operation, Await):
                _grant(program, execution, memory, operation)
            operations.append(operation)
        issued = run.send(tuple(answers) if isinstance(issued, Lanes) else answers[0])


def _grant(program: Program, execution: Execution, memory: dict[Location, Value], wait: Await) -> None:
    """Let memory hold a value that ends a wait, if there has been one."""
    location = wait.location
    written = [event.value for event in find_writes(execution, location)]
    known = [memory.get(location, program.initial_value(location)), program.initial_value(location), *written]
    memory[location] = next((value for value in known if wait.predicate(value)), known[0])


def _perform(program: Program, memory: dict[Location, Value], operation: Operation) -> Value:
    """Do an operation on memory, and return what it reads."""
    if isinstance(operation, Store):
        memory[operation.location] = operation.value
    if not isinstance(operation, Load | Update):
        return None
    value = memory.get(operation.location, program.initial_value(operation.location))
    if isinstance(operation, Update):
        new = operation.function(value)
        memory[operation.location] = value if new is None else new
    return value
