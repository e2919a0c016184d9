"""Threads that are CTAs of compiled kernels, run by the PTX machine once per history.

A thread of the program is a CTA of a rank; a kernel boundary is a barrier of
the CTAs of that rank.  What a CTA does next depends on the values that its
threads have read, so its history is one; but the order in which the machine
ran its threads orders nothing.  Operations carry the strands, groups of threads,
that perform them, and barriers of the CTA alone order different strands (see
``grouping`` and ``operations``).

A load that is repeated, with nothing else done, until its value is
another one is an await; whether a value ends it is found by running the CTA on.
The thread is not given the value, unless it turns out to matter: what is run
is run again with every other value that ended the wait.

Some threads of a CTA may wait while others go on, and a thread of the program
does not: so those that wait are run last (``cta_runs``).  What a host writes
between two launches, when a captured graph is replayed, is done by the CTA 0 of
its rank between two kernel boundaries.

What this leaves out: executions in which a thread reads what another one of
its CTA stores later in the order that the machine ran them.  Where that is
possible without a barrier, the accesses race or the wait is for ever.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator, Hashable
from dataclasses import dataclass, field
from typing import Any

from ..memory import Memory
from .answered_memory import AnsweredMemory
from .cta_histories import CtaHistory, Place, Turn
from .cta_runs import Answer, CompiledLaunch, CtaRun
from .execution import Execution
from .grouping import Grouping, Span
from .host_writes import HostWrite
from .operations import BARRIER, Barrier, Lanes, Load, Location, Operation, Order, Store, Value
from .program import Program, Thread


@dataclass
class Launches:
    """Launches of all ranks, and what is learned of them while they are explored.

    Attributes:
        memory: The allocations.
        launches: Of each rank, in the order of its stream, and what its host does in between.
        contents: What each allocation held before any kernel ran, by its base.
        grouping: Locations and strands.
        polls: Instructions that are those of loops that wait.
        mattering: Those after which the value that ended the wait still matters.
        ends: Values that end waits for several words, by CTA, accesses before and lane, where it helps to know them.
        turns: Which CTAs arrive at a counter in one order only, see ``arrivals``.
    """

    memory: Memory
    launches: list[list[CompiledLaunch | HostWrite]]
    contents: dict[int, bytes]
    grouping: Grouping
    polls: set[Hashable] = field(default_factory=set)
    mattering: set[Hashable] = field(default_factory=set)
    ends: dict[Hashable, Value] = field(default_factory=dict)
    turns: dict[Place, Turn] = field(default_factory=dict)

    @property
    def version(self) -> tuple[int, ...]:
        """Changes whenever something is learned of what CTAs do; turns only delay it."""
        return self.grouping.changes, len(self.polls), len(self.mattering), len(self.ends)


class Ctas:
    """Makes threads of launches; everything is as coarse as what was learned so far allows.

    Args:
        launches: What the ranks launch.
        title: For people, and for checkpoints.

    Attributes:
        addresses: Address and size of every location that was named.
        machine_runs: Times that the PTX machine ran a CTA from its beginning.
    """

    def __init__(self, launches: Launches, title: str = "kernels") -> None:
        self.launches = launches
        self.title = title
        self.memory = AnsweredMemory(launches.memory, launches.contents)
        self.addresses: dict[Location, tuple[int, int]] = {}
        self.initial: dict[Location, Value] = {}
        self.machine_runs = 0
        self._histories: dict[Place, CtaHistory] = {}
        self._version = launches.version

    @property
    def program(self) -> Program:
        """One thread per CTA of each rank."""
        return Program(
            tuple(
                Thread(functools.partial(self._follow, rank, number, {}), f"r{rank}.c{number}", cta=number, gpu=rank)
                for rank, number in self._numbers
            ),
            self.initial,
            self.title,
        )

    @property
    def _numbers(self) -> list[tuple[int, int]]:
        """Rank and number of the CTA of each thread."""
        return [(rank, number) for rank in range(len(self.launches.launches)) for number in range(self._width(rank))]

    def _width(self, rank: int) -> int:
        return max(step.ctas for step in self.launches.launches[rank] if isinstance(step, CompiledLaunch))

    def forget_histories(self) -> None:
        """Keep what was learned, and forget what CTAs did and read so far."""
        self._histories.clear()

    def _follow(
        self, rank: int, number: int, ended: dict[Place, tuple[Answer, ...]]
    ) -> Generator[Operation | Lanes, Any, None]:
        """A thread that issues what the CTAs of one number do, launch by launch, and notes what those read that ended.

        Raises:
            RestartError: Something was learned, by which all threads do something else.
        """
        self._forget()
        width, steps = self._width(rank), self.launches.launches[rank]
        for position, step in enumerate(steps):
            if isinstance(step, HostWrite):
                if number == 0:
                    yield from self._write(step)
                if isinstance(steps[position + 1], HostWrite):
                    continue
            elif number < step.ctas:
                place = (rank, position, number)
                ended[place] = yield from self.history(place).follow()
            yield Barrier((rank, position), width) if width > 1 else BARRIER

    def _write(self, write: HostWrite) -> Generator[Operation | Lanes, Any, None]:
        """Do what a host does; its stream orders it, as it does launches."""
        start = write.address
        for low, high in self.launches.grouping.list_locations(start, start + len(write.after)):
            location, size = self.name((low, high)), slice(low - start, high - start)
            if write.before is not None:
                found, expected = (yield Load(location, Order.WEAK)), int.from_bytes(write.before[size], "little")
                assert found == expected, f"{location} is {found} when the host reads it, when recorded {expected}"
            yield Store(location, int.from_bytes(write.after[size], "little"), Order.WEAK)

    def history(self, place: Place) -> CtaHistory:
        """What a CTA of a launch did."""
        rank, position, _ = place
        launch = self.launches.launches[rank][position]
        assert isinstance(launch, CompiledLaunch)
        return self._histories.setdefault(place, CtaHistory(self, launch, place))

    def list_answers(self, execution: Execution) -> dict[Place, tuple[Answer, ...]]:
        """What each CTA of each launch read in an execution, of those that ended."""
        ended: dict[Place, tuple[Answer, ...]] = {}
        for (rank, number), state in zip(self._numbers, execution.states, strict=True):
            steps = self._follow(rank, number, ended)
            with contextlib.suppress(StopIteration):
                for answer in (None, *state.sent):
                    steps.send(answer)
        return ended

    def _forget(self) -> None:
        """Forget what was explored before something was learned, after which all threads begin anew."""
        if self._version != self.launches.version:
            self._version = self.launches.version
            self._histories.clear()
            self.addresses.clear()
            self.initial.clear()

    def start(self, launch: CompiledLaunch, place: tuple[int, int, int]) -> CtaRun:
        """A CTA from its beginning."""
        self.machine_runs += 1
        return CtaRun(launch, self.memory, self.launches.grouping, self.name, place, self.launches.polls)

    def name(self, span: Span) -> Location:
        """The location of some bytes."""
        place, size = self.memory.place(span[0]), span[1] - span[0]
        while self.addresses.setdefault(place, (span[0], size)) != (span[0], size):
            place += "'"  # Another allocation of the same name.
        self.initial.setdefault(place, int.from_bytes(self.memory.initial(*span), "little"))
        return place
