"""The public merge: local candidates of all ranks to the global top-K, on every rank."""

from __future__ import annotations

import torch

from tiebreak.errors import InputError

from .kernels_exchange import complete, pack, publish, push, wait, wait_writable
from .launch import device_guard
from .select import check_tensor, launch_select, prepare_output
from .workspace import Workspace

LARGEST_BLOCK = 1024


def merge_topk(
    workspace: Workspace,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    out: torch.Tensor | None = None,
    row_starts: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the global ids of the k best candidates of all ranks, best first.

    Collective: every rank calls it as often as the others, in the same order,
    with the same number of rows, also with 0 rows or an empty shard.  Launches
    only, so it can be captured in a graph; all ranks then replay equally often.

    After an error on the device the result is -1 everywhere, here and from then
    on; ``Workspace.check`` raises it.  The all-gather route cannot compare the
    numbers of rows.

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
        if workspace.route == "symmetric":
            _exchange(workspace, scores, local_indices, row_starts, out)
        else:
            _gather(workspace, scores, local_indices, row_starts, out)
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


def _exchange(
    workspace: Workspace,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    row_starts: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Launch one exchange through symmetric memory."""
    buffer, layout, geometry, state = workspace.buffer, workspace.layout, workspace.geometry, workspace.state
    assert buffer is not None
    world_size, rank, rows = workspace.fabric.world_size, workspace.fabric.rank, scores.shape[0]
    row_words = world_size * geometry.local_candidates * 2
    inbox = layout.inbox_words(buffer.local)
    if geometry.discipline == "acknowledged":
        acknowledged = layout.array(buffer.local, layout.acknowledged)
        wait_writable[(world_size,)](acknowledged, state, workspace.max_polls, num_warps=1)
    own_slice = inbox[rank * geometry.local_candidates * 2 :]
    _pack(workspace, scores, local_indices, row_starts, own_slice, row_words, geometry.slots, layout.slot_words)
    _push(workspace, inbox, buffer.peer_addresses, rows)
    publish[(world_size,)](
        buffer.peer_addresses,
        state,
        rows,
        world_size=world_size,
        rank=rank,
        published_offset=layout.published,
        rows_offset=layout.published_rows,
        num_warps=1,
    )
    wait[(world_size,)](
        layout.array(buffer.local, layout.published),
        layout.array(buffer.local, layout.published_rows),
        state,
        rows,
        workspace.max_polls,
        world_size=world_size,
        num_warps=1,
    )
    launch_select(
        inbox,
        out,
        count=world_size * geometry.local_candidates,
        source_candidates=geometry.local_candidates,
        source_words=geometry.local_candidates * 2,
        row_words=row_words,
        policy=workspace.policy,
        contract=geometry.contract,
        implementation=geometry.implementation,
        state=state,
        slots=geometry.slots,
        slot_words=layout.slot_words,
    )
    complete[(1,)](
        buffer.peer_addresses,
        state,
        world_size=world_size,
        rank=rank,
        acknowledged_offset=layout.acknowledged,
        acknowledges=geometry.discipline == "acknowledged",
        num_warps=1,
    )


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
    _pack(workspace, scores, local_indices, row_starts, packed, row_words, slots=1, slot_words=0)
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


def _pack(
    workspace: Workspace,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    row_starts: torch.Tensor | None,
    destination: torch.Tensor,
    row_words: int,
    slots: int,
    slot_words: int,
) -> None:
    """Launch the pack kernel into ``destination``."""
    rows, width = scores.shape
    geometry = workspace.geometry
    block, tiles = _tiles(geometry.local_candidates)
    if rows == 0:
        return
    pack[(rows, tiles)](
        scores,
        local_indices,
        local_indices if row_starts is None else row_starts,
        destination,
        workspace.state,
        width,
        scores.stride(0),
        local_indices.stride(0),
        row_words,
        slot_words,
        world_size=workspace.fabric.world_size,
        rank=workspace.fabric.rank,
        interleave=geometry.interleave,
        local_candidates=geometry.local_candidates,
        slots=slots,
        has_row_starts=row_starts is not None,
        block=block,
    )


def _push(workspace: Workspace, inbox: torch.Tensor, peer_addresses: torch.Tensor, rows: int) -> None:
    """Launch the push kernel to all peers."""
    world_size, geometry = workspace.fabric.world_size, workspace.geometry
    block, tiles = _tiles(2 * geometry.local_candidates)
    if rows == 0 or world_size == 1:
        return
    push[(rows, tiles, world_size - 1)](
        inbox,
        peer_addresses,
        workspace.state,
        workspace.layout.slot_words,
        world_size=world_size,
        rank=workspace.fabric.rank,
        local_candidates=geometry.local_candidates,
        slots=geometry.slots,
        inbox_offset=workspace.layout.inbox,
        block=block,
    )


def _tiles(length: int) -> tuple[int, int]:
    """Return a power-of-two block for ``length`` lanes, and how many blocks cover them."""
    block = min(1 << (length - 1).bit_length(), LARGEST_BLOCK)
    return block, -(-length // block)
