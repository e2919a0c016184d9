"""Kernels that list candidates: buffers that may be too small, rows that are too short, and padding."""

from __future__ import annotations

import numpy as np

from .blocks import LOAD_VALUE, STORE_SUM, VALUES
from .kernel import SoundKernel, Trial, expect_output


def _crowded() -> Trial:
    """One coarse bin holds more candidates than its buffer."""
    words = np.random.default_rng(5).integers(0, 2**23, 128, dtype=np.uint32) | np.uint32(0x3F800000)
    expected = np.zeros(65, np.uint32)
    expected[0] = 128
    return expect_output(expected, values=words)


def _few() -> Trial:
    words = np.zeros(128, np.uint32)
    words[::4] = np.arange(32, dtype=np.uint32) + np.uint32(0x3F800000)
    expected = np.zeros(65, np.uint32)
    expected[0], expected[1:33] = 32, words[::4]
    return expect_output(expected, values=words, unordered=True)


BOUNDARY_BIN = SoundKernel(
    name="boundary-bin",
    summary="candidates of the boundary bin are listed in a buffer that takes 64; more are counted, and not listed",
    parameters=VALUES,
    threads=128,
    trials={"one-bin": _crowded, "few": _few},
    body=""".shared .align 4 .b32 counter;
.shared .align 16 .b32 listed[64];
"""
    + LOAD_VALUE
    + """
    mov.u32 %r_base, listed;
    setp.eq.u32 %p_leader, %r_thread, 0;
    @%p_leader st.shared.u32 [counter], 0;
    bar.sync 0; // cleared
    shr.u32 %r_bin, %r_value, 23;
    setp.eq.u32 %p_inside, %r_bin, 127;
    @!%p_inside bra JOIN;
    atom.shared.add.u32 %r_slot, [counter], 1;
    setp.lt.u32 %p_fits, %r_slot, 64;
    mad.lo.u32 %r_slot, %r_slot, 4, %r_base;
    @%p_fits st.shared.u32 [%r_slot], %r_value;
JOIN:
    bar.sync 0; // listed
    ld.shared.u32 %r_sum, [counter];
    @%p_leader st.global.u32 [%d_output], %r_sum;
    setp.gt.u32 %p_many, %r_sum, 64;
    @%p_many bra DONE;
    setp.ge.u32 %p_many, %r_thread, %r_sum;
    @%p_many bra DONE;
    mad.lo.u32 %r_slot, %r_thread, 4, %r_base;
    ld.shared.u32 %r_value, [%r_slot];
    add.s64 %d_target, %d_output, %d_offset;
    st.global.u32 [%d_target+4], %r_value;
DONE:""",
)


def _short_row() -> Trial:
    words = np.arange(1, 65, dtype=np.uint32)
    words[:24] = 0
    expected = np.full(64, -1, np.int32)
    expected[24:] = np.arange(24, 64)
    return expect_output(expected, values=words, unordered=True)


SHORT_ROW = SoundKernel(
    name="short-row",
    summary="slots of the output that no candidate takes hold -1 from the start",
    parameters=VALUES,
    threads=64,
    trials={"short": _short_row},
    body=""".shared .align 16 .b32 slots[64];
.shared .align 4 .b32 counter;
"""
    + LOAD_VALUE
    + """
    mov.u32 %r_base, slots;
    mad.lo.u32 %r_mine, %r_thread, 4, %r_base;
    st.shared.u32 [%r_mine], -1; // filled
    setp.eq.u32 %p_leader, %r_thread, 0;
    @%p_leader st.shared.u32 [counter], 0;
    bar.sync 0; // ready
    setp.ne.u32 %p_valid, %r_value, 0;
    @!%p_valid bra JOIN;
    atom.shared.add.u32 %r_slot, [counter], 1;
    mad.lo.u32 %r_slot, %r_slot, 4, %r_base;
    st.shared.u32 [%r_slot], %r_thread;
JOIN:
    bar.sync 0; // taken
    ld.shared.u32 %r_sum, [%r_mine];
"""
    + STORE_SUM,
)


def _gather_selected() -> Trial:
    ids = np.array([7, 3, -1, 12, *[-1] * 28], np.int32)
    table = np.arange(100, 116, dtype=np.uint32)
    expected = np.array([107, 103, 0, 112, *[0] * 28], np.uint32)
    return Trial({"ids": ids, "table": table, "output": np.ones(32, np.uint32)}, {"output": expected})


PADDED_IDS = SoundKernel(
    name="padded-ids",
    summary="a consumer of selected ids leaves out padding, which is -1",
    parameters={"ids": "u64", "table": "u64", "output": "u64"},
    threads=32,
    trials={"padded": _gather_selected},
    body="""
    mul.wide.u32 %d_offset, %r_thread, 4;
    add.s64 %d_source, %d_ids, %d_offset;
    ld.global.u32 %r_id, [%d_source];
    mul.wide.s32 %d_source, %r_id, 4;
    add.s64 %d_source, %d_table, %d_source;
    setp.ge.s32 %p_valid, %r_id, 0;
    mov.u32 %r_sum, 0;
    @%p_valid ld.global.u32 %r_sum, [%d_source];
"""
    + STORE_SUM,
)

SOUND = (BOUNDARY_BIN, SHORT_ROW, PADDED_IDS)
