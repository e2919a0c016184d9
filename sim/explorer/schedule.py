"""Putting the events of an execution into an order in which they can happen, with few switches between threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from .execution import Event, Execution
from .layout import STARVED, WRITE

STATES = 200_000
"""Sets of events up to which the fewest switches are looked for."""

Needs = dict[int, frozenset[int]]
"""For each event the events that come directly before it."""


def collect_needs(execution: Execution, ends: Iterable[int]) -> Needs:
    """Events that some depend on, and the events directly before each.

    These are, by program order, those of the block before; the write that a
    read reads from; the arrivals that a departure waits for; and for an endless
    wait the writes that do not end it.
    """
    blocks: dict[int, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in execution.events:
        blocks[event.thread][event.key[1]].append(event)
    before = {
        thread: dict(zip(sorted(own), [[], *(own[block] for block in sorted(own))], strict=False))
        for thread, own in blocks.items()
    }
    needs: Needs = {}
    left = list(ends)
    while left:
        number = left.pop()
        if number not in needs:
            event = execution.events[number]
            earlier = {other.number for other in before[event.thread][event.key[1]]} | event.synchronised
            if event.partner is not None and event.kind == WRITE:
                earlier |= {event.partner}
            if event.source is not None and event.source >= 0:
                earlier |= {event.source}
            if event.kind == STARVED:
                earlier |= {write.number for write in find_writes(execution, event.location)}
            needs[number] = frozenset(earlier)
            left += earlier
    return needs


def find_writes(execution: Execution, location: object) -> list[Event]:
    """Writes of a location."""
    return [event for event in execution.events if event.kind == WRITE and event.location == location]


@dataclass(frozen=True)
class _Step:
    """An event, in sets that are bits of an integer."""

    number: int
    block: int
    bit: int
    needs: int


def order_events(execution: Execution, needs: Needs, limit: int | None = None) -> list[int] | None:
    """Events in an order with the fewest switches between threads, or with few where there are too many orders.

    Sets of events that threads can have reached are searched in the order of
    the switches that it takes.  None if it takes more than ``limit``.
    """
    steps = _list_steps(execution, needs)
    everything = (1 << len(needs)) - 1
    frontier: dict[tuple[int, int], tuple[int, int] | None] = {(0, -1): None}
    parents: dict[tuple[int, int], tuple[int, int] | None] = {}
    switches = -1
    while frontier:
        parents.update(frontier)
        further: dict[tuple[int, int], tuple[int, int] | None] = {}
        for state in frontier:
            if state[0] == everything:
                return _trace(steps, parents, state)
            for thread, own in steps.items():
                reached = _run(own, state[0]) if thread != state[1] else state[0]
                if reached != state[0] and (reached, thread) not in parents:
                    further.setdefault((reached, thread), state)
        switches += 1
        if limit is not None and switches > limit:
            return None
        if len(parents) > STATES:
            further = dict([max(further.items(), key=lambda entry: entry[0][0].bit_count())])
        frontier = further
    raise AssertionError("events that come before one another")


def _list_steps(execution: Execution, needs: Needs) -> dict[int, list[_Step]]:
    """Events of each thread, in program order."""
    bits = {number: 1 << place for place, number in enumerate(needs)}
    steps: dict[int, list[_Step]] = defaultdict(list)
    for number in sorted(needs, key=lambda number: execution.events[number].key):
        event = execution.events[number]
        mask = sum(bits[other] for other in needs[number])
        steps[event.thread].append(_Step(number, event.key[1], bits[number], mask))
    return steps


def _run(steps: list[_Step], done: int, order: list[int] | None = None) -> int:
    """Let a thread go on as far as it can, noting the ``order``; a block is begun when the one before is done."""
    stopped, again = None, False
    for step in steps:
        if stopped is not None and step.block > stopped:
            break
        if done & step.bit:
            continue
        if step.needs & ~done:
            stopped = step.block
            continue
        done |= step.bit
        # Another lane of the block may have waited for this one.
        again |= stopped is not None
        if order is not None:
            order.append(step.number)
    return _run(steps, done, order) if again else done


def _trace(
    steps: dict[int, list[_Step]], parents: dict[tuple[int, int], tuple[int, int] | None], state: tuple[int, int]
) -> list[int]:
    """The events that led to a state."""
    order: list[int] = []
    while (before := parents[state]) is not None:
        part: list[int] = []
        _run(steps[state[1]], before[0], part)
        order[:0] = part
        state = before
    return order
