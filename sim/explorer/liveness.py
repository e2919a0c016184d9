"""Why threads wait for ever: a deadlock with its cycle, a signal that was lost or never sent, or no room to run.

What a waiting thread would do next is found by running it on as if its waits
had ended.  A thread waits for those that would then signal it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from .execution import Event, Execution, describe
from .layout import STARVED, WRITE
from .operations import Await, Barrier, Lanes, Load, Location, Operation, Store, Update, Value
from .program import Program
from .residency import Room

HORIZON = 1_000
"""Operations that a thread is run on for."""


@dataclass(frozen=True)
class Wait:
    """A thread that waits for ever.

    Attributes:
        thread: Which one.
        operation: What it waits in.
    """

    thread: int
    operation: Await | Barrier

    @property
    def place(self) -> object:
        """What others have to write, or where they have to arrive."""
        return ("barrier", self.operation.name) if isinstance(self.operation, Barrier) else self.operation.location


def find_waits(execution: Execution) -> list[Wait]:
    """Threads that wait for ever."""
    done = {event.key[:3] for event in execution.events if event.kind != STARVED}
    blocks = {event.thread: event.key[1] for event in execution.events}
    waits = []
    for thread, state in enumerate(execution.states):
        for lane, operation in enumerate(state.operations):
            finished = (thread, blocks.get(thread, 0), lane) in done and len(state.operations) > 1
            if isinstance(operation, Await | Barrier) and not finished:
                waits.append(Wait(thread, operation))
    return waits


def explain_waits(program: Program, execution: Execution) -> str:
    """Kind of the failure, its reason, and who waits for what."""
    waits = find_waits(execution)
    each = "; ".join(f"thread {wait.thread}: {describe(wait.operation)}{_last(execution, wait)}" for wait in waits)
    return f"{_find_reason(program, execution, waits)}; waits for ever: {each}"


def _find_reason(program: Program, execution: Execution, waits: list[Wait]) -> str:
    """The first of: a signal was lost, one is never sent, a cycle of waits."""
    for wait in waits:
        if (lost := _find_lost(execution, wait)) is not None:
            return f"lost signal: thread {wait.thread} never saw {lost}"
    signals = {wait.thread: _foresee(program, execution, wait.thread) for wait in waits}
    edges = {wait.thread: sorted(_find_signallers(wait, signals)) for wait in waits}
    for wait in waits:
        if not edges[wait.thread]:
            return f"signal never sent: nobody is left to end the wait of thread {wait.thread}"
    cycle = _find_cycle(edges)
    path = " -> ".join(f"thread {thread}" for thread in cycle)
    starved = {wait.thread: wait.place for wait in waits if isinstance(wait.place, Room)}
    if any(thread in starved for thread in cycle):
        waiting = next(thread for thread in cycle if thread in starved)
        held = ", ".join(f"thread {thread}" for thread in edges[waiting])
        return f"starvation by residency: thread {waiting} has no room while {held} wait; {path}"
    return f"deadlock: {path}"


def _find_lost(execution: Execution, wait: Wait) -> Event | None:
    """A value that would have ended a wait, and was overwritten before the thread looked for it."""
    if isinstance(wait.operation, Barrier):
        return None
    polls = (event for event in execution.events if event.thread == wait.thread and isinstance(event.operation, Await))
    seen = {event.source for event in polls}
    writes = [event for event in execution.events if event.kind == WRITE and event.location == wait.operation.location]
    for event in writes:
        passed = event.number in seen or any(event.number in other.earlier for other in writes if other.number in seen)
        if not passed and wait.operation.predicate(event.value):
            return event
    return None


def _find_signallers(wait: Wait, signals: dict[int, set[object]]) -> Iterator[int]:
    """Other waiting threads that would go on to write what a thread waits for, or to arrive where it does."""
    return (thread for thread, places in signals.items() if thread != wait.thread and wait.place in places)


def _find_cycle(edges: dict[int, list[int]]) -> list[int]:
    """A cycle of threads, the first one repeated at the end."""
    path = [next(iter(edges))]
    while edges[path[-1]][0] not in path:
        path.append(edges[path[-1]][0])
    start = path.index(edges[path[-1]][0])
    return [*path[start:], path[start]]


class _Agreeable:
    """A value that is whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def _foresee(program: Program, execution: Execution, thread: int) -> set[object]:
    """Places that a thread would write, and barriers where it would arrive, if its waits ended.

    Where it then asserts something of a value that is not there yet, the value is taken to be right.
    """
    agreed: set[int] = set()
    while True:
        places: set[object] = set()
        loads = [0]
        try:
            _run_on(program, execution, thread, places, loads, agreed)
        except StopIteration:
            return places
        except AssertionError:
            if loads[0] in agreed:
                return places
            agreed.add(loads[0])
            continue
        return places


def _run_on(
    program: Program, execution: Execution, thread: int, places: set[object], loads: list[int], agreed: set[int]
) -> None:
    """Run a thread on from where it waits; ``loads`` counts what it loads, of which some are ``agreed`` to be right."""
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
            if isinstance(operation, Barrier):
                places.add(("barrier", operation.name))
            elif isinstance(operation, Store | Update):
                places.add(operation.location)
        issued = run.send(tuple(answers) if isinstance(issued, Lanes) else answers[0])


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


def _last(execution: Execution, wait: Wait) -> str:
    """What the location holds at the end."""
    if isinstance(wait.operation, Barrier):
        return ""
    return f", which stays {execution.memories[0].get(wait.operation.location, 0)!r}"
