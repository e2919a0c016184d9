"""Kernels whose CTAs hand data over: flags, tickets, barriers of the grid, and clusters."""

from __future__ import annotations

import numpy as np

from .kernel import SoundKernel, Trial, draw_words, expect_output


def _hand_over() -> Trial:
    values = draw_words(64, 7)
    return expect_output(
        values[np.arange(64) ^ 33], values=values, inbox=np.zeros(64, np.uint32), flag=np.zeros(1, np.uint32)
    )


FLAG = SoundKernel(
    name="flag",
    summary="barrier, release by one thread; acquire by one thread of another CTA, barrier, and reads by all",
    parameters={"values": "u64", "inbox": "u64", "flag": "u64", "output": "u64"},
    grid=2,
    trials={"random": _hand_over},
    body="""
    mul.wide.u32 %d_offset, %r_thread, 4;
    setp.ne.u32 %p_other, %r_thread, 0;
    setp.ne.u32 %p_reader, %r_cta, 0;
    @%p_reader bra READ;
    add.s64 %d_source, %d_values, %d_offset;
    add.s64 %d_target, %d_inbox, %d_offset;
    ld.global.u32 %r_value, [%d_source];
    st.global.u32 [%d_target], %r_value; // write
    bar.sync 0; // pushed
    @%p_other bra DONE;
    st.release.gpu.global.u32 [%d_flag], 1;
    bra DONE;
READ:
    @%p_other bra WAIT;
POLL:
    ld.acquire.gpu.global.u32 %r_seen, [%d_flag];
    setp.eq.u32 %p_again, %r_seen, 0;
    @%p_again bra POLL;
WAIT:
    bar.sync 0; // acquired
    xor.b32 %r_partner, %r_thread, 33;
    mul.wide.u32 %d_source, %r_partner, 4;
    add.s64 %d_source, %d_inbox, %d_source;
    ld.global.u32 %r_value, [%d_source]; // read
    add.s64 %d_target, %d_output, %d_offset;
    st.global.u32 [%d_target], %r_value;
DONE:""",
)


def _sum_by_ticket() -> Trial:
    values = draw_words(256, 7)
    return expect_output(
        np.array([values.sum()], np.uint32),
        values=values,
        partial=np.zeros(4, np.uint32),
        ticket=np.zeros(1, np.uint32),
    )


TICKET = SoundKernel(
    name="ticket",
    summary="the CTA that takes the last ticket adds the sums of all; fences stand around the relaxed atomic",
    parameters={"values": "u64", "partial": "u64", "ticket": "u64", "output": "u64"},
    grid=4,
    trials={"random": _sum_by_ticket},
    body=""".shared .align 4 .b32 total;
.shared .align 4 .b32 taken;
    setp.eq.u32 %p_leader, %r_thread, 0;
    @%p_leader st.shared.u32 [total], 0;
    bar.sync 0; // cleared
    mad.lo.u32 %r_at, %r_cta, 64, %r_thread;
    mul.wide.u32 %d_source, %r_at, 4;
    add.s64 %d_source, %d_values, %d_source;
    ld.global.u32 %r_value, [%d_source];
    red.shared.add.u32 [total], %r_value;
    bar.sync 0; // added
    @!%p_leader bra WAIT;
    ld.shared.u32 %r_sum, [total];
    mul.wide.u32 %d_target, %r_cta, 4;
    add.s64 %d_target, %d_partial, %d_target;
    st.global.u32 [%d_target], %r_sum;
    fence.acq_rel.gpu; // before the ticket
    atom.relaxed.gpu.global.add.u32 %r_taken, [%d_ticket], 1;
    fence.acq_rel.gpu; // after the ticket
    st.shared.u32 [taken], %r_taken;
WAIT:
    bar.sync 0; // taken
    ld.shared.u32 %r_taken, [taken];
    setp.ne.u32 %p_early, %r_taken, 3;
    @%p_early bra DONE;
    setp.ge.u32 %p_idle, %r_thread, 4;
    @%p_idle bra DONE;
    mul.wide.u32 %d_source, %r_thread, 4;
    add.s64 %d_source, %d_partial, %d_source;
    ld.global.u32 %r_value, [%d_source]; // others read
    redux.sync.add.u32 %r_sum, %r_value, 15;
    @%p_leader st.global.u32 [%d_output], %r_sum;
DONE:""",
)

