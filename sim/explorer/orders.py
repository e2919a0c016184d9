"""The order of the accesses of settled locations in one class, see ``settling``."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from .layout import Array
from .operations import Barrier, Fence, Location, Store, Update, Value
from .precedence import find_unordered
from .settling import Settling, Step, Walk

Name = tuple[int, int, int]
"""Thread, block of the whole program, and lane: what names an access."""
Place = tuple[int, int]
"""Thread and visible block."""
Pair = tuple[Place, tuple[Place, ...]]
"""A place, and those of which one must be before it."""


@dataclass(frozen=True)
class Access:
    """An access of a settled location.

    Attributes:
        name: What it is called.
        location: What it accesses.
        team, phase: Phase of which team it is in.
        low: See ``settling.Step``.
        followers: The first visible block after it of each thread of the team that has one.
        reads, writes: What it does.
        read, written: Values.
    """

    name: Name
    location: Location
    team: int
    phase: int
    low: int
    followers: tuple[Place, ...]
    reads: bool
    writes: bool
    read: Value
    written: Value


@dataclass
class Ordered:
    """Accesses of settled locations in order.

    Attributes:
        accesses: All of them.
        writes: Of each location, one after the other.
        sources: Which write each read reads, None for the initial value.
        pairs: Places that must be in order.
        wrong: Locations whose accesses are not in order, or at which a read was given another value.
    """

    accesses: dict[Name, Access] = field(default_factory=dict)
    writes: dict[Location, list[Access]] = field(default_factory=dict)
    sources: dict[Name, Name | None] = field(default_factory=dict)
    pairs: set[Pair] = field(default_factory=set)
    wrong: set[Location] = field(default_factory=set)

    @property
    def array(self) -> Array:
        """The pairs as ``find_unordered`` takes them."""
        return encode(sorted(self.pairs))


def encode(pairs: Sequence[Pair]) -> Array:
    """Pairs as an array."""
    rows = np.full((len(pairs), 2 + 2 * max((len(places) for _, places in pairs), default=0)), -1, np.int64)
    for row, (second, places) in zip(rows, pairs, strict=True):
        numbers = [*second, *(number for place in places for number in place)]
        row[: len(numbers)] = numbers
    return rows


def order_accesses(settling: Settling, walks: list[Walk], memory: Array, frame: int) -> Ordered:
    """Put the accesses of settled locations in the order that they have in a graph.

    The graph of the search is at a frame of its memory, and ``walks`` are the ways of the threads.

    Raises:
        InputError: Threads of a team do not take part in the same barriers.
    """
    settling.check_teams(walks)
    ordered = Ordered()
    by_location: dict[Location, list[Access]] = defaultdict(list)
    followers = Followers(settling, walks)
    for walk in walks:
        for step in walk.steps:
            for lane in range(len(step.node.operations)):
                access = _find_access(settling, walk, step, lane, followers)
                if access is not None:
                    ordered.accesses[access.name] = access
                    by_location[access.location].append(access)
    graph = _Graph(memory, frame, ordered.pairs)
    for location, accesses in by_location.items():
        _order(settling, ordered, location, accesses, graph)
    return ordered


def _find_access(settling: Settling, walk: Walk, step: Step, lane: int, followers: Followers) -> Access | None:
    """What a lane does to a settled location."""
    operation = step.node.operations[lane]
    if lane in step.visible or isinstance(operation, Fence | Barrier):
        return None
    read = step.values[lane]
    written = operation.value if isinstance(operation, Store) else None
    writes = isinstance(operation, Store)
    if isinstance(operation, Update):
        written = operation.function(read)
        writes = written is not None
    return Access(
        name=(walk.thread, step.block, lane),
        location=operation.location,
        team=settling.teams[walk.thread],
        phase=step.phase,
        low=step.low,
        followers=followers.find(walk.thread, step),
        reads=not isinstance(operation, Store),
        writes=writes,
        read=read,
        written=written,
    )


class Followers:
    """What comes first after a step, of what is visible of a team."""

    def __init__(self, settling: Settling, walks: list[Walk]) -> None:
        self._teams = settling.teams
        self._phases = [[(step.phase, step.low) for step in walk.steps if step.visible] for walk in walks]
        self._known: dict[tuple[int, int, int], tuple[Place, ...]] = {}

    def find(self, thread: int, step: Step) -> tuple[Place, ...]:
        """The first visible block after a step of its thread, and after its phase of the others."""
        key = (thread, step.phase, step.high)
        if key not in self._known:
            places = [(thread, step.high)]
            for other, phases in enumerate(self._phases):
                if other != thread and self._teams[other] == self._teams[thread]:
                    place = bisect_left(phases, (step.phase + 1, 0))
                    places += [(other, low) for _, low in phases[place : place + 1]]
            self._known[key] = tuple(places)
        return self._known[key]


class _Graph:
    """Which accesses are in order; notes the pairs of places for which the graph was asked."""

    def __init__(self, memory: Array, frame: int, pairs: set[Pair]) -> None:
        self._memory, self._frame, self._pairs = memory, frame, pairs
        self._known: dict[Pair, bool] = {}

    def has(self, first: Access, second: Access, note: bool = False) -> bool:
        """Whether an access happens before another one."""
        if first.name[0] == second.name[0]:
            return first.name[1] < second.name[1]
        if first.team == second.team and first.phase < second.phase:
            return True
        pair = ((second.name[0], second.low), first.followers)
        if pair not in self._known:
            self._known[pair] = find_unordered(self._memory, self._frame, encode([pair])) < 0
        if note:
            self._pairs.add(pair)
        return self._known[pair]


def _order(settling: Settling, ordered: Ordered, location: Location, accesses: list[Access], graph: _Graph) -> None:
    """Put the accesses of one location in order."""
    writes = [access for access in accesses if access.writes]
    writes.sort(key=lambda write: sum(graph.has(other, write) for other in writes))
    in_order = all(graph.has(a, b, note=True) for a, b in pairwise(writes))
    ordered.writes[location] = writes
    initial = settling.program.initial_value(location)
    for access in accesses:
        if not access.reads:
            continue
        before = [write for write in writes if write is not access and graph.has(write, access)]
        after = writes[len(before) + access.writes :]
        in_order = in_order and before == writes[: len(before)]
        in_order = in_order and (not before or graph.has(before[-1], access, note=True))
        in_order = in_order and (not after or graph.has(access, after[0], note=True))
        ordered.sources[access.name] = before[-1].name if before else None
        if access.read != (before[-1].written if before else initial):
            in_order = False
    if not in_order:
        ordered.wrong.add(location)
