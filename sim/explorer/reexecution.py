"""Running the threads of a program again, one event of a schedule after the other.

Values are not taken from the execution: a read gets what the thread that is
run again has written, or the initial value.  So a schedule that is not one of
the program, or one that fails for another reason, does not get through.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .execution import Event, Execution
from .history import describe_failure, gives_value
from .layout import ARRIVED, READ, STARVED, WRITE
from .operations import Await, Barrier, Lanes, Operation, Store, Update, Value
from .program import Program


class DifferentError(Exception):
    """A thread did something else than in the execution."""


@dataclass
class _Running:
    """A thread that is run again."""

    run: Generator[Operation | Lanes, Any, Any]
    block: int = 0
    operations: tuple[Operation, ...] = ()
    lanes: bool = False
    values: dict[int, Value] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    result: Any = None
    failure: str = ""

    def go_on(self, sent: Any = None) -> None:
        """Let the thread issue its next operations."""
        self.operations, self.values, self.left = (), {}, set()
        try:
            issued = self.run.send(sent)
        except StopIteration as stop:
            self.result = stop.value
        except AssertionError as failure:
            self.failure = describe_failure(failure)
        else:
            self.lanes = isinstance(issued, Lanes)
            self.operations = issued.operations if isinstance(issued, Lanes) else (issued,)
            self.left = set(range(len(self.operations)))

    def finish(self, lane: int) -> None:
        """Note that a lane is done, and go on after the last one."""
        self.left.discard(lane)
        if not self.left:
            answers = tuple(
                self.values[index] if gives_value(operation) else None
                for index, operation in enumerate(self.operations)
            )
            self.block += 1
            self.go_on(answers if self.lanes else answers[0])


class Reexecution:
    """Threads of a program that are run again.

    Args:
        program: The program.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._running: dict[int, _Running] = {}
        self._written: dict[int, Value] = {}
        self._done: set[int] = set()

    def thread(self, number: int) -> _Running:
        """A thread, at its first operation if it has not run yet."""
        if number not in self._running:
            self._running[number] = _Running(self._program.threads[number].body())
            self._running[number].go_on()
        return self._running[number]

    def perform(self, event: Event) -> None:
        """Let the thread of an event do it.

        Raises:
            DifferentError: It does something else.
        """
        thread, block, lane, kind = event.key
        running = self.thread(thread)
        if running.block != block or lane not in running.left or running.operations[lane] != event.operation:
            raise DifferentError(str(event))
        operation = running.operations[lane]
        if kind == READ:
            self._read(event, running, lane, operation)
        elif kind == WRITE:
            self._written[event.number] = self._write(event, running, lane, operation)
        elif kind == ARRIVED:
            running.block += 1
        self._done.add(event.number)
        if kind != ARRIVED and not (kind == READ and event.partner is not None):
            running.finish(lane)

    def perform_all(self, events: Sequence[Event]) -> list[Event]:
        """Perform events in turn; those that cannot happen yet, and what their threads do later, are returned."""
        put_off: list[Event] = []
        waiting: set[int] = set()
        for event in events:
            needs = {event.source} if event.kind == READ and event.source != -1 else event.synchronised
            if event.thread in waiting or not needs <= self._done:
                put_off.append(event)
                waiting.add(event.thread)
            elif event.kind != STARVED:
                self.perform(event)
        return put_off

    def _read(self, event: Event, running: _Running, lane: int, operation: Operation) -> None:
        assert event.source is not None and not isinstance(operation, Barrier)
        initial = self._program.initial_value(event.location)
        value = self._written[event.source] if event.source >= 0 else initial
        if value != event.value or (isinstance(operation, Await) and not operation.predicate(value)):
            raise DifferentError(str(event))
        running.values[lane] = value

    def _write(self, event: Event, running: _Running, lane: int, operation: Operation) -> Value:
        if isinstance(operation, Update):
            value = operation.function(running.values[lane])
        else:
            assert isinstance(operation, Store)
            value = operation.value
        if value != event.value:
            raise DifferentError(str(event))
        return value


def reexecute(program: Program, execution: Execution, schedule: Sequence[Event]) -> Reexecution | None:
    """Run a schedule again, which may be in an order in which reads come before the writes that they read.

    Returns:
        The threads where they are after it; None if they did something else.
    """
    again, left = Reexecution(program), list(schedule)
    try:
        while left:
            put_off = again.perform_all(left)
            if len(put_off) == len(left):
                return None
            left = put_off
    except DifferentError:
        return None
    return again
