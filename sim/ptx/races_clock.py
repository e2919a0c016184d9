"""What happened before: clocks over threads, CTAs and ranks.

Time is one counter of synchronising events.  An access carries the time of the
last event of its CTA, its *stamp*; who learned of a thread up to time t knows
its accesses with stamps below t.  A clock holds such times for whole ranks
(launches that ended in stream order), for whole CTAs, and for single threads,
so that the usual case needs one number (vector clocks: Lamport 1978; epochs:
FastTrack, Flanagan and Freund, PLDI 2009).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


class Clock:
    """What a thread knows of others; never changed once it is shared.

    Attributes:
        ranks: Time up to which everything on a rank is known.
        ctas: Time up to which everything in a CTA is known, by the number of the CTA among all.
        threads: Time up to which each thread of a CTA is known; shape [threads of the CTA].
    """

    __slots__ = ("ctas", "ranks", "threads")

    def __init__(
        self,
        ranks: dict[int, int] | None = None,
        ctas: dict[int, int] | None = None,
        threads: dict[int, Times] | None = None,
    ) -> None:
        self.ranks: dict[int, int] = ranks or {}
        self.ctas: dict[int, int] = ctas or {}
        self.threads: dict[int, Times] = threads or {}

    def knows(self, rank: int, cta: int, threads: npt.NDArray[np.int64], stamps: Times) -> npt.NDArray[np.bool_]:
        """Tell which accesses of these threads of a CTA are known."""
        known: npt.NDArray[np.bool_] = stamps < max(self.ranks.get(rank, 0), self.ctas.get(cta, 0))
        finer = self.threads.get(cta)
        return known if finer is None else known | (stamps < finer[threads])

    def includes(self, other: Clock) -> bool:
        """Tell whether a join with ``other`` would change nothing."""
        if other is self or other is EMPTY:
            return True
        if any(self.ranks.get(rank, 0) < time for rank, time in other.ranks.items()):
            return False
        if any(self.ctas.get(cta, 0) < time for cta, time in other.ctas.items()):
            return False
        for cta, times in other.threads.items():
            mine = self.threads.get(cta)
            if mine is None or (mine < times).any():
                return False
        return True

    def without(self, cta: int) -> Clock:
        """Return the clock without what it says of one CTA."""
        if cta not in self.ctas and cta not in self.threads:
            return self
        ctas = {key: time for key, time in self.ctas.items() if key != cta}
        return Clock(self.ranks, ctas, {key: times for key, times in self.threads.items() if key != cta})


EMPTY = Clock()
"""Knows nothing."""


def join(clocks: Iterable[Clock]) -> Clock:
    """Return what any of the clocks knows."""
    distinct = list({id(clock): clock for clock in clocks if clock is not EMPTY}.values())
    if len(distinct) < 2:
        return distinct[0] if distinct else EMPTY
    joined = Clock(dict(distinct[0].ranks), dict(distinct[0].ctas), dict(distinct[0].threads))
    for clock in distinct[1:]:
        _raise(joined.ranks, clock.ranks)
        _raise(joined.ctas, clock.ctas)
        for cta, times in clock.threads.items():
            mine = joined.threads.get(cta)
            joined.threads[cta] = times if mine is None or mine is times else np.maximum(mine, times)
    return joined


def _raise(times: dict[int, int], others: dict[int, int]) -> None:
    for key, time in others.items():
        if times.get(key, 0) < time:
            times[key] = time