TICKET_OF_STORES = SoundKernel(
    name="ticket-of-stores",
    summary="the stores of all threads of a CTA are released by one thread's ticket after a barrier",
    parameters=TICKET.parameters,
    grid=4,
    trials={"random": lambda: _store_by_ticket()},
    body=""".shared .align 4 .b32 taken;
    setp.eq.u32 %p_leader, %r_thread, 0;
    mad.lo.u32 %r_at, %r_cta, 64, %r_thread;
    mul.wide.u32 %d_source, %r_at, 4;
    add.s64 %d_target, %d_partial, %d_source;
    add.s64 %d_source, %d_values, %d_source;
    ld.global.u32 %r_value, [%d_source];
    st.global.u32 [%d_target], %r_value; // stored
    bar.sync 0; // all stored
    @!%p_leader bra WAIT;
    atom.acq_rel.gpu.global.add.u32 %r_taken, [%d_ticket], 1;
    st.shared.u32 [taken], %r_taken;
WAIT:
    bar.sync 0; // taken
    ld.shared.u32 %r_taken, [taken];
    setp.ne.u32 %p_early, %r_taken, 3;
    @%p_early bra DONE;
    mul.wide.u32 %d_source, %r_thread, 4;
    add.s64 %d_target, %d_output, %d_source;
    add.s64 %d_source, %d_partial, %d_source;
    mov.u32 %r_sum, 0;
    mov.u32 %r_at, 0;
ADD:
    ld.global.u32 %r_value, [%d_source]; // read
    add.u32 %r_sum, %r_sum, %r_value;
    add.s64 %d_source, %d_source, 256;
    add.u32 %r_at, %r_at, 1;
    setp.lt.u32 %p_again, %r_at, 4;
    @%p_again bra ADD;
    st.global.u32 [%d_target], %r_sum;
DONE:""",
)


def _store_by_ticket() -> Trial:
    values = draw_words(256, 7)
    return expect_output(
        values.reshape(4, 64).sum(0, dtype=np.uint32),
        values=values,
        partial=np.zeros(256, np.uint32),
        ticket=np.zeros(1, np.uint32),
    )


def _count_in_grid() -> Trial:
    values = draw_words(192, 7) % 64
    return expect_output(
        np.tile(np.bincount(values, minlength=64).astype(np.uint32), 3),
        values=values,
        bins=np.zeros(64, np.uint32),
        arrived=np.zeros(1, np.uint32),
    )


GRID_HISTOGRAM = SoundKernel(
    name="grid-histogram",
    summary="all CTAs count into one histogram and read it after a barrier of the grid",
    parameters={"values": "u64", "bins": "u64", "arrived": "u64", "output": "u64"},
    grid=3,
    trials={"random": _count_in_grid},
    body="""
    mad.lo.u32 %r_at, %r_cta, 64, %r_thread;
    mul.wide.u32 %d_offset, %r_at, 4;
    add.s64 %d_source, %d_values, %d_offset;
    ld.global.u32 %r_value, [%d_source];
    mul.wide.u32 %d_bin, %r_value, 4;
    add.s64 %d_bin, %d_bins, %d_bin;
    red.relaxed.gpu.global.add.u32 [%d_bin], 1;
    bar.sync 0; // converged
    setp.ne.u32 %p_other, %r_thread, 0;
    @%p_other bra WAIT;
    atom.release.gpu.global.add.u32 %r_seen, [%d_arrived], 1;
POLL:
    ld.acquire.gpu.global.u32 %r_seen, [%d_arrived];
    setp.lt.u32 %p_again, %r_seen, 3;
    @%p_again bra POLL;
WAIT:
    bar.sync 0; // arrived
    mul.wide.u32 %d_bin, %r_thread, 4;
    add.s64 %d_bin, %d_bins, %d_bin;
    ld.global.u32 %r_value, [%d_bin];
    add.s64 %d_target, %d_output, %d_offset;
    st.global.u32 [%d_target], %r_value;
""",
)


def _sum_in_cluster() -> Trial:
    values = draw_words(256, 7)
    sums = values.reshape(2, 2, 64).sum(1, dtype=np.uint32)
    expected = np.broadcast_to(sums[:, None], (2, 2, 64)).ravel()
    return expect_output(expected, values=values)


CLUSTER_SUM = SoundKernel(
    name="cluster-sum",
    summary="two CTAs read each other's shared memory between two barriers of the cluster",
    parameters={"values": "u64", "output": "u64"},
    grid=4,
    cluster=2,
    trials={"random": _sum_in_cluster},
    body=""".shared .align 4 .b32 tile[64];
    mad.lo.u32 %r_at, %r_cta, 64, %r_thread;
    mul.wide.u32 %d_offset, %r_at, 4;
    add.s64 %d_source, %d_values, %d_offset;
    ld.global.u32 %r_value, [%d_source];
    mov.u32 %r_slot, tile;
    mad.lo.u32 %r_slot, %r_thread, 4, %r_slot;
    st.shared.u32 [%r_slot], %r_value;
    barrier.cluster.arrive.release.aligned; // written
    barrier.cluster.wait.acquire.aligned; // all written
    xor.b32 %r_peer, %r_rank, 1;
    mapa.shared::cluster.u32 %r_remote, %r_slot, %r_peer;
    ld.shared::cluster.u32 %r_other, [%r_remote];
    add.u32 %r_sum, %r_value, %r_other;
    barrier.cluster.arrive.aligned; // read
    barrier.cluster.wait.aligned; // all read
    add.s64 %d_target, %d_output, %d_offset;
    st.global.u32 [%d_target], %r_sum;
""",
)

SOUND = (FLAG, TICKET, TICKET_OF_STORES, GRID_HISTOGRAM, CLUSTER_SUM)
