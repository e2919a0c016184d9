"""The public merge: local candidates of all ranks to the global top-K, on every rank."""

from __future__ import annotations

import torch

from tiebreak.errors import InputError

from .exchange import exchange, launch_pack
from .fused import merge_fused
from .launch import device_guard
from .owner import exchange_by_owner
from .select import check_tensor, launch_select, prepare_output
from .workspace import Workspace


def merge_topk(
    workspace: Workspace,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    out: torch.Tensor | None = None,
    row_starts: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the global ids of the k best candidates of all ranks, in the order of ``Geometry.contract``.

    Collective: every rank calls it as often as the others, in the same order,
    with the same number of rows, also with 0 rows or an empty shard.  Launches
    only, so it can be captured in a graph; all ranks then replay equally often.

    After an error on the device the result is -1 everywhere, here and from then
    on; ``Workspace.check`` raises it.  The all-gather route cannot compare the
    numbers of rows.

    From ``Geometry.owner_rows`` rows on, a merge through symmetric memory is
    owner-sharded, with the same result.  The all-gather route is not: its
    candidates reach every rank anyway, and a second collective for the ids
    would cost more than the selections it saves.

    Args:
        workspace: From ``Workspace.create``.
        scores: fp32 ``[rows, width]``, this rank's shard; the width may be 0.
        local_indices: int32 ``[rows, L]``: this rank's choice, relative to the row's start, -1 for none.
        out: int32 ``[rows, k]`` to write to; may be ``local_indices`` itself.
        row_starts: int32 ``[rows]``: column of a row's local index 0; 0 if absent.

    Returns:
        int32 ``[rows, k]``, -1 in unused slots; the same on every rank.

    Raises:
        InputError: A wrong dtype, shape, stride or device, or too many rows.
        WorkspaceError: The workspace was closed or has failed.

    Source:
        https://github.com/vllm-project/vllm/pull/46076 (task),
        https://github.com/vllm-project/vllm/pull/47348 (one-shot push to inboxes).
    """
    workspace.require_usable()
    rows = check_inputs(workspace, scores, local_indices, row_starts)
    out = prepare_output(out, rows, workspace.geometry.k, workspace.fabric.device)
    with device_guard(workspace.fabric.device):
        if workspace.route != "symmetric":
            _gather(workspace, scores, local_indices, row_starts, out)
        elif workspace.merges_by_owner(rows):
            exchange_by_owner(workspace, scores, local_indices, row_starts, out)
        elif workspace.merges_at_once(rows):
            merge_fused(workspace, scores, local_indices, row_starts, out)
        else:
            exchange(workspace, scores, local_indices, row_starts, out)
    return out


def check_inputs(
    workspace: Workspace, scores: torch.Tensor, local_indices: torch.Tensor, row_starts: torch.Tensor | None
) -> int:
    """Check the inputs of a merge and return the number of rows."""
    geometry, device = workspace.geometry, workspace.fabric.device
    check_tensor("scores", scores, torch.float32, (None, None), device)
    rows = scores.shape[0]
    if rows > geometry.max_rows:
        raise InputError(
            "rows", value=rows, limit=f"the workspace takes at most {geometry.max_rows}", remedy="raise max_rows"
        )
    check_tensor("local_indices", local_indices, torch.int32, (rows, geometry.local_candidates), device)
    if row_starts is not None:
        check_tensor("row_starts", row_starts, torch.int32, (rows,), device)
    return rows


def _gather(
    workspace: Workspace,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    row_starts: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Launch one merge through an all-gather; the local route has nothing to gather."""
    geometry, world_size, rows = workspace.geometry, workspace.fabric.world_size, scores.shape[0]
    row_words = geometry.local_candidates * 2
    shape = (rows, geometry.local_candidates, 2)
    gathered = packed = torch.empty(shape, dtype=torch.int32, device=scores.device)
    launch_pack(workspace, scores, local_indices, row_starts, packed, row_words, slots=1, slot_words=0)
    if workspace.route == "all-gather":
        gathered = torch.empty((world_size, *shape), dtype=torch.int32, device=scores.device)
        workspace.fabric.all_gather(gathered, packed)
    launch_select(
        gathered,
        out,
        count=world_size * geometry.local_candidates,
        source_candidates=geometry.local_candidates,
        source_words=rows * row_words,
        row_words=row_words,
        policy=workspace.policy,
        contract=geometry.contract,
        implementation=geometry.implementation,
        state=workspace.state,
    )
