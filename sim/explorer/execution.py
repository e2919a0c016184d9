"""One execution, as people and checks read it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import product
from typing import Any

from tiebreak.errors import InputError

from .history import Histories, State
from .layout import (
    ARRIVED,
    AT_EVENTS,
    AT_ORDERS,
    AT_SEQUENCE,
    AT_THREADS,
    AT_TURNS,
    BLOCK,
    DEPARTED,
    EARLIER,
    FIELDS,
    FRAME,
    HEADER,
    KIND,
    LANE,
    LOCATION,
    MODEL,
    OPERATION,
    PARTNER,
    PTX,
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
from .operations import ALL_STRANDS, Await, Barrier, Fence, Load, Location, Operation, Order, Scope, Store, Value
from .ptx import find_order

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
        synchronised: Numbers of the arrivals that a departure from a barrier
            waits for.
        partner: Number of the other half of an update.
    """

    number: int
    key: EventKey
    operation: Operation
    value: Value
    source: int | None
    open: bool
    earlier: frozenset[int]
    synchronised: frozenset[int]
    partner: int | None

    @property
    def thread(self) -> int:
        """Thread that issued it."""
        return self.key[0]

    @property
    def kind(self) -> int:
        """Kind of event, see ``layout``."""
        return self.key[3]

    def __str__(self) -> str:
        return f"{describe(self.operation)}{self.effect} by thread {self.thread}"

    @property
    def effect(self) -> str:
        """What it read or wrote, where the operation does not say so."""
        if self.kind == READ:
            return f" reads {self.value!r}"
        return f" writes {self.value!r}" if self.partner is not None else ""

    @property
    def accesses(self) -> bool:
        """Whether it accesses memory."""
        return self.kind <= WRITE

    @property
    def location(self) -> Location:
        """Location accessed, None for what accesses none."""
        return None if isinstance(self.operation, Fence | Barrier) else self.operation.location


@dataclass(frozen=True)
class Execution:
    """An execution graph.

    Attributes:
        events: In an order in which each comes after what it needs, except
            that a read may come before the write that it reads.
        states: State in which each thread is at the end.
        memories: What memory may hold at the end; more than one thing where
            writes race under ``ptx``.
    """

    events: tuple[Event, ...]
    states: tuple[State, ...]
    memories: tuple[dict[Location, Value], ...]

    @property
    def results(self) -> tuple[Any, ...]:
        """What each thread returned; None for those that did not end."""
        return tuple(state.result for state in self.states)

    @property
    def memory(self) -> dict[Location, Value]:
        """Last value of each location.

        Raises:
            InputError: Writes race, and there is no one last value.
        """
        if len(self.memories) > 1:
            raise InputError("memory", value=len(self.memories), limit="one final state", remedy="use memories")
        return self.memories[0]

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


def describe(operation: Operation) -> str:
    """An operation as people write it."""
    if isinstance(operation, Barrier):
        return f"barrier {place(operation.name)}"
    if isinstance(operation, Fence) and operation.order is Order.WEAK:
        return "barrier of the CTA" if operation.strands == ALL_STRANDS else "barrier of a warp"
    order = f"{operation.order.name.lower()}.{_SCOPES[operation.scope]}" if operation.order else "weak"
    if operation.strands != ALL_STRANDS:
        order += f", strand {operation.strands.bit_length() - 1}"
    if isinstance(operation, Fence):
        return f"fence.{order}"
    name = place(operation.location)
    if isinstance(operation, Store):
        return f"store {name} = {operation.value!r} ({order})"
    if isinstance(operation, Load):
        return f"load {name} ({order})"
    return f"{'wait until ' if isinstance(operation, Await) else ''}{name} {operation.name} ({order})"


def place(location: Location) -> str:
    """A location as people write it."""
    if isinstance(location, tuple):
        return f"{location[0]}[{','.join(str(part) for part in location[1:])}]"
    return str(location)


_SCOPES = {Scope.CTA: "cta", Scope.GPU: "gpu", Scope.SYSTEM: "sys"}


def decode(memory: Array, number: int, histories: Histories) -> Execution:
    """The execution graph of a frame."""
    start = HEADER + number * int(memory[FRAME])
    frame = memory[start : start + int(memory[FRAME])].tolist()
    events, record, words = int(memory[AT_EVENTS]), int(memory[RECORD]), int(memory[WORDS])
    sequence = frame[int(memory[AT_SEQUENCE]) :][: frame[SIZE]]
    places = {slot: place for place, slot in enumerate(sequence)}

    def members(fields: list[int], which: int) -> frozenset[int]:
        row = fields[FIELDS + which * words : FIELDS + (which + 1) * words]
        if not any(row):
            return frozenset()
        return frozenset(place for slot, place in places.items() if row[slot >> 6] >> (slot & 63) & 1)

    arrived: dict[tuple[int, int], set[int]] = defaultdict(set)
    for place, slot in enumerate(sequence):
        fields = frame[events + slot * record : events + slot * record + FIELDS]
        if fields[KIND] == ARRIVED:
            arrived[fields[LOCATION], fields[VALUE]].add(place)

    def arrivals(fields: list[int]) -> frozenset[int]:
        return frozenset(arrived[fields[LOCATION], fields[VALUE]] if fields[KIND] == DEPARTED else ())

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
            earlier=members(fields, EARLIER) if fields[KIND] == WRITE else frozenset(),
            synchronised=arrivals(fields),
            partner=places.get(partner),
        )

    found = tuple(event(place, slot) for place, slot in enumerate(sequence))
    threads = int(memory[AT_THREADS])
    states = tuple(
        histories.states[frame[threads + index * THREAD_RECORD + STATE_NOW]]
        for index in range(len(histories.program.threads))
    )
    return Execution(found, states, tuple(_find_memories(memory, start, sequence, found, histories)))


def _find_memories(
    memory: Array, start: int, sequence: list[int], events: tuple[Event, ...], histories: Histories
) -> list[dict[Location, Value]]:
    """What memory may hold at the end: at each location a write that none comes after."""
    initial = {event.location: histories.program.initial_value(event.location) for event in events if event.accesses}
    if memory[MODEL] != PTX:
        for event in sorted(events, key=lambda event: len(event.earlier)):
            if event.kind == WRITE:
                initial[event.location] = event.value
        return [initial]
    found: list[dict[Location, Value]] = []
    written: dict[Location, dict[int, Event]] = {}
    for slot, event in zip(sequence, events, strict=True):
        if event.kind == WRITE:
            written.setdefault(event.location, {})[slot] = event
    words, permutation = int(memory[WORDS]), find_order(memory, start, 0)
    while permutation >= 0:
        orders = memory[int(memory[AT_ORDERS]) : int(memory[AT_TURNS])].reshape(-1, words)
        last = {location: {value} for location, value in initial.items()}
        for location, writes in written.items():
            followed = {a for a in writes for b in writes if orders[b, a >> 6] >> (a & 63) & 1}
            last[location] = {event.value for slot, event in writes.items() if slot not in followed}
        for values in product(*last.values()):
            state = dict(zip(last, values, strict=True))
            if state not in found:
                found.append(state)
        permutation = find_order(memory, start, permutation + 1)
    return found
