"""The memo of histories: what each thread does next after the values that it has read.

A thread is run once per distinct history.  What it issues is recorded in the
arrays of ``Tables``, which is all that the search needs; a value that was not
seen before comes back here.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiebreak.errors import InputError

from .layout import (
    ARRIVE,
    AWAIT,
    BROKEN,
    CHANGE,
    CUT,
    DEPART,
    FENCE,
    FINISHED,
    FOLD,
    LOAD,
    MERGED,
    NOTHING,
    STORE,
    TAKE,
    TEST,
    UPDATE,
    Array,
    Tables,
)
from .lookup import insert, make_table
from .operations import ALL_STRANDS, Await, Barrier, Fence, Lanes, Load, Location, Operation, Store, Update, Value
from .program import MAXIMUM_LANES, Program

DISTINGUISH = -1
"""Stands in the log for a call of ``distinguish``."""


class EndlessError(Exception):
    """A thread goes no further, however many operations it would still issue."""


@dataclass(frozen=True)
class State:
    """A thread after a history.

    Attributes:
        thread: Which one.
        sent: What it was sent so far.
        operations: What it issues, at once where there are several.
        lanes: Whether it issued them as lanes.
        read: Values that the first lanes of the block have read, where the
            state stands for part of a block.
        arrived: Whether this is the second half of a barrier.
        result: What it returned.
        failure: What it asserts in vain.
        cut: Whether it was cut short.
    """

    thread: int
    sent: tuple[Value, ...]
    operations: tuple[Operation, ...] = ()
    lanes: bool = False
    read: tuple[Value, ...] = ()
    arrived: bool = False
    result: Any = None
    failure: str = ""
    cut: bool = False


class Interned:
    """Numbers for hashable things, in the order in which they come."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._numbers: dict[tuple[type, Hashable], int] = {}

    def number(self, item: Hashable) -> int:
        """Number of a thing; 1, 1.0 and True are three things."""
        key = (type(item), item)
        if key not in self._numbers:
            self._numbers[key] = len(self.items)
            self.items.append(item)
        return self._numbers[key]


class Columns:
    """An array of columns that grows at its end."""

    def __init__(self, rows: int) -> None:
        self.data: Array = np.zeros((rows, 64), np.int64)
        self.length = 0

    def append(self, *entries: int) -> None:
        """Add a column."""
        if self.length == self.data.shape[1]:
            self.data = np.concatenate([self.data, np.zeros_like(self.data)], axis=1)
        self.data[:, self.length] = entries
        self.length += 1


