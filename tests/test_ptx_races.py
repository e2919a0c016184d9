"""Each rule of the race detector, on a few hand-driven events; every verdict is the same in every order of events."""

from __future__ import annotations

import numpy as np
import pytest

from tiebreak.errors import InputError
from tiebreak.sim.ptx import races
from tiebreak.sim.ptx.findings import Finding, describe_location
from tiebreak.sim.ptx.module import Instruction, Kernel, Location
from tiebreak.sim.ptx.observation import Access, Position
from tiebreak.sim.ptx.races import RaceDetector

KERNEL = Kernel("kernel", (), {}, (), (), {})
THREADS = 64


class Stage:
    """A detector, and events in the order in which they are stated; each stands on a line of its own."""

    def __init__(self, *positions: Position, ranks: int = 1) -> None:
        self.detector = RaceDetector(ranks=ranks, replay="tiebreak ptx kernel.ptx")
        self.positions = positions or (cta(0),)
        self._line = 0
        for position in self.positions:
            self.detector.begin(position, KERNEL)

    def access(
        self,
        kind: str,
        thread: int | list[int],
        address: int | list[int] = 0,
        *,
        at: int = 0,
        width: int = 4,
        order: str = "weak",
        scope: str = "gpu",
        space: str = "shared",
        owner: int = 0,
        value: int | list[int] = 7,
        instruction: Instruction | None = None,
    ) -> None:
        threads = np.atleast_1d(thread)
        values = np.broadcast_to(np.asarray(value, dtype=f"u{width}"), threads.shape)
        self.detector.access(
            Access(
                self.positions[at],
                instruction or self.line(kind),
                space,
                kind,
                threads,
                np.broadcast_to(np.asarray(address), threads.shape),
                width,
                order,
                None if order == "weak" else scope,
                owner if space == "shared" else -1,
                values=(values,) if kind == "write" and order == "weak" else (),
            )
        )

    def line(self, opcode: str) -> Instruction:
        self._line += 1
        return Instruction(self._line, opcode, (), (), None, self._line, Location("kernel.py", 10 * self._line))

    def read(self, thread: int | list[int], address: int | list[int] = 0, **details: object) -> None:
        self.access("read", thread, address, **details)

    def write(self, thread: int | list[int], address: int | list[int] = 0, **details: object) -> None:
        self.access("write", thread, address, **details)

    def update(self, thread: int | list[int], address: int | list[int] = 0, **details: object) -> None:
        self.access("update", thread, address, **{"order": "relaxed", **details})

    def barrier(self, threads: range = range(THREADS), at: int = 0) -> None:
        self.detector.synchronise(self.positions[at], np.array(threads), self.line("bar"), "cta")

    def warp(self, threads: range, at: int = 0) -> None:
        self.detector.synchronise(self.positions[at], np.array(threads), self.line("bar"), "warp")

    def fence(self, thread: int, scope: str = "sys", at: int = 0, order: str = "acq_rel") -> None:
        self.detector.fence(self.positions[at], np.array([thread]), self.line("fence"), order, scope)

    def end(self) -> list[Finding]:
        return self.detector.finish()


def cta(number: int, *, rank: int = 0, cluster: int | None = None, launch: int = 0) -> Position:
    return Position(rank, launch, number, number if cluster is None else cluster, THREADS)


def test_threads_of_a_warp_race_although_they_run_together() -> None:
    stage = Stage()
    stage.write(3)
    stage.read(7)
    (finding,) = stage.end()
    assert finding.kind == "race"
    assert finding.lines == (1, 2)
    assert "no warp-level edge between line 1 and line 2: lanes 3 and 7" in finding.missing


def test_reads_do_not_race() -> None:
    stage = Stage()
    stage.read(list(range(THREADS)))
    stage.read([1, 40])
    assert not stage.end()


def test_a_warp_barrier_orders_the_lanes_it_names() -> None:
    stage = Stage()
    stage.write(3)
    stage.warp(range(32))
    stage.read(7)
    assert not stage.end()


def test_a_warp_barrier_of_some_lanes_orders_no_others() -> None:
    stage = Stage()
    stage.write(3)
    stage.warp(range(4))
    stage.read(2)
    stage.read(7)
    (finding,) = stage.end()
    assert finding.lines == (1, 4)


def test_warp_barriers_order_nothing_between_warps() -> None:
    stage = Stage()
    stage.write(3)
    stage.warp(range(THREADS))
    stage.read(40)
    (finding,) = stage.end()
    assert "no bar.sync between line 1 and line 3: warps 0 and 1" in finding.missing


