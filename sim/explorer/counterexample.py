"""A failure as a schedule that people can follow: few switches between threads, few events, and executed again.

An execution graph becomes a sequence of events in which each comes after what
it needs.  Of the events only those stay that the failure depends on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from .blame import Blame, find_blame
from .execution import Event
from .judging import Failure
from .operations import Await
from .program import Program
from .reexecution import Reexecution, reexecute
from .schedule import collect_needs, find_writes, order_events


@dataclass(frozen=True)
class Counterexample:
    """A failure, made short.

    Attributes:
        failure: What it shows.
        schedule: Its events in an order in which they can happen.
        blame: What it is about.
        replayed: How often, of ``attempts``, running the threads again in the
            order of the schedule ended in the same failure.
        candidates: Failures of which it is the one with the fewest switches,
            and of those the one with the fewest events.
    """

    failure: Failure
    schedule: tuple[Event, ...]
    blame: Blame
    replayed: int = 0
    attempts: int = 0
    candidates: int = 1

    @property
    def switches(self) -> int:
        """Changes from one thread to another."""
        threads = [event.thread for event in self.schedule]
        return sum(a != b for a, b in pairwise(threads))

    @property
    def size(self) -> tuple[int, int]:
        """What is to be small: switches, then events."""
        return self.switches, len(self.schedule)


def explain(program: Program, *failures: Failure, attempts: int = 10) -> Counterexample:
    """Make failures short, choose the shortest, and execute it again."""
    shortest: Counterexample | None = None
    for failure in _pick(failures):
        example = _shorten(program, failure, shortest.switches if shortest else None)
        if example is not None and (shortest is None or example.size < shortest.size):
            shortest = example
    assert shortest is not None
    replayed = sum(replay(program, shortest) for _ in range(attempts))
    return replace(shortest, replayed=replayed, attempts=attempts, candidates=len(failures))


def _pick(failures: Iterable[Failure]) -> Iterable[Failure]:
    """Failures that differ in what happened before them."""
    seen: dict[Hashable, Failure] = {}
    for failure in failures:
        events = failure.execution.events
        about = frozenset(events[number].key for number in failure.events or ())
        seen.setdefault((failure.property, about, failure.execution.key), failure)
    return seen.values()


def _shorten(program: Program, failure: Failure, limit: int | None) -> Counterexample | None:
    """Leave out what a failure does not depend on, and put the rest in order; None if that takes too many switches."""
    blame = find_blame(program, failure)
    events = failure.execution.events
    order = order_events(failure.execution, collect_needs(failure.execution, blame.ends), limit)
    return None if order is None else Counterexample(failure, tuple(events[number] for number in order), blame)


def replay(program: Program, example: Counterexample) -> bool:
    """Run the threads again in the order of the schedule; whether it ends in the same failure."""
    again = reexecute(program, example.failure.execution, example.schedule)
    return again is not None and _fails_again(example, again)


def _fails_again(example: Counterexample, again: Reexecution) -> bool:
    """Whether threads that ran again are where the failure is."""
    failure = example.failure
    states = failure.execution.states
    if failure.property == "assertion":
        return any(
            again.thread(thread).failure == state.failure for thread, state in enumerate(states) if state.failure
        )
    if failure.property == "progress":
        return all(_waits_again(example, again, index) for index in range(len(example.blame.waits)))
    if failure.property == "check":
        return all(again.thread(thread).result == state.result for thread, state in enumerate(states))
    # A race: both accesses have been made, and what orders them is in the schedule.
    return set(failure.events or ()) <= {event.number for event in example.schedule}


def _waits_again(example: Counterexample, again: Reexecution, index: int) -> bool:
    """Whether a thread waits again, for a value that is not there when nobody moves any more."""
    wait = example.blame.waits[index]
    if wait.operation not in again.thread(wait.thread).operations:
        return False
    if not isinstance(wait.operation, Await):
        return True
    execution = example.failure.execution
    writes = find_writes(execution, wait.operation.location)
    last = [write for write in writes if not any(write.number in other.earlier for other in writes)]
    return not any(wait.operation.predicate(write.value) for write in last)
