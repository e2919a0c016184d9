"""What is wrong with a class of executions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .execution import Execution, decode
from .history import Histories
from .inflation import Inflated, inflate
from .layout import COMPLETE, CUT_SHORT, FRAME, HEADER, LAPSED, SIZE, STUCK, THREADS, TOP, VERDICT, Array
from .livelock import explain_livelock, find_livelock
from .liveness import explain_waits
from .orders import Ordered, order_accesses
from .precedence import find_unordered, summarise
from .program import Program
from .races import NO_RACE, find_race
from .schedule import collect_needs
from .settling import Settling, UnsettledError, Walk

RACES = 64
"""Races of one class that are compared."""

Check = Callable[[Execution], str | None]
"""A property of complete executions; says what is wrong, or None."""


@dataclass(frozen=True)
class AtEnd:
    """A property of what threads return and memory holds at the end: judged once for each such end.

    Attributes:
        check: The property.
        results: Whether what threads return, and what they did, is part of it.
    """

    check: Check
    results: bool = True

    def __call__(self, execution: Execution) -> str | None:
        """What is wrong."""
        return self.check(execution)


@dataclass(frozen=True)
class Failure:
    """An execution that breaks a property.

    Attributes:
        property: ``assertion``, ``progress``, ``race`` or ``check``.
        message: What is wrong.
        execution: Where.
        events: Numbers of the events that it is about, if it is about two.
    """

    property: str
    message: str
    execution: Execution
    events: tuple[int, int] | None = None


class Judge:
    """Judges what the search hands over.

    Args:
        program: The whole program.
        settling: What the search leaves out of it, if anything.
        races: Whether a data race is a failure.
        distinct: Whether to compare every class with those before.
        check: Property of complete executions.
        visit: Called with every complete execution.

    Attributes:
        redundant: Classes that had been seen before, where that is compared.
    """

    def __init__(
        self,
        program: Program,
        settling: Settling | None = None,
        races: bool = False,
        distinct: bool = False,
        check: Check | None = None,
        visit: Callable[[Execution], None] | None = None,
    ) -> None:
        self.program, self.settling = program, settling
        self.redundant = 0
        self._races, self._distinct, self._check, self._visit = races, distinct, check, visit
        self._seen: set[Hashable] = set()
        self._orders: dict[bytes, list[Array]] = {}
        self._ends: dict[bytes, str | None] = {}
        self._confirmed: set[bytes] = set()
        self._summary = np.zeros(0, np.int64)

    def forget(self) -> None:
        """Begin to compare classes anew."""
        self._seen.clear()
        self.redundant = 0

    @property
    def needs_classes(self) -> bool:
        """Whether complete classes must be handed over."""
        told = self._check is not None or self._visit is not None or self.program.confirm is not None
        return told or self._distinct or self._races or self.settling is not None

    def judge(self, memory: Array, histories: Histories) -> list[Failure]:
        """Judge the class in the frame above the top one.

        Raises:
            UnsettledError: A location is not settled, or threads left out what they must not.
        """
        found = Class(memory, histories, self.settling)
        ending = self._verify(found)
        failures = self._judge(found, ending)
        self._confirm(found, memory[VERDICT] == COMPLETE and not failures)
        return failures

    def _judge(self, found: Class, ending: bytes) -> list[Failure]:
        """What is wrong with a class."""
        verdict = found.memory[VERDICT]
        if self._distinct and verdict != LAPSED:
            self.redundant += found.visible.key in self._seen
            self._seen.add(found.visible.key)
        if verdict in (STUCK, LAPSED):
            return [Failure("progress", explain_waits(self.program, found.execution), found.execution)]
        if verdict == CUT_SHORT and (cycles := find_livelock(found.execution)):
            return [Failure("progress", explain_livelock(cycles), found.execution)]
        if verdict != COMPLETE:
            return []
        failures = self._find_races(found) if self._races else []
        if self._visit is not None:
            self._visit(found.execution)
        message = self._judge_end(found, ending)
        return failures if message is None else [*failures, Failure("check", message, found.execution)]

    def judge_assertion(self, memory: Array, histories: Histories) -> list[Failure]:
        """Say which thread asserted something in vain.

        Raises:
            UnsettledError: A location is not settled.
        """
        found = Class(memory, histories, self.settling)
        self._verify(found)
        self._confirm(found, False)
        message = next(state.failure for state in found.execution.states if state.failure)
        return [Failure("assertion", message, found.execution)]

    def _confirm(self, found: Class, right: bool) -> None:
        """Ask whether a class tells of all that threads leave out; once for all in which they do the same."""
        if self.program.confirm is None:
            return
        states = self._summary[: found.memory[THREADS]].tobytes()
        if not right or states not in self._confirmed:
            self.program.confirm(lambda: found.execution, right)
            self._confirmed.add(states)

    def _verify(self, found: Class) -> bytes:
        """Check that what was left out is settled in a class; returns what tells the end of the class from others.

        Empty where a location has several last values.
        """
        size = int(found.memory[THREADS] + 2 * found.memory[found.frame + SIZE])
        if len(self._summary) < size:
            self._summary = np.zeros(2 * size, np.int64)
        length = summarise(found.memory, found.frame, self._summary)
        if self.settling is None:
            return self._summary[:length].tobytes() if length >= 0 else b""
        states = self._summary[: found.memory[THREADS]].tobytes()
        known = self._orders.setdefault(states, [])
        orders = (find_unordered(found.memory, found.frame, pairs) < 0 for pairs in known)
        number = next((number for number, agrees in enumerate(orders) if agrees), len(known))
        if number == len(known):
            if found.ordered.wrong:
                self.settling.reveal(found.ordered.wrong)
                raise UnsettledError
            known.append(found.ordered.array)
        return number.to_bytes(4) + self._summary[:length].tobytes() if length >= 0 else b""

    def _judge_end(self, found: Class, ending: bytes) -> str | None:
        """Judge a property of complete executions."""
        if self._check is None:
            return None
        if not isinstance(self._check, AtEnd) or not ending:
            return self._check(found.execution)
        if self.settling is None and not self._check.results:
            ending = ending[self._summary.itemsize * int(found.memory[THREADS]) :]
        if ending not in self._ends:
            self._ends[ending] = self._check(found.execution)
        return self._ends[ending]

    def _find_races(self, found: Class) -> list[Failure]:
        """Look for data races; of those of one class the one that needs the fewest events before it is told."""
        size, race = int(found.memory[found.frame + SIZE]), find_race(found.memory, found.frame, NO_RACE)
        pairs: list[tuple[int, int]] = []
        while race != NO_RACE and len(pairs) < RACES:
            write, other = divmod(race, size)
            pairs.append((found.number(write), found.number(other)))
            race = find_race(found.memory, found.frame, race)
        if not pairs:
            return []
        pair = min(pairs, key=lambda pair: len(collect_needs(found.execution, pair)))
        first, second = (found.execution.events[number] for number in pair)
        return [Failure("race", f"{first} and {second} race", found.execution, pair)]


class Class:
    """A class of executions in the frame above the top one, decoded when that is asked for."""

    def __init__(self, memory: Array, histories: Histories, settling: Settling | None) -> None:
        self.memory, self._histories, self._settling = memory, histories, settling
        self._number = int(memory[TOP]) + 1
        self.frame = HEADER + self._number * int(memory[FRAME])

    @cached_property
    def visible(self) -> Execution:
        """What the search sees of it."""
        return decode(self.memory, self._number, self._histories)

    @cached_property
    def _walks(self) -> list[Walk]:
        assert self._settling is not None
        states = enumerate(self.visible.states)
        return [self._settling.follow(thread, state.sent) for thread, state in states]

    @cached_property
    def ordered(self) -> Ordered:
        """Accesses of settled locations in order."""
        assert self._settling is not None
        return order_accesses(self._settling, self._walks, self.memory, self.frame)

    @cached_property
    def _inflated(self) -> Inflated:
        assert self._settling is not None
        return inflate(self._settling, self._walks, self.visible, self.ordered)

    @property
    def execution(self) -> Execution:
        """An execution of the whole program."""
        return self.visible if self._settling is None else self._inflated.execution

    def number(self, place: int) -> int:
        """Number in the execution of an event of the search."""
        return place if self._settling is None else self._inflated.numbers[place]
