"""Mistakes of one warp: masks and missing barriers."""

from __future__ import annotations

from .kernel import BrokenKernel, Edit
from .warps import HALF_WARPS, WARP_APPEND, WARP_TREE

BROKEN = (
    BrokenKernel(
        name="divergent-shuffle-mask",
        rule="the mask of a shuffle names the lanes that run it, and no others",
        source="https://github.com/NVIDIA/cub/issues/154",
        original=WARP_APPEND,
        edits=(Edit("%r_first, 31, %r_voters;", "%r_first, 31, -1;"),),
        findings=("warp-mask",),
        places=("shfl.sync.idx.b32",),
    ),
    BrokenKernel(
        name="shuffle-from-absent-lane",
        rule="a shuffle reads from a lane that runs it",
        source="https://github.com/gunrock/gunrock/issues/324",
        original=WARP_APPEND,
        edits=(
            Edit(
                "shfl.sync.idx.b32 %r_slot, %r_slot, %r_first, 31, %r_voters;",
                "not.b32 %r_absent, %r_voters; clz.b32 %r_absent, %r_absent; sub.u32 %r_absent, 31, %r_absent;\n"
                "    shfl.sync.idx.b32 %r_slot, %r_slot, %r_absent, 31, %r_voters;",
            ),
        ),
        findings=("warp-mask",),
        places=("shfl.sync.idx.b32",),
    ),
    BrokenKernel(
        name="ballot-of-half-a-warp",
        rule="both halves of a warp name only their own lanes in a reduction",
        source="https://github.com/sgl-project/sglang/pull/9620",
        original=HALF_WARPS,
        edits=(Edit("redux.sync.add.u32 %r_sum, %r_value, 0xffff;", "redux.sync.add.u32 %r_sum, %r_value, -1;"),),
        findings=("warp-mask",),
        places=("redux.sync.add.u32",),
    ),
    BrokenKernel(
        name="no-warp-barrier-before-load",
        rule="lanes do not run in lockstep: a barrier of the warp lies between one lane's store and another's load",
        source="https://github.com/numba/numba/pull/6127",
        original=WARP_TREE,
        edits=(Edit("    bar.warp.sync -1; // stored\n"),),
        places=("st.shared.u32 [%r_mine], %r_sum", "ld.shared.u32 %r_other"),
    ),
    BrokenKernel(
        name="no-warp-barrier-before-store",
        rule="a lane stores over what another lane loads after a barrier of the warp only",
        source="https://github.com/ORNL/HeCBench/issues/91",
        original=WARP_TREE,
        edits=(Edit("    bar.warp.sync -1; // loaded\n"),),
        places=("ld.shared.u32 %r_other", "st.shared.u32 [%r_mine], %r_sum"),
    ),
    BrokenKernel(
        name="warp-barrier-of-half-a-warp",
        rule="the mask of a barrier of a warp names all lanes that exchange data",
        source="https://github.com/kokkos/kokkos/issues/1958",
        original=WARP_TREE,
        edits=(
            Edit(
                "    bar.warp.sync -1; // stored\n",
                "    setp.lt.u32 %p_lower, %r_lane, 16; selp.b32 %r_half, 0xffff, 0xffff0000, %p_lower;\n"
                "    bar.warp.sync %r_half; // stored\n",
            ),
        ),
        places=("st.shared.u32 [%r_mine], %r_sum", "ld.shared.u32 %r_other"),
    ),
)