class Histories:
    """All histories of a program that the search asked for.

    Args:
        program: What is explored.
        steps: Blocks after which a thread is cut short.
        merge: Whether awaits leave open which of the satisfying values ended
            them; else each value is a case of its own.
        apart: Locations, as text, of which they do not.

    Attributes:
        runs: Times that a thread was started from its beginning.
        log: Arguments of every call of ``resolve`` and ``distinguish``, which
            make the same numbers again.
        states: What the numbers of states stand for.
        operations: What the numbers of operations stand for, with their thread.
        values, locations: Likewise.
    """

    def __init__(
        self, program: Program, steps: int = 100_000, merge: bool = False, apart: frozenset[str] = frozenset()
    ) -> None:
        self.program = program
        self.runs = 0
        self.log: list[tuple[int, int, int]] = []
        self.states: list[State] = []
        self.operations: list[Operation] = []
        self.values = Interned()
        self.values.number(None)
        self.locations = Interned()
        self._steps = steps
        self._operations, self._states, self._memory = Columns(6), Columns(2), Columns(2)
        self._merge, self._apart = merge, apart
        self._table = make_table()
        self._entries = 0
        self._live: dict[int, tuple[tuple[Value, ...], Generator[Operation | Lanes, Any, Any]]] = {}
        self._roots = [self._advance(index, ()) for index in range(len(program.threads))]

    @property
    def tables(self) -> Tables:
        """The arrays, as they are now."""
        threads = self.program.threads
        places = np.array([self._roots, [t.cta for t in threads], [t.gpu for t in threads]], np.int64)
        return Tables(self._operations.data, self._states.data, places, self._memory.data, *self._table)

    def resolve(self, kind: int, index: int, number: int) -> None:
        """Find out what a value leads to, and enter it into the table."""
        value = self.values.items[number]
        self.log.append((kind, index, number))
        if kind == FOLD:
            result = self._fold(self.states[index], value)
        else:
            operation = self.operations[index]
            if kind == TEST:
                assert isinstance(operation, Await)
                result = int(bool(operation.predicate(value)))
            else:
                assert kind == CHANGE and isinstance(operation, Update)
                new = operation.function(value)
                result = NOTHING if new is None else self.values.number(new)
        self._entries += 1
        if 2 * self._entries > len(self._table[0]):
            self._table = make_table(self._table)
        insert(*self._table, kind, index, number, result)

    def distinguish(self, location: int) -> None:
        """Have awaits of a location tell values apart from now on."""
        self.log.append((DISTINGUISH, location, 0))
        self._memory.data[MERGED, location] = 0

    def _fold(self, state: State, value: Value) -> int:
        """State after one more lane of a block has read a value."""
        if state.operations and isinstance(state.operations[0], Barrier) and not state.arrived:
            return self._enter(State(state.thread, state.sent, state.operations, arrived=True))
        reading = [gives_value(operation) for operation in state.operations]
        read = state.read if not any(reading) else (*state.read, value)
        if len(read) < sum(reading):
            return self._enter(State(state.thread, state.sent, state.operations, state.lanes, read))
        values = iter(read)
        results = tuple(next(values) if reads else None for reads in reading)
        return self._advance(state.thread, (*state.sent, results if state.lanes else results[0]))

    def _advance(self, thread: int, sent: tuple[Value, ...]) -> int:
        """State of a thread after what it was sent."""
        if len(sent) >= self._steps:
            return self._enter(State(thread, sent, cut=True), CUT)
        try:
            issued = self._issue(thread, sent)
        except StopIteration as stop:
            return self._enter(State(thread, sent, result=stop.value), FINISHED)
        except AssertionError as failure:
            return self._enter(State(thread, sent, failure=describe_failure(failure)), BROKEN)
        except EndlessError:
            return self._enter(State(thread, sent, cut=True), CUT)
        lanes = isinstance(issued, Lanes)
        operations = issued.operations if isinstance(issued, Lanes) else (issued,)
        _check(operations)
        return self._enter(State(thread, sent, operations, lanes))

    def _issue(self, thread: int, sent: tuple[Value, ...]) -> Operation | Lanes:
        """Run a thread to its next operation, from where it stands if that is right."""
        path, run = self._live.pop(thread, (None, None))
        if run is None or path != sent[:-1] or not sent:
            run = self.program.threads[thread].body()
            self.runs += 1
            issued = next(run)
            for value in sent:
                issued = run.send(value)
        else:
            issued = run.send(sent[-1])
        self._live[thread] = (sent, run)
        return issued

    def _enter(self, state: State, ending: int = FINISHED) -> int:
        """Number a state and its operations."""
        first = len(self.operations)
        if not state.read:
            for operation in state.operations:
                self._record(operation, state.arrived)
        self._states.append(first, len(self.operations) - first or ending)
        self.states.append(state)
        return len(self.states) - 1

    def _record(self, operation: Operation, arrived: bool) -> None:
        """Number an operation."""
        kind = DEPART if arrived else _KINDS[type(operation)]
        location, order, scope, value, strands = 0, 0, 0, 0, ALL_STRANDS
        if isinstance(operation, Await) and operation.given:
            kind = TAKE
        if isinstance(operation, Barrier):
            location, value = self._locate(operation), operation.participants
        elif isinstance(operation, Fence):
            order, scope, strands = operation.order, operation.scope, operation.strands
        else:
            strands = operation.strands
            location, order, scope = self._locate(operation.location), operation.order, operation.scope
        if isinstance(operation, Store):
            value = self.values.number(operation.value)
        self._operations.append(kind, location, int(order), int(scope), value, strands)
        self.operations.append(operation)

    def _locate(self, location: Location) -> int:
        """Number of a location; barriers have locations of their own."""
        number = self.locations.number(location)
        if number == self._memory.length:
            merged = self._merge and repr(location) not in self._apart
            self._memory.append(self.values.number(self.program.initial_value(location)), int(merged))
        return number


_KINDS: dict[type, int] = {Load: LOAD, Store: STORE, Update: UPDATE, Await: AWAIT, Fence: FENCE, Barrier: ARRIVE}


def gives_value(operation: Operation) -> bool:
    """Whether a thread is given a value by what it issued."""
    return isinstance(operation, Load | Update) or (isinstance(operation, Await) and operation.given)


def _check(operations: tuple[Operation, ...]) -> None:
    """Refuse blocks that the arrays cannot hold."""
    if not 0 < len(operations) <= MAXIMUM_LANES:
        raise InputError("lanes", value=len(operations), limit=f"1 to {MAXIMUM_LANES} at once")
    if len(operations) > 1 and any(isinstance(operation, Barrier) for operation in operations):
        raise InputError("lanes", value=operations, limit="a barrier stands alone")
    for operation in operations:
        if type(operation) not in _KINDS:
            raise InputError("operation", value=operation, limit="one of sim.explorer.operations")


def describe_failure(failure: AssertionError) -> str:
    """What a thread asserted in vain, on one line."""
    return next(iter(str(failure).splitlines()), "an assertion failed")
