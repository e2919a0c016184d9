"""One execution, as people and checks read it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from .history import Histories, State
from .layout import (
    AT_EVENTS,
    AT_SEQUENCE,
    AT_THREADS,
    BLOCK,
    EARLIER,
    FIELDS,
    FRAME,
    HAPPENS,
    HEADER,
    KIND,
    LANE,
    OPERATION,
    PARTNER,
    READ,
    RECORD,
    SIZE,
    SOURCE,
    STATE_NOW,
    THREAD,
    THREAD_RECORD,
    VALUE,
    WAITS,
    WORDS,
    WRITE,
    Array,
)
from .operations import Barrier, Fence, Location, Operation, Value

EventKey = tuple[int, int, int, int]
"""Thread, block, lane and kind: what names an event in every execution."""


@dataclass(frozen=True)
class Event:
    """An event of an execution.

    Attributes:
        number: Its place in the order in which the explorer added events.
        key: Its name.
        operation: What the thread issued.
        value: Value read or written.
        source: Number of the event that a read reads from, -1 for the initial
            value, None for what is no read.
        open: Whether the value that ended a wait is left open.
        earlier: Numbers of the writes before a write in coherence order.
        happens: Numbers of the events that happen before.
        partner: Number of the other half of an update.
    """

    number: int
    key: EventKey
    operation: Operation
    value: Value
    source: int | None
    open: bool
    earlier: frozenset[int]
    happens: frozenset[int]
    partner: int | None

    @property
    def thread(self) -> int:
        """Thread that issued it."""
        return self.key[0]

    @property
    def kind(self) -> int:
        """Kind of event, see ``layout``."""
        return self.key[3]

    @property
    def location(self) -> Location | None:
        """Location accessed."""
        return None if isinstance(self.operation, Fence | Barrier) else self.operation.location


@dataclass(frozen=True)
class Execution:
    """An execution graph.

    Attributes:
        events: In an order in which each comes after what it needs, except
            that a read may come before the write that it reads.
        states: State in which each thread is at the end.
        initial: Initial value of every location that is accessed.
    """

    events: tuple[Event, ...]
    states: tuple[State, ...]
    initial: dict[Location, Value]

    @property
    def results(self) -> tuple[Any, ...]:
        """What each thread returned; None for those that did not end."""
        return tuple(state.result for state in self.states)

    @property
    def memory(self) -> dict[Location, Value]:
        """Last value of each location in coherence order."""
        final = dict(self.initial)
        depth = dict.fromkeys(final, -1)
        for event in self.events:
            if event.kind == WRITE and event.location is not None and len(event.earlier) > depth[event.location]:
                depth[event.location] = len(event.earlier)
                final[event.location] = event.value
        return final

    @property
    def key(self) -> Hashable:
        """The class of the execution: program order, reads-from and coherence, whoever was added first."""
        names = {event.number: event.key for event in self.events}
        reads = frozenset(
            (event.key, names.get(event.source)) for event in self.events if event.source is not None and not event.open
        )
        writes = frozenset(
            (event.key, frozenset(names[number] for number in event.earlier))
            for event in self.events
            if event.kind == WRITE
        )
        return frozenset(names.values()), reads, writes


def decode(memory: Array, number: int, histories: Histories) -> Execution:
    """The execution graph of a frame."""
    start = HEADER + number * int(memory[FRAME])
    frame = memory[start : start + int(memory[FRAME])].tolist()
    events, record, words = int(memory[AT_EVENTS]), int(memory[RECORD]), int(memory[WORDS])
    sequence = frame[int(memory[AT_SEQUENCE]) :][: frame[SIZE]]
    places = {slot: place for place, slot in enumerate(sequence)}

    def members(fields: list[int], which: int) -> frozenset[int]:
        row = fields[FIELDS + which * words : FIELDS + (which + 1) * words]
        return frozenset(place for slot, place in places.items() if row[slot >> 6] >> (slot & 63) & 1)

    def event(place: int, slot: int) -> Event:
        fields = frame[events + slot * record : events + (slot + 1) * record]
        source, partner = fields[SOURCE], fields[PARTNER]
        return Event(
            number=place,
            key=(fields[THREAD], fields[BLOCK], fields[LANE], fields[KIND]),
            operation=histories.operations[fields[OPERATION]],
            value=histories.values.items[fields[VALUE]] if fields[KIND] <= WRITE else None,
            source=None if fields[KIND] != READ else places.get(source, -1),
            open=fields[WAITS] == 2,
            earlier=members(fields, EARLIER),
            happens=members(fields, HAPPENS),
            partner=places.get(partner),
        )

    found = tuple(event(place, slot) for place, slot in enumerate(sequence))
    threads = int(memory[AT_THREADS])
    states = tuple(
        histories.states[frame[threads + index * THREAD_RECORD + STATE_NOW]]
        for index in range(len(histories.program.threads))
    )
    locations = {entry.location for entry in found} - {None}
    return Execution(found, states, {place: histories.program.initial_value(place) for place in locations})
