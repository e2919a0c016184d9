"""Execution of PTX: divergence, barriers, warp instructions, atomics, clusters, asynchronous copies, deadlocks."""

from __future__ import annotations

import numpy as np
import pytest

from tiebreak.errors import InputError
from tiebreak.sim.ptx.findings import FindingError
from tiebreak.sim.ptx.fragments import run_fragment as run
from tiebreak.sim.ptx.races import RaceDetector
from tiebreak.sim.ptx.recording import Recorder

STORE = "cvt.u64.u32 %rd30, %r30; shl.b64 %rd30, %rd30, 2; add.s64 %rd30, %rd31, %rd30; st.global.b32 [%rd30], {value};"
"""Stores a value at place %r30 of the array at %rd31."""

HEAD = "ld.param.b64 %rd31, [p0]; mov.u32 %r30, %tid.x;"


def store(value: str) -> str:
    """Return the code that stores a register of each thread at its place."""
    return STORE.format(value=value)


def output(size: int = 32) -> np.ndarray:
    return np.full(size, -1, np.int32)


def test_diverged_threads_keep_their_registers() -> None:
    out = output(64)
    run(
        f"""{HEAD}
        mov.b32 %r1, 7; mov.b32 %r2, 100;
        and.b32 %r3, %r30, 1; setp.eq.b32 %p1, %r3, 0;
        @%p1 bra EVEN;
        mov.b32 %r1, 1; mul.lo.s32 %r2, %r30, 2; bra.uni JOIN;
        EVEN: add.s32 %r2, %r2, %r30;
        JOIN: add.s32 %r4, %r1, %r2; {store("%r4")} ret;""",
        [out],
        block=64,
    )
    threads = np.arange(64)
    assert (out == np.where(threads % 2, 1 + 2 * threads, 107 + threads)).all()


