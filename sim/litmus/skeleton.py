"""What many executions have in common: their events, and the relations that do not depend on reads-from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tiebreak.sim.litmus.program import SCOPES, Address, Program, Scope
from tiebreak.sim.litmus.relations import Relation, reverse
from tiebreak.sim.litmus.threads import INITIAL_THREAD, Event


class Skeleton:
    """Events of executions, and relations among them, as arrays [events] and [events, events].

    Args:
        program: The program.
        events: Events of an execution; values play no part.
        meetings: What barriers order.

    Attributes:
        po: Program order.
        loc: Accesses of one location, whatever the address.
        vloc: Accesses of one virtual address.
        same_proxy: Events of one proxy.
        same_cta: Events of threads of one CTA.
        rmw: From the read to the write of a read-modify-write.
        meetings: What barriers order.
        morally_strong: Pairs that are morally strong (PTX ISA, "Morally Strong Operations").
        initial: From the write that initialises a location to every other write of it.
    """

    def __init__(self, program: Program, events: Sequence[Event], meetings: Relation) -> None:
        self.events = events
        self.size = len(events)
        self.meetings = meetings
        self.kind = np.array([event.kind for event in events])
        self.order = np.array([event.order for event in events])
        thread = np.array([event.thread for event in events])
        number = np.arange(self.size)
        self.is_read = self.kind == "read"
        self.is_write = self.kind == "write"
        self.is_access = self.is_read | self.is_write
        self.is_fence = self.kind == "fence"
        self.is_initial = thread == INITIAL_THREAD
        self.generic = np.array([event.proxy == "generic" for event in events])
        same_thread = (thread[:, None] == thread) & ~self.is_initial
        self.po = same_thread & (number[:, None] < number)
        self.loc = self._equal([program.physical(name) if name else "" for name in self._names()], self.is_access)
        self.vloc = self._equal([program.virtual(name) if name else "" for name in self._names()], self.is_access)
        self.same_proxy = self._equal([event.proxy for event in events])
        reach = {scope: self._share(program, scope) for scope in SCOPES}
        self.same_cta = reach["cta"]
        self.rmw = np.zeros((self.size, self.size), bool)
        for event in events:
            if event.partner >= 0:
                self.rmw[event.partner, event.number] = True
        self.morally_strong = self._find_morally_strong(reach)
        self.initial = self.loc & self.is_initial[:, None] & (self.is_write & ~self.is_initial)

    def has_order(self, *orders: str) -> NDArray[np.bool_]:
        """Events of one of these orders: [events]."""
        return np.isin(self.order, orders)

    def write_pairs(self, related: Relation) -> Iterator[tuple[int, int]]:
        """Pairs of different writes of one location, each once, that are related."""
        writes = np.flatnonzero(self.is_write & ~self.is_initial)
        for first in writes:
            for second in writes[writes > first]:
                if self.loc[first, second] and related[first, second]:
                    yield int(first), int(second)

    def _names(self) -> list[str]:
        return [event.address.location if isinstance(event.address, Address) else "" for event in self.events]

    def _equal(self, labels: Sequence[str], within: NDArray[np.bool_] | None = None) -> Relation:
        array = np.array(labels)
        equal: Relation = array[:, None] == array
        return equal if within is None else equal & within[:, None] & within

    def _share(self, program: Program, scope: Scope) -> Relation:
        """Whether two events are of threads within one instance of a scope."""
        domains = [thread.placement.domain(scope) for thread in program.threads]
        places = [
            ("initial", event.number) if event.thread == INITIAL_THREAD else domains[event.thread]
            for event in self.events
        ]
        labels = {place: label for label, place in enumerate(dict.fromkeys(places))}
        label = np.array([labels[place] for place in places])
        share: Relation = label[:, None] == label
        return share

    def _find_morally_strong(self, reach: dict[Scope, Relation]) -> Relation:
        strong = self.is_fence | (self.is_access & ~self.has_order("weak"))
        within = np.stack([reach[event.scope][event.number] for event in self.events])
        mutual = (within & reverse(within)) & strong[:, None] & strong
        both = self.is_access[:, None] & self.is_access
        related = self.po | reverse(self.po) | mutual
        morally_strong: Relation = related & self.same_proxy & (self.vloc | ~both)
        np.fill_diagonal(morally_strong, False)
        return morally_strong
