"""Mistakes between CTAs: scopes, orders, fences, and barriers of clusters."""

from __future__ import annotations

from .devices import CLUSTER_SUM, FLAG, GRID_HISTOGRAM, TICKET, TICKET_OF_STORES
from .kernel import BrokenKernel, Edit

_WRITE_AND_READ = ("// write", "// read")

BROKEN = (
    BrokenKernel(
        name="flag-released-at-cta-scope",
        rule="a release to another CTA has the scope of the GPU",
        source="https://github.com/vllm-project/vllm/pull/2760",
        original=FLAG,
        edits=(Edit("st.release.gpu.global.u32", "st.release.cta.global.u32"),),
        places=_WRITE_AND_READ,
    ),
    BrokenKernel(
        name="flag-acquired-at-cta-scope",
        rule="an acquire from another CTA has the scope of the GPU",
        source="https://github.com/ROCm/aiter/pull/4786",
        original=FLAG,
        edits=(Edit("ld.acquire.gpu.global.u32", "ld.acquire.cta.global.u32"),),
        places=_WRITE_AND_READ,
    ),
    BrokenKernel(
        name="flag-stored-relaxed",
        rule="publishing data is a release",
        source="https://github.com/vllm-project/vllm/issues/8404",
        original=FLAG,
        edits=(Edit("st.release.gpu.global.u32", "st.relaxed.gpu.global.u32"),),
        places=_WRITE_AND_READ,
    ),
    BrokenKernel(
        name="flag-polled-relaxed",
        rule="waiting for data is an acquire",
        source="https://github.com/NVIDIA/nvshmem/issues/75",
        original=FLAG,
        edits=(Edit("ld.acquire.gpu.global.u32", "ld.relaxed.gpu.global.u32"),),
        places=_WRITE_AND_READ,
    ),
    BrokenKernel(
        name="flag-volatile",
        rule="volatile accesses neither release nor acquire",
        source="https://github.com/vllm-project/vllm/issues/8404",
        original=FLAG,
        edits=(
            Edit("st.release.gpu.global.u32", "st.volatile.global.u32"),
            Edit("ld.acquire.gpu.global.u32", "ld.volatile.global.u32"),
        ),
        places=_WRITE_AND_READ,
    ),
    BrokenKernel(
        name="flag-of-one-byte",
        rule="a flag is stored and loaded at one width: bytes of a word are other locations than the word",
        source="https://github.com/vllm-project/vllm/pull/2760",
        original=FLAG,
        edits=(
            Edit(
                "st.release.gpu.global.u32 [%d_flag], 1;",
                "mov.b16 %h_one, 1;\n    st.release.gpu.global.u8 [%d_flag], %h_one;",
            ),
        ),
        places=("st.release.gpu.global.u8", "ld.acquire.gpu.global.u32"),
    ),
    BrokenKernel(
        name="released-before-all-pushed",
        rule="a barrier lies between the stores of all threads and one thread's release",
        source="https://github.com/flashinfer-ai/flashinfer/pull/4131",
        original=FLAG,
        edits=(Edit("    bar.sync 0; // pushed\n"),),
        places=_WRITE_AND_READ,
    ),
    BrokenKernel(
        name="read-before-acquired",
        rule="a barrier lies between one thread's acquire and the reads of all",
        source="https://github.com/flashinfer-ai/flashinfer/pull/4131",
        original=FLAG,
        edits=(Edit("    bar.sync 0; // acquired\n"),),
        places=_WRITE_AND_READ,
    ),
    BrokenKernel(
        name="no-fence-before-ticket",
        rule="a partial sum is released before the ticket is taken",
        source="https://github.com/NVIDIA/Fuser/pull/2391",
        original=TICKET,
        edits=(Edit("    fence.acq_rel.gpu; // before the ticket\n"),),
        places=("st.global.u32 [%d_target], %r_sum", "// others read"),
    ),
    BrokenKernel(
        name="no-fence-after-ticket",
        rule="the last CTA acquires the sums of all others",
        source="https://github.com/pytorch/pytorch/pull/128455",
        original=TICKET,
        edits=(Edit("    fence.acq_rel.gpu; // after the ticket\n"),),
        places=("st.global.u32 [%d_target], %r_sum", "// others read"),
    ),
    BrokenKernel(
        name="fence-at-cta-scope",
        rule="a fence towards other CTAs has the scope of the GPU",
        source="https://github.com/kokkos/kokkos/pull/8648",
        original=TICKET,
        edits=(Edit("fence.acq_rel.gpu; // before the ticket", "fence.acq_rel.cta; // before the ticket"),),
        places=("st.global.u32 [%d_target], %r_sum", "// others read"),
    ),
    BrokenKernel(
        name="ticket-before-all-stored",
        rule="a ticket is taken after all threads of the CTA have stored",
        source="https://github.com/NVIDIA/cccl/pull/10627",
        original=TICKET_OF_STORES,
        edits=(Edit("    bar.sync 0; // all stored\n"),),
        places=("// stored", "// read"),
    ),
    BrokenKernel(
        name="arrival-before-converged",
        rule="a CTA arrives at a barrier of the grid after all its threads have",
        source="https://github.com/flashinfer-ai/flashinfer/pull/4131",
        original=GRID_HISTOGRAM,
        edits=(Edit("    bar.sync 0; // converged\n"),),
        places=("red.relaxed.gpu.global.add.u32", "ld.global.u32 %r_value, [%d_bin]"),
        schedule="ahead:0",
    ),
    BrokenKernel(
        name="histogram-counted-at-cta-scope",
        rule="atomics of several CTAs on one counter have the scope of the GPU",
        source="https://github.com/ComputationalRadiationPhysics/picongpu/pull/2231",
        original=GRID_HISTOGRAM,
        edits=(Edit("red.relaxed.gpu.global.add.u32", "red.relaxed.cta.global.add.u32"),),
        places=("red.relaxed.cta.global.add.u32",),
    ),
    BrokenKernel(
        name="no-cluster-barrier",
        rule="a barrier of the cluster lies between a store and a read by another CTA",
        source="https://github.com/triton-lang/triton/pull/9413",
        original=CLUSTER_SUM,
        edits=(
            Edit("    barrier.cluster.arrive.release.aligned; // written\n"),
            Edit("    barrier.cluster.wait.acquire.aligned; // all written\n"),
        ),
        places=("st.shared.u32", "ld.shared::cluster.u32"),
    ),
    BrokenKernel(
        name="cta-barrier-in-cluster",
        rule="a barrier of the CTA does not order the CTAs of a cluster",
        source="https://github.com/NVIDIA/cutlass/pull/3647",
        original=CLUSTER_SUM,
        edits=(
            Edit("    barrier.cluster.arrive.release.aligned; // written\n"),
            Edit("    barrier.cluster.wait.acquire.aligned; // all written\n", "    bar.sync 0;\n"),
        ),
        places=("st.shared.u32", "ld.shared::cluster.u32"),
    ),
    BrokenKernel(
        name="cluster-left-early",
        rule="a CTA stays until the others of its cluster have read its shared memory",
        source="https://github.com/triton-lang/triton/issues/11730",
        original=CLUSTER_SUM,
        edits=(
            Edit("    barrier.cluster.arrive.aligned; // read\n"),
            Edit("    barrier.cluster.wait.aligned; // all read\n"),
        ),
        places=("ld.shared::cluster.u32",),
    ),
    BrokenKernel(
        name="relaxed-cluster-barrier",
        rule="an arrival that is relaxed releases nothing",
        source="https://github.com/sgl-project/sglang/pull/38829",
        original=CLUSTER_SUM,
        edits=(Edit("barrier.cluster.arrive.release.aligned;", "barrier.cluster.arrive.relaxed.aligned;"),),
        places=("st.shared.u32", "ld.shared::cluster.u32"),
    ),
)  # fmt: skip
