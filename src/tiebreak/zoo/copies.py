"""Kernels that copy: addresses, widths and bounds, asynchronous copies, and barrier objects in memory."""

from __future__ import annotations

import numpy as np

from .blocks import NAMED_BARRIERS, VALUES
from .kernel import SoundKernel, Trial, align_words, draw_words, expect_output


def _row_of_large_tensor() -> Trial:
    """A tile of a tensor whose elements before it are not there: only differences of 64 bits reach it."""
    row, stride = 40_000, 131_072
    values = draw_words(64, 8)
    return expect_output(values, values=values, first=row * stride, row=row, stride=stride)


ROW_OFFSET = SoundKernel(
    name="row-offset",
    summary="the offset of a row is computed in 64 bits",
    parameters={"values": "u64", "first": "u64", "row": "u32", "stride": "u32", "output": "u64"},
    trials={"large": _row_of_large_tensor},
    body="""
    mul.wide.u32 %d_start, %r_row, %r_stride;
    cvt.u64.u32 %d_column, %r_thread;
    add.s64 %d_at, %d_start, %d_column;
    sub.s64 %d_at, %d_at, %d_first;
    shl.b64 %d_at, %d_at, 2;
    add.s64 %d_source, %d_values, %d_at;
    ld.global.u32 %r_value, [%d_source];
    mul.wide.u32 %d_target, %r_thread, 4;
    add.s64 %d_target, %d_output, %d_target;
    st.global.u32 [%d_target], %r_value;
""",
)


def _short_tail() -> Trial:
    values = draw_words(150, 8)
    expected = np.zeros(192, np.uint32)
    expected[:150] = values
    return Trial({"values": values, "length": 150, "output": np.full(192, 9, np.uint32)}, {"output": expected})


TAIL = SoundKernel(
    name="tail",
    summary="threads past the end of a row load nothing",
    parameters={"values": "u64", "length": "u32", "output": "u64"},
    grid=3,
    trials={"ragged": _short_tail},
    body="""
    mad.lo.u32 %r_at, %r_cta, 64, %r_thread;
    mul.wide.u32 %d_offset, %r_at, 4;
    add.s64 %d_source, %d_values, %d_offset;
    setp.lt.u32 %p_inside, %r_at, %r_length;
    mov.u32 %r_value, 0;
    @%p_inside ld.global.u32 %r_value, [%d_source];
    add.s64 %d_target, %d_output, %d_offset;
    st.global.u32 [%d_target], %r_value;
""",
)


def _sliced() -> Trial:
    values = draw_words(260, 8)
    sliced = values[1:257]
    expected = sliced.reshape(64, 4).sum(1, dtype=np.uint32)
    return expect_output(expected, values=sliced)


def _whole() -> Trial:
    aligned = align_words(draw_words(256, 8))
    expected = aligned.reshape(64, 4).sum(1, dtype=np.uint32)
    return expect_output(expected, values=aligned)


VECTOR_LOAD = SoundKernel(
    name="vector-load",
    summary="vectors are loaded where the address is a multiple of their size, elements elsewhere",
    parameters=VALUES,
    trials={"sliced": _sliced, "aligned": _whole},
    body="""
    mul.wide.u32 %d_offset, %r_thread, 16;
    add.s64 %d_source, %d_values, %d_offset;
    and.b64 %d_rest, %d_source, 15;
    setp.ne.u64 %p_unaligned, %d_rest, 0;
    @%p_unaligned bra ELEMENTS;
    ld.global.v4.u32 {%r_a, %r_b, %r_c, %r_d}, [%d_source];
    bra ADD;
ELEMENTS:
    ld.global.u32 %r_a, [%d_source];
    ld.global.u32 %r_b, [%d_source+4];
    ld.global.u32 %r_c, [%d_source+8];
    ld.global.u32 %r_d, [%d_source+12];
ADD:
    add.u32 %r_a, %r_a, %r_b;
    add.u32 %r_c, %r_c, %r_d;
    add.u32 %r_a, %r_a, %r_c;
    mul.wide.u32 %d_target, %r_thread, 4;
    add.s64 %d_target, %d_output, %d_target;
    st.global.u32 [%d_target], %r_a;
""",
)


def _bytes() -> Trial:
    values = draw_words(64, 8) % 251
    packed = values.astype(np.uint8).view(np.uint32)
    return expect_output(packed, values=values)


ADJACENT_BYTES = SoundKernel(
    name="adjacent-bytes",
    summary="threads store neighbouring bytes of a word, which is read as a word after a barrier",
    parameters=VALUES,
    trials={"random": _bytes},
    body=""".shared .align 4 .b8 bytes[68];
    mul.wide.u32 %d_offset, %r_thread, 4;
    add.s64 %d_source, %d_values, %d_offset;
    ld.global.u32 %r_value, [%d_source];
    mov.u32 %r_base, bytes;
    add.u32 %r_slot, %r_base, %r_thread;
    cvt.u16.u32 %h_value, %r_value;
    st.shared.u8 [%r_slot], %h_value;
    bar.sync 0;
    setp.ge.u32 %p_idle, %r_thread, 16;
    @%p_idle bra DONE;
    mad.lo.u32 %r_slot, %r_thread, 4, %r_base;
    ld.shared.u32 %r_value, [%r_slot];
    add.s64 %d_target, %d_output, %d_offset;
    st.global.u32 [%d_target], %r_value;
DONE:""",
)


