"""The mutants, by name.

Protocol mutants break one line of the exchange, those of ``owner`` one of the
owner-sharded exchange; order mutants break one line of packing or selection.
Each names the public mistake that it repeats.
"""

from __future__ import annotations

from tiebreak.verify.scenario import Scenario

from .loader import Edit
from .mutant import Mutant
from .owner import OWNER_MUTANTS

_ALTERNATING = Scenario(rows=1, k=2, local=2, length=6, epochs=3)
_ACKNOWLEDGED = Scenario(discipline="acknowledged", rows=1, k=2, local=2, length=6, epochs=3)
_GRAPH = Scenario(mode="graph", rows=1, k=2, local=2, length=6, epochs=3, kind="random")

_FIRST_POLL = 'observed = tl.atomic_add(flag, tl.cast(0, tl.int64), sem="{}", scope="{}")\n    remaining = '
_NEXT_POLL = 'observed = tl.atomic_add(flag, tl.cast(0, tl.int64), sem="{}", scope="{}")\n        remaining -= '
_PUBLISH = 'tl.atomic_xchg(published + rank, epoch, sem="{}", scope="{}")'
_ACKNOWLEDGE = 'tl.atomic_xchg(acknowledged + rank, epoch, sem="{}", scope="{}")'


def _exchange(old: str, new: str) -> Edit:
    return Edit("kernels_exchange", old, new)


def _poll_as(order: str, scope: str) -> tuple[Edit, ...]:
    return tuple(
        _exchange(text.format("acquire", "sys"), text.format(order, scope)) for text in (_FIRST_POLL, _NEXT_POLL)
    )


_HOST_EPOCH = """def _host_state(workspace: Workspace) -> torch.Tensor:
    workspace.calls = getattr(workspace, "calls", 0) + 1
    return torch.tensor([workspace.calls - 1] + [0] * 7)


def check_inputs("""