def test_a_barrier_orders_the_cta() -> None:
    stage = Stage()
    stage.write(3)
    stage.barrier()
    stage.write(40)
    stage.barrier()
    stage.read([0, 63])
    assert not stage.end()


def test_a_barrier_of_some_warps_orders_those_only() -> None:
    stage = Stage()
    stage.write(40)
    stage.barrier(range(32))
    stage.read(0)
    stage.barrier(range(16, 48))
    stage.read(20)
    (finding,) = stage.end()
    assert finding.lines == (1, 3)


def test_an_arrival_is_ordered_before_the_wait_and_not_the_other_way() -> None:
    stage = Stage()
    position = stage.positions[0]
    stage.write(0)
    stage.detector.release(position, np.arange(32), stage.line("bar"), ("bar", 1))
    stage.write(0, 8)
    stage.write(40, 4)
    stage.barrier(range(32, THREADS))
    stage.detector.acquire(position, np.arange(32, THREADS), stage.line("bar"), ("bar", 1))
    stage.read(40)
    stage.read(0, 4)
    stage.read(41, 8)
    assert sorted(finding.lines for finding in stage.end()) == [(3, 9), (4, 8)]


def test_any_common_byte_races() -> None:
    stage = Stage()
    stage.write(0, 6, width=2)
    stage.write(40, 0, width=8)
    stage.read(41, 7, width=1)
    assert sorted(finding.lines for finding in stage.end()) == [(1, 2), (1, 3), (2, 3)]


def test_bytes_beside_each_other_do_not_race() -> None:
    stage = Stage()
    stage.write([0, 1, 2, 3], [0, 1, 2, 3], width=1, value=[1, 2, 3, 4])
    stage.read(40, 4)
    assert not stage.end()


def test_one_store_of_different_values_races_and_of_one_value_does_not() -> None:
    stage = Stage()
    stage.write([0, 40], 0, value=5)
    stage.write([0, 40], 4, value=[5, 6])
    (finding,) = stage.end()
    assert finding.lines == (2, 2)
    assert "between two threads at line 2" in finding.missing


def test_a_middle_thread_with_the_only_other_value_is_seen() -> None:
    stage = Stage()
    stage.write(5, value=0)
    stage.write([0, 1, 5], value=[0, 1, 1])
    assert (1, 2) in [finding.lines for finding in stage.end()]


def test_atomics_do_not_race_with_each_other() -> None:
    stage = Stage()
    stage.update(list(range(THREADS)))
    stage.update([1, 50])
    assert not stage.end()


def test_atomics_race_with_plain_accesses() -> None:
    stage = Stage()
    stage.update(list(range(THREADS)))
    stage.update([1, 50])
    stage.read(5)
    assert sorted(finding.lines for finding in stage.end()) == [(1, 3), (2, 3)]


def test_atomics_of_different_widths_race() -> None:
    stage = Stage()
    stage.update(0, 0, width=8)
    stage.update(40, 4, width=4)
    (finding,) = stage.end()
    assert "do not overlap completely" in finding.missing


@pytest.mark.parametrize(("scope", "missing"), [("cta", ["scope cta at line 1 does not include CTA 1"]), ("gpu", [])])
def test_atomics_need_a_scope_that_includes_the_other_cta(scope: str, missing: list[str]) -> None:
    stage = Stage(cta(0), cta(1))
    stage.update(0, space="global", scope=scope)
    stage.update(0, at=1, space="global", scope="sys")
    assert [finding.missing for finding in stage.end()] == missing


@pytest.mark.parametrize(("scope", "racing"), [("gpu", True), ("sys", False)])
def test_atomics_of_two_ranks_need_system_scope(scope: str, racing: bool) -> None:
    stage = Stage(cta(0), cta(0, rank=1), ranks=2)
    stage.update(0, space="global", scope="sys")
    stage.update(0, at=1, space="global", scope=scope)
    findings = stage.end()
    assert bool(findings) == racing
    assert all("scope gpu at line 2 does not include rank 0" in finding.missing for finding in findings)


@pytest.mark.parametrize(("scope", "racing"), [("cta", True), ("cluster", False)])
def test_a_cluster_is_a_scope(scope: str, racing: bool) -> None:
    stage = Stage(cta(0, cluster=0), cta(1, cluster=0))
    stage.update(0, scope=scope)
    stage.update(0, at=1, scope="gpu")
    assert bool(stage.end()) == racing