def test_a_loop_runs_as_often_as_each_thread_asks() -> None:
    out = output(48)
    report = run(
        f"""{HEAD}
        mov.b32 %r1, 0; mov.b32 %r2, 0;
        LOOP: setp.ge.u32 %p1, %r1, %r30; @%p1 bra DONE;
        add.s32 %r2, %r2, %r1; add.s32 %r1, %r1, 1; bra.uni LOOP;
        DONE: {store("%r2")} ret;""",
        [out],
        block=48,
    )
    threads = np.arange(48)
    assert (out == threads * (threads - 1) // 2).all()
    # Each thread runs 5 instructions around the loop and 5 per turn but for the last, and nothing for its neighbours.
    assert report.thread_instructions == 48 * (4 + 2 + 5) + 5 * int(threads.sum())


def test_guards_hold_thread_by_thread() -> None:
    out = output()
    run(
        f"""{HEAD}
        mov.b32 %r1, 5; setp.lt.u32 %p1, %r30, 10;
        @%p1 add.s32 %r1, %r1, %r30; @!%p1 mov.b32 %r1, 0;
        {store("%r1")} ret;""",
        [out],
    )
    threads = np.arange(32)
    assert (out == np.where(threads < 10, 5 + threads, 0)).all()


def test_an_instruction_may_write_its_own_guard() -> None:
    out = output()
    run(
        f"""{HEAD} setp.lt.u32 %p1, %r30, 20; @%p1 setp.ge.u32 %p1, %r30, 10;
        selp.b32 %r1, 1, 0, %p1; {store("%r1")} ret;""",
        [out],
    )
    threads = np.arange(32)
    assert (out == ((threads >= 10) & (threads < 20))).all()


def test_some_threads_exit_early() -> None:
    out = output()
    run(f"{HEAD} setp.ge.u32 %p1, %r30, 20; @%p1 exit; {store('%r30')} ret;", [out])
    assert (out == np.where(np.arange(32) < 20, np.arange(32), -1)).all()


def test_special_registers_in_three_dimensions() -> None:
    out = output(2 * 24)
    run(
        f"""ld.param.b64 %rd31, [p0];
        mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.y;
        mad.lo.s32 %r30, %r3, 3, %r2; mad.lo.s32 %r30, %r30, 4, %r1; mad.lo.s32 %r30, %r4, 24, %r30;
        mov.u32 %r5, %laneid; mov.u32 %r6, %nctaid.y; mad.lo.s32 %r5, %r6, 100, %r5;
        {store("%r5")} ret;""",
        [out],
        grid=(1, 2),
        block=(4, 3, 2),
    )
    assert (out == 200 + np.tile(np.arange(24), 2)).all()


@pytest.mark.parametrize("schedule", ["lockstep", "ahead:1", "behind:0", "random:7"])
def test_a_barrier_orders_all_warps(schedule: str) -> None:
    out, recorder = output(128), Recorder()
    run(
        f"""{HEAD} .shared .align 4 .b8 words[512];
        shl.b32 %r1, %r30, 2; mov.b32 %r2, words; add.s32 %r3, %r2, %r1; st.shared.b32 [%r3], %r30;
        bar.sync 0;
        xor.b32 %r4, %r1, 384; add.s32 %r4, %r2, %r4; ld.shared.b32 %r5, [%r4]; {store("%r5")} ret;""",
        [out],
        block=128,
        schedule=schedule,
        observer=recorder,
    )
    assert (out == np.arange(128) ^ 96).all()
    assert [event for event in recorder.events if event[0] == "synchronise"] == [
        ("synchronise", "cta", list(range(128)))
    ]
    assert recorder.events[0] == ("begin", 0)
    assert recorder.events[-1] == ("end", 0)


def test_named_barriers_with_counts_pass_values_one_way() -> None:
    out, detector = output(64), RaceDetector()
    run(
        f"""{HEAD} .shared .align 4 .b8 words[256];
        shl.b32 %r1, %r30, 2; mov.b32 %r2, words; add.s32 %r3, %r2, %r1;
        setp.ge.u32 %p1, %r30, 32; @%p1 bra CONSUMER;
        add.s32 %r4, %r30, 1000; st.shared.b32 [%r3], %r4; bar.arrive 3, 64; bra.uni DONE;
        CONSUMER: bar.sync 3, 64; ld.shared.b32 %r4, [%r3+-128]; {store("%r4")}
        DONE: ret;""",
        [out],
        block=64,
        schedule="ahead:1",
        observer=detector,
    )
    assert (out[32:] == 1000 + np.arange(32)).all()
    assert detector.findings == []


def test_bar_red_counts_and_decides() -> None:
    out = output(64)
    run(
        f"""{HEAD} setp.lt.u32 %p1, %r30, 40;
        bar.red.popc.u32 %r1, 1, %p1; bar.red.and.pred %p2, 1, %p1; bar.red.or.pred %p3, 1, !%p1;
        selp.b32 %r2, 100, 0, %p2; selp.b32 %r3, 1000, 0, %p3; add.s32 %r1, %r1, %r2; add.s32 %r1, %r1, %r3;
        {store("%r1")} ret;""",
        [out],
        block=64,
    )
    assert (out == 1040).all()


def test_lanes_wait_for_each_other_at_a_shuffle() -> None:
    out = output()
    run(
        f"""{HEAD} mov.b32 %r1, 0; setp.lt.u32 %p1, %r30, 16; @%p1 bra LOW;
        mul.lo.s32 %r2, %r30, 3; bra.uni MEET;
        LOW: mul.lo.s32 %r2, %r30, 5;
        MEET: shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1; {store("%r1")} ret;""",
        [out],
    )
    partner = np.arange(32) ^ 16
    assert (out == np.where(partner < 16, 5 * partner, 3 * partner)).all()


def test_half_warps_shuffle_apart() -> None:
    out, recorder = output(), Recorder()
    run(
        f"""{HEAD} setp.lt.u32 %p1, %r30, 16; @%p1 bra LOW;
        shfl.sync.bfly.b32 %r1, %r30, 1, 31, 0xFFFF0000; bra.uni DONE;
        LOW: shfl.sync.idx.b32 %r1, %r30, 3, 31, 0xFFFF;
        DONE: {store("%r1")} ret;""",
        [out],
        observer=recorder,
    )
    threads = np.arange(32)
    assert (out == np.where(threads < 16, 3, threads ^ 1)).all()
    assert recorder.findings == []


def test_lanes_at_two_shuffles_never_meet() -> None:
    with pytest.raises(FindingError) as raised:
        run(
            """mov.u32 %r30, %tid.x; setp.lt.u32 %p1, %r30, 16; @%p1 bra LOW;
            shfl.sync.bfly.b32 %r1, %r30, 1, 31, -1; ret;
            LOW: shfl.sync.bfly.b32 %r1, %r30, 1, 31, -1; ret;"""
        )
    assert raised.value.finding.kind == "warp-mask"
    assert len(raised.value.finding.actors) == 2


def test_a_mask_that_misses_its_caller_is_reported() -> None:
    recorder = Recorder()
    run("mov.u32 %r30, %tid.x; redux.sync.add.u32 %r1, %r30, 0xFF; ret;", observer=recorder)
    assert {finding.kind for finding in recorder.findings} == {"warp-mask"}


def test_warp_barriers_are_told_by_mask() -> None:
    recorder = Recorder()
    run(
        """mov.u32 %r30, %tid.x; setp.lt.u32 %p1, %r30, 16; selp.b32 %r1, 0xFFFF, 0xFFFF0000, %p1;
        bar.warp.sync %r1; bar.warp.sync -1; ret;""",
        observer=recorder,
    )
    told = [event[2] for event in recorder.events if event[0] == "synchronise"]
    assert sorted(map(len, told)) == [16, 16, 32]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("atom.shared.add.u32 %r5, [%r2], 3;", lambda t: 3 * t),
        ("atom.shared.inc.u32 %r5, [%r2], 9;", lambda t: t % 10),
        ("atom.shared.max.s32 %r5, [%r2], %r30;", lambda t: np.maximum(t - 1, 0)),
        ("atom.shared.exch.b32 %r5, [%r2], %r30;", lambda t: np.maximum(t - 1, 0)),
        ("atom.shared.cas.b32 %r5, [%r2], %r30, %r6;", lambda t: t),
        ("atom.shared.xor.b32 %r5, [%r2], 1;", lambda t: t % 2),
        ("atom.shared.dec.u32 %r5, [%r2], 5;", lambda t: np.where(t == 0, 0, (6 - t) % 6)),
    ],
)
def test_equal_addresses_are_updated_in_the_order_of_threads(operation: str, expected: object) -> None:
    out = output(64)
    run(
        f"""{HEAD} .shared .align 4 .b8 word[4];
        mov.b32 %r2, word; st.shared.b32 [%r2], 0; bar.sync 0; add.s32 %r6, %r30, 1;
        {operation} {store("%r5")} ret;""",
        [out],
        block=64,
    )
    assert (out == expected(np.arange(64))).all()  # type: ignore[operator]


