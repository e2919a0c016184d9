"""Schedules of warps: deterministic, repeatable, and able to turn a race into a wrong output."""

from __future__ import annotations

import numpy as np
import pytest

from tiebreak.errors import InputError
from tiebreak.sim.ptx.fragments import run_fragment as run
from tiebreak.sim.ptx.recording import Recorder
from tiebreak.sim.ptx.schedules import FORMS, make_schedule

PASS = """ld.param.b64 %rd31, [p0]; .shared .align 4 .b8 words[512];
    mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.b32 %r3, words; add.s32 %r4, %r3, %r2;
    st.shared.b32 [%r4], 0; bar.sync 0; add.s32 %r5, %r1, 1; st.shared.b32 [%r4], %r5; {barrier}
    add.s32 %r6, %r2, 32; and.b32 %r6, %r6, 511; add.s32 %r6, %r3, %r6; ld.shared.b32 %r7, [%r6];
    mul.wide.u32 %rd1, %r1, 4; add.s64 %rd1, %rd31, %rd1; st.global.b32 [%rd1], %r7; ret;"""
"""Each thread reads what the thread eight places on wrote."""

SCHEDULES = ["ahead:0", "ahead:3", "behind:0", "behind:2", "random:1", "random:2", "pct:4", "round-robin", "replay:-"]


def pass_values(schedule: str, barrier: str) -> np.ndarray:
    out = np.full(128, -1, np.int32)
    run(PASS.format(barrier=barrier), [out], block=128, schedule=schedule, observer=Recorder())
    return out


def order_of_warps(schedule: str) -> list[int]:
    recorder = Recorder()
    out = np.zeros(128, np.int32)
    run(PASS.format(barrier="bar.sync 0;"), [out], block=128, schedule=schedule, observer=recorder)
    return [int(access.threads[0]) // 32 for access in recorder.accesses]


@pytest.mark.parametrize("schedule", ["lockstep", *SCHEDULES])
def test_a_correct_kernel_is_right_in_every_order(schedule: str) -> None:
    assert (pass_values(schedule, "bar.sync 0;") == (np.arange(128) + 8) % 128 + 1).all()


def test_lockstep_hides_a_race_that_an_adversarial_order_shows() -> None:
    right = (np.arange(128) + 8) % 128 + 1
    assert (pass_values("lockstep", "") == right).all()
    ahead = pass_values("ahead:0", "")
    assert (ahead[:24] == right[:24]).all()
    assert (ahead[24:32] == 0).all()
    behind = pass_values("behind:0", "")
    assert (behind[120:] == 0).all()
    assert (behind[:32] == right[:32]).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_repeats_its_order(schedule: str) -> None:
    assert order_of_warps(schedule) == order_of_warps(schedule)


def test_seeds_differ() -> None:
    assert order_of_warps("random:1") != order_of_warps("random:2")


def test_one_warp_runs_as_far_as_barriers_allow() -> None:
    # Two stores up to the second barrier, then a load and a store: the first barrier lets no store but the first pass.
    assert order_of_warps("ahead:2") == [2, 0, 1, 3, 2, 0, 1, 3, 2, 2, 0, 0, 1, 1, 3, 3]
    assert order_of_warps("behind:0")[:4] == [1, 2, 3, 0]


def test_warps_of_several_ctas() -> None:
    out = np.zeros(256, np.int32)
    run(
        """ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; shl.b32 %r3, %r2, 6;
        add.s32 %r3, %r3, %r1; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2; st.global.b32 [%rd3], %r3; ret;""",
        [out],
        grid=4,
        block=64,
        schedule="ahead:1",
    )
    assert (out == np.arange(256)).all()


@pytest.mark.parametrize("schedule", ["ahead:1", "behind:1"])
def test_a_warp_that_polls_lets_the_others_run(schedule: str) -> None:
    out = np.zeros(2, np.int32)
    run(
        """ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 32;
        @%p1 bra WRITE; @%p2 bra POLL; ret;
        POLL: ld.acquire.cta.global.b32 %r2, [%rd1]; setp.eq.u32 %p3, %r2, 0; @%p3 bra POLL;
        st.global.b32 [%rd1+4], %r2; ret;
        WRITE: st.release.cta.global.b32 [%rd1], 7; ret;""",
        [out],
        block=64,
        schedule=schedule,
    )
    assert out.tolist() == [7, 7]


@pytest.mark.parametrize("text", ["", "ahead", "ahead:x", "behind:-1", "dfs:2:10", "default", "lockstep:1", "nearby"])
def test_texts_that_are_no_schedule(text: str) -> None:
    with pytest.raises(InputError, match="schedule"):
        make_schedule(text)


def test_every_form_is_understood() -> None:
    for name in FORMS:
        text = {"ahead": "ahead:1", "behind": "behind:1", "replay": "replay:-"}.get(name, name)
        schedule = make_schedule(text)
        assert (schedule is None) == (name == "lockstep")
