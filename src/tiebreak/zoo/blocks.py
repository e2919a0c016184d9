"""Kernels of one CTA whose warps hand data over in shared memory at barriers."""

from __future__ import annotations

import numpy as np

from .kernel import SoundKernel, Trial, draw_words, expect_output

VALUES = {"values": "u64", "output": "u64"}

WARP_SCAN = """
    mov.u32 %r_sum, %r_value;
    shfl.sync.up.b32 %r_other|%p_inside, %r_sum, 1, 0, -1;
    @%p_inside add.u32 %r_sum, %r_sum, %r_other;
    shfl.sync.up.b32 %r_other|%p_inside, %r_sum, 2, 0, -1;
    @%p_inside add.u32 %r_sum, %r_sum, %r_other;
    shfl.sync.up.b32 %r_other|%p_inside, %r_sum, 4, 0, -1;
    @%p_inside add.u32 %r_sum, %r_sum, %r_other;
    shfl.sync.up.b32 %r_other|%p_inside, %r_sum, 8, 0, -1;
    @%p_inside add.u32 %r_sum, %r_sum, %r_other;
    shfl.sync.up.b32 %r_other|%p_inside, %r_sum, 16, 0, -1;
    @%p_inside add.u32 %r_sum, %r_sum, %r_other;
"""
"""Inclusive sums of ``%r_value`` over the lanes of a warp, in ``%r_sum``."""

ADD_EARLIER_WARPS = """
    setp.gt.u32 %p_after, %r_warp, 0;
    @%p_after add.u32 %r_sum, %r_sum, %r_total0;
    setp.gt.u32 %p_after, %r_warp, 1;
    @%p_after add.u32 %r_sum, %r_sum, %r_total1;
    setp.gt.u32 %p_after, %r_warp, 2;
    @%p_after add.u32 %r_sum, %r_sum, %r_total2;
"""
"""Adds the totals of the warps before this one, of four, to ``%r_sum``."""

LOAD_VALUE = """
    mul.wide.u32 %d_offset, %r_thread, 4;
    add.s64 %d_source, %d_values, %d_offset;
    ld.global.u32 %r_value, [%d_source];
"""
STORE_SUM = """
    add.s64 %d_target, %d_output, %d_offset;
    st.global.u32 [%d_target], %r_sum;
"""


def _sum_all() -> Trial:
    values = draw_words(128, 1)
    return expect_output(np.full(128, values.sum(), np.uint32), values=values)


BLOCK_SUM = SoundKernel(
    name="block-sum",
    summary="every thread reads the sums of all warps after a barrier",
    parameters=VALUES,
    threads=128,
    trials={"random": _sum_all},
    body=".shared .align 16 .b32 totals[4];"
    + LOAD_VALUE
    + """
    redux.sync.add.u32 %r_sum, %r_value, -1;
    mov.u32 %r_slot, totals;
    mad.lo.u32 %r_slot, %r_warp, 4, %r_slot;
    setp.eq.u32 %p_leader, %r_lane, 0;
    @%p_leader st.shared.u32 [%r_slot], %r_sum;
    bar.sync 0;
    ld.shared.v4.u32 {%r_total0, %r_total1, %r_total2, %r_total3}, [totals];
    add.u32 %r_sum, %r_total0, %r_total1;
    add.u32 %r_sum, %r_sum, %r_total2;
    add.u32 %r_sum, %r_sum, %r_total3;
"""
    + STORE_SUM,
)


def _scan_twice() -> Trial:
    values = draw_words(128, 1)
    return expect_output(values.cumsum(dtype=np.uint32).cumsum(dtype=np.uint32), values=values)


BLOCK_SCAN = SoundKernel(
    name="block-scan",
    summary="two scans share their scratch; a barrier lies between the reads of one and the writes of the next",
    parameters=VALUES,
    threads=128,
    trials={"random": _scan_twice},
    body=".shared .align 16 .b32 totals[4];"
    + LOAD_VALUE
    + """
    mov.u32 %r_slot, totals;
    mad.lo.u32 %r_slot, %r_warp, 4, %r_slot;
    setp.eq.u32 %p_last, %r_lane, 31;
    mov.u32 %r_round, 0;
ROUND:
"""
    + WARP_SCAN
    + """
    @%p_last st.shared.u32 [%r_slot], %r_sum;
    bar.sync 0; // written
    ld.shared.v4.u32 {%r_total0, %r_total1, %r_total2, %r_total3}, [totals];
    bar.sync 0; // read
"""
    + ADD_EARLIER_WARPS
    + """
    mov.u32 %r_value, %r_sum;
    add.u32 %r_round, %r_round, 1;
    setp.lt.u32 %p_again, %r_round, 2;
    @%p_again bra ROUND;
"""
    + STORE_SUM,
)