def pass_message(
    stage: Stage, *, release: str = "release", acquire: str = "acquire", scope: str = "sys", reader_scope: str = "sys"
) -> list[Finding]:
    """Write data, set a flag, and read both in the CTA at place 1."""
    stage.write(0, 128, space="global")
    stage.write(0, 0, space="global", order=release, scope=scope)
    stage.read(5, 0, at=1, space="global", order=acquire, scope=reader_scope)
    stage.read(5, 128, at=1, space="global")
    return stage.end()


def test_release_and_acquire_order_two_ranks() -> None:
    assert not pass_message(Stage(cta(0), cta(0, rank=1), ranks=2))


@pytest.mark.parametrize(
    "details", [{"release": "relaxed"}, {"acquire": "relaxed"}, {"scope": "gpu"}, {"reader_scope": "gpu"}]
)
def test_a_flag_that_is_too_weak_orders_nothing(details: dict[str, str]) -> None:
    findings = pass_message(Stage(cta(0), cta(0, rank=1), ranks=2), **details)
    assert (1, 4) in [finding.lines for finding in findings]
    data = next(finding for finding in findings if finding.lines == (1, 4))
    assert data.missing == "no chain of release.sys to acquire.sys between rank 0 and rank 1"


def test_a_plain_flag_orders_nothing_and_races_itself() -> None:
    findings = pass_message(Stage(cta(0), cta(1)), release="weak", acquire="acquire")
    assert sorted(finding.lines for finding in findings) == [(1, 4), (2, 3)]


def pass_by_fences(stage: Stage, *, scope: str = "sys", fencer: int = 0) -> list[tuple[int, ...]]:
    """Pass a message with relaxed accesses and fences."""
    stage.write(0, 128, space="global")
    stage.fence(fencer, scope)
    stage.write(0, 0, space="global", order="relaxed", scope="sys")
    stage.read(5, 0, at=1, space="global", order="relaxed", scope="sys")
    stage.fence(5, "sys", at=1)
    stage.read(5, 128, at=1, space="global")
    return [finding.lines for finding in stage.end()]


def test_fences_make_relaxed_accesses_a_release_and_an_acquire() -> None:
    two_ranks = cta(0), cta(0, rank=1)
    assert not pass_by_fences(Stage(*two_ranks, ranks=2))
    assert pass_by_fences(Stage(*two_ranks, ranks=2), scope="gpu") == [(1, 6)]
    assert pass_by_fences(Stage(*two_ranks, ranks=2), fencer=1) == [(1, 6)]


@pytest.mark.parametrize(("order", "racing"), [("acquire", True), ("release", False), ("sc", False), ("proxy", True)])
def test_a_fence_releases_as_its_order_says(order: str, racing: bool) -> None:
    stage = Stage(cta(0), cta(1))
    stage.write(0, 128, space="global")
    stage.fence(0, order=order)
    stage.write(0, 0, space="global", order="relaxed")
    stage.read(0, 0, at=1, space="global", order="acquire")
    stage.read(0, 128, at=1, space="global")
    assert bool(stage.end()) == racing


def test_a_fence_of_every_thread_before_a_barrier_does_not_release_what_the_barrier_hands_on() -> None:
    """The storing thread needs a fence after the barrier: PTX ISA, "Release and acquire patterns"."""
    stage = Stage(cta(0), cta(1))
    stage.write(40, 128, space="global")
    for thread in (0, 40):
        stage.fence(thread)
    stage.barrier()
    stage.write(0, 0, space="global", order="relaxed")
    stage.read(0, 0, at=1, space="global", order="acquire")
    stage.read(0, 128, at=1, space="global")
    assert [finding.lines for finding in stage.end()] == [(1, 7)]


def test_a_release_covers_what_a_barrier_handed_to_its_thread() -> None:
    stage = Stage(cta(0), cta(1))
    stage.write(40, 128, space="global")
    stage.barrier()
    stage.write(0, 0, space="global", order="release")
    stage.read(0, 0, at=1, space="global", order="acquire")
    stage.barrier(at=1)
    stage.read(50, 128, at=1, space="global")
    assert not stage.end()


def test_a_release_does_not_cover_other_threads_without_a_barrier() -> None:
    stage = Stage(cta(0), cta(1))
    stage.write(40, 128, space="global")
    stage.write(0, 0, space="global", order="release")
    stage.read(0, 0, at=1, space="global", order="acquire")
    stage.read(0, 128, at=1, space="global")
    assert [finding.lines for finding in stage.end()] == [(1, 4)]


