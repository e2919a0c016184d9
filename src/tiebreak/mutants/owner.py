"""The mutants of the owner-sharded exchange."""

from __future__ import annotations

from dataclasses import replace

from tiebreak.verify.scenario import Scenario

from .loader import Edit
from .mutant import Mutant

_OWNERS = Scenario(rows=2, k=2, local=2, length=6, epochs=3, owner_rows=1)

_RETURNED = 'tl.atomic_xchg(returned + rank, current_epoch(state), sem="{}", scope="{}")'
_PUBLISH_RETURNED = (
    "    publish_returned[(world_size,)](addresses, state, rank=rank, returned_offset=layout.returned, num_warps=1)\n"
)


def _owner(old: str, new: str) -> Edit:
    return Edit("kernels_owner", old, new)


OWNER_MUTANTS = (
    Mutant(
        name="returned-published-before-ids",
        rule="an owner publishes that it returned ids after it wrote them",
        source="https://github.com/NVIDIA/nvshmem/pull/36",
        edits=(
            Edit("owner", _PUBLISH_RETURNED, ""),
            Edit("owner", "    if count > 0:\n", f"{_PUBLISH_RETURNED}    if count > 0:\n"),
        ),
        scenario=_OWNERS,
    ),
    Mutant(
        name="no-wait-for-returned",
        rule="a rank waits until every owner has returned its ids",
        source="https://github.com/ROCm/rocm-systems/pull/8954",
        edits=(Edit("owner", "    wait_returned[(workspace.fabric.world_size,)](", "    (lambda *_, **__: None)("),),
        scenario=_OWNERS,
    ),
    Mutant(
        name="returned-of-the-epoch-before",
        rule="the ids that a rank waits for are those of this epoch",
        source="https://github.com/deepseek-ai/DeepEP/pull/660",
        edits=(
            _owner(
                "epoch = current_epoch(state)\n        observed = poll(returned",
                "epoch = current_epoch(state) - 1\n        observed = poll(returned",
            ),
        ),
        scenario=_OWNERS,
    ),
    Mutant(
        name="relaxed-returned",
        rule="publishing that ids were returned is a release",
        source="https://github.com/vllm-project/vllm/issues/8404",
        edits=(_owner(_RETURNED.format("release", "sys"), _RETURNED.format("relaxed", "sys")),),
        scenario=_OWNERS,
    ),
    Mutant(
        name="gpu-scope-returned",
        rule="an owner's flag for another GPU is written at system scope",
        source="https://github.com/ROCm/iris/issues/462",
        edits=(_owner(_RETURNED.format("release", "sys"), _RETURNED.format("release", "gpu")),),
        scenario=_OWNERS,
    ),
    Mutant(
        name="cta-scope-returned",
        rule="an owner's flag for another GPU is not written at the scope of its own program",
        source="https://github.com/ROCm/iris/issues/462",
        edits=(_owner(_RETURNED.format("release", "sys"), _RETURNED.format("release", "cta")),),
        scenario=_OWNERS,
    ),
    Mutant(
        name="ids-returned-to-the-first-rows",
        rule="an owner returns ids to the rows of the merge, and not to those of its inbox",
        source="https://github.com/local-inference-lab/vllm/pull/178",
        edits=(_owner("tl.store(remote + row * k + slot", "tl.store(remote + (row - first_row) * k + slot"),),
        scenario=_OWNERS,
    ),
    Mutant(
        name="candidates-dealt-to-owners-in-turn",
        rule="all ranks push a row's candidates to its one owner",
        source="https://github.com/local-inference-lab/vllm/pull/178",
        edits=(_owner("peer_addresses + row // owned_rows", "peer_addresses + row % world_size"),),
        scenario=replace(_OWNERS, rows=4),
    ),
    Mutant(
        name="owners-decided-alone",
        rule="all ranks merge by owner, or none does",
        source="https://github.com/vllm-project/vllm/issues/45800",
        edits=(
            Edit(
                "workspace",
                "self.geometry.merges_by_owner(rows, self.fabric.world_size)",
                "self.geometry.merges_by_owner(rows - self.fabric.rank, self.fabric.world_size)",
            ),
        ),
        scenario=replace(_OWNERS, owner_rows=2),
    ),
    Mutant(
        name="ids-collected-after-an-error",
        rule="a rank whose exchange failed returns no ids",
        source="https://github.com/microsoft/mscclpp/issues/161",
        edits=(_owner("live = tl.where(has_failed(state), 0, k)", "live = k"),),
        scenario=replace(_OWNERS, fault="dead"),
    ),
)