def _copied() -> Trial:
    values = align_words(draw_words(1024, 8))
    tiles = values.reshape(4, 64, 4)
    total = tiles[:, np.arange(64) ^ 33].sum((0, 2), dtype=np.uint32)
    return expect_output(total, values=values)


ASYNC_PIPELINE = SoundKernel(
    name="async-pipeline",
    summary="cp.async fills one buffer while the other is read: wait, barrier, read, barrier, and fill again",
    parameters=VALUES,
    trials={"random": _copied},
    body=""".shared .align 16 .b32 tiles[512];
    mul.wide.u32 %d_offset, %r_thread, 16;
    add.s64 %d_source, %d_values, %d_offset;
    mov.u32 %r_base, tiles;
    mad.lo.u32 %r_mine, %r_thread, 16, %r_base;
    xor.b32 %r_partner, %r_thread, 33;
    mad.lo.u32 %r_other, %r_partner, 16, %r_base;
    mov.u32 %r_tile, 0;
    mov.u32 %r_sum, 0;
    cp.async.cg.shared.global [%r_mine], [%d_source], 16; // first
    cp.async.commit_group;
TILE:
    and.b32 %r_buffer, %r_tile, 1;
    mad.lo.u32 %r_slot, %r_buffer, 1024, %r_other;
    add.u32 %r_tile, %r_tile, 1;
    setp.ge.u32 %p_last, %r_tile, 4;
    @%p_last bra DRAIN;
    and.b32 %r_buffer, %r_tile, 1;
    mad.lo.u32 %r_fill, %r_buffer, 1024, %r_mine;
    add.s64 %d_source, %d_source, 1024;
    cp.async.cg.shared.global [%r_fill], [%d_source], 16; // next
    cp.async.commit_group;
    cp.async.wait_group 1;
    bra READY;
DRAIN:
    cp.async.wait_group 0;
READY:
    bar.sync 0; // filled
    ld.shared.v4.u32 {%r_a, %r_b, %r_c, %r_d}, [%r_slot];
    add.u32 %r_a, %r_a, %r_b;
    add.u32 %r_c, %r_c, %r_d;
    add.u32 %r_a, %r_a, %r_c;
    add.u32 %r_sum, %r_sum, %r_a;
    bar.sync 0; // emptied
    @!%p_last bra TILE;
    mul.wide.u32 %d_target, %r_thread, 4;
    add.s64 %d_target, %d_output, %d_target;
    st.global.u32 [%d_target], %r_sum;
""",
)


MBARRIER = SoundKernel(
    name="mbarrier",
    summary="a producer warp arrives on a barrier object and a consumer warp waits for the phase's parity",
    parameters=VALUES,
    trials=NAMED_BARRIERS.trials,
    body=""".shared .align 8 .b64 filled;
.shared .align 8 .b64 emptied;
.shared .align 128 .b32 tile[32];
    setp.ne.u32 %p_other, %r_thread, 0;
    @%p_other bra START;
    mbarrier.init.shared.b64 [filled], 32;
    mbarrier.init.shared.b64 [emptied], 32;
START:
    bar.sync 0; // initialised
    mul.wide.u32 %d_offset, %r_lane, 4;
    mov.u32 %r_slot, tile;
    mad.lo.u32 %r_slot, %r_lane, 4, %r_slot;
    mov.u32 %r_tile, 0;
    mov.u32 %r_sum, 0;
    setp.eq.u32 %p_consumer, %r_warp, 1;
    @%p_consumer bra CONSUME;
    add.s64 %d_source, %d_values, %d_offset;
PRODUCE:
    ld.global.u32 %r_value, [%d_source];
    add.u32 %r_parity, %r_tile, 1;
    and.b32 %r_parity, %r_parity, 1;
EMPTY:
    mbarrier.try_wait.parity.shared.b64 %p_done, [emptied], %r_parity; // empty
    @!%p_done bra EMPTY;
    st.shared.u32 [%r_slot], %r_value;
    mbarrier.arrive.shared.b64 _, [filled];
    add.s64 %d_source, %d_source, 128;
    add.u32 %r_tile, %r_tile, 1;
    setp.lt.u32 %p_again, %r_tile, 4;
    @%p_again bra PRODUCE;
    bra DONE;
CONSUME:
    xor.b32 %r_slot, %r_slot, 4;
NEXT:
    and.b32 %r_parity, %r_tile, 1; // phase
FULL:
    mbarrier.try_wait.parity.shared.b64 %p_done, [filled], %r_parity; // full
    @!%p_done bra FULL;
    ld.shared.u32 %r_value, [%r_slot];
    mbarrier.arrive.shared.b64 _, [emptied];
    add.u32 %r_sum, %r_sum, %r_value;
    add.u32 %r_tile, %r_tile, 1;
    setp.lt.u32 %p_again, %r_tile, 4;
    @%p_again bra NEXT;
    xor.b32 %r_lane, %r_lane, 1;
    mul.wide.u32 %d_offset, %r_lane, 4;
    add.s64 %d_target, %d_output, %d_offset;
    st.global.u32 [%d_target], %r_sum;
DONE:""",
)

SOUND = (ROW_OFFSET, TAIL, VECTOR_LOAD, ADJACENT_BYTES, ASYNC_PIPELINE, MBARRIER)
