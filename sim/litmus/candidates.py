"""Candidate executions of a litmus program: its events, and which write each read takes its value from.

Every assignment that no value comes out of thin air in is listed once, whatever a memory model thinks of it.  A read
takes its value from a write that is there already; or it is put off, and may then only choose among writes that
appear later.  Values are therefore always known, and the cycles of reads-from and dependencies that would make a
value justify itself never arise (PTX ISA, "No-Thin-Air Axiom").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tiebreak.errors import UnsupportedOperationError
from tiebreak.sim.litmus.conditions import locations_in
from tiebreak.sim.litmus.program import Address, Program, Value
from tiebreak.sim.litmus.threads import (
    INITIAL_THREAD,
    Control,
    Event,
    LoopBoundError,
    StutterError,
    ThreadRunner,
    written,
)
from tiebreak.sim.litmus.values import is_known, settle

_PATIENCE = 128


class TimeLimitError(Exception):
    """The search took longer than allowed."""


@dataclass(frozen=True)
class Limits:
    """What a search may cost.

    Attributes:
        iterations: How often a thread may go back to one label; iterations that change nothing do not count.
        seconds: Time for one program.
    """

    iterations: int = 4
    seconds: float = 60.0


@dataclass(frozen=True)
class Candidate:
    """A candidate execution.

    Attributes:
        events: Events; addresses, values and keys are known.
        reads_from: Number of the write that each read takes its value from.
        registers: Final value of every register of every thread, by thread and name.
    """

    events: tuple[Event, ...]
    reads_from: dict[int, int]
    registers: dict[tuple[str, str], Value]


@dataclass
class _State:
    events: list[Event]
    controls: list[Control]
    values: dict[int, Value] = field(default_factory=dict)
    reads_from: dict[int, int] = field(default_factory=dict)
    available: list[int] = field(default_factory=list)
    deferred: dict[int, int] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(
            list(self.events),
            [control.copy() for control in self.controls],
            dict(self.values),
            dict(self.reads_from),
            list(self.available),
            dict(self.deferred),
        )


class CandidateSearch:
    """Lists the candidates of a program.

    Args:
        program: The program.
        limits: What it may cost.
        observed: Registers whose final value counts, by thread; None: all.
        accept: Given events and several choices of reads-from for some of the reads, the indices of those that a model
            may still allow; asked only once the search has grown.

    Attributes:
        bounded: Whether an execution was left out because a loop ran too often.
    """

    def __init__(
        self,
        program: Program,
        limits: Limits,
        observed: dict[str, frozenset[str]] | None = None,
        accept: Callable[[Sequence[Event], Sequence[Mapping[int, int]]], Collection[int]] | None = None,
    ) -> None:
        self.program = program
        self.bounded = False
        self._accept = accept
        self._states = 0
        self._deadline = time.monotonic() + limits.seconds
        self._runners = [
            ThreadRunner(
                index,
                thread,
                registers_of(program, index) if observed is None else observed.get(thread.name, frozenset()),
                limits.iterations,
            )
            for index, thread in enumerate(program.threads)
        ]
        self._registers = [sorted(registers_of(program, index)) for index in range(len(program.threads))]

    def __iter__(self) -> Iterator[Candidate]:
        """List the candidates.

        Raises:
            TimeLimitError: The time is over.
            UnsupportedOperationError: The program does something that the models do not define.
        """
        events = [
            Event(number, INITIAL_THREAD, "write", address=Address(name), value=self.program.memory.get(name, 0))
            for number, name in enumerate(locations_of(self.program))
        ]
        pending = [_State(events, [runner.start() for runner in self._runners])]
        while pending:
            if time.monotonic() > self._deadline:
                raise TimeLimitError
            state = pending.pop()
            self._states += 1
            try:
                for runner, control in zip(self._runners, state.controls, strict=True):
                    runner.advance(control, state.events, state.values)
            except LoopBoundError:
                self.bounded = True
                continue
            except StutterError:
                continue
            self._settle(state)
            read = self._next_read(state)
            if read is not None:
                pending.extend(self._branch(state, read))
            elif len(state.values) == sum(event.kind == "read" for event in state.events) and self._is_over(state):
                yield self._finish(state)

    def _is_over(self, state: _State) -> bool:
        return all(runner.is_finished(control) for runner, control in zip(self._runners, state.controls, strict=True))

    def _settle(self, state: _State) -> None:
        """Put known values into the events, and note the writes that can be read from now."""
        known = set(state.available)
        for number, event in enumerate(state.events):
            if event.kind not in {"read", "write"} or number in known:
                continue
            parts = (event.address, event.value, event.exists)
            if not all(map(is_known, parts)):
                address, value, exists = (settle(part, state.values) for part in parts)
                event = state.events[number] = replace(event, address=address, value=value, exists=exists)
            if is_known(event.address) and not isinstance(event.address, Address):
                raise UnsupportedOperationError(f"access of address {event.address!r}")
            if event.kind == "write" and all(map(is_known, (event.address, event.value, event.exists))):
                state.available.append(number)

    def _options(self, state: _State, read: int) -> list[int]:
        """Writes that a read may take its value from, other than those it was put off for."""
        event = state.events[read]
        return [
            number
            for number in state.available[state.deferred.get(read, 0) :]
            if state.events[number].exists
            and self._location(state.events[number]) == self._location(event)
            and not (state.events[number].thread == event.thread and number > read)
        ]

    def _location(self, event: Event) -> str:
        assert isinstance(event.address, Address)
        return self.program.physical(event.address.location)

    def _next_read(self, state: _State) -> int | None:
        """The first read that could be answered now."""
        for number, event in enumerate(state.events):
            open_ = event.kind == "read" and number not in state.values and is_known(event.address)
            if open_ and self._options(state, number):
                return number
        return None

    def _branch(self, state: _State, read: int) -> Iterator[_State]:
        """The states in which a read is put off, or answered by each of the writes."""
        writes = sum(event.kind == "write" for event in state.events)
        if len(state.available) < writes or not self._is_over(state):
            later = state.copy()
            later.deferred[read] = len(state.available)
            yield later
        for number in sorted(self._acceptable(state, read), key=lambda option: self._is_executed(state, option)):
            answered = state.copy()
            answered.reads_from[read] = number
            value = state.events[number].value
            assert is_known(value)
            answered.values[read] = value  # type: ignore[assignment]
            yield answered

    def _is_executed(self, state: _State, write: int) -> bool:
        """Whether a write is no half of an unanswered read-modify-write: what an interleaving would read, tried first.

        States are taken from the end of the list.
        """
        partner = state.events[write].partner
        return partner < 0 or partner in state.values

    def _acceptable(self, state: _State, read: int) -> list[int]:
        """The options of a read that the model may still allow."""
        options = self._options(state, read)
        if self._accept is None or self._states < _PATIENCE:
            return options
        kept = [event for event in state.events if event.kind != "barrier" and self._is_settled(event)]
        place = {event.number: at for at, event in enumerate(kept)}
        events = [replace(event, number=place[event.number], partner=place.get(event.partner, -1)) for event in kept]
        known = {place[reader]: place[writer] for reader, writer in state.reads_from.items()}
        choices = [{**known, place[read]: place[option]} for option in options]
        return [options[index] for index in sorted(self._accept(events, choices))]

    def _is_settled(self, event: Event) -> bool:
        """Whether an event is there, and where it goes is known."""
        return is_known(event.address) and is_known(event.exists) and event.exists != 0

    def _finish(self, state: _State) -> Candidate:
        """Leave out what does not exist, and number the rest."""
        kept = [event for event in state.events if settle(event.exists, state.values) != 0]
        place = {event.number: at for at, event in enumerate(kept)}
        events = tuple(self._renumber(event, place, state) for event in kept)
        registers: dict[tuple[str, str], Value] = {}
        for thread, names, control in zip(self.program.threads, self._registers, state.controls, strict=True):
            for name in names:
                registers[thread.name, name] = settle(control.registers.get(name, 0), state.values)  # type: ignore[assignment]
        sources = {place[read]: place[write] for read, write in state.reads_from.items()}
        return Candidate(events, sources, registers)

    def _renumber(self, event: Event, place: dict[int, int], state: _State) -> Event:
        """An event with its final number and, of a barrier, the final names."""
        if event.kind == "barrier":
            quorum = None if event.quorum is None else settle(event.quorum, state.values)
            names = tuple(settle(part, state.values) for part in event.barrier)
            return replace(event, number=place[event.number], barrier=names, quorum=quorum)
        if place[event.number] == event.number:
            return event
        return replace(event, number=place[event.number], partner=place.get(event.partner, -1))


def registers_of(program: Program, index: int) -> frozenset[str]:
    """Registers that a thread sets, or that start with a value."""
    thread = program.threads[index]
    names = {name for name, _ in thread.registers}
    return frozenset(names.union(*(written(step) for step in thread.instructions)))


def locations_of(program: Program) -> list[str]:
    """Locations that a program names, in any of its parts; aliases by what they stand for."""
    names: dict[str, None] = dict.fromkeys(program.memory)
    values: list[object] = list(program.memory.values())
    for thread in program.threads:
        values.extend(value for _, value in thread.registers)
        for step in thread.instructions:
            for part in vars(step).values():
                values.extend(part if isinstance(part, tuple) else (part,))
    names.update(dict.fromkeys(value.location for value in values if isinstance(value, Address)))
    names.update(dict.fromkeys(alias.target for alias in program.aliases.values()))
    if program.condition is not None:
        names.update(dict.fromkeys(locations_in(program.condition)))
    return list(dict.fromkeys(program.physical(name) for name in names))
