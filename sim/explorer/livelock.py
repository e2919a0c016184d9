"""Threads that run for ever without getting anywhere.

A thread that was cut short after many steps may only be slow.  It is taken to
be in a livelock if the second half of what it did is a cycle: the same
operations with the same values, read from the same places of the cycles one
round later each time.  Such an execution goes on for ever.  One in which a
thread reads what was overwritten for good does not, in a fair memory.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .execution import Event, Execution
from .layout import READ, WRITE

ROUNDS = 3
"""Rounds of a cycle that are looked at: reads of the last two, which may read from the one before."""

Signature = tuple[tuple[object, ...], ...]


@dataclass(frozen=True)
class Place:
    """Where an event is in a cycle.

    Attributes:
        thread: Whose cycle it is.
        offset: Block of the round, lane and kind.
        round: Rounds that came after it.
    """

    thread: int
    offset: tuple[int, int, int]
    round: int


@dataclass(frozen=True)
class Cycle:
    """What a thread does again and again.

    Attributes:
        thread: Which one.
        length: Blocks of a round.
        places: Where its events of the last rounds are, by number.
    """

    thread: int
    length: int
    places: dict[int, Place]


def find_livelock(execution: Execution) -> list[Cycle]:
    """The cycles of all threads that were cut short; none if one of them does something new, or never sees a value."""
    cut = [thread for thread, state in enumerate(execution.states) if state.cut]
    cycles = [cycle for thread in cut if (cycle := _find_cycle(execution, thread)) is not None]
    if len(cycles) < len(cut):
        return []
    places = {number: place for cycle in cycles for number, place in cycle.places.items()}
    reads = {place: execution.events[number] for number, place in places.items() if place.offset[2] == READ}
    goes_on = all(
        _is_current(execution, read, places) and _shifts(read, reads[Place(place.thread, place.offset, 1)], places)
        for place, read in reads.items()
        if place.round == 0
    )
    return cycles if goes_on else []


def explain_livelock(cycles: list[Cycle]) -> str:
    """Who repeats what."""
    each = (f"thread {cycle.thread} repeats {cycle.length} steps" for cycle in cycles)
    return f"livelock: {', '.join(each)}, and nobody gets any further"


def _find_cycle(execution: Execution, thread: int) -> Cycle | None:
    """The shortest cycle of which the second half of a thread's steps consists."""
    blocks: dict[int, list[Event]] = defaultdict(list)
    for event in execution.events:
        if event.thread == thread:
            blocks[event.key[1]].append(event)
    numbers = sorted(blocks)
    steps = [_sign(blocks[block]) for block in numbers]
    half = steps[len(steps) // 2 :]
    for length in range(1, len(half) // ROUNDS + 1):
        if all(a == b for a, b in zip(half, half[length:], strict=False)):
            last = numbers[-ROUNDS * length :]
            places = {
                event.number: Place(thread, (index % length, *event.key[2:]), ROUNDS - 1 - index // length)
                for index, block in enumerate(last)
                for event in blocks[block]
            }
            return Cycle(thread, length, places)
    return None


def _sign(events: list[Event]) -> Signature:
    """What a block did, and with which values."""
    return tuple((event.key[2:], event.operation, event.value) for event in sorted(events, key=lambda event: event.key))


def _is_current(execution: Execution, read: Event, places: dict[int, Place]) -> bool:
    """Whether a thread can go on to read what it reads: it was written in the cycles, or nothing comes after it."""
    writes = [event for event in execution.events if event.kind == WRITE and event.location == read.location]
    if any(write.number in places for write in writes):
        return read.source in places
    return not any(read.source == -1 or read.source in write.earlier for write in writes)


def _shifts(read: Event, before: Event, places: dict[int, Place]) -> bool:
    """Whether a read reads what the one of the round before read, one round later."""
    source, earlier = places.get(_source(read)), places.get(_source(before))
    if source is None:
        return read.source == before.source
    return earlier == Place(source.thread, source.offset, source.round + 1)


def _source(read: Event) -> int:
    """Number of the write that a read reads from, -1 for the initial value."""
    return -1 if read.source is None else read.source
