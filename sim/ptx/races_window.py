"""Shadow of one window of memory: finds the granules on which something may have raced.

Accesses are judged together when their interval ends, at the next full barrier
of the CTA, so that the usual access costs no more than being noted down.  Two
accesses of one CTA in different intervals are ordered.  Within an interval a
granule is suspected when two threads touch it and one writes: exact, by the
writer of every granule alone, in whatever order they came.  Between CTAs a
granule is suspected when its last accesses by others are not all known.
Suspects go to ``races_rule``; no access that may still race is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .findings import WARP
from .races_clock import Clock
from .races_cta import CtaClock
from .races_record import GRANULE, Elements, Ints, Record, expand, join_elements, make_elements
from .races_rule import Judge, pair_up

THREAD_BITS = 12
SEVERAL = (1 << THREAD_BITS) - 1
"""Stands for a thread where several share a granule."""

PAGE_BITS = 14
PAGE_GRANULES = (1 << PAGE_BITS) // GRANULE
NEAR_PAGES = 1 << 16
"""Distance of pages up to which a table finds them faster than sorting does."""

NOBODY, MANY = -1, -2


@dataclass(frozen=True)
class Group:
    """Accesses of one kind and width in an interval; arrays of shape [granules touched]."""

    writes: bool
    strong: bool
    element: int
    granules: Ints
    threads: Ints
    stamps: Ints


@dataclass(frozen=True)
class Pair:
    """Two elements that race."""

    judge: Judge
    one: int
    two: int


@dataclass
class Batch:
    """The accesses of one CTA in an interval that ended; ``last`` is the largest stamp."""

    cta: CtaClock
    records: Sequence[Record]
    last: int
    elements: Elements | None = None


class Trace:
    """Who of a rank touched each granule: a CTA, or ``MANY``, and the largest stamp; ``sole`` says who touched any."""

    def __init__(self, size: int) -> None:
        self.cta: Ints = np.full(size, NOBODY, dtype=np.int64)
        self.stamp: Ints = np.full(size, -1, dtype=np.int64)
        self.sole = NOBODY

    def grow(self, size: int) -> None:
        """Make room for more granules."""
        self.cta = _grown(self.cta, size, NOBODY)
        self.stamp = _grown(self.stamp, size, -1)

    def add(self, cta: int, granules: Ints, stamps: Ints) -> None:
        """Note accesses of a CTA."""
        self.sole = cta if self.sole in (NOBODY, cta) else MANY
        others = self.cta[granules]
        self.cta[granules] = np.where((others == NOBODY) | (others == cta), cta, MANY)
        np.maximum.at(self.stamp, granules, stamps)

    def find(self, cta: int, granules: Ints, floor: int, known: Ints) -> npt.NDArray[np.bool_]:
        """Tell which granules others touched at ``floor`` or later, and later than what is known of them."""
        others, stamps = self.cta[granules], self.stamp[granules]
        unknown: npt.NDArray[np.bool_] = (others != cta) & (stamps >= floor) & (stamps >= known[others])
        return unknown


class Window:
    """A window of memory.

    Args:
        paged: Whether addresses are those of global memory, not offsets from 0.
        crossing: Whether several CTAs can reach it.
    """

    def __init__(self, *, paged: bool, crossing: bool) -> None:
        self.crossing = crossing
        self._pages: dict[int, int] | None = {} if paged else None
        self._serial = 0
        self._writer: Ints = np.zeros(0, dtype=np.int64)
        self._strong: Ints = np.zeros(0, dtype=np.int64)
        self._traces: dict[int, tuple[Trace, Trace]] = {}
        self._batches: list[Batch] = []
        self._highest = 0

    def judge(self, records: Sequence[Record], groups: Sequence[Group]) -> Iterator[Pair]:
        """Yield racing pairs among accesses of one CTA."""
        suspects = self._suspect_inside(groups)
        if suspects.size:
            judge = Judge(self._collect(records, suspects))
            judge = Judge(judge.elements.take(judge.thin()))
            yield from _find(judge, judge.group())

    def close(self, records: Sequence[Record], groups: Sequence[Group]) -> Iterator[Pair]:
        """Yield racing pairs of accesses of one CTA with those of others, and keep them for others to come."""
        if not self.crossing:
            return
        cta = records[0].view.cta
        suspects = self._suspect_across(cta, records[0].view.common, groups)
        if suspects.size:
            yield from self._judge_across(cta, records, suspects)
        self._keep(cta, records, groups)

    def outlive(self, owner: CtaClock, end: Clock) -> Iterator[tuple[Record, int]]:
        """Yield accesses of other CTAs, and a thread of each, that ``owner`` did not wait for before it ended.

        Shared memory lives as long as its CTA (PTX ISA, "Shared State Space").

        Args:
            owner: The CTA whose shared memory this is.
            end: What its threads knew in the end.
        """
        for batch in self._batches:
            if batch.cta is not owner:
                for record in batch.records:
                    stamps = np.full(record.threads.size, record.view.time)
                    known = end.knows(batch.cta.position.rank, batch.cta.index, record.threads, stamps)
                    if not known.all():
                        yield record, int(record.threads[~known][0])

    def forget(self, clocks: Sequence[Clock]) -> None:
        """Drop the accesses that all of these clocks, and whoever starts from them, know."""
        self._batches = [batch for batch in self._batches if not all(_knows(clock, batch) for clock in clocks)]
        if not self._batches:
            self._traces.clear()

    def locate(self, first: Ints) -> Ints:
        """Return the number of the granule at each of these addresses."""
        if self._pages is None:
            granules: Ints = first // GRANULE
            self._reserve(int(granules.max()) + 1)
            return granules
        page = first >> PAGE_BITS
        low, high = int(page.min()), int(page.max())
        if high - low < NEAR_PAGES:
            page -= low
            found = np.zeros(high - low + 1, dtype=np.int64)
            found[page] = 1
            numbers = np.flatnonzero(found)
            found[numbers] = self._find_pages(numbers + low)
            slots = found[page]
        else:
            pages, inverse = np.unique(page, return_inverse=True)
            slots = self._find_pages(pages)[inverse]
        located: Ints = slots * PAGE_GRANULES + (first & ((1 << PAGE_BITS) - 1)) // GRANULE
        return located

    def _find_pages(self, numbers: Ints) -> Ints:
        """Return the places of pages in the shadow, which has room for them."""
        assert self._pages is not None
        places = [self._pages.setdefault(number, len(self._pages)) for number in numbers.tolist()]
        self._reserve(len(self._pages) * PAGE_GRANULES)
        return np.array(places, dtype=np.int64)

    def _reserve(self, size: int) -> None:
        if size <= self._writer.size:
            return
        size = max(size, 2 * self._writer.size, PAGE_GRANULES)
        self._writer, self._strong = _grown(self._writer, size, 0), _grown(self._strong, size, 0)
        for pair in self._traces.values():
            for trace in pair:
                trace.grow(size)

    def group(self, records: Sequence[Record]) -> list[Group]:
        """Return accesses by kind and width; none if they cannot race."""
        sorts: dict[tuple[bool, bool, int, int], list[Record]] = {}
        for record in records:
            key = (record.writes, record.scope > 0, record.width, record.element)
            sorts.setdefault(key, []).append(record)
        if not self.crossing and not any(writes for writes, *_ in sorts):
            return []
        return [self._join(key, members) for key, members in sorts.items()]

    def _join(self, key: tuple[bool, bool, int, int], members: Sequence[Record]) -> Group:
        writes, strong, width, element = key
        granules = self.locate(expand(np.concatenate([record.addresses for record in members]), width))
        threads = np.concatenate([record.threads for record in members])
        span = granules.size // threads.size
        stamps = np.zeros(0, dtype=np.int64)
        if self.crossing:
            sizes = [record.threads.size * span for record in members]
            stamps = np.repeat(np.array([record.view.time for record in members]), sizes)
        return Group(writes, strong, element, granules, np.repeat(threads, span) if span > 1 else threads, stamps)

    def _suspect_inside(self, groups: Sequence[Group]) -> Ints:
        """Return granules that two threads touched in this interval, one of them with a write."""
        self._serial += 1
        base = self._serial << THREAD_BITS
        found: list[Ints] = []
        plain = [group for group in groups if group.writes and not group.strong]
        strong = [group for group in groups if group.writes and group.strong]
        for group in plain:
            self._writer[group.granules] = group.threads + base
        for group in strong:
            self._strong[group.granules] = group.threads + base
        for group in strong:
            shared = self._strong[group.granules] != group.threads + base
            self._strong[group.granules[shared]] = base + SEVERAL
        for group in groups if plain else ():
            found.append(_touched_by_others(self._writer, group, base))
        for group in groups if strong else ():
            if not group.strong:
                found.append(_touched_by_others(self._strong, group, base))
        found.extend(_mixed_widths(groups) if strong else ())
        return _distinct(found)

    def _suspect_across(self, cta: CtaClock, common: Clock, groups: Sequence[Group]) -> Ints:
        # The last two places are those of MANY and NOBODY.
        known = np.zeros(self._highest + 3, dtype=np.int64)
        for other, time in common.ctas.items():
            if 0 <= other <= self._highest:
                known[other] = time
        found: list[Ints] = []
        for rank, (written, read) in self._traces.items():
            if {written.sole, read.sole} <= {NOBODY, cta.index}:
                continue
            floor = common.ranks.get(rank, 0)
            for group in groups:
                unknown = written.find(cta.index, group.granules, floor, known)
                if group.writes:
                    unknown |= read.find(cta.index, group.granules, floor, known)
                found.append(group.granules[unknown])
        return _distinct(found)

    def _judge_across(self, cta: CtaClock, records: Sequence[Record], suspects: Ints) -> Iterator[Pair]:
        mine = self._collect(records, suspects)
        marked = self._mark(suspects)
        common = records[0].view.common
        parts = [mine]
        for batch in self._batches:
            if batch.cta is not cta and not _knows(common, batch):
                if batch.elements is None:
                    batch.elements = self._collect(batch.records, None)
                parts.append(batch.elements.take(marked[batch.elements.granule]))
        elements = join_elements(parts)
        mixed = np.arange(elements.size) < mine.size
        yield from _find(Judge(elements), elements.granule, mixed)

    def _keep(self, cta: CtaClock, records: Sequence[Record], groups: Sequence[Group]) -> None:
        rank = cta.position.rank
        self._highest = max(self._highest, cta.index)
        if rank not in self._traces:
            self._traces[rank] = (Trace(self._writer.size), Trace(self._writer.size))
        for group in groups:
            self._traces[rank][0 if group.writes else 1].add(cta.index, group.granules, group.stamps)
        self._batches.append(Batch(cta, records, max(record.view.time for record in records)))

    def _mark(self, granules: Ints) -> npt.NDArray[np.bool_]:
        marked = np.zeros(self._writer.size, dtype=bool)
        marked[granules] = True
        return marked

    def _collect(self, records: Sequence[Record], suspects: Ints | None) -> Elements:
        """Return the elements of records, those on suspected granules only if any are given."""
        elements = make_elements(records, self.locate)
        if suspects is None:
            return elements
        return elements.take(self._mark(suspects)[elements.granule]).without_idle()


def _find(judge: Judge, group: Ints, side: npt.NDArray[np.bool_] | None = None) -> Iterator[Pair]:
    """Yield one racing pair of each two instructions, of elements on different sides if there are sides."""
    elements = judge.elements
    numbers: dict[tuple[int, int], int] = {}
    keys = ((id(record.view.cta.kernel), record.instruction.index) for record in elements.records)
    code = elements.of_records(numbers.setdefault(key, len(numbers)) for key in keys)
    for one, two in pair_up(group, judge.writes):
        if side is not None:
            apart = side[one] != side[two]
            one, two = one[apart], two[apart]
        racing = judge.races(one, two)
        one, two = one[racing], two[racing]
        # Threads of different warps show a race more plainly than lanes of one.
        plainest = np.argsort(elements.thread[one] // WARP == elements.thread[two] // WARP, kind="stable")
        one, two = one[plainest], two[plainest]
        low, high = np.minimum(code[one], code[two]), np.maximum(code[one], code[two])
        _, places = np.unique(low * len(numbers) + high, return_index=True)
        for place in places.tolist():
            yield Pair(judge, int(one[place]), int(two[place]))


def _touched_by_others(owners: Ints, group: Group, base: int) -> Ints:
    owner = owners[group.granules]
    touched = owner >= base
    if not touched.any():
        return group.granules[:0]
    others: Ints = group.granules[touched & (owner != group.threads + base)]
    return others


def _mixed_widths(groups: Sequence[Group]) -> list[Ints]:
    """Return granules that strong accesses of different widths touch."""
    strong = [group for group in groups if group.strong]
    found = []
    for place, group in enumerate(strong):
        for other in strong[place + 1 :]:
            if group.element != other.element and (group.writes or other.writes):
                found.append(np.intersect1d(group.granules, other.granules))
    return found


def _distinct(found: Sequence[Ints]) -> Ints:
    some = [granules for granules in found if granules.size]
    return np.unique(np.concatenate(some)) if some else np.zeros(0, dtype=np.int64)


def _knows(clock: Clock, batch: Batch) -> bool:
    rank = batch.cta.position.rank
    return batch.last < max(clock.ranks.get(rank, 0), clock.ctas.get(batch.cta.index, 0))


def _grown(array: Ints, size: int, fill: int) -> Ints:
    grown = np.full(size, fill, dtype=np.int64)
    grown[: array.size] = array
    return grown