_PROTOCOL = (
    Mutant(
        name="no-wait-before-overwrite",
        rule="a slot is overwritten only after its reader acknowledged it",
        source="https://github.com/ROCm/aiter/pull/4082",
        edits=(_exchange("target = current_epoch(state) - 1", "target = current_epoch(state) - 1000"),),
        scenario=_ACKNOWLEDGED,
    ),
    Mutant(
        name="acknowledged-one-too-early",
        rule="the acknowledgement awaited is that of the epoch before this one",
        source="https://github.com/deepseek-ai/DeepEP/pull/660",
        edits=(_exchange("target = current_epoch(state) - 1", "target = current_epoch(state) - 2"),),
        scenario=_ACKNOWLEDGED,
    ),
    Mutant(
        name="acknowledge-before-select",
        rule="an epoch is acknowledged after its selection has read the slot",
        source="https://github.com/vllm-project/vllm/pull/47348",
        edits=(
            _exchange(
                _PUBLISH.format("release", "sys"),
                _PUBLISH.format("release", "sys")
                + "\n        acknowledged = (base + rows_offset + 256).to(tl.pointer_type(tl.int64))\n        "
                + _ACKNOWLEDGE.format("release", "sys"),
            ),
        ),
        scenario=_ACKNOWLEDGED,
    ),
    Mutant(
        name="publish-before-push",
        rule="an epoch is published after its candidates were pushed",
        source="https://github.com/NVIDIA/nvshmem/pull/36",
        edits=(
            Edit("exchange", "    _push(workspace, inbox, buffer.peer_addresses, rows)\n", ""),
            Edit(
                "exchange",
                "    launch_wait(workspace, rows)\n",
                "    _push(workspace, inbox, buffer.peer_addresses, rows)\n    launch_wait(workspace, rows)\n",
            ),
        ),
        scenario=_ALTERNATING,
    ),
    Mutant(
        name="no-wait-for-publish",
        rule="a selection waits until every peer has published the epoch",
        source="https://github.com/ROCm/rocm-systems/pull/8954",
        edits=(Edit("exchange", "    wait[(world_size,)](", "    (lambda *_, **__: None)("),),
        scenario=_ALTERNATING,
    ),
    Mutant(
        name="one-buffer-where-two-are-needed",
        rule="without acknowledgements, consecutive epochs use different slots",
        source="https://github.com/pytorch/pytorch/pull/137257",
        edits=(Edit("geometry", 'return 2 if self.discipline == "alternating" else 1', "return 1"),),
        scenario=_ALTERNATING,
    ),
    Mutant(
        name="epoch-frozen-at-capture",
        rule="a replayed graph takes its epoch from device memory",
        source="https://github.com/vllm-project/vllm/pull/46913",
        edits=(
            Edit("merge", "def check_inputs(", _HOST_EPOCH),
            Edit("merge", "    workspace.require_usable()\n", "    workspace.state = _host_state(workspace)\n"),
            _exchange("tl.store(state + EPOCH, epoch)", "tl.store(state + EPOCH, epoch - 1)"),
        ),
        scenario=_GRAPH,
    ),
    Mutant(
        name="empty-shard-skips-the-merge",
        rule="every rank takes part in every merge, also with an empty shard",
        source="https://github.com/local-inference-lab/vllm/pull/37",
        edits=(
            Edit(
                "merge",
                "    with device_guard(workspace.fabric.device):\n        if workspace.route",
                "    if scores.shape[1] == 0:\n        return out.fill_(-1)\n"
                "    with device_guard(workspace.fabric.device):\n        if workspace.route",
            ),
        ),
        scenario=Scenario(rows=1, k=2, local=2, length=1, epochs=2),
    ),
    Mutant(
        name="fallback-decided-alone",
        rule="all ranks fall back together, or none does",
        source="https://github.com/vllm-project/vllm/issues/45800",
        edits=(
            Edit(
                "workspace",
                "    if not failures:\n        return buffer",
                "    if buffer is not None:\n        return buffer",
            ),
        ),
        scenario=Scenario(rows=1, k=2, local=2, length=6, epochs=2, fault="rendezvous"),
    ),
    Mutant(
        name="geometry-not-agreed",
        rule="ranks that disagree on the geometry all raise",
        source="https://github.com/sgl-project/sglang/pull/11275",
        edits=(
            Edit(
                "geometry", "if differences or isinstance(geometry, Exception):", "if isinstance(geometry, Exception):"
            ),
        ),
        scenario=Scenario(rows=1, k=2, local=2, length=6, epochs=2, fault="geometry"),
    ),
    Mutant(
        name="timeout-not-recorded",
        rule="a wait that runs out ends the exchange in an error",
        source="https://github.com/microsoft/mscclpp/issues/161",
        edits=(
            _exchange(
                "record_error(state, PUBLISH_TIMEOUT, source, epoch, observed)",
                "record_error(state, NO_ERROR, source, epoch, observed)",
            ),
        ),
        scenario=Scenario(rows=1, k=2, local=2, length=6, epochs=2, fault="dead"),
    ),
    Mutant(
        name="no-barrier-before-advance",
        rule="all lanes have read the epoch counter before one of them advances it",
        source="https://github.com/triton-lang/triton/pull/10816",
        edits=(
            _exchange(
                "        tl.debug_barrier()\n        tl.store(state + EPOCH, epoch)",
                "        tl.store(state + EPOCH, epoch)",
            ),
        ),
        scenario=_ALTERNATING,
    ),
    Mutant(
        name="relaxed-publish",
        rule="publishing an epoch is a release",
        source="https://github.com/vllm-project/vllm/issues/8404",
        edits=(_exchange(_PUBLISH.format("release", "sys"), _PUBLISH.format("relaxed", "sys")),),
        scenario=_ALTERNATING,
    ),
    Mutant(
        name="relaxed-wait",
        rule="waiting for an epoch is an acquire",
        source="https://github.com/NVIDIA/nvshmem/issues/75",
        edits=_poll_as("relaxed", "sys"),
        scenario=_ALTERNATING,
    ),
    Mutant(
        name="relaxed-acknowledge",
        rule="acknowledging an epoch is a release",
        source="https://github.com/pytorch/pytorch/pull/158523",
        edits=(_exchange(_ACKNOWLEDGE.format("release", "sys"), _ACKNOWLEDGE.format("relaxed", "sys")),),
        scenario=_ACKNOWLEDGED,
    ),
    Mutant(
        name="gpu-scope-publish",
        rule="a flag for another GPU is written at system scope",
        source="https://github.com/ROCm/iris/issues/462",
        edits=(_exchange(_PUBLISH.format("release", "sys"), _PUBLISH.format("release", "gpu")),),
        scenario=_ALTERNATING,
    ),
    Mutant(
        name="gpu-scope-wait",
        rule="a flag from another GPU is read at system scope",
        source="https://github.com/ROCm/aiter/pull/4786",
        edits=_poll_as("acquire", "gpu"),
        scenario=_ALTERNATING,
    ),
    Mutant(
        name="equality-wait",
        rule="a wait ends at its epoch or any later one",
        source="https://github.com/vllm-project/vllm/issues/8404",
        edits=(Edit("kernels_state", "return flag - target >= 0", "return flag - target == 0"),),
        scenario=_ALTERNATING,
        schedules=("default", "random:0", "random:1", "pct:0:1:3", "pct:1:1:3", "pct:2:1:6", "random:2", "random:3"),
    ),
    Mutant(
        name="plain-comparison-at-wrap",
        rule="epochs are compared by half range, so that they survive the turn-over",
        source="https://github.com/NVIDIA/nccl/issues/2352",
        edits=(Edit("kernels_state", "return flag - target >= 0", "return flag >= target"),),
        scenario=Scenario(rows=1, k=2, local=2, length=6, epochs=4, epoch=2**63 - 3),
    ),
    Mutant(
        name="counter-advanced-by-a-reader",
        rule="the epoch counter advances after every program of the exchange has read it",
        source="https://github.com/microsoft/mscclpp/pull/875",
        edits=(
            _exchange(
                "base = tl.load(peer_addresses + tl.program_id(0))",
                "base = tl.load(peer_addresses + tl.program_id(0))\n"
                "        if tl.program_id(0) == 0:\n            tl.store(state + EPOCH, epoch)",
            ),
        ),
        scenario=_ALTERNATING,
    ),
    Mutant(
        name="row-counts-in-one-slot",
        rule="what a fast peer publishes for the next epoch does not overwrite what is being checked for this one",
        source="https://github.com/vllm-project/vllm/pull/25892",
        edits=(
            _exchange("row_counts + (epoch & 1) * world_size + rank", "row_counts + rank"),
            _exchange("published_rows + (epoch & 1) * world_size + source", "published_rows + source"),
        ),
        scenario=_ALTERNATING,
    ),
    Mutant(
        name="stale-rows-of-a-shorter-peer",
        rule="a peer with another number of rows ends the exchange in an error",
        source="https://github.com/vllm-project/vllm/pull/47348",
        edits=(_exchange("if peer_rows != rows:", "if peer_rows < 0:"),),
        scenario=Scenario(rows=2, k=2, local=2, length=6, epochs=2, fault="fewer-rows"),
    ),
)