@pytest.mark.parametrize(("kind", "racing"), [("update", False), ("write", True)])
def test_a_chain_of_atomics_carries_a_release_and_a_store_of_another_thread_ends_it(kind: str, racing: bool) -> None:
    stage = Stage(cta(0), cta(1), cta(2))
    stage.write(0, 128, space="global")
    stage.write(0, 0, space="global", order="release")
    stage.access(kind, 0, 0, at=1, space="global", order="relaxed")
    stage.read(0, 0, at=2, space="global", order="acquire")
    stage.read(0, 128, at=2, space="global")
    assert bool(stage.end()) == racing


def test_a_link_of_a_chain_must_reach_its_neighbours() -> None:
    stage = Stage(cta(0), cta(1), cta(2))
    stage.write(0, 128, space="global")
    stage.write(0, 0, space="global", order="release")
    stage.update(0, 0, at=1, space="global", scope="cta")
    stage.read(0, 0, at=2, space="global", order="acquire")
    stage.read(0, 128, at=2, space="global")
    assert (1, 5) in [finding.lines for finding in stage.end()]


def test_a_link_must_reach_the_release_also_where_the_reader_does() -> None:
    stage = Stage(cta(0), cta(1))
    stage.write(0, 128, space="global")
    stage.write(0, 0, space="global", order="release", scope="cta")
    stage.update(0, 0, at=1, space="global", scope="sys")
    stage.read(40, 0, space="global", order="acquire", scope="sys")
    stage.read(40, 128, space="global")
    assert (1, 5) in [finding.lines for finding in stage.end()]


@pytest.mark.parametrize(("scope", "racing"), [("cta", True), ("gpu", False)])
def test_a_release_lasts_through_strong_stores_of_its_thread_at_its_own_scope(scope: str, racing: bool) -> None:
    stage = Stage(cta(0), cta(1))
    stage.write(0, 128, space="global")
    stage.write(0, 0, space="global", order="release", scope=scope)
    stage.write(0, 0, space="global", order="relaxed", scope="sys")
    stage.read(0, 0, at=1, space="global", order="acquire", scope="sys")
    stage.read(0, 128, at=1, space="global")
    assert ((1, 5) in [finding.lines for finding in stage.end()]) == racing


def test_a_store_after_a_fence_must_itself_reach_the_reader() -> None:
    stage = Stage(cta(0), cta(0, rank=1), ranks=2)
    stage.write(0, 128, space="global")
    stage.fence(0, "sys")
    stage.write(0, 0, space="global", order="relaxed", scope="gpu")
    stage.read(5, 0, at=1, space="global", order="acquire", scope="sys")
    stage.read(5, 128, at=1, space="global")
    assert (1, 5) in [finding.lines for finding in stage.end()]


def test_a_warp_barrier_hands_on_what_one_lane_acquired() -> None:
    stage = Stage(cta(0), cta(1))
    stage.write(0, 128, space="global")
    stage.write(0, 0, space="global", order="release")
    stage.read(3, 0, at=1, space="global", order="acquire")
    stage.warp(range(32), at=1)
    stage.read(5, 128, at=1, space="global")
    assert not stage.end()


@pytest.mark.parametrize("synchronised", [False, True])
def test_a_release_covers_what_a_warp_barrier_handed_to_its_lane(synchronised: bool) -> None:
    stage = Stage(cta(0), cta(1))
    stage.write(5, 128, space="global")
    stage.warp(range(32) if synchronised else range(32, THREADS))
    stage.write(0, 0, space="global", order="release")
    stage.read(0, 0, at=1, space="global", order="acquire")
    stage.read(0, 128, at=1, space="global")
    assert bool(stage.end()) != synchronised


def test_messages_pass_through_a_third_rank() -> None:
    stage = Stage(*(cta(0, rank=rank) for rank in range(3)), ranks=3)
    stage.write(0, 128, space="global")
    stage.write(0, 0, space="global", order="release", scope="sys")
    stage.read(0, 0, at=1, space="global", order="acquire", scope="sys")
    stage.write(0, 64, at=1, space="global", order="release", scope="sys")
    stage.read(0, 64, at=2, space="global", order="acquire", scope="sys")
    stage.write(0, 128, at=2, space="global")
    assert not stage.end()


