"""Groups: threads of one unit of scheduling that stand at one place, and how they part and meet.

A unit is what a schedule chooses among: all threads of a CTA, or one warp.
Its threads that stand at the lowest place run first, which makes diverged
threads of compiled code meet again at the end of the code that they part over
(Collange, "Stack-less SIMT reconvergence at low cost", 2011).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np
import numpy.typing as npt

from .executor_registers import LANES
from .module import Instruction

Mask = npt.NDArray[np.bool_]

READY = "ready"
BARRIER = "barrier"
CONVERGENCE = "convergence"


class Group:
    """Threads that stand at one place.

    Args:
        place: Place in ``Kernel.body``.
        active: Mask ``[threads of the CTA]``.
        low: First thread of the unit.
        high: Thread after the last one of the unit.

    Attributes:
        low: First thread of the range that code runs on, a multiple of a warp.
        high: Thread after the last one of that range.
        mask: Active threads of the range, or None if all are.
        index: Places of the active threads in the range, or None if all are.
        threads: Numbers of the active threads.
        state: Whether it is ``READY``, waits at a ``BARRIER``, or for lanes at a warp instruction (``CONVERGENCE``).
        instruction: What it waits at.
        polled: Whether it performed a strong access that gives a value, or slept, since the last time it went back.
        patience: How often it went back after such an access; others run first.
    """

    __slots__ = (
        "active", "count", "high", "index", "instruction", "low", "mask", "patience", "place", "polled", "state",
        "threads",
    )  # fmt: skip

    def __init__(self, place: int, active: Mask, low: int, high: int) -> None:
        self.place = place
        self.active = active
        self.threads = active.nonzero()[0]
        self.count = len(self.threads)
        first = int(self.threads[0]) // LANES * LANES
        last = int(self.threads[-1]) // LANES * LANES + LANES
        full = self.count == last - first
        # Ranges of diverged threads would be many; they share the range of their unit, or of their warp.
        self.low, self.high = (first, last) if full or last - first == LANES else (low, high)
        self.mask: Mask | None = None if full else active[self.low : self.high]
        self.index: npt.NDArray[np.int64] | None = None if full else self.threads - self.low
        self.state = READY
        self.instruction: Instruction | None = None
        self.polled = False
        self.patience = 0

    def wait(self, state: str, instruction: Instruction) -> None:
        """Wait at an instruction."""
        self.state = state
        self.instruction = instruction

    def resume(self, place: int) -> None:
        """Go on at a place."""
        self.state = READY
        self.instruction = None
        self.place = place
        self.patience = 0


class Unit:
    """What a schedule chooses among; satisfies ``sim.schedulers.Schedulable``.

    Args:
        name: ``c<CTA>``, or ``c<CTA>.w<warp>``.
        rank: Number among the units of the launch.
        cta: The CTA.
        active: Its threads, as a mask of the threads of the CTA.
        low: First thread.
        high: Thread after the last one.

    Attributes:
        groups: Its threads that have not exited.
        seen: Version of memory that its last fruitless poll saw, or -1.
        late: Places at which threads stand back until no others can run.
    """

    def __init__(self, name: str, rank: int, cta: Any, active: Mask, low: int, high: int) -> None:
        self.name = name
        self.rank = rank
        self.cta = cta
        self.low = low
        self.high = high
        self.groups = [Group(0, active, low, high)]
        self.seen = -1
        self.late: Container[int] = ()

    @property
    def ready(self) -> bool:
        """Whether a group of it can run."""
        return any(group.state == READY for group in self.groups)

    def pick(self) -> Group:
        """Return the group that runs next: the lowest place first, and those that polled without success last."""
        groups = self.groups
        if len(groups) == 1:
            return groups[0]
        late = self.late
        chosen = min((g for g in groups if g.state == READY), key=lambda g: (g.place in late, g.patience, g.place))
        same = [g for g in groups if g.place == chosen.place and g.state != BARRIER]
        return self.merge(same) if len(same) > 1 else chosen

    def merge(self, same: list[Group]) -> Group:
        """Join groups that stand at one place; the joined group can run."""
        active = same[0].active.copy()
        for group in same[1:]:
            active |= group.active
        merged = Group(same[0].place, active, self.low, self.high)
        merged.patience = max(group.patience for group in same)
        merged.polled = any(group.polled for group in same)
        self.groups = [group for group in self.groups if group not in same]
        self.groups.append(merged)
        return merged

    def split(self, group: Group, part: Mask, place: int, rest: int) -> tuple[Group, Group]:
        """Let the threads of a group part; returns the groups of ``part`` and of the others.

        Args:
            group: The group.
            part: Mask ``[threads of the CTA]`` of some of its threads, not of all.
            place: Where those go.
            rest: Where the others go.
        """
        gone = Group(place, part, self.low, self.high)
        left = Group(rest, group.active & ~part, self.low, self.high)
        for new in (gone, left):
            new.patience = group.patience
            new.polled = group.polled
        self.groups.remove(group)
        self.groups += [gone, left]
        return gone, left

    def remove(self, group: Group) -> None:
        """Drop a group whose threads exited."""
        self.groups.remove(group)
        for waiting in self.groups:
            if waiting.state == CONVERGENCE:
                waiting.state = READY


def lane_bits(active: Mask) -> npt.NDArray[np.uint32]:
    """Return the lanes of each warp in a mask ``[warps * 32]``, as words ``[warps]``."""
    return np.packbits(active, bitorder="little").view("<u4")


def spread_bits(words: npt.NDArray[np.uint32]) -> Mask:
    """Return the mask ``[warps * 32]`` of words ``[warps]``."""
    return np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little").astype(bool)
