"""Streams, launches and graphs of one simulated device.

Launches of a stream run in order; the programs of a launch run concurrently,
at most ``residency`` of a device at a time, and a program beyond that starts
only when another one ends (no co-residency promise, as on a real GPU).  A
captured graph is a list of launches whose host scalars stay as they were.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .agent import Program
from .clock import Clock

Index = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        kernel: Name of the kernel.
        body: Runs the kernel body for the program that is current.
        grid: Number of programs along each axis.
        keep: Arguments, kept alive because the kernel holds their addresses.
    """

    kernel: str
    body: Callable[[], Any]
    grid: Index
    keep: Any = None

    def indices(self) -> Iterator[Index]:
        """Yield the program indices in launch order (first axis slowest)."""
        x, y, z = self.grid
        return itertools.product(range(x), range(y), range(z))


@dataclass(frozen=True)
class Collective:
    """A stream-ordered operation that completes on all ranks together.

    Attributes:
        name: Printed name, for example ``all-gather``.
        payload: What the completing machine hands to ``finish`` of rank 0.
        finish: Called once with the payloads of all ranks, in rank order.
    """

    name: str
    payload: Any
    finish: Callable[[list[Any]], None]


Work = Launch | Collective


@dataclass
class Entry:
    """Work in a stream, with what its host knew when it launched it."""

    work: Work
    host_clock: Clock


@dataclass
class Stream:
    """A queue of work on one device.

    Attributes:
        clock: What the finished work of this stream knows.
        waiting: Program indices of the active launch that have not started.
        running: Programs of the active launch that have started and not ended.
        ended: Join of the clocks of the active launch's ended programs.
        launched: Number of the active launch among those of its device, from 1.
    """

    rank: int
    number: int
    queue: deque[Entry] = field(default_factory=deque)
    clock: Clock = field(default_factory=Clock)
    active: Entry | None = None
    waiting: deque[Index] = field(default_factory=deque)
    running: list[Program] = field(default_factory=list)
    ended: Clock = field(default_factory=Clock)
    launched: int = 0

    @property
    def idle(self) -> bool:
        """Whether everything launched has finished."""
        return self.active is None and not self.queue

    def advance(self) -> None:
        """Retire the active launch once its programs ended, and activate the next."""
        if self.active is not None and not self.waiting and not self.running and isinstance(self.active.work, Launch):
            self.clock.join(self.ended)
            self.active = None
        if self.active is None and self.queue:
            self.active = self.queue.popleft()
            self.clock.join(self.active.host_clock)
            self.ended = Clock()
            if isinstance(self.active.work, Launch):
                self.waiting = deque(self.active.work.indices())


@dataclass
class Graph:
    """A captured list of work, in capture order; see ``SimulatedFabric.capture``."""

    work: list[Work] = field(default_factory=list)


@dataclass
class Device:
    """One simulated GPU."""

    rank: int
    residency: int
    streams: dict[int, Stream] = field(default_factory=dict)
    capturing: Graph | None = None
    launches: int = 0

    def stream(self, number: int) -> Stream:
        """Return stream ``number``, made on first use."""
        return self.streams.setdefault(number, Stream(self.rank, number))

    @property
    def resident(self) -> int:
        """Number of programs that run now."""
        return sum(len(stream.running) for stream in self.streams.values())

    @property
    def idle(self) -> bool:
        """Whether all streams are idle."""
        return all(stream.idle for stream in self.streams.values())
