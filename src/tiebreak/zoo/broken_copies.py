"""Mistakes of copies: offsets, bounds, alignment, widths, and waits that are missing."""

from __future__ import annotations

from .bulk import BULK_REFILL, BULK_STORE
from .copies import ADJACENT_BYTES, ASYNC_PIPELINE, MBARRIER, ROW_OFFSET, TAIL, VECTOR_LOAD
from .kernel import BrokenKernel, Edit

_FILLED = ("ld.shared.v4.u32",)

BROKEN = (
    BrokenKernel(
        name="row-offset-of-32-bits",
        rule="row x stride is computed in 64 bits",
        source="https://github.com/vllm-project/vllm/pull/30754",
        original=ROW_OFFSET,
        edits=(
            Edit(
                "mul.wide.u32 %d_start, %r_row, %r_stride;",
                "mul.lo.s32 %r_start, %r_row, %r_stride; cvt.s64.s32 %d_start, %r_start;",
            ),
        ),
        findings=("out-of-bounds",),
        places=("ld.global.u32 %r_value",),
    ),
    BrokenKernel(
        name="read-past-the-row",
        rule="a load stays inside its row",
        source="https://github.com/vllm-project/vllm/pull/56464",
        original=TAIL,
        edits=(Edit("@%p_inside ld.global.u32", "ld.global.u32"),),
        findings=("out-of-bounds",),
        places=("ld.global.u32 %r_value",),
    ),
    BrokenKernel(
        name="row-end-included",
        rule="the end of a row is the place after its last element",
        source="https://github.com/ROCm/aiter/pull/1567",
        original=TAIL,
        edits=(Edit("setp.lt.u32 %p_inside", "setp.le.u32 %p_inside"),),
        findings=("out-of-bounds",),
        places=("ld.global.u32 %r_value",),
    ),
    BrokenKernel(
        name="vector-load-misaligned",
        rule="a vector is loaded from a multiple of its size",
        source="https://github.com/NVIDIA/TensorRT-LLM/pull/14602",
        original=VECTOR_LOAD,
        edits=(Edit("    @%p_unaligned bra ELEMENTS;\n"),),
        findings=("misaligned",),
        places=("ld.global.v4.u32",),
    ),
    BrokenKernel(
        name="bytes-overlap",
        rule="threads store to bytes of their own",
        source="https://github.com/vllm-project/vllm/pull/2760",
        original=ADJACENT_BYTES,
        edits=(
            Edit(
                "add.u32 %r_slot, %r_base, %r_thread;",
                "and.b32 %r_even, %r_thread, 62; add.u32 %r_slot, %r_base, %r_even;",
            ),
            Edit("st.shared.u8 [%r_slot]", "st.shared.u16 [%r_slot]"),
        ),
        places=("st.shared.u16 [%r_slot]",),
    ),
    BrokenKernel(
        name="bytes-read-as-word-early",
        rule="a word is read after all threads have stored its bytes",
        source="https://github.com/vllm-project/vllm/pull/2760",
        original=ADJACENT_BYTES,
        edits=(Edit("    bar.sync 0;\n"),),
        places=("st.shared.u8 [%r_slot]", "ld.shared.u32 %r_value"),
        schedule="ahead:0",
    ),
    BrokenKernel(
        name="async-copy-not-awaited",
        rule="an asynchronous copy has landed once its group was waited for",
        source="https://github.com/NVIDIA/Fuser/pull/3438",
        original=ASYNC_PIPELINE,
        edits=(Edit("    cp.async.wait_group 1;\n"),),
        findings=("race", "uninitialised"),
        places=_FILLED,
    ),
    BrokenKernel(
        name="one-group-too-many-in-flight",
        rule="the last tile is read after the last group has landed",
        source="https://github.com/deepseek-ai/DeepEP/issues/657",
        original=ASYNC_PIPELINE,
        edits=(Edit("cp.async.wait_group 0;", "cp.async.wait_group 1;"),),
        places=("// next", *_FILLED),
    ),
    BrokenKernel(
        name="no-barrier-after-async-wait",
        rule="a thread waits for its own copies only; a barrier hands them to the others",
        source="https://github.com/NVIDIA/Fuser/issues/3428",
        original=ASYNC_PIPELINE,
        edits=(Edit("    bar.sync 0; // filled\n"),),
        places=("// next", *_FILLED),
    ),
    BrokenKernel(
        name="buffer-refilled-while-read",
        rule="a buffer is filled again after all threads have read it",
        source="https://github.com/deepseek-ai/DeepEP/pull/660",
        original=ASYNC_PIPELINE,
        edits=(Edit("    bar.sync 0; // emptied\n"),),
        places=("// next", *_FILLED),
    ),
    BrokenKernel(
        name="mbarrier-parity-of-the-last-phase",
        rule="a consumer waits for the parity of the phase that it reads",
        source="https://github.com/tile-ai/tilelang/pull/3087",
        original=MBARRIER,
        edits=(
            Edit(
                "and.b32 %r_parity, %r_tile, 1; // phase",
                "add.u32 %r_parity, %r_tile, 1; and.b32 %r_parity, %r_parity, 1;",
            ),
        ),
        findings=("deadlock",),
        places=("// full", "// empty"),
        schedule="ahead:1",
    ),
    BrokenKernel(
        name="mbarrier-used-before-initialised",
        rule="a barrier object is initialised before another thread uses it",
        source="https://github.com/NVIDIA/Fuser/pull/1769",
        original=MBARRIER,
        edits=(Edit("    bar.sync 0; // initialised\n"),),
        places=("mbarrier.init.shared.b64 [filled]",),
    ),
    BrokenKernel(
        name="refilled-without-proxy-fence",
        rule="a proxy fence lies between loads and a bulk copy that overwrites what they read",
        source="https://github.com/deepseek-ai/DeepEP/pull/642",
        original=BULK_REFILL,
        edits=(Edit("    fence.proxy.async.shared::cta; // published\n"),),
        places=("ld.shared.u32 %r_value", "cp.async.bulk.shared::cluster"),
    ),
    BrokenKernel(
        name="barrier-object-not-published",
        rule="a fence publishes the initialisation of a barrier object to bulk copies that complete it",
        source="https://github.com/MoonshotAI/FlashKDA/issues/24",
        original=BULK_REFILL,
        edits=(Edit("    fence.mbarrier_init.release.cluster;\n"),),
        places=("mbarrier.init", "cp.async.bulk.shared::cluster"),
    ),
    BrokenKernel(
        name="stored-without-proxy-fence",
        rule="a proxy fence lies between stores and a bulk copy of what they wrote",
        source="https://github.com/MoonshotAI/FlashKDA/issues/24",
        original=BULK_STORE,
        edits=(Edit("    fence.proxy.async.shared::cta; // published\n"),),
        places=("st.shared.u32 [%r_slot]", "cp.async.bulk.global"),
    ),
    BrokenKernel(
        name="ended-before-bulk-store",
        rule="a CTA ends after bulk copies have read its shared memory",
        source="https://github.com/NVIDIA/TransformerEngine/pull/3417",
        original=BULK_STORE,
        edits=(Edit("    cp.async.bulk.wait_group 0;\n"),),
        places=("cp.async.bulk.global",),
    ),
)  # fmt: skip
