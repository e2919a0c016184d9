"""Vector clocks over a growing set of components.

A component is one sequential stream of accesses: a host thread, the leader
thread of a Triton program, or the other lanes of that program taken together.
Clock entries count the intervals of a component; an access carries the
interval it happened in, and is known to another component once that
component's clock holds an entry at least as large (Lamport 1978; the access
epochs are those of FastTrack, Flanagan and Freund, PLDI 2009).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]


class Clock:
    """A vector clock; components beyond its length count as 0."""

    __slots__ = ("times",)

    def __init__(self, times: IntArray | None = None) -> None:
        self.times: IntArray = np.zeros(0, dtype=np.int32) if times is None else times

    def copy(self) -> Clock:
        """Return an independent clock with the same entries."""
        return Clock(self.times.copy())

    def reserve(self, size: int) -> None:
        """Make room for ``size`` components without changing any entry."""
        if size > self.times.size:
            grown = np.zeros(size, dtype=np.int32)
            grown[: self.times.size] = self.times
            self.times = grown

    def join(self, other: Clock) -> None:
        """Take the entry-wise maximum with ``other``: an edge from it to here."""
        self.reserve(other.times.size)
        head = self.times[: other.times.size]
        np.maximum(head, other.times, out=head)

    def tick(self, component: int) -> None:
        """Open a new interval of ``component``, which must be the owner's own."""
        self.reserve(component + 1)
        self.times[component] += 1

    def time(self, component: int) -> int:
        """Return the last interval of ``component`` that this clock knows."""
        return int(self.times[component]) if component < self.times.size else 0

    def knows(self, components: IntArray, times: IntArray) -> npt.NDArray[np.bool_]:
        """Tell for each access (component, interval) whether it happened before."""
        self.reserve(int(components.max(initial=-1)) + 1)
        known: npt.NDArray[np.bool_] = self.times[components] >= times
        return known
