"""Kernels that select the best of many candidates, the public selectors' way, in miniature."""

from __future__ import annotations

import numpy as np

from .blocks import ADD_EARLIER_WARPS, LOAD_VALUE, STORE_SUM, VALUES, WARP_SCAN
from .kernel import Arguments, SoundKernel, Trial, Words

COUNT_DIGITS = """
    shr.u32 %r_high, %r_word, 1;
    shr.u32 %r_high, %r_high, %r_shift3;
    shr.u32 %r_wanted, %r_prefix, 1;
    shr.u32 %r_wanted, %r_wanted, %r_shift3;
    setp.eq.u32 %p_match, %r_high, %r_wanted;
    shr.u32 %r_digit, %r_word, %r_shift;
    and.b32 %r_digit, %r_digit, 15;
    mad.lo.u32 %r_bin, %r_digit, 4, %r_bins;
"""
"""Finds whether the digits above the current one match ``%r_prefix``, and the bin of the current one."""


def _radix(words: Words, k: int) -> Trial:
    arguments: Arguments = {"values": words, "output": np.zeros(128, np.uint32), "k": k}
    return Trial(arguments, {"output": np.full(128, np.sort(words)[-k], np.uint32)})


def _draw_words() -> Trial:
    return _radix(np.random.default_rng(2).integers(0, 256, 128, dtype=np.uint32), 40)


def _tie_words() -> Trial:
    return _radix(np.full(128, 0x5A, np.uint32), 40)


RADIX_HISTOGRAM = SoundKernel(
    name="radix-histogram",
    summary="two passes of 16 bins: clear, barrier, count, barrier, read, barrier, and clear again",
    parameters={**VALUES, "k": "u32"},
    threads=128,
    trials={"random": _draw_words, "all-equal": _tie_words},
    body=".shared .align 16 .b32 bins[16];"
    + LOAD_VALUE
    + """
    mov.u32 %r_word, %r_value;
    mov.u32 %r_bins, bins;
    mad.lo.u32 %r_mine, %r_thread, 4, %r_bins;
    setp.lt.u32 %p_bin, %r_thread, 16;
    mov.u32 %r_prefix, 0;
    mov.u32 %r_shift, 4;
PASS:
    @%p_bin st.shared.u32 [%r_mine], 0;
    bar.sync 0; // cleared
    add.u32 %r_shift3, %r_shift, 3;
"""
    + COUNT_DIGITS
    + """
    @%p_match red.shared.add.u32 [%r_bin], 1;
    bar.sync 0; // counted
    mov.u32 %r_digit, 16;
SCAN:
    sub.u32 %r_digit, %r_digit, 1;
    mad.lo.u32 %r_bin, %r_digit, 4, %r_bins;
    ld.shared.u32 %r_count, [%r_bin];
    setp.ge.u32 %p_found, %r_count, %r_k;
    @%p_found bra FOUND;
    sub.u32 %r_k, %r_k, %r_count;
    bra SCAN;
FOUND:
    bar.sync 0; // read
    shl.b32 %r_digit, %r_digit, %r_shift;
    or.b32 %r_prefix, %r_prefix, %r_digit;
    sub.s32 %r_shift, %r_shift, 4;
    setp.ge.s32 %p_again, %r_shift, 0;
    @%p_again bra PASS;
    mov.u32 %r_sum, %r_prefix;
"""
    + STORE_SUM,
)


def _fill_bins() -> Trial:
    counts = np.zeros(512, np.uint32)
    counts[100:500] = np.random.default_rng(3).integers(1, 5, 400, dtype=np.uint32)
    above = counts[::-1].cumsum()
    k = int(above[300])
    threshold = 511 - int(np.argmax(above >= k))
    arguments: Arguments = {"values": counts, "output": np.zeros(128, np.uint32), "k": k}
    return Trial(arguments, {"output": np.full(128, threshold, np.uint32)})


RUNNING_COUNT = SoundKernel(
    name="running-count",
    summary="slices of bins are scanned from the top; the running count advances after all threads have read it",
    parameters={**VALUES, "k": "u32"},
    threads=128,
    trials={"third-slice": _fill_bins},
    body=""".shared .align 16 .b32 totals[4];
.shared .align 4 .b32 running;
.shared .align 4 .b32 threshold;
    mov.u32 %r_slot, totals;
    mad.lo.u32 %r_slot, %r_warp, 4, %r_slot;
    setp.eq.u32 %p_last, %r_lane, 31;
    setp.eq.u32 %p_final, %r_thread, 127;
    @%p_final st.shared.u32 [running], 0;
    @%p_final st.shared.u32 [threshold], -1;
    sub.u32 %r_at, 511, %r_thread;
SLICE:
    mul.wide.u32 %d_source, %r_at, 4;
    add.s64 %d_source, %d_values, %d_source;
    ld.global.u32 %r_value, [%d_source];
"""
    + WARP_SCAN
    + """
    @%p_last st.shared.u32 [%r_slot], %r_sum;
    bar.sync 0; // totals
    ld.shared.v4.u32 {%r_total0, %r_total1, %r_total2, %r_total3}, [totals];
"""
    + ADD_EARLIER_WARPS
    + """
    ld.shared.u32 %r_running, [running];
    add.u32 %r_sum, %r_sum, %r_running;
    sub.u32 %r_before, %r_sum, %r_value;
    setp.lt.u32 %p_below, %r_before, %r_k;
    setp.ge.and.u32 %p_here, %r_sum, %r_k, %p_below;
    @%p_here st.shared.u32 [threshold], %r_at;
    bar.sync 0; // running count read
    @%p_final st.shared.u32 [running], %r_sum;
    ld.shared.u32 %r_found, [threshold];
    sub.u32 %r_at, %r_at, 128;
    setp.eq.u32 %p_again, %r_found, -1;
    @%p_again bra SLICE;
    mul.wide.u32 %d_offset, %r_thread, 4;
    mov.u32 %r_sum, %r_found;
"""
    + STORE_SUM,
)