def test_reductions_of_many_addresses() -> None:
    out = np.zeros(4, np.int32)
    run(
        """ld.param.b64 %rd31, [p0]; mov.u32 %r30, %tid.x; and.b32 %r1, %r30, 3; mul.wide.u32 %rd1, %r1, 4;
        add.s64 %rd1, %rd31, %rd1; red.global.add.u32 [%rd1], %r30; red.global.max.s32 [%rd1], %r1; ret;""",
        [out],
        block=64,
    )
    assert (out == [sum(range(rest, 64, 4)) for rest in range(4)]).all()


def test_ctas_that_wait_for_later_ones_let_them_run() -> None:
    flags, recorder = np.zeros(4, np.int32), Recorder()
    run(
        """ld.param.b64 %rd1, [p0]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;
        setp.eq.u32 %p1, %r1, 3; @%p1 bra DONE;
        POLL: ld.acquire.gpu.global.b32 %r2, [%rd2+4]; setp.eq.u32 %p2, %r2, 0; @%p2 bra POLL;
        DONE: st.release.gpu.global.b32 [%rd2], 1; ret;""",
        [flags],
        grid=4,
        block=1,
        observer=recorder,
    )
    assert (flags == 1).all()
    assert [event[1] for event in recorder.events if event[0] == "end"] == [3, 2, 1, 0]


def test_threads_of_one_warp_that_poll_let_others_run() -> None:
    out = np.zeros(2, np.int32)
    run(
        """ld.param.b64 %rd1, [p0]; mov.u32 %r30, %tid.x; setp.ne.u32 %p1, %r30, 0; @%p1 bra LATER;
        POLL: ld.relaxed.cta.global.b32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra POLL; ret;
        LATER: st.relaxed.cta.global.b32 [%rd1], 1; ret;""",
        [out],
    )
    assert out[0] == 1


def test_a_poll_that_nothing_ends_is_a_deadlock() -> None:
    with pytest.raises(FindingError) as raised:
        run(
            """ld.param.b64 %rd1, [p0];
            POLL: ld.relaxed.gpu.global.b32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra POLL; ret;""",
            [np.zeros(1, np.int32)],
            spins=50,
        )
    assert raised.value.finding.kind == "deadlock"


def test_an_endless_loop_ends_with_the_budget() -> None:
    with pytest.raises(FindingError) as raised:
        run("LOOP: add.s32 %r1, %r1, 1; bra.uni LOOP;", steps=100)
    assert raised.value.finding.kind == "budget"