def _publish() -> Trial:
    return expect_output(np.full(128, 28, np.uint32))


PUBLISHED_SCALAR = SoundKernel(
    name="published-scalar",
    summary="a leader rewrites a shared scalar only after a barrier that follows all reads of it",
    parameters={"output": "u64"},
    threads=128,
    trials={"default": _publish},
    body=""".shared .align 4 .b32 bound;
    mul.wide.u32 %d_offset, %r_thread, 4;
    setp.eq.u32 %p_leader, %r_thread, 0;
    mov.u32 %r_round, 0;
    mov.u32 %r_sum, 0;
ROUND:
    @%p_leader st.shared.u32 [bound], %r_round;
    bar.sync 0; // published
    ld.shared.u32 %r_bound, [bound];
    bar.sync 0; // read
    add.u32 %r_sum, %r_sum, %r_bound;
    add.u32 %r_round, %r_round, 1;
    setp.lt.u32 %p_again, %r_round, 8;
    @%p_again bra ROUND;
"""
    + STORE_SUM,
)


def _rotate() -> Trial:
    values = draw_words(512, 1)
    total = np.roll(values.reshape(4, 128), -33, axis=1).sum(0, dtype=np.uint32)
    return expect_output(total, values=values)


DOUBLE_BUFFER = SoundKernel(
    name="double-buffer",
    summary="tiles go to two buffers in turn, so that one barrier per tile is enough",
    parameters=VALUES,
    threads=128,
    trials={"random": _rotate},
    body=""".shared .align 16 .b32 tiles[256];
    mul.wide.u32 %d_offset, %r_thread, 4;
    add.s64 %d_source, %d_values, %d_offset;
    add.u32 %r_neighbour, %r_thread, 33;
    and.b32 %r_neighbour, %r_neighbour, 127;
    mov.u32 %r_tile, 0;
    mov.u32 %r_sum, 0;
TILE:
    and.b32 %r_buffer, %r_tile, 1;
    mov.u32 %r_base, tiles;
    mad.lo.u32 %r_base, %r_buffer, 512, %r_base;
    mad.lo.u32 %r_mine, %r_thread, 4, %r_base;
    mad.lo.u32 %r_other, %r_neighbour, 4, %r_base;
    ld.global.u32 %r_value, [%d_source];
    st.shared.u32 [%r_mine], %r_value;
    bar.sync 0;
    ld.shared.u32 %r_value, [%r_other];
    add.u32 %r_sum, %r_sum, %r_value;
    add.s64 %d_source, %d_source, 512;
    add.u32 %r_tile, %r_tile, 1;
    setp.lt.u32 %p_again, %r_tile, 4;
    @%p_again bra TILE;
"""
    + STORE_SUM,
)


def _produce() -> Trial:
    values = draw_words(128, 1)
    total = values.reshape(4, 32).sum(0, dtype=np.uint32)
    return expect_output(total, values=values)


