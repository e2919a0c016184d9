"""Putting the events of an execution into an order in which they can happen, with few switches between threads."""

from __future__ import annotations

from collections.abc import Iterable

from .execution import Event, Execution
from .layout import STARVED, WRITE

STATES = 200_000
"""Sets of events up to which the fewest switches are looked for."""

Needs = dict[int, frozenset[int]]
"""For each event the events that come directly before it."""


def collect_needs(execution: Execution, ends: Iterable[int]) -> Needs:
    """Events that some depend on, and the events directly before each."""
    needs: Needs = {}
    left = list(ends)
    while left:
        number = left.pop()
        if number not in needs:
            needs[number] = find_predecessors(execution, execution.events[number])
            left += needs[number]
    return needs


def find_predecessors(execution: Execution, event: Event) -> frozenset[int]:
    """Events directly before one: by program order, reads-from and barriers; the writes that end no endless wait."""
    earlier = {
        other.number
        for other in execution.events
        if other.thread == event.thread
        and (other.key[1] < event.key[1] or (other.number == event.partner and event.kind == WRITE))
    }
    if event.source is not None and event.source >= 0:
        earlier.add(event.source)
    if event.kind == STARVED:
        earlier |= {other.number for other in find_writes(execution, event.location)}
    return frozenset(earlier | event.synchronised)


def find_writes(execution: Execution, location: object) -> list[Event]:
    """Writes of a location."""
    return [event for event in execution.events if event.kind == WRITE and event.location == location]


def order_events(execution: Execution, needs: Needs) -> list[int]:
    """Events in an order with the fewest switches between threads, or with few where there are too many orders."""
    frontier: dict[tuple[frozenset[int], int], list[int]] = {(frozenset(), -1): []}
    seen: set[tuple[frozenset[int], int]] = set()
    threads = {number: execution.events[number].thread for number in needs}
    while frontier:
        further: dict[tuple[frozenset[int], int], list[int]] = {}
        for (done, thread), path in frontier.items():
            done, path = _run(threads, needs, done, thread, path)
            if len(done) == len(needs):
                return path
            if (done, thread) in seen:
                continue
            seen.add((done, thread))
            for other in {threads[number] for number in needs if number not in done} - {thread}:
                if _run(threads, needs, done, other, path)[0] != done:
                    further.setdefault((done, other), path)
        if len(seen) > STATES:
            further = dict([max(further.items(), key=lambda entry: len(entry[0][0]))])
        frontier = further
    return sorted(needs)


def _run(
    threads: dict[int, int], needs: Needs, done: frozenset[int], thread: int, path: list[int]
) -> tuple[frozenset[int], list[int]]:
    """Let a thread go on as far as it can."""
    left = [number for number in needs if threads[number] == thread and number not in done]
    reached, added = set(done), []
    progress = True
    while progress:
        progress = False
        for number in left:
            if number not in reached and needs[number] <= reached:
                reached.add(number)
                added.append(number)
                progress = True
    return (frozenset(reached), [*path, *added]) if added else (done, path)
