"""Order between proxies: the ways by which accesses reach memory.

Bulk copies go through the async proxy, everything else through the generic one.
Edges order an access before a copy only with a proxy fence on the way (PTX ISA,
"Memory Consistency Model", "Proxies" and "Causality order").  The other way
round none is needed: waiting for a copy includes it ("cp.async.bulk").

What a thread knows to be published is part of its clock, under a number of its
own for each CTA, so that every edge hands it on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .observation import Threads
from .program import KernelIdentity
from .races_clock import Clock
from .races_cta import CtaClock
from .races_record import Record


@dataclass(frozen=True)
class Unpublished:
    """An access of a thread that a copy of another follows without a proxy fence between them."""

    access: Record
    thread: int
    copy: Record
    issuer: int
    address: int


@lru_cache(maxsize=64)
def uses_async_proxy(identity: KernelIdentity) -> bool:
    """Tell whether a kernel has bulk copies."""
    words = (set(each.modifiers) for each in identity.kernel.body if each.opcode == "cp")
    return any("bulk" in each and "prefetch" not in each for each in words)


class Proxies:
    """Accesses through the generic proxy, kept for copies to come."""

    def __init__(self) -> None:
        self._records: dict[Hashable, list[Record]] = {}

    def copy(self) -> Proxies:
        """Return another one with the same accesses."""
        other = Proxies()
        other._records = {window: list(records) for window, records in self._records.items()}
        return other

    def note(self, window: Hashable, record: Record) -> None:
        """Keep an access through the generic proxy."""
        self._records.setdefault(window, []).append(record)

    def publish(self, cta: CtaClock, threads: Threads, now: int) -> None:
        """Perform a proxy fence: what each of these threads knows is published, and they know that."""
        for place in range(threads.size):
            one = threads[place : place + 1]
            known = cta.publish(one, now)
            ctas = {~index: time for index, time in known.ctas.items() if index >= 0}
            times = {~index: time for index, time in known.threads.items() if index >= 0}
            cta.learn(one, Clock(ctas=ctas, threads=times))

    def judge(self, window: Hashable, copy: Record, now: int) -> Iterator[Unpublished]:
        """Yield accesses that are ordered before a copy, but not published to it."""
        lowest, highest = int(copy.addresses.min()), int(copy.addresses.max()) + copy.width
        for record in self._records.get(window, ()):
            # Operations on barrier objects, such as that of a copy that ends, are strong.
            if not (record.writes or copy.writes) or (record.scope and copy.scope):
                continue
            near = (record.addresses < highest) & (record.addresses + record.width > lowest)
            if near.any():
                yield from _compare(record, near, copy, now)

    def forget(self, clocks: list[Clock]) -> None:
        """Drop the accesses that all of these clocks, and whoever starts from them, know."""
        for records in self._records.values():
            records[:] = [
                record
                for record in records
                if any(record.view.time >= clock.ranks.get(record.view.cta.position.rank, 0) for clock in clocks)
            ]


def _compare(record: Record, near: npt.NDArray[np.bool_], copy: Record, now: int) -> Iterator[Unpublished]:
    threads, addresses = record.threads[near], record.addresses[near]
    stamps = np.full(threads.size, record.view.time)
    cta = record.view.cta
    for issuer, start in zip(copy.threads.tolist(), copy.addresses.tolist(), strict=True):
        clock = copy.view.clock(np.array([issuer]), now)
        wrong = (addresses < start + copy.width) & (addresses + record.width > start)
        wrong &= clock.knows(cta.position.rank, cta.index, threads, stamps)
        wrong &= ~clock.knows(cta.position.rank, ~cta.index, threads, stamps)
        if wrong.any():
            first = int(wrong.argmax())
            yield Unpublished(record, int(threads[first]), copy, issuer, max(start, int(addresses[first])))
