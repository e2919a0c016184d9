"""Kernels with bulk copies, which access memory through a proxy of their own."""

from __future__ import annotations

import numpy as np

from .blocks import VALUES
from .kernel import SoundKernel, Trial, align_words, draw_words, expect_output


def _refill() -> Trial:
    values = align_words(draw_words(192, 10))
    total = values.reshape(3, 64)[:, np.arange(64) ^ 33].sum(0, dtype=np.uint32)
    return expect_output(total, values=values)


BULK_REFILL = SoundKernel(
    name="bulk-refill",
    summary="bulk copies fill a buffer again: all have read it at a barrier, and a proxy fence publishes that",
    parameters=VALUES,
    trials={"random": _refill},
    body=""".shared .align 128 .b32 tile[64];
.shared .align 8 .b64 filled;
    setp.ne.u32 %p_other, %r_thread, 0;
    @%p_other bra START;
    mbarrier.init.shared::cta.b64 [filled], 1;
    fence.mbarrier_init.release.cluster;
START:
    bar.sync 0; // initialised
    mov.u32 %r_base, tile;
    xor.b32 %r_partner, %r_thread, 33;
    mad.lo.u32 %r_slot, %r_partner, 4, %r_base;
    mov.b64 %d_source, %d_values;
    mov.u32 %r_sum, 0;
    mov.u32 %r_tile, 0;
TILE:
    @%p_other bra FILLED;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [filled], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d_source], 256, [filled];
FILLED:
    and.b32 %r_parity, %r_tile, 1;
FULL:
    mbarrier.try_wait.parity.shared::cta.b64 %p_done, [filled], %r_parity;
    @!%p_done bra FULL;
    ld.shared.u32 %r_value, [%r_slot];
    add.u32 %r_sum, %r_sum, %r_value;
    add.s64 %d_source, %d_source, 256;
    bar.sync 0; // emptied
    fence.proxy.async.shared::cta; // published
    add.u32 %r_tile, %r_tile, 1;
    setp.lt.u32 %p_again, %r_tile, 3;
    @%p_again bra TILE;
    mul.wide.u32 %d_target, %r_thread, 4;
    add.s64 %d_target, %d_output, %d_target;
    st.global.u32 [%d_target], %r_sum;
""",
)


def _reverse() -> Trial:
    values, output = draw_words(64, 11), align_words(np.zeros(64, np.uint32))
    return Trial({"values": values, "output": output}, {"output": values[::-1].copy()})


BULK_STORE = SoundKernel(
    name="bulk-store",
    summary="a bulk copy stores what all have written: each publishes it by a proxy fence in front of the barrier",
    parameters=VALUES,
    trials={"random": _reverse},
    body=""".shared .align 128 .b32 tile[64];
    mul.wide.u32 %d_offset, %r_thread, 4;
    add.s64 %d_source, %d_values, %d_offset;
    ld.global.u32 %r_value, [%d_source];
    mov.u32 %r_slot, tile;
    xor.b32 %r_place, %r_thread, 63;
    mad.lo.u32 %r_slot, %r_place, 4, %r_slot;
    st.shared.u32 [%r_slot], %r_value;
    fence.proxy.async.shared::cta; // published
    bar.sync 0; // written
    setp.ne.u32 %p_other, %r_thread, 0;
    @%p_other bra DONE;
    cp.async.bulk.global.shared::cta.bulk_group [%d_output], [tile], 256;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
DONE:""",
)

SOUND = (BULK_REFILL, BULK_STORE)