def test_a_barrier_that_not_all_threads_reach() -> None:
    with pytest.raises(FindingError) as raised:
        run("mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 64; @%p1 exit; bar.sync 0; ret;", block=96)
    finding = raised.value.finding
    assert finding.kind == "barrier-not-reached"
    assert "32 threads of CTA 0 exited" in finding.missing
    assert "64 threads of warps 0 to 1" in finding.place


def test_lanes_of_one_warp_at_two_barriers() -> None:
    with pytest.raises(FindingError) as raised:
        run(
            """mov.u32 %r1, %tid.x; and.b32 %r1, %r1, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra EVEN;
            bar.sync 0; ret; EVEN: bar.sync 0; ret;"""
        )
    assert raised.value.finding.kind == "divergent-barrier"


@pytest.mark.parametrize("text", ["bar.sync 0, 33;", "bar.sync 16;", "bar.sync 1, %r1;"])
def test_barriers_that_cannot_be(text: str) -> None:
    with pytest.raises(FindingError) as raised:
        run(
            f"mov.u32 %r1, %tid.x; shr.u32 %r1, %r1, 5; add.s32 %r1, %r1, 1; shl.b32 %r1, %r1, 5; {text} ret;", block=64
        )
    assert raised.value.finding.kind == "divergent-barrier"


def test_a_trap_ends_the_execution() -> None:
    with pytest.raises(FindingError) as raised:
        run("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 5; @%p1 trap; ret;")
    assert raised.value.finding.kind == "trap"
    assert raised.value.finding.actors[0].thread == 5


def test_an_indexed_branch() -> None:
    out = output()
    run(
        f"""{HEAD} and.b32 %r1, %r30, 3; mov.b32 %r2, 0;
        TABLE: .branchtargets ZERO, ONE, TWO, THREE;
        brx.idx %r1, TABLE;
        THREE: add.s32 %r2, %r2, 1000;
        TWO: add.s32 %r2, %r2, 100;
        ONE: add.s32 %r2, %r2, 10;
        ZERO: add.s32 %r2, %r2, 1; {store("%r2")} ret;""",
        [out],
    )
    assert (out == np.array([1, 11, 111, 1111])[np.arange(32) % 4]).all()


CLUSTER = """ld.param.b64 %rd31, [p0]; .shared .align 4 .b8 words[512];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %ctaid.x;
    shl.b32 %r30, %r3, 7; add.s32 %r30, %r30, %r1;
    mov.b32 %r5, words; shl.b32 %r6, %r1, 2; add.s32 %r7, %r5, %r6; st.shared.b32 [%r7], %r30;
    {first}
    xor.b32 %r9, %r2, 1; mapa.shared::cluster.u32 %r4, %r7, %r9; ld.shared::cluster.b32 %r8, [%r4];
    {second} {store} ret;"""
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


@pytest.mark.parametrize("schedule", ["lockstep", "ahead:3", "random:1"])
def test_a_cluster_shares_its_memory(schedule: str) -> None:
    out, detector = output(512), RaceDetector()
    body = CLUSTER.format(first=MEET, second=MEET, store=store("%r8"))
    run(body, [out], grid=4, block=128, cluster=2, schedule=schedule, observer=detector)
    assert (out == np.arange(512) ^ 128).all()
    assert detector.findings == []


def test_a_cluster_barrier_that_is_missing_is_a_race() -> None:
    detector = RaceDetector()
    run(CLUSTER.format(first="", second=MEET, store=store("%r8")), [output(512)], grid=4, block=128, cluster=2,
        observer=detector)  # fmt: skip
    assert "race" in {finding.kind for finding in detector.findings}


COPY = """ld.param.b64 %rd1, [p0]; ld.param.b64 %rd31, [p1]; mov.u32 %r30, %tid.x; .shared .align 16 .b8 words[2048];
    mul.wide.u32 %rd2, %r30, 16; add.s64 %rd3, %rd1, %rd2; shl.b32 %r1, %r30, 4; mov.b32 %r2, words;
    add.s32 %r3, %r2, %r1; setp.lt.u32 %p1, %r30, 100; selp.b32 %r4, 16, 0, %p1;
    cp.async.cg.shared.global [%r3], [%rd3], 16, %r4; cp.async.commit_group;
    {wait} bar.sync 0; xor.b32 %r5, %r1, 16; add.s32 %r5, %r2, %r5; ld.shared.b32 %r6, [%r5]; {store} ret;"""


