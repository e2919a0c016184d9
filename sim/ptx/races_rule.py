"""The race rule, on pairs of elements.

Two accesses race when they touch a common byte, at least one of them writes,
neither happens before the other, and they are not *morally strong*: both
atomic (or strong loads and stores), each at a scope that includes the other's
thread, and of the same bytes (PTX ISA, "Memory Consistency Model", sections
"Morally strong operations", "Conflict and data races"; the same rule as
``sim.shadow`` applies to whole programs).

Two weak stores of the same value to the same bytes are not reported: whichever
comes last, memory holds the same.  The PTX ISA calls them a data race too, but
gives races of weak stores defined results, and compute-sanitizer ranks this
hazard as information only ("Racecheck", "Hazard severity levels").
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .findings import WARP
from .observation import Position
from .races_clock import Clock
from .races_cta import CtaClock
from .races_record import SCOPES, Elements, Ints

Mask = npt.NDArray[np.bool_]

CHUNK = 1 << 20
"""Pairs that are judged at once."""


class Judge:
    """Applies the rule to pairs of elements."""

    def __init__(self, elements: Elements) -> None:
        self.elements = elements
        records = elements.records
        views = [record.view for record in records]
        self._stamp = elements.of_records(view.time for view in views)
        self._floor = elements.of_records(view.floor for view in views)
        self._scope = elements.of_records(record.scope for record in records)
        self._width = elements.of_records(record.element for record in records)
        self.writes = elements.of_records(int(record.writes) for record in records).astype(bool)
        self._ctas = list({view.cta.index: view.cta for view in views}.values())
        self._cta = elements.of_records(_number(self._ctas)[view.cta] for view in views)
        positions = [cta.position for cta in self._ctas]
        self._rank = np.array([position.rank for position in positions])[self._cta]
        self._cluster = _number_clusters(positions)[self._cta]
        self._find_clocks()

    def _find_clocks(self) -> None:
        """Number the clocks of the elements: what their thread knew beyond its floor."""
        elements = self.elements
        self._clocks: list[Clock] = []
        numbers: dict[int, int] = {}
        self._common = elements.of_records(self._place(numbers, record.view.common) for record in elements.records)
        self._extra = self._common.copy()
        self._warp_floor = np.zeros(elements.size, dtype=np.int64)
        self.fine = False
        for number, record in enumerate(elements.records):
            view = record.view
            if view.rows is None and view.warp_floors is None:
                continue
            mine = np.flatnonzero(elements.record == number)
            threads = elements.thread[mine]
            if view.warp_floors is not None:
                self._warp_floor[mine] = view.warp_floors[threads // WARP]
            if view.rows is not None:
                self.fine = True
                places = np.array([self._place(numbers, clock) for clock in view.extras])
                self._extra[mine] = places[view.rows[threads]]

    def _place(self, numbers: dict[int, int], clock: Clock) -> int:
        found = numbers.setdefault(id(clock), len(self._clocks))
        if found == len(self._clocks):
            self._clocks.append(clock)
        return found

    def races(self, one: Ints, two: Ints) -> Mask:
        """Tell which pairs race; ``one`` and ``two`` are places of elements, at least one of each pair a write."""
        elements = self.elements
        racing: Mask = (elements.start[one] < elements.stop[two]) & (elements.start[two] < elements.stop[one])
        racing &= (elements.thread[one] != elements.thread[two]) | (self._cta[one] != self._cta[two])
        racing &= ~self.morally_strong(one, two) & ~self._same_store(one, two)
        left = np.flatnonzero(racing)
        racing[left] = ~(self._knows(one[left], two[left]) | self._knows(two[left], one[left]))
        return racing

    def morally_strong(self, one: Ints, two: Ints) -> Mask:
        """Tell which pairs are morally strong, program order aside."""
        strength = np.minimum(self._scope[one], self._scope[two])
        strong: Mask = (strength > 0) & (strength >= self.needed_scope(one, two))
        strong &= self._width[one] == self._width[two]
        return strong

    def needed_scope(self, one: Ints, two: Ints) -> Ints:
        """Return the smallest scope that includes both threads."""
        cluster = np.where(self._cluster[one] == self._cluster[two], SCOPES["cluster"], SCOPES["gpu"])
        needed = np.where(self._rank[one] == self._rank[two], cluster, SCOPES["sys"])
        return np.where(self._cta[one] == self._cta[two], SCOPES["cta"], needed)

    def _same_store(self, one: Ints, two: Ints) -> Mask:
        elements = self.elements
        plain: Mask = self.writes[one] & self.writes[two] & (self._scope[one] == 0) & (self._scope[two] == 0)
        plain &= (elements.start[one] == elements.start[two]) & (elements.stop[one] == elements.stop[two])
        plain &= elements.value[one] == elements.value[two]
        return plain

    def _knows(self, later: Ints, earlier: Ints) -> Mask:
        """Tell which elements ``earlier`` happened before the elements ``later``."""
        elements = self.elements
        stamp, thread = self._stamp[earlier], elements.thread[earlier]
        inside = self._cta[later] == self._cta[earlier]
        warp = inside & (elements.thread[later] // WARP == thread // WARP)
        known: Mask = (inside & (stamp < self._floor[later])) | (warp & (stamp < self._warp_floor[later]))
        left = np.flatnonzero(~known & (~inside | (self._extra[later] != self._common[later])))
        if left.size:
            known[left] = self._clocks_know(later[left], self._cta[earlier[left]], thread[left], stamp[left])
        return known

    def _clocks_know(self, later: Ints, cta: Ints, thread: Ints, stamp: Ints) -> Mask:
        known = np.zeros(later.size, dtype=bool)
        for clocks in (self._common[later], self._extra[later]):
            codes = clocks * len(self._ctas) + cta
            for code in np.unique(codes).tolist():
                mine = codes == code
                clock, owner = self._clocks[code // len(self._ctas)], self._ctas[code % len(self._ctas)]
                known[mine] |= clock.knows(owner.position.rank, owner.index, thread[mine], stamp[mine])
        return known

    def thin(self) -> Ints:
        """Return places of elements of one CTA that stand for all; those that they stand for race as they do.

        Unless a thread has a clock of its own, elements with one instruction, bytes, stored value and view differ in
        their threads only.  The rule asks whether another thread, or one of another warp, is among them; the first and
        the last one answer that.
        """
        elements = self.elements
        if self.fine:
            return np.arange(elements.size)
        kinds: dict[tuple[int, int], int] = {}
        keys = ((id(record.view), record.instruction.index) for record in elements.records)
        kind = elements.of_records(kinds.setdefault(key, len(kinds)) for key in keys)
        columns = [elements.granule, kind, elements.start, elements.stop, elements.value]
        order = np.lexsort((elements.thread, *columns))
        changes = np.ones(elements.size + 1, dtype=bool)
        changes[1:-1] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
        return np.sort(order[changes[:-1] | changes[1:]])

    def group(self) -> Ints:
        """Return a number for each element of one CTA; only elements of equal numbers can race.

        It stands for the granule, or, where one warp alone touches a granule, for the granule between two
        synchronisations of that warp: whatever the warp did before its last one is known.
        """
        elements = self.elements
        place: Ints
        granules, place = np.unique(elements.granule, return_inverse=True)
        if self.fine or not self._warp_floor.any():
            return place
        warp = elements.thread // WARP
        lowest, highest = np.full(granules.size, 1 << 30), np.full(granules.size, -1)
        np.minimum.at(lowest, place, warp)
        np.maximum.at(highest, place, warp)
        floor = np.where((lowest == highest)[place], self._warp_floor, 0)
        _, floors = np.unique(floor, return_inverse=True)
        grouped: Ints = place * (floors.max() + 1) + floors
        return grouped


def _number(ctas: list[CtaClock]) -> dict[CtaClock, int]:
    return {cta: number for number, cta in enumerate(ctas)}


def _number_clusters(positions: list[Position]) -> Ints:
    keys = [(position.rank, position.launch, position.cluster) for position in positions]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys])


def pair_up(group: Ints, writes: Mask) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs of elements of one group of which the first writes, each pair once, some at a time."""
    order = np.lexsort((~writes, group))
    _, starts, sizes = np.unique(group[order], return_index=True, return_counts=True)
    ends = np.cumsum(np.add.reduceat(writes[order].astype(np.int64), starts) * sizes)
    for first in range(0, int(ends[-1]), CHUNK):
        pair = np.arange(first, min(first + CHUNK, int(ends[-1])))
        place = np.searchsorted(ends, pair, side="right")
        within = pair - np.where(place > 0, ends[place - 1], 0)
        one = starts[place] + within // sizes[place]
        two = starts[place] + within % sizes[place]
        distinct = (one < two) | ~writes[order[two]]
        yield order[one[distinct]], order[two[distinct]]
