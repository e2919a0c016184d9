"""Order between launches: the stream of each rank, and what the host adds."""

from __future__ import annotations

from collections.abc import Iterable

from .races_clock import Clock, join
from .races_cta import CtaClock


class Stream:
    """Launches of one rank, in stream order: each starts after all CTAs of the earlier ones ended."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.settled = Clock()
        self._launch = -1
        self._live: set[int] = set()
        self._ended: list[tuple[int, Clock]] = []

    @property
    def busy(self) -> bool:
        """Whether a CTA of this rank runs."""
        return bool(self._live)

    def begin(self, launch: int, now: int) -> Clock:
        """Return what a CTA of a launch knows when it starts."""
        if launch > self._launch:
            self._launch = launch
            self.settle(now, launch)
        return self.settled

    def settle(self, now: int, launch: int | None = None) -> None:
        """Order what ended in launches before ``launch``, or in all, before what starts next."""
        earlier = [clock for number, clock in self._ended if launch is None or number < launch]
        self._ended = [(number, clock) for number, clock in self._ended if launch is not None and number >= launch]
        self.settled = join([self.settled, *earlier])
        if not self._live and not self._ended:
            # Everything on the rank is over: one number says so.
            self.settled = Clock({**self.settled.ranks, self.rank: now}, self.settled.ctas, self.settled.threads)

    def start(self, cta: CtaClock) -> None:
        """A CTA starts."""
        self._live.add(cta.index)

    def end(self, cta: CtaClock, now: int) -> None:
        """A CTA ended; all of it is over."""
        self._live.discard(cta.index)
        known = join([cta.view.common, *cta.view.used()]).without(cta.index)
        self._ended.append((cta.position.launch, join([known, Clock(ctas={cta.index: now})])))


def settle_all(streams: Iterable[Stream], now: int) -> None:
    """Order everything that ended on these ranks before what starts next on any of them."""
    streams = list(streams)
    for stream in streams:
        stream.settle(now)
    joined = join(stream.settled for stream in streams)
    for stream in streams:
        stream.settled = joined