NAMED_BARRIERS = SoundKernel(
    name="named-barriers",
    summary="a producer warp fills a tile and a consumer warp empties it, each arriving where the other waits",
    parameters=VALUES,
    threads=64,
    trials={"random": _produce},
    body=""".shared .align 128 .b32 tile[32];
    mul.wide.u32 %d_offset, %r_lane, 4;
    mov.u32 %r_slot, tile;
    mad.lo.u32 %r_slot, %r_lane, 4, %r_slot;
    mov.u32 %r_tile, 0;
    setp.eq.u32 %p_consumer, %r_warp, 1;
    @%p_consumer bra CONSUME;
    add.s64 %d_source, %d_values, %d_offset;
PRODUCE:
    ld.global.u32 %r_value, [%d_source];
    bar.sync 2, 64; // empty
    st.shared.u32 [%r_slot], %r_value;
    bar.arrive 1, 64; // filled
    add.s64 %d_source, %d_source, 128;
    add.u32 %r_tile, %r_tile, 1;
    setp.lt.u32 %p_again, %r_tile, 4;
    @%p_again bra PRODUCE;
    bra DONE;
CONSUME:
    mov.u32 %r_sum, 0;
    xor.b32 %r_slot, %r_slot, 4;
NEXT:
    bar.arrive 2, 64; // emptied
    bar.sync 1, 64; // full
    ld.shared.u32 %r_value, [%r_slot];
    add.u32 %r_sum, %r_sum, %r_value;
    add.u32 %r_tile, %r_tile, 1;
    setp.lt.u32 %p_again, %r_tile, 4;
    @%p_again bra NEXT;
    xor.b32 %r_lane, %r_lane, 1;
    mul.wide.u32 %d_offset, %r_lane, 4;
"""
    + STORE_SUM
    + "DONE:",
)


def _sort() -> Trial:
    values = draw_words(128, 1)
    return expect_output(np.sort(values), values=values)


BITONIC_SORT = SoundKernel(
    name="bitonic-sort",
    summary="a barrier lies between any two steps of the network, and between the loads and stores of each",
    parameters=VALUES,
    threads=128,
    trials={"random": _sort},
    body=".shared .align 4 .b32 tile[128];"
    + LOAD_VALUE
    + """
    mov.u32 %r_base, tile;
    mad.lo.u32 %r_mine, %r_thread, 4, %r_base;
    mov.u32 %r_size, 2;
SIZE:
    shr.u32 %r_stride, %r_size, 1;
STEP:
    st.shared.u32 [%r_mine], %r_value;
    bar.sync 0; // stored
    xor.b32 %r_partner, %r_thread, %r_stride;
    mad.lo.u32 %r_slot, %r_partner, 4, %r_base;
    ld.shared.u32 %r_other, [%r_slot];
    bar.sync 0; // loaded
    and.b32 %r_bit, %r_thread, %r_size;
    setp.eq.u32 %p_ascending, %r_bit, 0;
    setp.lt.u32 %p_lower, %r_thread, %r_partner;
    xor.pred %p_larger, %p_ascending, %p_lower;
    min.u32 %r_least, %r_value, %r_other;
    max.u32 %r_most, %r_value, %r_other;
    selp.b32 %r_value, %r_most, %r_least, %p_larger;
    shr.u32 %r_stride, %r_stride, 1;
    setp.gt.u32 %p_again, %r_stride, 0;
    @%p_again bra STEP;
    shl.b32 %r_size, %r_size, 1;
    setp.le.u32 %p_again, %r_size, 128;
    @%p_again bra SIZE;
    mov.u32 %r_sum, %r_value;
"""
    + STORE_SUM,
)


def _count_above() -> Trial:
    values = draw_words(128, 1)
    return expect_output(np.full(128, (values > 500).sum(), np.uint32), values=values)


REDUCING_BARRIER = SoundKernel(
    name="reducing-barrier",
    summary="a barrier counts a predicate over the CTA, and orders the shared memory around it",
    parameters=VALUES,
    threads=128,
    trials={"random": _count_above},
    body=".shared .align 4 .b32 flags[128];"
    + LOAD_VALUE
    + """
    mov.u32 %r_base, flags;
    mad.lo.u32 %r_slot, %r_thread, 4, %r_base;
    setp.gt.u32 %p_above, %r_value, 500;
    selp.b32 %r_flag, 1, 0, %p_above;
    st.shared.u32 [%r_slot], %r_flag;
    barrier.cta.red.popc.u32 %r_sum, 0, %p_above;
    xor.b32 %r_partner, %r_thread, 96;
    mad.lo.u32 %r_slot, %r_partner, 4, %r_base;
    ld.shared.u32 %r_other, [%r_slot];
    setp.gt.u32 %p_wrong, %r_other, 1;
    @%p_wrong mov.u32 %r_sum, -1;
"""
    + STORE_SUM,
)

SOUND = (
    BLOCK_SUM, BLOCK_SCAN, PUBLISHED_SCALAR, DOUBLE_BUFFER, NAMED_BARRIERS, BITONIC_SORT, REDUCING_BARRIER,
)  # fmt: skip
