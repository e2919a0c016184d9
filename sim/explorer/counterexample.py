"""A failure as a schedule that people can follow: few events, few switches between threads, and played again.

An execution graph becomes a sequence of events in which each comes after what
it needs.  Of the events only those stay that the failure depends on.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .execution import Event, Execution
from .exploration import Failure
from .history import describe_failure, gives_value
from .layout import ARRIVED, FENCED, READ, STARVED, WRITE
from .operations import Await, Barrier, Lanes, Operation
from .program import Program

STATES = 200_000
"""Sets of events up to which the fewest switches are looked for."""


@dataclass(frozen=True)
class Counterexample:
    """A failure, made short.

    Attributes:
        failure: What it shows.
        schedule: Its events in an order in which they can happen.
        replayed: How often, of ``attempts``, running the threads on the values
            of the schedule gave the same operations and the same end.
    """

    failure: Failure
    schedule: tuple[Event, ...]
    replayed: int
    attempts: int

    @property
    def switches(self) -> int:
        """Changes from one thread to another."""
        threads = [event.thread for event in self.schedule]
        return sum(a != b for a, b in pairwise(threads))


def explain(program: Program, failure: Failure, attempts: int = 10) -> Counterexample:
    """Make a failure short, and play it again."""
    execution = failure.execution
    needed = _needed(failure)
    before = {event.number: _before(execution, event) & needed for event in execution.events if event.number in needed}
    schedule = tuple(execution.events[number] for number in order_events(execution, before))
    replayed = sum(replay(program, execution) for _ in range(attempts))
    return Counterexample(failure, schedule, replayed, attempts)


def _needed(failure: Failure) -> frozenset[int]:
    """Events that a failure depends on."""
    execution = failure.execution
    if failure.events is not None:
        ends = set(failure.events)
    elif failure.property == "assertion":
        failed = {thread for thread, state in enumerate(execution.states) if state.failure}
        ends = {event.number for event in execution.events if event.thread in failed}
    else:
        return frozenset(range(len(execution.events)))
    needed: set[int] = set()
    while ends:
        number = ends.pop()
        needed.add(number)
        ends |= _before(execution, execution.events[number]) - needed
    return frozenset(needed)


def _before(execution: Execution, event: Event) -> frozenset[int]:
    """Events that come directly before one: by program order, reads-from and barriers; all, for endless waits."""
    if event.kind == STARVED:
        return frozenset(other.number for other in execution.events if other.kind != STARVED)
    earlier = {
        other.number
        for other in execution.events
        if other.thread == event.thread
        and (other.key[1] < event.key[1] or (other.number == event.partner and event.kind == WRITE))
    }
    if event.source is not None and event.source >= 0:
        earlier.add(event.source)
    return frozenset(earlier | event.synchronised)


def order_events(execution: Execution, before: dict[int, frozenset[int]]) -> list[int]:
    """Events in an order with the fewest switches between threads, or with few where there are too many orders."""
    frontier: dict[tuple[frozenset[int], int], list[int]] = {(frozenset(), -1): []}
    seen: set[tuple[frozenset[int], int]] = set()
    while frontier:
        further: dict[tuple[frozenset[int], int], list[int]] = {}
        for (done, thread), path in frontier.items():
            done, path = _run(execution, before, done, thread, path)
            if len(done) == len(before):
                return path
            if (done, thread) in seen:
                continue
            seen.add((done, thread))
            for other in {execution.events[number].thread for number in before if number not in done} - {thread}:
                if _run(execution, before, done, other, path)[0] != done:
                    further.setdefault((done, other), path)
        if len(seen) > STATES:
            further = dict([max(further.items(), key=lambda entry: len(entry[0][0]))])
        frontier = further
    return sorted(before)


def _run(
    execution: Execution, before: dict[int, frozenset[int]], done: frozenset[int], thread: int, path: list[int]
) -> tuple[frozenset[int], list[int]]:
    """Let a thread go on as far as it can."""
    progress = True
    while progress:
        progress = False
        for number, needs in before.items():
            if number not in done and execution.events[number].thread == thread and needs <= done:
                done, path, progress = done | {number}, [*path, number], True
    return done, path


def replay(program: Program, execution: Execution) -> bool:
    """Run every thread on the values that it read; whether it issues the same operations and ends in the same way."""
    return all(_replay_thread(program, execution, thread) for thread in range(len(program.threads)))


def _replay_thread(program: Program, execution: Execution, thread: int) -> bool:
    """Run one thread on the values that it read."""
    state = execution.states[thread]
    events = {event.key[1:]: event for event in execution.events if event.thread == thread}
    run: Generator[Operation | Lanes, Any, Any] = program.threads[thread].body()
    block = 0
    try:
        issued = next(run)
        for sent in state.sent:
            if not _is_same(issued, events, block, sent):
                return False
            block += 2 if isinstance(issued, Barrier) else 1
            issued = run.send(sent)
    except StopIteration as stop:
        return not state.operations and bool(stop.value == state.result)
    except AssertionError as error:
        return describe_failure(error) == state.failure
    operations = issued.operations if isinstance(issued, Lanes) else (issued,)
    return [type(operation) for operation in operations] == [type(operation) for operation in state.operations]


def _is_same(issued: Operation | Lanes, events: dict[tuple[int, int, int], Event], block: int, sent: object) -> bool:
    """Whether operations are those of a block of the execution, and read what the thread was sent."""
    operations = issued.operations if isinstance(issued, Lanes) else (issued,)
    values = sent if isinstance(issued, Lanes) and isinstance(sent, tuple) else (sent,)
    for lane, (operation, value) in enumerate(zip(operations, values, strict=True)):
        found = [event for kind in (READ, WRITE, FENCED, ARRIVED) if (event := events.get((block, lane, kind)))]
        if not found or found[0].operation != operation:
            return False
        if isinstance(operation, Await) and not operation.predicate(found[0].value):
            return False
        if gives_value(operation) and found[0].value != value:
            return False
    return True
