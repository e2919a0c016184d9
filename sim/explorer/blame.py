"""What a failure is about: the events that it needs, and the edge between two of them that is missing."""

from __future__ import annotations

from dataclasses import dataclass

from .execution import Event, Execution, describe
from .foresight import foresee
from .judging import Failure
from .layout import READ, STARVED
from .livelock import Cycle, find_livelock
from .liveness import Stall, Wait, find_stall
from .operations import Store
from .program import Program
from .schedule import find_writes


@dataclass(frozen=True)
class Ghost:
    """Something that an execution does not contain: a wait without an end, or a store that came too late.

    Attributes:
        thread: Whose it is.
        text: What it is, in words.
    """

    thread: int
    text: str


Node = Event | Ghost | None
"""An end of an edge; None stands for a thread that there is not."""


@dataclass(frozen=True)
class Blame:
    """What a failure is about.

    Attributes:
        ends: Numbers of the events that it depends on, with all that they depend on.
        missing: Edges that would have prevented it.
        waits: Waits that it depends on.
        wrong: The read of a wrong value, where there is one.
    """

    ends: frozenset[int]
    missing: tuple[tuple[Node, Node], ...]
    waits: tuple[Wait, ...] = ()
    wrong: Event | None = None

    @property
    def ghosts(self) -> tuple[Ghost, ...]:
        """Ends of missing edges that are no events."""
        found = dict.fromkeys(node for edge in self.missing for node in edge if isinstance(node, Ghost))
        return tuple(found)


def find_blame(program: Program, failure: Failure) -> Blame:
    """What a failure is about."""
    execution = failure.execution
    if failure.events is not None:
        first, second = (execution.events[number] for number in failure.events)
        return Blame(frozenset(failure.events), ((first, second),))
    if failure.property == "assertion":
        return _blame_value(program, execution)
    if failure.property == "progress" and (cycles := find_livelock(execution)):
        return _blame_cycles(execution, cycles)
    if failure.property == "progress":
        return _blame_stall(execution, find_stall(program, execution))
    return Blame(frozenset(range(len(execution.events))), ())


def _blame_stall(execution: Execution, stall: Stall) -> Blame:
    """Waits without an end: they depend on what was written where they look, and on what led to them."""
    nodes = [_find_node(execution, wait) for wait in stall.waits]
    ends = {event.number for event in execution.events if event.thread in {wait.thread for wait in stall.waits}}
    for wait in stall.waits:
        ends |= {write.number for write in find_writes(execution, wait.place)}
    if stall.cycle:
        # Each waits for the next one, whose signal does not come.
        missing = tuple((after, node) for node, after in zip(nodes, [*nodes[1:], nodes[0]], strict=True))
        return Blame(frozenset(ends), missing, stall.waits)
    return Blame(frozenset(ends), ((stall.lost, nodes[0]),), stall.waits)


def _blame_cycles(execution: Execution, cycles: list[Cycle]) -> Blame:
    """A livelock: what threads read of one another in the last round."""
    places = {number: place for cycle in cycles for number, place in cycle.places.items()}
    missing = [
        (execution.events[event.source], event)
        for event in (execution.events[number] for number, place in places.items() if place.round == 0)
        if event.source in places and places[event.source].thread != event.thread
    ]
    return Blame(frozenset(places), tuple(missing))


def _find_node(execution: Execution, wait: Wait) -> Node:
    """A wait without an end: an event where a value passed it by."""
    for event in execution.events:
        if event.kind == STARVED and event.thread == wait.thread and event.operation == wait.operation:
            return event
    return Ghost(wait.thread, f"{describe(wait.operation)}, for ever")


def _blame_value(program: Program, execution: Execution) -> Blame:
    """A wrong value: the write that should have been read, or the one that came too early."""
    failed = next(thread for thread, state in enumerate(execution.states) if state.failure)
    own = [event for event in execution.events if event.thread == failed]
    ends = frozenset(event.number for event in own)
    wrong = max((event for event in own if event.kind == READ), key=lambda event: event.key, default=None)
    if wrong is None:
        return Blame(ends, ())
    writes = find_writes(execution, wrong.location)
    later = [write for write in writes if wrong.source in ({-1} | write.earlier) and write.number != wrong.source]
    if later:
        return Blame(ends | {later[0].number}, ((later[0], wrong),), wrong=wrong)
    if wrong.source is not None and wrong.source >= 0 and execution.events[wrong.source].thread != failed:
        return Blame(ends, ((wrong, execution.events[wrong.source]),), wrong=wrong)
    return Blame(ends, ((_find_late_store(program, execution, wrong), wrong),), wrong=wrong)


def _find_late_store(program: Program, execution: Execution, wrong: Event) -> Ghost | None:
    """The store that another thread would have made if it had come to it."""
    for thread in range(len(program.threads)):
        for operation in foresee(program, execution, thread) or () if thread != wrong.thread else ():
            if isinstance(operation, Store) and operation.location == wrong.location:
                return Ghost(thread, f"{describe(operation)}, too late")
    return None