@pytest.mark.parametrize("wait", ["cp.async.wait_group 0;", "cp.async.wait_all;"])
def test_asynchronous_copies_are_complete_after_a_wait(wait: str) -> None:
    words, out, detector = np.arange(512, dtype=np.int32), output(128), RaceDetector()
    run(COPY.format(wait=wait, store=store("%r6")), [words, out], block=128, observer=detector)
    partner = np.arange(128) ^ 1
    assert (out == np.where(partner < 100, 4 * partner, 0)).all()
    assert detector.findings == []


@pytest.mark.parametrize("wait", ["", "cp.async.wait_group 1;"])
def test_asynchronous_copies_are_not_complete_without_a_wait(wait: str) -> None:
    words, out, detector = np.arange(512, dtype=np.int32), output(128), RaceDetector()
    run(COPY.format(wait=wait, store=store("%r6")), [words, out], block=128, observer=detector)
    assert {finding.kind for finding in detector.findings} == {"race", "uninitialised"}


@pytest.mark.parametrize("schedule", ["lockstep", "ahead:3", "random:4"])
def test_bulk_copies_signal_an_mbarrier(schedule: str) -> None:
    words, out, detector = np.arange(128, dtype=np.int32), output(128), RaceDetector()
    run(
        f"""ld.param.b64 %rd1, [p0]; ld.param.b64 %rd31, [p1]; mov.u32 %r30, %tid.x;
        .shared .align 128 .b8 words[512]; .shared .align 8 .b8 full[8]; mov.b32 %r5, words; mov.b32 %r6, full;
        setp.ne.u32 %p1, %r30, 0; @%p1 bra FIRST;
        mbarrier.init.shared::cta.b64 [%r6], 1; fence.mbarrier_init.release.cluster;
        FIRST: bar.sync 0; @%p1 bra POLL;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 512;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], 512, [%r6];
        POLL: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r6], 0; @!%p2 bra POLL;
        shl.b32 %r7, %r30, 2; add.s32 %r7, %r7, %r5; ld.shared.b32 %r3, [%r7]; {store("%r3")} ret;""",
        [words, out],
        block=128,
        schedule=schedule,
        observer=detector,
    )
    assert (out == words).all()
    assert detector.findings == []


def test_a_gate_sees_every_access_of_global_memory_with_its_operands() -> None:
    seen = []
    data = np.zeros(32, np.int32)
    run(
        """ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;
        st.global.b32 [%rd2], %r1; atom.global.add.u32 %r2, [%rd1], 2; ld.global.b32 %r3, [%rd2]; ret;""",
        [data],
        gate=lambda access, operands: seen.append((access.kind, len(operands), int(data.sum()))),
    )
    total = sum(range(32))
    assert seen == [("write", 1, 0), ("update", 1, total), ("read", 0, total + 64)]


def test_shapes_that_do_not_suit_the_kernel() -> None:
    with pytest.raises(InputError, match="requires"):
        run("ret;", block=32, directives=".reqntid 64, 1, 1")
    with pytest.raises(InputError, match="whole clusters"):
        run("ret;", grid=3, cluster=2)
    with pytest.raises(InputError, match="number of arguments"):
        run("ret;", [1], kinds=["u32", "u32"])


def test_elements_that_nothing_uses_are_not_read() -> None:
    recorder = Recorder()
    run(
        """ld.param.b64 %rd1, [p0];
        ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1]; st.global.v2.b32 [%rd1+16], {%r2, %r3};
        ld.global.v4.b32 {_, %r5, %r6, _}, [%rd1]; st.global.b32 [%rd1+24], %r6; ret;""",
        [np.zeros(8, np.int32)],
        block=1,
        observer=recorder,
    )
    base = int(recorder.accesses[1].addresses[0]) - 16
    told = [(int(access.addresses[0]) - base, access.width, access.elements) for access in recorder.accesses]
    assert told == [(4, 8, 2), (16, 8, 2), (8, 4, 1), (24, 4, 1)]


def test_a_comparison_that_fails_only_reads() -> None:
    recorder, word = Recorder(), np.zeros(1, np.int32)
    run(
        """ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x; add.s32 %r2, %r1, 1;
        atom.acq_rel.gpu.global.cas.b32 %r3, [%rd1], 0, %r2; ret;""",
        [word],
        observer=recorder,
    )
    assert word[0] == 1
    assert [(access.kind, access.threads.tolist()) for access in recorder.accesses] == [
        ("update", [0]),
        ("read", list(range(1, 32))),
    ]