_ORDER = (
    Mutant(
        name="id-through-fp32",
        rule="ids are carried bit for bit",
        source="https://github.com/vllm-project/vllm/pull/55961",
        edits=(
            _exchange(
                "tl.where(usable, global_id, -1).to(tl.int32)",
                "tl.where(usable, global_id, -1).to(tl.float32).to(tl.int32)",
            ),
        ),
        scenario=Scenario(interleave=2**24, rows=1, length=8, kind="equal", epochs=1, k=16, local=8),
        properties=("exact-order",),
    ),
    Mutant(
        name="padding-scores-zero",
        rule="padding loses against every valid candidate",
        source="https://github.com/ROCm/aiter/pull/5123",
        edits=(
            _exchange("tl.constexpr(-8388608)", "tl.constexpr(0)"),
            _exchange("tl.where(usable, global_id, -1)", "tl.where(usable, global_id, rank)"),
        ),
        scenario=Scenario(rows=3, k=4, local=4, length=6, kind="random", epochs=1),
        properties=("exact-order",),
    ),
    Mutant(
        name="tie-to-highest-id",
        rule="among equal scores the lowest id wins",
        source="https://github.com/vllm-project/vllm/pull/54955",
        edits=(
            Edit("kernels_select", "(LARGEST_ID - identity)", "identity"),
            Edit("kernels_select", "LARGEST_ID - (keys & LARGEST_ID)", "keys & LARGEST_ID"),
        ),
        scenario=Scenario(rows=1, kind="equal", epochs=1),
        properties=("exact-order",),
    ),
    Mutant(
        name="nan-first",
        rule="NaN ranks where the preset says",
        source="https://github.com/vllm-project/vllm/issues/49896",
        edits=(Edit("kernels_select", "WORD_MASK if nan == NAN_FIRST else 0", "WORD_MASK"),),
        scenario=Scenario(rows=3, kind="special", epochs=2, length=12),
        properties=("exact-order",),
    ),
    Mutant(
        name="zeros-by-sign",
        rule="both zeros tie where the preset says",
        source="https://github.com/NVIDIA/cccl/pull/9470",
        edits=(Edit("kernels_select", "if zero == ZERO_EQUAL:", "if zero != ZERO_EQUAL:"),),
        scenario=Scenario(rows=3, kind="zeros", epochs=2, length=12),
        properties=("exact-order",),
    ),
    Mutant(
        name="ties-at-the-cut-by-position",
        rule="ids by position are those of the total order, ties at the cut included",
        source="https://github.com/jundot/omlx/pull/2243",
        edits=(
            Edit("kernels_select", "best > cut", "best >> 31 > cut >> 31"),
            Edit("kernels_select", "keys > cut", "keys >> 31 > cut >> 31"),
            Edit("kernels_select", "keys == cut", "keys >> 31 == cut >> 31"),
        ),
        scenario=Scenario(contract="set", rows=1, kind="equal", epochs=1),
        properties=("exact-order",),
    ),
    Mutant(
        name="slots-restart-in-every-tile",
        rule="slots by position go on from one tile of candidates to the next",
        source="https://github.com/JuliaGPU/AcceleratedKernels.jl/issues/127",
        edits=(Edit("kernels_select", "        above += tl.sum(is_above.to(tl.int32), axis=0)\n", ""),),
        scenario=Scenario(contract="set", rows=1, k=4, local=16, length=40, kind="random", epochs=1),
        properties=("exact-order", "race-free"),
    ),
)

MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in _PROTOCOL + OWNER_MUTANTS + _ORDER}
