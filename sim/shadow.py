"""Access history of an allocation, and the race rule on it.

Two accesses race when they touch a common byte, at least one writes, no
happens-before edge orders them, and they are not *morally strong*: both
atomic, each at a scope that includes the other's thread (PTX ISA, Memory
Consistency Model, "Morally strong operations" and "Conflict and data races").
The verdict depends on the synchronisation that an execution observed, not on
the order in which the two accesses happened to run.

Per granule (4 bytes, refined to 1 byte when a narrower access appears) the
shadow keeps the last write and the last read; further accesses that are
unordered with those stay in a small side table, so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .clock import Clock

PLAIN, CTA, GPU, SYS = 0, 1, 2, 3
"""Strength of an access: plain, or an atomic at one of three scopes."""

LEADER = -1
"""Lane number of the thread that issues scalar operations."""

Indices = npt.NDArray[np.int64]
Lanes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Party:
    """The threads that perform an access: component, rank and program of it."""

    component: int
    rank: int
    program: int


@dataclass(frozen=True)
class Access:
    """One recorded access of one granule."""

    party: Party
    time: int
    lane: int
    tile: int
    strength: int
    site: int
    writes: bool


@dataclass(frozen=True)
class Conflict:
    """A racing pair: the recorded access, and the offset in bytes it was found at."""

    earlier: Access
    offset: int


def covers(scope: int, here: Party, there: Party) -> bool:
    """Tell whether ``scope`` at ``here`` includes the threads of ``there``."""
    if scope == SYS:
        return True
    return here.rank == there.rank if scope == GPU else scope == CTA and here.program == there.program


def morally_strong(one: int, party: Party, two: int, other: Party) -> bool:
    """Tell whether two accesses of these strengths are morally strong to each other."""
    return covers(one, party, other) and covers(two, other, party)


def _distinct(values: Indices) -> list[int]:
    """The different values in order; mostly there are few, for which NumPy takes ten times as long."""
    return sorted(set(values.tolist()))


class _History:
    """Last access of one kind (write or read) per granule: an index into a table of accesses."""

    def __init__(self, granules: int) -> None:
        self.latest = np.full(granules, -1, dtype=np.int64)
        self.lane = np.zeros(granules, dtype=np.int32)
        self.crowded = np.zeros(granules, dtype=bool)
        self.crowd: dict[int, list[tuple[int, int]]] = {}

    def refine(self, factor: int) -> None:
        self.latest = np.repeat(self.latest, factor)
        self.lane = np.repeat(self.lane, factor)
        self.crowded = np.repeat(self.crowded, factor)
        self.crowd = {
            granule * factor + part: list(entries) for granule, entries in self.crowd.items() for part in range(factor)
        }


@dataclass(frozen=True)
class Operation:
    """One operation of a program or host on memory, common to all its granules."""

    party: Party
    clock: Clock
    tile: int
    strength: int
    site: int
    writes: bool


class Shadow:
    """Access history of ``size`` bytes."""

    def __init__(self, size: int, initialised: bool) -> None:
        self.granule = 4
        granules = -(-size // 4)
        self.initialised = np.full(granules, initialised, dtype=bool)
        self._writes = _History(granules)
        self._reads = _History(granules)
        self._operations: list[Operation] = []
        self._times: list[int] = []

    def granules(self, offsets: Indices, itemsize: int) -> tuple[Indices, int]:
        """Return the granules under ``itemsize`` bytes at each offset, and how many each covers."""
        if itemsize % self.granule or (offsets % self.granule).any():
            self._refine()
        span = itemsize // self.granule
        start = offsets // self.granule
        return (start[:, None] + np.arange(span)).reshape(-1) if span > 1 else start, span

    def find_uninitialised(self, offsets: Indices, itemsize: int) -> int | None:
        """Return the first offset in bytes that was never written, if any."""
        granules, _ = self.granules(offsets, itemsize)
        bad = ~self.initialised[granules]
        return int(granules[bad][0]) * self.granule if bad.any() else None

    def record(self, operation: Operation, offsets: Indices, itemsize: int, lanes: Lanes) -> Conflict | None:
        """Check one operation against the history, then add it.

        Args:
            operation: What is common to all elements.
            offsets: Byte offset of each element; shape [elements].
            itemsize: Bytes per element.
            lanes: Lane of each element, ``LEADER`` for scalar operations.

        Returns:
            The first conflict, or None.
        """
        granules, span = self.granules(offsets, itemsize)
        lane = np.repeat(lanes, span) if span > 1 else lanes
        conflict = self._check(self._writes, operation, granules, lane)
        if operation.writes and conflict is None:
            conflict = self._check(self._reads, operation, granules, lane)
        self._append(operation, granules, lane)
        if operation.writes:
            self.initialised[granules] = True
        return conflict

    def _refine(self) -> None:
        factor, self.granule = self.granule, 1
        self.initialised = np.repeat(self.initialised, factor)
        self._writes.refine(factor)
        self._reads.refine(factor)

    def _check(self, history: _History, operation: Operation, granules: Indices, lane: Lanes) -> Conflict | None:
        latest = history.latest[granules]
        for index in _distinct(latest[latest >= 0]):
            mine = latest == index
            if self._races(index, history.lane[granules[mine]], operation, lane[mine]):
                granule = int(granules[mine][0])
                return self._conflict(index, int(history.lane[granule]), granule)
        for granule, own in self._crowded(history, granules, lane):
            for index, other in history.crowd[granule]:
                if self._races(index, np.array([other]), operation, np.array([own])):
                    return self._conflict(index, other, granule)
        return None

    @staticmethod
    def _crowded(history: _History, granules: Indices, lane: Lanes) -> Iterator[tuple[int, int]]:
        """Yield the granules with further accesses, and the lane that touches each now."""
        crowded = history.crowded[granules]
        if crowded.any():
            yield from zip(granules[crowded].tolist(), lane[crowded].tolist(), strict=True)

    def _races(self, index: int, other_lane: Lanes, operation: Operation, own_lane: Lanes) -> bool:
        """Apply the race rule to one recorded operation on the granules it shares."""
        earlier = self._operations[index]
        if not (earlier.writes or operation.writes):
            return False
        if morally_strong(earlier.strength, earlier.party, operation.strength, operation.party):
            return False
        time = self._times[index]
        if operation.clock.time(earlier.party.component) < time:
            return True
        if earlier.party.component != operation.party.component or operation.clock.time(earlier.party.component) > time:
            return False
        # The same component in the same barrier interval: ordered only within one lane.
        return bool((other_lane != own_lane).any() or (own_lane[0] != LEADER and earlier.tile != operation.tile))

    def _append(self, operation: Operation, granules: Indices, lane: Lanes) -> None:
        history = self._writes if operation.writes else self._reads
        index = len(self._operations)
        self._operations.append(operation)
        self._times.append(operation.clock.time(operation.party.component))
        latest = history.latest[granules]
        for old in _distinct(latest[latest >= 0]):
            if not self._dominated(old, operation):
                for granule in _distinct(granules[latest == old]):
                    history.crowd.setdefault(granule, []).append((old, int(history.lane[granule])))
                    history.crowded[granule] = True
        self._prune(history, operation, granules)
        history.latest[granules] = index
        history.lane[granules] = lane

    def _dominated(self, index: int, operation: Operation) -> bool:
        """Tell whether later accesses ordered after ``operation`` are ordered after ``index`` too."""
        earlier, time = self._operations[index], self._times[index]
        known = operation.clock.time(earlier.party.component)
        sequential = earlier.party.component != operation.party.component or earlier.tile == operation.tile
        return known > time or (known == time and sequential)

    def _prune(self, history: _History, operation: Operation, granules: Indices) -> None:
        """Forget further accesses that everything ordered after ``operation`` is ordered after too."""
        for granule in _distinct(granules[history.crowded[granules]]):
            kept = [entry for entry in history.crowd[granule] if not self._dominated(entry[0], operation)]
            if kept:
                history.crowd[granule] = kept
            else:
                del history.crowd[granule]
                history.crowded[granule] = False

    def _conflict(self, index: int, lane: int, granule: int) -> Conflict:
        operation = self._operations[index]
        access = Access(
            operation.party,
            self._times[index],
            lane,
            operation.tile,
            operation.strength,
            operation.site,
            operation.writes,
        )
        return Conflict(access, granule * self.granule)