def _two_phases(words: Words, k: int) -> Trial:
    best = np.argsort(-words.astype(np.int64), kind="stable")[:k]
    arguments: Arguments = {"values": words, "output": np.full(k, -1, np.int32), "k": k}
    return Trial(arguments, {"output": best.astype(np.int32)}, unordered=frozenset({"output"}))


def _two_phases_equal() -> Trial:
    return _two_phases(np.full(512, 0xBF800000, np.uint32), 256)


def _two_phases_random() -> Trial:
    return _two_phases(np.random.default_rng(4).permutation(2**20)[:512].astype(np.uint32) * np.uint32(512), 256)


TWO_PHASES = SoundKernel(
    name="two-phases",
    summary="radix over score words, then over ids where the threshold is tied; the shared prefix is reset for that",
    parameters={**VALUES, "k": "u32"},
    threads=512,
    trials={"all-equal": _two_phases_equal, "random": _two_phases_random},
    body=""".shared .align 16 .b32 bins[16];
.shared .align 4 .b32 prefix;
.shared .align 4 .b32 left;
.shared .align 4 .b32 crowd;
.shared .align 4 .b32 chosen;
.shared .align 4 .b32 selected;
"""
    + LOAD_VALUE
    + """
    mov.u32 %r_word, %r_value;
    mov.u32 %r_bins, bins;
    mad.lo.u32 %r_mine, %r_thread, 4, %r_bins;
    setp.lt.u32 %p_bin, %r_thread, 16;
    setp.eq.u32 %p_leader, %r_thread, 0;
    @%p_leader st.shared.u32 [prefix], 0;
    @%p_leader st.shared.u32 [left], %r_k;
    @%p_leader st.shared.u32 [selected], 0;
    setp.eq.u32 %p_taking, 0, 0;
    mov.u32 %r_phase, 0;
PHASE:
    mov.u32 %r_shift, 28;
PASS:
    @%p_bin st.shared.u32 [%r_mine], 0;
    bar.sync 0; // cleared
    ld.shared.u32 %r_prefix, [prefix];
    add.u32 %r_shift3, %r_shift, 3;
"""
    + COUNT_DIGITS
    + """
    and.pred %p_match, %p_match, %p_taking;
    @%p_match red.shared.add.u32 [%r_bin], 1;
    bar.sync 0; // counted
    @!%p_leader bra WAIT;
    ld.shared.u32 %r_left, [left];
    mov.u32 %r_bin, 16;
SCAN:
    sub.u32 %r_bin, %r_bin, 1;
    mad.lo.u32 %r_slot, %r_bin, 4, %r_bins;
    ld.shared.u32 %r_count, [%r_slot];
    setp.eq.u32 %p_found, %r_bin, 0;
    setp.ge.or.u32 %p_found, %r_count, %r_left, %p_found;
    @%p_found bra FOUND;
    sub.u32 %r_left, %r_left, %r_count;
    bra SCAN;
FOUND:
    st.shared.u32 [chosen], %r_bin;
    st.shared.u32 [crowd], %r_count;
    st.shared.u32 [left], %r_left;
    shl.b32 %r_bin, %r_bin, %r_shift;
    or.b32 %r_prefix, %r_prefix, %r_bin;
    st.shared.u32 [prefix], %r_prefix;
WAIT:
    bar.sync 0; // published
    ld.shared.u32 %r_chosen, [chosen];
    setp.gt.and.u32 %p_better, %r_digit, %r_chosen, %p_match;
    @!%p_better bra NEXT;
    atom.shared.add.u32 %r_slot, [selected], 1;
    mul.wide.u32 %d_target, %r_slot, 4;
    add.s64 %d_target, %d_output, %d_target;
    st.global.u32 [%d_target], %r_thread; // better
NEXT:
    sub.s32 %r_shift, %r_shift, 4;
    setp.ge.s32 %p_again, %r_shift, 0;
    @%p_again bra PASS;
    ld.shared.u32 %r_threshold, [prefix];
    ld.shared.u32 %r_left, [left];
    ld.shared.u32 %r_crowd, [crowd];
    setp.eq.and.u32 %p_taking, %r_word, %r_threshold, %p_taking;
    setp.eq.u32 %p_fits, %r_left, %r_crowd;
    @%p_fits bra LAST;
    bar.sync 0; // threshold read
    @%p_leader st.shared.u32 [prefix], 0; // reset
    not.b32 %r_word, %r_thread;
    add.u32 %r_phase, %r_phase, 1;
    setp.lt.u32 %p_again, %r_phase, 2;
    @%p_again bra PHASE;
LAST:
    @!%p_taking bra DONE;
    atom.shared.add.u32 %r_slot, [selected], 1;
    mul.wide.u32 %d_target, %r_slot, 4;
    add.s64 %d_target, %d_output, %d_target;
    st.global.u32 [%d_target], %r_thread; // tied
DONE:""",
)


SOUND = (RADIX_HISTOGRAM, RUNNING_COUNT, TWO_PHASES)