def test_a_release_of_one_reader_does_not_cover_another() -> None:
    stage = Stage(cta(0), cta(1), cta(2))
    stage.read(0, 128, space="global")
    stage.read(0, 128, at=1, space="global")
    stage.write(0, 0, at=1, space="global", order="release")
    stage.read(0, 0, at=2, space="global", order="acquire")
    stage.write(0, 128, at=2, space="global")
    assert [finding.lines for finding in stage.end()] == [(1, 5)]


def test_reuse_needs_a_release_of_the_reader() -> None:
    for order, racing in (("release", False), ("relaxed", True)):
        stage = Stage(cta(0), cta(1))
        stage.read(0, 128, space="global")
        stage.write(0, 0, space="global", order=order)
        stage.read(0, 0, at=1, space="global", order="acquire")
        stage.write(0, 128, at=1, space="global")
        assert bool(stage.end()) == racing


def test_launches_of_a_rank_follow_one_another() -> None:
    stage = Stage(cta(0), cta(1))
    stage.write(0, space="global")
    for position in stage.positions:
        stage.detector.end(position)
    stage.positions = (cta(0, launch=1),)
    stage.detector.begin(stage.positions[0], KERNEL)
    stage.write(5, space="global", value=9)
    assert not stage.end()


def test_ctas_of_one_launch_race_even_if_they_ran_one_after_the_other() -> None:
    stage = Stage(cta(0))
    stage.write(0, space="global")
    stage.detector.end(stage.positions[0])
    stage.positions = (cta(1),)
    stage.detector.begin(stage.positions[0], KERNEL)
    stage.write(5, space="global", value=9)
    (finding,) = stage.end()
    assert "between CTA 0 and CTA 1" in finding.missing


def test_a_launch_knows_what_an_earlier_one_acquired() -> None:
    stage = Stage(cta(0), cta(0, rank=1), ranks=2)
    stage.write(0, 128, at=1, space="global")
    stage.write(0, 0, at=1, space="global", order="release", scope="sys")
    stage.read(0, 0, space="global", order="acquire", scope="sys")
    stage.detector.end(stage.positions[0])
    stage.positions = (cta(0, launch=1), stage.positions[1])
    stage.detector.begin(stage.positions[0], KERNEL)
    stage.read(40, 128, space="global")
    assert not stage.end()


def test_what_hosts_settle_covers_no_launch_that_still_runs() -> None:
    stage = Stage(cta(0), cta(0, rank=1), ranks=2)
    stage.write(0, at=1, space="global")
    stage.detector.end(stage.positions[1])
    stage.detector.settle()
    stage.detector.begin(cta(0, rank=1, launch=1), KERNEL)
    stage.read(0, space="global")
    (finding,) = stage.end()
    assert finding.lines == (1, 2)


def test_an_earlier_access_by_another_cta_is_seen_after_own_ones() -> None:
    stage = Stage(cta(0), cta(1))
    stage.write(0, 128, space="global")
    stage.barrier()
    stage.write(0, 256, at=1, space="global")
    stage.barrier(at=1)
    stage.read(0, 128, at=1, space="global")
    assert [finding.lines for finding in stage.end()] == [(1, 5)]


@pytest.mark.parametrize("settled", [False, True])
def test_launches_of_two_ranks_are_ordered_by_their_hosts_only(settled: bool) -> None:
    stage = Stage(cta(0), ranks=2)
    stage.write(0, space="global")
    stage.detector.end(stage.positions[0])
    if settled:
        stage.detector.settle()
    stage.positions = (cta(0, rank=1),)
    stage.detector.begin(stage.positions[0], KERNEL)
    stage.read(0, space="global")
    assert bool(stage.end()) != settled


@pytest.mark.parametrize("joined", [False, True])
def test_a_cluster_barrier_orders_distributed_shared_memory(joined: bool) -> None:
    stage = Stage(cta(0, cluster=0), cta(1, cluster=0))
    stage.write(0, owner=0)
    if joined:
        stage.detector.join_cluster(stage.positions, stage.line("barrier"))
    else:
        stage.barrier(at=0)
        stage.barrier(at=1)
    stage.read(5, owner=0, at=1)
    findings = stage.end()
    assert bool(findings) != joined
    assert all("barrier.cluster" in finding.missing for finding in findings)


