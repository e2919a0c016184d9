"""The race detector against an oracle that keeps every access, a vector clock per thread, and compares all pairs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiebreak.sim.ptx import races
from tiebreak.sim.ptx.module import Instruction, Kernel
from tiebreak.sim.ptx.observation import Access, Position
from tiebreak.sim.ptx.races import RaceDetector

THREADS = 40
RANKS = 2
CTAS = 2
SOME = (0, 1, 5, 31, 32, 39)
SCOPES = {"cta": 1, "cluster": 2, "gpu": 3, "sys": 4}
BASE = 1 << 20

Thread = tuple[Position, int]
Clock = dict[Thread, int]


@dataclass(frozen=True)
class Step:
    """One event: what happens, in which CTA (0 to 3), by which threads, and its details."""

    what: str
    cta: int
    threads: tuple[int, ...]
    width: int = 4
    vector: int = 1
    slots: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    order: str = "weak"
    scope: str = "gpu"
    space: str = "shared"
    owner: int = 0


@dataclass
class Touch:
    """One access of one thread."""

    step: int
    thread: Thread
    time: int
    clock: Clock
    writes: bool
    scope: int
    element: int
    window: object
    start: int
    stored: bytes | None
    width: int

    def part(self, granule: int) -> tuple[int, int, bytes | None]:
        """Return the bytes in one granule, and what is stored there."""
        start, stop = max(granule, self.start), min(granule + 4, self.start + self.width)
        return start, stop, None if self.stored is None else self.stored[start - self.start : stop - self.start]


@dataclass
class Note:
    """What a release pattern published: clock, first operation and last write of the chain."""

    clock: Clock
    head: tuple[Thread, int]
    carrier: tuple[Thread, int]


@dataclass
class Oracle:
    """Every access with the vector clock of its thread."""

    clocks: dict[Thread, Clock] = field(default_factory=dict)
    touches: list[Touch] = field(default_factory=list)
    notes: dict[object, list[Note]] = field(default_factory=lambda: defaultdict(list))
    fences: dict[Thread, dict[int, Clock]] = field(default_factory=lambda: defaultdict(dict))
    seen: dict[Thread, list[Note]] = field(default_factory=lambda: defaultdict(list))
    tokens: dict[int, Clock] = field(default_factory=dict)
    late: set[tuple[int, ...]] = field(default_factory=set)

    def access(self, step: Step, number: int, position: Position) -> None:
        """Perform an access thread by thread."""
        for place, thread in enumerate(step.threads):
            me = (position, thread)
            start = address_of(step, place)
            window = (step.space, position.rank, position.launch, step.owner) if step.space == "shared" else step.space
            element = step.width // step.vector
            keys = [(window, start + part * element, element) for part in range(step.vector)]
            strong = step.order != "weak"
            if strong and step.what != "write":
                self._observe(me, keys, step)
            self._touch(me, number, step, window, start, place)
            if step.what != "read":
                self._write(me, keys, step, strong)

    def _touch(self, me: Thread, number: int, step: Step, window: object, start: int, place: int) -> None:
        clock = self.clocks[me]
        clock[me] += 1
        scope = SCOPES[step.scope] if step.order != "weak" else 0
        stored = stored_bytes(step, place) if step.what == "write" and not scope else None
        element = step.width // step.vector
        writes = step.what != "read"
        self.touches.append(
            Touch(number, me, clock[me], dict(clock), writes, scope, element, window, start, stored, step.width)
        )

    def _observe(self, me: Thread, keys: list[object], step: Step) -> None:
        for key in keys:
            for note in self.notes[key]:
                if reaches(note.carrier, (me, SCOPES[step.scope])):
                    self.seen[me].append(note)
                    if step.order in ("acquire", "acq_rel") and reaches(note.head, (me, SCOPES[step.scope])):
                        merge(self.clocks[me], note.clock)

    def _write(self, me: Thread, keys: list[tuple[object, int, int]], step: Step, strong: bool) -> None:
        writer = (me, SCOPES[step.scope])
        for window, start, width in keys:
            old = self.notes[window, start, width]
            for other in list(self.notes):
                if other[0] == window and other[1] < start + width and start < other[1] + other[2]:
                    self.notes[other] = []
            if not strong:
                continue
            kept = [
                Note(note.clock, note.head, writer)
                for note in old
                if note.head[0] == me or (step.what == "update" and reaches(note.carrier, writer))
            ]
            for scope, clock in self.fences[me].items():
                kept.append(Note(clock, (me, scope), writer))
            if step.order in ("release", "acq_rel"):
                kept.append(Note(dict(self.clocks[me]), writer, writer))
            self.notes[window, start, width] = kept

    def fence(self, step: Step, position: Position) -> None:
        """Perform a fence."""
        for thread in step.threads:
            me = (position, thread)
            for note in self.seen[me]:
                if reaches(note.head, (me, SCOPES[step.scope])):
                    merge(self.clocks[me], note.clock)
        for thread in step.threads:
            me = (position, thread)
            self.fences[me][SCOPES[step.scope]] = dict(self.clocks[me])

    def join(self, group: list[Thread]) -> None:
        """Order what each of the threads did before what each does next."""
        joined: Clock = {}
        for thread in group:
            merge(joined, self.clocks[thread])
        for thread in group:
            merge(self.clocks[thread], joined)

    def end(self, position: Position) -> None:
        """End a CTA, and with it its shared memory."""
        known: Clock = {}
        for thread in range(THREADS):
            merge(known, self.clocks[position, thread])
        window = ("shared", position.rank, position.launch, position.cta)
        self.late |= {
            (touch.step,)
            for touch in self.touches
            if touch.window == window and touch.thread[0] != position and known.get(touch.thread, 0) < touch.time
        }

    def findings(self) -> set[tuple[int, ...]]:
        """Return the pairs of steps that race, and the steps that may come after the end of what they touch."""
        return self.late | {
            (min(one.step, two.step), max(one.step, two.step))
            for one, two in combinations(self.touches, 2)
            if racing(one, two)
        }


def merge(clock: Clock, other: Clock) -> None:
    for thread, time in other.items():
        clock[thread] = max(clock.get(thread, 0), time)


def needed(one: Position, two: Position) -> int:
    if one == two:
        return 1
    if one.rank != two.rank:
        return 4
    return 2 if (one.launch, one.cluster) == (two.launch, two.cluster) else 3


def reaches(one: tuple[Thread, int], two: tuple[Thread, int]) -> bool:
    return one[0] == two[0] or min(one[1], two[1]) >= needed(one[0][0], two[0][0])


def racing(one: Touch, two: Touch) -> bool:
    if one.thread == two.thread or one.window != two.window or not (one.writes or two.writes):
        return False
    if two.clock.get(one.thread, 0) >= one.time or one.clock.get(two.thread, 0) >= two.time:
        return False
    strong = one.scope and two.scope and min(one.scope, two.scope) >= needed(one.thread[0], two.thread[0])
    if strong and one.element == two.element:
        return False
    for granule in range(one.start & ~3, one.start + one.width, 4):
        (start, stop, stored), (first, last, other) = one.part(granule), two.part(granule)
        overlap = max(start, first) < min(stop, last)
        if overlap and not (stored is not None and (start, stop, stored) == (first, last, other)):
            return True
    return False


def address_of(step: Step, place: int) -> int:
    return (BASE if step.space == "global" else 0) + step.slots[place] * step.width


def stored_bytes(step: Step, place: int) -> bytes:
    element = step.width // step.vector
    return (step.values[place] + 1).to_bytes(element, "little") * step.vector


class Pairing:
    """Runs the same steps on the detector and on the oracle."""

    def __init__(self, clusters: tuple[int, int]) -> None:
        self.detector = RaceDetector(ranks=RANKS)
        self.oracle = Oracle()
        self.launches = [0] * RANKS
        self.clusters = clusters
        self.kernel = Kernel("kernel", (), {}, (), (), {})
        self.positions: list[Position] = []
        self.over: list[Clock] = [{} for _ in range(RANKS)]
        for rank in range(RANKS):
            self._begin(rank)

    def _begin(self, rank: int) -> None:
        positions = [Position(rank, self.launches[rank], cta, self.clusters[cta], THREADS) for cta in range(CTAS)]
        self.positions[rank * CTAS : (rank + 1) * CTAS] = positions
        for position in positions:
            self.detector.begin(position, self.kernel)
            for thread in range(THREADS):
                self.oracle.clocks[position, thread] = {**self.over[rank], (position, thread): 0}

    def _end(self, rank: int) -> None:
        for position in self.positions[rank * CTAS : (rank + 1) * CTAS]:
            self.detector.end(position)
            self.oracle.end(position)
            for thread in range(THREADS):
                merge(self.over[rank], self.oracle.clocks[position, thread])
        self.launches[rank] += 1

    def run(self, steps: list[Step]) -> None:
        for number, step in enumerate(steps):
            getattr(self, f"_{step.what}")(step, number)
        self.detector.finish()

    def _access(self, step: Step, number: int) -> None:
        position = self.positions[step.cta]
        threads = np.array(step.threads)
        addresses = np.array([address_of(step, place) for place in range(threads.size)])
        values = ()
        if step.what == "write" and step.order == "weak":
            raw = b"".join(stored_bytes(step, place) for place in range(threads.size))
            columns = np.frombuffer(raw, dtype=f"u{step.width // step.vector}").reshape(-1, step.vector)
            values = tuple(columns[:, part] for part in range(step.vector))
        owner = step.owner if step.space == "shared" else -1
        scope = step.scope if step.order != "weak" else None
        self.detector.access(
            Access(
                position,
                Instruction(number, "access", (), (), None, number),
                step.space,
                step.what,
                threads,
                addresses,
                step.width,
                step.order,
                scope,
                owner,
                values=values,
                elements=step.vector,
            )
        )
        self.oracle.access(step, number, position)

    _read = _write = _update = _access

    def _warp(self, step: Step, number: int) -> None:
        position = self.positions[step.cta]
        self.detector.synchronise(position, np.array(step.threads), instruction(number), "warp")
        for warp in (0, 1):
            self.oracle.join([(position, thread) for thread in step.threads if thread // 32 == warp])

    def _cta(self, step: Step, number: int) -> None:
        position = self.positions[step.cta]
        self.detector.synchronise(position, np.array(step.threads), instruction(number), "cta")
        self.oracle.join([(position, thread) for thread in step.threads])

    def _release(self, step: Step, number: int) -> None:
        position = self.positions[step.cta]
        self.detector.release(position, np.array(step.threads), instruction(number), step.width)
        for thread in step.threads:
            merge(self.oracle.tokens.setdefault(step.width, {}), self.oracle.clocks[position, thread])

    def _acquire(self, step: Step, number: int) -> None:
        position = self.positions[step.cta]
        self.detector.acquire(position, np.array(step.threads), instruction(number), step.width)
        for thread in step.threads:
            merge(self.oracle.clocks[position, thread], self.oracle.tokens.get(step.width, {}))

    def _fence(self, step: Step, number: int) -> None:
        position = self.positions[step.cta]
        self.detector.fence(position, np.array(step.threads), instruction(number), "acq_rel", step.scope)
        self.oracle.fence(step, position)

    def _cluster(self, step: Step, number: int) -> None:
        rank = step.cta // CTAS
        positions = tuple(self.positions[rank * CTAS : (rank + 1) * CTAS])
        self.detector.join_cluster(positions, instruction(number))
        self.oracle.join([(position, thread) for position in positions for thread in range(THREADS)])

    def _launch(self, step: Step, number: int) -> None:
        rank = step.cta // CTAS
        self._end(rank)
        self._begin(rank)

    def _settle(self, step: Step, number: int) -> None:
        for rank in range(RANKS):
            self._end(rank)
        self.detector.settle()
        for rank in range(RANKS):
            merge(self.over[0], self.over[rank])
        self.over = [dict(self.over[0]) for _ in range(RANKS)]
        for rank in range(RANKS):
            self._begin(rank)


def instruction(number: int) -> Instruction:
    return Instruction(number, "barrier", (), (), None, number)


groups = st.lists(st.sampled_from(SOME), min_size=1, max_size=4, unique=True).map(lambda some: tuple(sorted(some)))
named = st.sampled_from([tuple(range(32)), tuple(range(THREADS)), tuple(range(32, THREADS)), tuple(range(16))])
WIDTHS = ((4, 1), (4, 1), (4, 1), (8, 1), (8, 2), (16, 4), (1, 1), (2, 1))


@dataclass(frozen=True)
class Focus:
    """What steps are drawn from."""

    ctas: tuple[int, ...]
    spaces: tuple[str, ...]
    scopes: tuple[str, ...]
    strong: tuple[str, ...]
    edges: tuple[str, ...]
    room: int = 8


ONE_CTA = Focus((0,), ("shared",), ("cta",), ("weak",), ("warp", "warp", "cta"))
ATOMICS = Focus((0,), ("shared",), ("cta",), ("weak", "relaxed"), ("warp", "cta"), room=4)
ONE_WAY = Focus((0,), ("shared", "global"), ("cta", "gpu"), ("weak", "relaxed"), ("warp", "cta", "release", "acquire"))
MESSAGES = Focus((0, 1, 2), ("global",), tuple(SCOPES), ("weak", "strong"), ("fence", "warp"), room=4)
LAUNCHES = Focus((0, 1, 2), ("global",), ("gpu", "sys"), ("weak", "strong"), ("launch", "launch", "settle", "cta"))
ALL = Focus(
    (0, 1, 2, 3),
    ("shared", "global"),
    tuple(SCOPES),
    ("weak", "weak", "strong"),
    ("warp", "warp", "cta", "cta", "release", "acquire", "fence", "launch", "settle", "cluster"),
)


@st.composite
def accesses(draw: st.DrawFn, focus: Focus) -> Step:
    what = draw(st.sampled_from(["read", "write", "write", "update"]))
    strong = draw(st.sampled_from(focus.strong))
    if what == "update" and focus.strong == ("weak",):
        what = "write"
    cta = draw(st.sampled_from(focus.ctas))
    threads = draw(groups)
    width, vector = draw(st.sampled_from(WIDTHS))
    slots = draw(st.lists(st.integers(0, focus.room // width), min_size=len(threads), max_size=len(threads)))
    values = draw(st.lists(st.integers(0, 1), min_size=len(threads), max_size=len(threads)))
    order = "relaxed" if what == "update" and strong == "weak" else strong
    if strong == "strong":
        orders = {"read": ["relaxed", "acquire"], "write": ["relaxed", "release"]}
        order = draw(st.sampled_from(orders.get(what, ["relaxed", "acquire", "release", "acq_rel"])))
    scope, space = draw(st.sampled_from(focus.scopes)), draw(st.sampled_from(focus.spaces))
    owner = draw(st.sampled_from([cta % CTAS, cta % CTAS, 0]))
    return Step(what, cta, threads, width, vector, tuple(slots), tuple(values), order, scope, space, owner)


@st.composite
def edges(draw: st.DrawFn, focus: Focus) -> Step:
    what = draw(st.sampled_from(focus.edges))
    threads = draw(st.one_of(groups, named))
    if what == "cta" and draw(st.booleans()):
        threads = tuple(range(THREADS))
    cta, scope = draw(st.sampled_from(focus.ctas)), draw(st.sampled_from(focus.scopes))
    return Step(what, cta, threads, draw(st.integers(0, 1)), scope=scope)


def some_steps(focus: Focus) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.one_of(accesses(focus), accesses(focus), edges(focus)), min_size=2, max_size=12)


def legal(step: Step, clusters: tuple[int, int]) -> bool:
    """Tell whether a step stays in its cluster."""
    alone = clusters[0] != clusters[1]
    return not (alone and (step.what == "cluster" or (step.space == "shared" and step.owner != step.cta % CTAS)))


@pytest.mark.parametrize("focus", [ONE_CTA, ATOMICS, ONE_WAY, MESSAGES, LAUNCHES, ALL])
@pytest.mark.parametrize("limit", [2, races.LIMIT])
def test_the_detector_finds_exactly_what_the_oracle_finds(
    focus: Focus, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(races, "LIMIT", limit)

    @settings(max_examples=60)
    @given(some_steps(focus), st.sampled_from([(0, 0), (0, 1)]))
    def compare(steps: list[Step], clusters: tuple[int, int]) -> None:
        pairing = Pairing(clusters)
        pairing.run([step for step in steps if legal(step, clusters)])
        found = {tuple(sorted(finding.lines)) for finding in pairing.detector.findings}
        assert found == pairing.oracle.findings()

    compare()
