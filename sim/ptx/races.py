"""The race detector: an observer of PTX executions whose verdict does not depend on the schedule.

Axioms, and where each is enforced:

1. Program order inside one thread: ``races_rule``, equal threads.
2. ``bar.sync`` orders the threads that take part, ``bar.arrive`` what came before
   it; ``bar.warp.sync`` orders the named lanes.  Lockstep, ``shfl``, ``vote`` and
   other warp instructions order nothing: ``races_cta``.
3. Releases, acquires and fences at their scopes, through chains of atomics:
   ``races_messages``.  What a barrier handed on is part of a later release.
4. Launches of one rank follow one another: ``races_order``.
5. Conflicting accesses without an edge race unless morally strong: ``races_rule``.
6. Shared memory of another CTA is accessed before that CTA ends: ``races_window``.
7. A proxy fence lies between an access and a bulk copy of the same bytes: ``races_proxy``.
8. No access is forgotten while one to come can race with it: ``races_window``.

Values are those of the execution; that a load could see another store is what a
race says.  Level 1, ``sim.observer``, applies the same axioms to whole programs.
Threads that exited take no part in barriers: what they did is not ordered by them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace

import numpy as np

from tiebreak.errors import InputError

from .findings import Finding
from .module import Instruction, Kernel
from .observation import Access, Position, Scope, Threads
from .program import KernelIdentity
from .races_clock import Clock, join
from .races_cta import CtaClock
from .races_messages import Messages
from .races_order import Stream, settle_all
from .races_proxy import Proxies, uses_async_proxy
from .races_record import Record, record_access
from .races_report import explain, explain_outliving, explain_unpublished
from .races_window import Pair, Window

GLOBAL = -1

LIMIT = 2048
"""Accesses of an interval that are kept before the detector looks for some that are over."""


class RaceDetector:
    """Watches launches on one or more ranks.

    Args:
        ranks: World size.
        place: Names an address of global memory.
        replay: Command that repeats the execution, for findings.

    Attributes:
        findings: What was found so far; accesses of an interval are judged when it ends.
    """

    def __init__(self, ranks: int = 1, place: Callable[[int], str] = hex, replay: str = "") -> None:
        self.findings: list[Finding] = []
        self._place = place
        self._replay = replay
        self._now = 0
        self._streams = [Stream(rank) for rank in range(ranks)]
        self._ctas: dict[tuple[int, int, int], CtaClock] = {}
        self._count = 0
        self._clusters: dict[tuple[int, int, int], int] = {}
        self._ended: dict[tuple[int, int, int], list[tuple[CtaClock, Clock]]] = {}
        self._windows: dict[Hashable, Window] = {GLOBAL: Window(paged=True, crossing=True)}
        self._records: dict[int, dict[Hashable, list[Record]]] = {}
        self._limits: dict[int, int] = {}
        self._messages = Messages()
        self._proxies = Proxies()
        self._copying: set[int] = set()
        self._tokens: dict[Hashable, Clock] = {}
        self._seen: set[Hashable] = set()

    def fork(self) -> RaceDetector:
        """Return a detector that goes on from here, where all threads of the only CTA know the same."""
        (cta,) = self._ctas.values()
        other = RaceDetector(place=self._place, replay=self._replay)
        other._now = self._now
        other.begin(cta.position, cta.kernel)
        for same in other._ctas.values():
            same.view = replace(same.view, common=cta.view.common)
        other._proxies = self._proxies.copy()
        return other

    def begin(self, position: Position, kernel: Kernel) -> None:
        """A CTA starts.

        Raises:
            InputError: The rank is not one of the world.
        """
        if not 0 <= position.rank < len(self._streams):
            limit = f"the detector watches ranks 0 to {len(self._streams) - 1}"
            raise InputError("rank", value=position.rank, limit=limit, remedy="say how many ranks there are")
        now = self._tick()
        stream = self._streams[position.rank]
        common = stream.begin(position.launch, now)
        self._forget()
        cta = CtaClock(self._count, position, kernel, now, common)
        self._count += 1
        self._ctas[_key(position)] = cta
        self._records[cta.index] = {}
        if uses_async_proxy(KernelIdentity(kernel)):
            self._copying.add(cta.index)
        stream.start(cta)
        cluster = (position.rank, position.launch, position.cluster)
        self._clusters[cluster] = self._clusters.get(cluster, 0) + 1

    def access(self, access: Access) -> None:
        """Some threads access memory."""
        if not access.threads.size:
            return
        cta = self._ctas[_key(access.position)]
        window = self._window(access)
        if access.order == "weak" and access.kind != "update":
            if access.kind == "write" and not self._messages.idle(window, cta):
                self._messages.overwrite(window, access)
            self._note(cta, window, access)
        elif access.order in ("weak", "relaxed", "volatile") and self._messages.idle(window, cta):
            self._note(cta, window, access)
        else:
            self._access_strongly(cta, window, access)

    def _access_strongly(self, cta: CtaClock, window: Hashable, access: Access) -> None:
        """Perform a strong access thread by thread: acquire, access, release."""
        if access.order not in ("acquire", "release", "acq_rel"):
            # What the threads know stays as it is, so that one record will do for all of them.
            self._note(cta, window, access)
            for place in range(access.threads.size):
                if access.kind != "write":
                    self._messages.observe(window, cta, access, place)
                if access.kind != "read":
                    self._messages.write(window, cta, access, place, self._tick())
            return
        for place in range(access.threads.size):
            one = slice(place, place + 1)
            if access.kind != "write":
                self._messages.observe(window, cta, access, place)
            values = tuple(value[one] for value in access.values)
            part = replace(access, threads=access.threads[one], addresses=access.addresses[one], values=values)
            self._note(cta, window, part)
            if access.kind != "read":
                self._messages.write(window, cta, access, place, self._tick())

    def synchronise(self, position: Position, threads: Threads, instruction: Instruction, scope: str) -> None:
        """A barrier completed; one of scope ``warp`` orders the named lanes of each warp."""
        cta = self._ctas[_key(position)]
        now = self._tick()
        if scope == "warp":
            cta.synchronise_warps(threads, now)
        elif threads.size == position.threads:
            self._close(cta)
            cta.synchronise_all(now)
        else:
            cta.synchronise_some(threads, now)

    def join_cluster(self, positions: tuple[Position, ...], instruction: Instruction) -> None:
        """A cluster barrier completed: all threads of these CTAs are ordered."""
        now = self._tick()
        ctas = [self._ctas[_key(position)] for position in positions]
        clocks = []
        for cta in ctas:
            self._close(cta)
            clocks.extend([cta.view.common, *cta.view.used(), Clock(ctas={cta.index: now})])
        joined = join(clocks)
        for cta in ctas:
            cta.synchronise_all(now, joined)

    def release(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """What each of these threads did before goes with the token."""
        clock = self._ctas[_key(position)].publish(threads, self._tick())
        self._tokens[token] = join([self._tokens.get(token, clock), clock])

    def acquire(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """What was released with the token is ordered before what these threads do next."""
        clock = self._tokens.get(token)
        if clock is not None:
            self._ctas[_key(position)].learn(threads, clock)

    def fence(self, position: Position, threads: Threads, instruction: Instruction, order: str, scope: Scope) -> None:
        """Threads perform a fence."""
        cta = self._ctas[_key(position)]
        if order != "proxy":
            self._messages.fence(cta, threads, order, scope, self._tick())
        elif cta.index in self._copying:
            self._proxies.publish(cta, threads, self._tick())

    def end(self, position: Position) -> None:
        """Every thread of a CTA exited."""
        cta = self._ctas.pop(_key(position))
        self._close(cta)
        del self._records[cta.index]
        self._copying.discard(cta.index)
        self._streams[position.rank].end(cta, self._tick())
        self._messages.end(cta)
        self._end_in_cluster(cta, (position.rank, position.launch, position.cluster))

    def _end_in_cluster(self, cta: CtaClock, cluster: tuple[int, int, int]) -> None:
        """Drop the shared memory of a cluster whose CTAs all ended, once no access may have come too late."""
        ended = self._ended.setdefault(cluster, [])
        ended.append((cta, join([cta.view.common, *cta.view.used()])))
        if len(ended) < self._clusters[cluster]:
            return
        for each, known in self._ended.pop(cluster):
            position = each.position
            window = self._windows.pop(("shared", position.rank, position.launch, position.cta), None)
            for record, thread in window.outlive(each, known) if window is not None else ():
                self.report(explain_outliving(record, thread, self._replay))

    def report(self, finding: Finding) -> None:
        """The executor found something; the first of each kind at the same instructions is kept."""
        key = (finding.kind, *(id(instruction) for instruction in finding.instructions))
        if key not in self._seen:
            self._seen.add(key)
            self.findings.append(finding if finding.replay else replace(finding, replay=self._replay))

    def settle(self, ranks: Iterable[int] | None = None) -> None:
        """Hosts of these ranks, or of all, waited for each other: what ended before is known to what starts next."""
        chosen = self._streams if ranks is None else [self._streams[rank] for rank in ranks]
        settle_all(chosen, self._tick())

    def finish(self) -> list[Finding]:
        """Judge what is not judged yet, after an execution that was broken off; return the findings."""
        for cta in list(self._ctas.values()):
            self._close(cta)
        return self.findings

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _window(self, access: Access) -> Hashable:
        if access.space == "global":
            return GLOBAL
        position = access.position
        return ("shared", position.rank, position.launch, access.owner)

    def _note(self, cta: CtaClock, window: Hashable, access: Access) -> None:
        records = self._records[cta.index].setdefault(window, [])
        record = record_access(access, cta.view)
        if cta.index in self._copying:
            self._note_proxy(cta, window, access, record)
        if records and record.scope and _repeats(records[-1], record):
            return
        records.append(record)
        if len(records) >= self._limits.get(cta.index, LIMIT):
            self._shorten(cta)

    def _note_proxy(self, cta: CtaClock, window: Hashable, access: Access, record: Record) -> None:
        """Judge the access of a copy, or keep another one for copies to come."""
        if access.proxy != "async":
            self._proxies.note(window, record)
            return
        for each in self._proxies.judge(window, record, self._tick()):
            self.report(explain_unpublished(each, self._place if window == GLOBAL else None, self._replay))

    def _close(self, cta: CtaClock) -> None:
        """Judge the interval of a CTA, which is over."""
        for window, records in self._records[cta.index].items():
            if records:
                shadow = self._shadow(cta, window)
                groups = shadow.group(records)
                self._report_pairs(shadow.judge(records, groups), window)
                self._report_pairs(shadow.close(records, groups), window)
        self._records[cta.index] = {}
        self._limits.pop(cta.index, None)

    def _shorten(self, cta: CtaClock) -> None:
        """Judge accesses that every thread of the CTA knows, so that a long interval need not be kept."""
        longest = 0
        if cta.raise_floor():
            for window, records in self._records[cta.index].items():
                shadow = self._shadow(cta, window)
                self._report_pairs(shadow.judge(records, shadow.group(records)), window)
                over = [record for record in records if record.view.time < cta.view.floor]
                if over:
                    self._report_pairs(shadow.close(over, shadow.group(over)), window)
                records[:] = [record for record in records if record.view.time >= cta.view.floor]
                longest = max(longest, len(records))
        longest = longest or max(map(len, self._records[cta.index].values()))
        self._limits[cta.index] = max(LIMIT, 2 * longest)

    def _shadow(self, cta: CtaClock, window: Hashable) -> Window:
        if window not in self._windows:
            position = cta.position
            crossing = self._clusters[(position.rank, position.launch, position.cluster)] > 1
            self._windows[window] = Window(paged=False, crossing=crossing)
        return self._windows[window]

    def _report_pairs(self, pairs: Iterable[Pair], window: Hashable) -> None:
        for pair in pairs:
            self.report(explain(pair, self._place if window == GLOBAL else None, self._replay))

    def _forget(self) -> None:
        """Drop accesses that everything which runs or is to come knows."""
        if any(stream.busy for stream in self._streams):
            return
        clocks = [stream.settled for stream in self._streams]
        for window in self._windows.values():
            window.forget(clocks)
        self._proxies.forget(clocks)


def _key(position: Position) -> tuple[int, int, int]:
    return position.rank, position.launch, position.cta


def _repeats(last: Record, record: Record) -> bool:
    """Tell whether a strong access is the last one again, as in a loop that polls."""
    same = last.view is record.view and last.instruction is record.instruction
    return same and np.array_equal(last.threads, record.threads) and np.array_equal(last.addresses, record.addresses)
