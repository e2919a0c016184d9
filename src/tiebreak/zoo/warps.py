"""Kernels whose lanes exchange data inside a warp."""

from __future__ import annotations

import numpy as np

from .blocks import LOAD_VALUE, STORE_SUM, VALUES
from .kernel import SoundKernel, Trial, Words, expect_output


def _draw(threads: int) -> Words:
    return np.random.default_rng(6).integers(0, 1000, threads, dtype=np.uint32)


def _append() -> Trial:
    values = _draw(64)
    expected = np.zeros(64, np.uint32)
    above = values[values > 500]
    expected[: above.size] = above
    return expect_output(expected, values=values, unordered=True)


WARP_APPEND = SoundKernel(
    name="warp-append",
    summary="one lane reserves the slots of its warp with one atomic, and hands the first on to the lanes that vote",
    parameters=VALUES,
    trials={"random": _append},
    body=".shared .align 4 .b32 counter;"
    + LOAD_VALUE
    + """
    setp.eq.u32 %p_leader, %r_thread, 0;
    @%p_leader st.shared.u32 [counter], 0;
    bar.sync 0;
    setp.gt.u32 %p_above, %r_value, 500;
    vote.sync.ballot.b32 %r_voters, %p_above, -1;
    @!%p_above bra DONE;
    mov.u32 %r_below, %lanemask_lt;
    and.b32 %r_below, %r_below, %r_voters;
    popc.b32 %r_place, %r_below;
    popc.b32 %r_count, %r_voters;
    brev.b32 %r_first, %r_voters;
    clz.b32 %r_first, %r_first;
    setp.eq.u32 %p_leader, %r_lane, %r_first;
    @%p_leader atom.shared.add.u32 %r_slot, [counter], %r_count;
    shfl.sync.idx.b32 %r_slot, %r_slot, %r_first, 31, %r_voters;
    add.u32 %r_slot, %r_slot, %r_place;
    mul.wide.u32 %d_target, %r_slot, 4;
    add.s64 %d_target, %d_output, %d_target;
    st.global.u32 [%d_target], %r_value;
DONE:""",
)


def _exchange() -> Trial:
    values = _draw(64)
    tile = values.reshape(2, 32)
    for stride in (16, 8, 4, 2, 1):
        tile = tile + tile[:, np.arange(32) ^ stride]
    return expect_output(tile.ravel().astype(np.uint32), values=values)


WARP_TREE = SoundKernel(
    name="warp-tree",
    summary="the lanes of a warp add through shared memory, with a barrier of the warp around every step's loads",
    parameters=VALUES,
    trials={"random": _exchange},
    body=".shared .align 4 .b32 tile[64];"
    + LOAD_VALUE
    + """
    mov.u32 %r_base, tile;
    mad.lo.u32 %r_mine, %r_thread, 4, %r_base;
    mov.u32 %r_sum, %r_value;
    mov.u32 %r_stride, 16;
STEP:
    st.shared.u32 [%r_mine], %r_sum;
    bar.warp.sync -1; // stored
    xor.b32 %r_partner, %r_thread, %r_stride;
    mad.lo.u32 %r_slot, %r_partner, 4, %r_base;
    ld.shared.u32 %r_other, [%r_slot];
    bar.warp.sync -1; // loaded
    add.u32 %r_sum, %r_sum, %r_other;
    shr.u32 %r_stride, %r_stride, 1;
    setp.ne.u32 %p_again, %r_stride, 0;
    @%p_again bra STEP;
"""
    + STORE_SUM,
)


def _halves() -> Trial:
    values = _draw(64)
    half = values.reshape(4, 16)
    odd = np.arange(4)[:, None] % 2 == 1
    expected = np.where(odd, half.max(1, keepdims=True), half.sum(1, keepdims=True, dtype=np.uint32))
    expected = np.broadcast_to(expected, (4, 16)).ravel().astype(np.uint32)
    return expect_output(expected, values=values)


HALF_WARPS = SoundKernel(
    name="half-warps",
    summary="both halves of a warp reduce in different branches, each with the mask of its own lanes",
    parameters=VALUES,
    trials={"random": _halves},
    body=LOAD_VALUE
    + """
    setp.ge.u32 %p_upper, %r_lane, 16;
    @%p_upper bra UPPER;
    redux.sync.add.u32 %r_sum, %r_value, 0xffff;
    bra JOIN;
UPPER:
    redux.sync.max.u32 %r_sum, %r_value, 0xffff0000;
JOIN:
    bar.warp.sync -1;
"""
    + STORE_SUM,
)


def _match() -> Trial:
    values = _draw(64) % 7
    tile = values.reshape(2, 32)
    counts = (tile[:, :, None] == tile[:, None, :]).sum(2).ravel().astype(np.uint32)
    return expect_output(counts, values=values)


MATCHED_LANES = SoundKernel(
    name="matched-lanes",
    summary="lanes with equal values find one another with match, and count themselves",
    parameters=VALUES,
    trials={"ties": _match},
    body=LOAD_VALUE
    + """
    match.any.sync.b32 %r_peers, %r_value, -1;
    popc.b32 %r_sum, %r_peers;
"""
    + STORE_SUM,
)

SOUND = (WARP_APPEND, WARP_TREE, HALF_WARPS, MATCHED_LANES)
