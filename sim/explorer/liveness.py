"""Why threads wait for ever: a deadlock with its cycle, a signal that was lost or never sent, or no room to run.

What a waiting thread would do next is found by running it on as if its waits
had ended.  A thread waits for those that would then signal it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .execution import Event, Execution, describe
from .foresight import foresee
from .layout import STARVED, WRITE
from .operations import Await, Barrier, Operation, Store, Update
from .program import Program
from .residency import Room


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


def find_waits(execution: Execution) -> tuple[Wait, ...]:
    """Threads that wait for ever."""
    waits = []
    for thread, state in enumerate(execution.states):
        done = _find_done(execution, thread, state.operations)
        for lane, operation in enumerate(state.operations):
            if isinstance(operation, Await | Barrier) and lane not in done:
                waits.append(Wait(thread, operation))
    return tuple(waits)


def _find_done(execution: Execution, thread: int, operations: Sequence[Operation]) -> set[int]:
    """Lanes of a thread's present block that have run, whose events are those of its last block.

    If the present one has none, the last block is another one; it may be equal,
    but of one whose lanes have all run no lane would wait.
    """
    events = [event for event in execution.events if event.thread == thread]
    last = max((event.key[1] for event in events), default=0)
    ran = {event.key[2]: event.operation for event in events if event.key[1] == last and event.kind != STARVED}
    done = {lane for lane, operation in enumerate(operations) if ran.get(lane) == operation}
    return done if len(done) < len(operations) else set()


@dataclass(frozen=True)
class Stall:
    """Why threads wait for ever.

    Attributes:
        reason: Kind and reason, in words.
        waits: The waits that it is about, in the order of the cycle where there is one.
        lost: The write that was not seen, if a signal was lost.
        cycle: Whether each of the waits is for the thread of the next one.
    """

    reason: str
    waits: tuple[Wait, ...]
    lost: Event | None = None
    cycle: bool = False


def explain_waits(program: Program, execution: Execution) -> str:
    """Kind of the failure, its reason, and who waits for what."""
    waits = find_waits(execution)
    each = "; ".join(f"thread {wait.thread}: {describe(wait.operation)}{_last(execution, wait)}" for wait in waits)
    return f"{find_stall(program, execution).reason}; waits for ever: {each}"


def find_stall(program: Program, execution: Execution) -> Stall:
    """Why threads wait for ever, the first of: a signal was lost, one is never sent, a cycle of waits."""
    waits = find_waits(execution)
    for wait in waits:
        if (lost := _find_lost(execution, wait)) is not None:
            return Stall(f"lost signal: thread {wait.thread} never saw {lost}", (wait,), lost)
    signals = {wait.thread: _foresee_places(program, execution, wait.thread) for wait in waits}
    if None in signals.values():
        return Stall("wait without an end: what threads would do next depends on the values that they wait for", waits)
    edges = {wait.thread: sorted(_find_signallers(wait, signals)) for wait in waits}
    for wait in waits:
        if not edges[wait.thread]:
            reason = f"signal never sent: nobody is left to end the wait of thread {wait.thread}"
            return Stall(reason, (wait,))
    cycle = _find_cycle(edges)
    around = tuple(next(wait for wait in waits if wait.thread == thread) for thread in cycle)
    path = " -> ".join(f"thread {thread}" for thread in [*cycle, cycle[0]])
    for wait in around:
        if isinstance(wait.place, Room):
            held = ", ".join(f"thread {thread}" for thread in edges[wait.thread])
            reason = f"starvation by residency: thread {wait.thread} has no room, which {held} takes up; {path}"
            return Stall(reason, around, cycle=True)
    return Stall(f"deadlock: {path}", around, cycle=True)


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


def _foresee_places(program: Program, execution: Execution, thread: int) -> set[object] | None:
    """Places that a thread would write, and barriers where it would arrive, if its waits ended."""
    operations = foresee(program, execution, thread)
    if operations is None:
        return None
    barriers = {("barrier", operation.name) for operation in operations if isinstance(operation, Barrier)}
    return barriers | {operation.location for operation in operations if isinstance(operation, Store | Update)}


def _find_signallers(wait: Wait, signals: dict[int, set[object] | None]) -> Iterator[int]:
    """Other waiting threads that would go on to write what a thread waits for, or to arrive where it does."""
    return (thread for thread, places in signals.items() if thread != wait.thread and wait.place in (places or ()))


def _find_cycle(edges: dict[int, list[int]]) -> list[int]:
    """A cycle of threads."""
    path = [next(iter(edges))]
    while edges[path[-1]][0] not in path:
        path.append(edges[path[-1]][0])
    return path[path.index(edges[path[-1]][0]) :]


def _last(execution: Execution, wait: Wait) -> str:
    """What the location holds at the end."""
    if isinstance(wait.operation, Barrier):
        return ""
    return f", which stays {execution.memories[0].get(wait.operation.location, 0)!r}"
