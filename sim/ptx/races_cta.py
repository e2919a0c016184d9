"""What the threads of one CTA know of each other, and of everyone else.

A full barrier leaves every thread with the same knowledge: everything in the
CTA before now (``floor``) and one clock of the rest (``common``).  Only what is
finer than that takes space, and only until the next full barrier: the last
``bar.warp.sync`` of whole warps, and a clock of its own (``rows``, ``extras``)
for threads that took part in anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .findings import WARP
from .module import Kernel
from .observation import Position, Threads
from .races_clock import EMPTY, Clock, Times, join


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Knowledge in a CTA between two of its synchronising events.

    Attributes:
        cta: The CTA.
        time: Stamp of accesses under this view.
        floor: Every thread knows all accesses of the CTA with smaller stamps.
        common: What every thread knows of other CTAs and ranks.
        warp_floors: The same as ``floor`` among the threads of each warp, or None; shape [warps].
        rows: Row of ``extras`` with what each thread knows beyond that, or None; shape [threads].
        extras: Clocks; row 0 is empty.
    """

    cta: CtaClock
    time: int
    floor: int
    common: Clock
    warp_floors: Times | None = None
    rows: npt.NDArray[np.int32] | None = None
    extras: tuple[Clock, ...] = (EMPTY,)

    def used(self, threads: Threads | None = None) -> list[Clock]:
        """Return the clocks of ``threads``, or of all, beyond ``common``."""
        if self.rows is None:
            return []
        rows = self.rows if threads is None else self.rows[threads]
        return [self.extras[row] for row in np.unique(rows)]

    def clock(self, threads: Threads, now: int) -> Clock:
        """Return what ``threads`` know together, their own accesses before ``now`` included."""
        times = np.full(self.cta.position.threads, self.floor, dtype=np.int64)
        if self.warp_floors is not None:
            warps = np.unique(threads // WARP)
            lanes = (warps[:, None] * WARP + np.arange(WARP)).reshape(-1)
            lanes = lanes[lanes < times.size]
            times[lanes] = np.maximum(self.floor, self.warp_floors[lanes // WARP])
        times[threads] = now
        own = Clock(threads={self.cta.index: times})
        return join([self.common, *self.used(threads), own])


class CtaClock:
    """The current view of a CTA.

    Args:
        index: Number of the CTA among all that the detector saw.
        position: The CTA.
        kernel: Its kernel.
        now: Time of its start.
        common: What its threads know when they start.
    """

    def __init__(self, index: int, position: Position, kernel: Kernel, now: int, common: Clock) -> None:
        self.index = index
        self.position = position
        self.kernel = kernel
        self.view = View(self, now, now, common)

    def publish(self, threads: Threads, now: int) -> Clock:
        """Return what ``threads`` know together; what they do from now on is not part of it."""
        clock = self.view.clock(threads, now)
        self.advance(now)
        return clock

    def advance(self, now: int) -> None:
        """Tell what follows from what was before."""
        self.view = replace(self.view, time=now)

    def synchronise_all(self, now: int, *others: Clock) -> None:
        """Complete a barrier of every thread; ``others`` is what comes in from outside."""
        common = join([self.view.common, *self.view.used(), *others]).without(self.index)
        self.view = View(self, now, now, common)

    def synchronise_some(self, threads: Threads, now: int) -> None:
        """Complete a barrier of some threads."""
        self._assign(threads, self.publish(threads, now))

    def synchronise_warps(self, threads: Threads, now: int) -> None:
        """Complete a barrier within each warp among its lanes of ``threads``."""
        size = self.position.threads
        warps, starts, counts = np.unique(threads // WARP, return_index=True, return_counts=True)
        full = counts == np.minimum(WARP, size - warps * WARP)
        if self.view.rows is None and full.all():
            floors = self.view.warp_floors
            floors = np.zeros(-(-size // WARP), dtype=np.int64) if floors is None else floors.copy()
            floors[warps] = now
            self.view = replace(self.view, time=now, warp_floors=floors)
            return
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            self.synchronise_some(threads[start : start + count], now)

    def learn(self, threads: Threads, clock: Clock) -> None:
        """Add ``clock`` to what each of ``threads`` knows."""
        view = self.view
        if view.common.includes(clock):
            return
        rows = np.zeros(1, dtype=np.int32) if view.rows is None else view.rows[threads]
        for row in np.unique(rows).tolist():
            if not view.extras[row].includes(clock):
                group = threads if view.rows is None else threads[rows == row]
                self._assign(group, join([view.extras[row], clock]))

    def raise_floor(self) -> bool:
        """Raise the floor to what every thread knows of every other one; tell whether that changed it."""
        view = self.view
        if view.rows is None:
            return False
        nothing = np.zeros(self.position.threads, dtype=np.int64)
        floor = min(int(clock.threads.get(self.index, nothing).min()) for clock in view.used())
        if floor <= view.floor:
            return False
        self.view = replace(view, floor=floor)
        return True

    def _assign(self, threads: Threads, clock: Clock) -> None:
        """Make ``clock`` what ``threads`` know beyond the common knowledge."""
        view = self.view
        rows = np.zeros(self.position.threads, dtype=np.int32) if view.rows is None else view.rows.copy()
        rows[threads] = len(view.extras)
        extras = (*view.extras, clock)
        used, inverse = np.unique(np.append(np.int32(0), rows), return_inverse=True)
        if len(extras) > 2 * used.size + 8:
            extras, rows = tuple(extras[row] for row in used), inverse[1:].astype(np.int32)
        self.view = replace(view, rows=rows, extras=extras)