@pytest.mark.parametrize("joined", [False, True])
def test_shared_memory_ends_with_its_cta(joined: bool) -> None:
    """PTX ISA, "Shared State Space": the memory of a CTA of the cluster must not be accessed after that CTA exited."""
    stage = Stage(cta(0, cluster=0), cta(1, cluster=0))
    stage.read(5, 64, owner=0, at=1)
    stage.read(5, 64, owner=1, at=1)
    if joined:
        stage.detector.join_cluster(stage.positions, stage.line("barrier"))
    for position in stage.positions:
        stage.detector.end(position)
    findings = stage.end()
    assert [finding.missing for finding in findings] == (
        [] if joined else ["no barrier.cluster orders it before the end of CTA 0, and of its shared memory"]
    )


def test_a_cluster_barrier_does_not_cover_a_cta_outside() -> None:
    stage = Stage(cta(0, cluster=0), cta(1, cluster=1), cta(2, cluster=1))
    stage.read(0, 128, space="global")
    stage.read(0, 128, at=1, space="global")
    stage.barrier()
    stage.detector.join_cluster(stage.positions[1:], stage.line("barrier"))
    stage.write(0, 128, at=2, space="global")
    assert [finding.lines for finding in stage.end()] == [(1, 5)]


def test_a_cluster_barrier_does_not_cover_what_follows_it() -> None:
    stage = Stage(cta(0, cluster=0), cta(1, cluster=0))
    stage.detector.join_cluster(stage.positions, stage.line("barrier"))
    stage.write(0, 128, space="global")
    stage.read(0, 128, at=1, space="global")
    assert [finding.lines for finding in stage.end()] == [(2, 3)]


def test_shared_memory_of_two_ctas_is_not_the_same() -> None:
    stage = Stage(cta(0), cta(1))
    stage.write(0, owner=0)
    stage.write(0, owner=1, at=1, value=8)
    assert not stage.end()


def test_a_long_interval_forgets_nothing_that_a_thread_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "LIMIT", 2)
    stage = Stage()
    stage.write(40)
    for thread in range(1, 6):
        stage.barrier(range(32))
        stage.barrier(range(32, THREADS))
        stage.write(thread, 64)
    stage.read(0)
    assert [finding.lines for finding in stage.end()] == [(1, 17)]


@pytest.mark.parametrize("first", ["write", "read"])
def test_the_verdict_does_not_depend_on_which_access_ran_first(first: str) -> None:
    stage = Stage()
    write, read = stage.line("write"), stage.line("read")
    for kind in ("write", "read") if first == "write" else ("read", "write"):
        stage.access(kind, 3 if kind == "write" else 40, instruction=write if kind == "write" else read)
    (finding,) = stage.end()
    assert [actor.action for actor in finding.actors] == ["writes", "reads"]


@pytest.mark.parametrize("distance", [1 << 16, 1 << 44])
def test_global_memory_is_told_apart_however_far_it_lies_apart(distance: int) -> None:
    stage = Stage()
    stage.write([0, 33], [64, 64 + distance], space="global")
    stage.read([0, 34], [64, 64 + distance], space="global")
    (finding,) = stage.end()
    assert finding.place == f"{hex(64 + distance)}, 4 bytes"


def test_two_instructions_are_reported_once() -> None:
    stage = Stage()
    store = stage.line("write")
    for _ in range(3):
        stage.write([0, 40], value=[1, 2], instruction=store)
        stage.barrier()
    assert len(stage.end()) == 1


def test_a_finding_names_threads_lines_and_the_command_that_repeats_it() -> None:
    stage = Stage(cta(2))
    stage.write(3, owner=2)
    stage.read(40, owner=2)
    text = str(stage.end()[0])
    assert "shared byte 0, 4 bytes" in text
    assert "rank 0 CTA 2 warp 1 lane 8 (thread 40)" in text
    assert "PTX line 2: read at kernel.py:20" in text
    assert "replay: tiebreak ptx kernel.ptx" in text


def test_a_location_names_the_calls_that_it_was_inlined_at() -> None:
    inner = Location("/src/lists.py", 5, 0, Location("rows.py", 9, 0, Location("kernel.py", 30)))
    assert describe_location(inner) == "lists.py:5, inlined at rows.py:9, inlined at kernel.py:30"
    deep = Location("a.py", 1)
    for line in range(9):
        deep = Location("b.py", line + 1, 0, deep)
    assert describe_location(deep).count("inlined at") == 3
    assert describe_location(deep).endswith("and 6 more calls")
    assert describe_location(None) == ""


def test_a_rank_outside_the_world_is_refused() -> None:
    with pytest.raises(InputError, match="rank"):
        RaceDetector(ranks=1).begin(cta(0, rank=1), KERNEL)
