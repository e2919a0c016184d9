"""Launches of one exchange through symmetric memory, every row merged on every rank."""

from __future__ import annotations

import torch

from .kernels_exchange import complete, pack, publish, push, wait, wait_writable
from .select import launch_select
from .workspace import Workspace

LARGEST_BLOCK = 1024


def exchange(
    workspace: Workspace,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    row_starts: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Launch one exchange: every rank gets every candidate, and merges every row."""
    buffer, layout, geometry = workspace.buffer, workspace.layout, workspace.geometry
    assert buffer is not None
    world_size, rank, rows = workspace.fabric.world_size, workspace.fabric.rank, scores.shape[0]
    row_words = world_size * geometry.local_candidates * 2
    inbox = layout.inbox_words(buffer.local)
    launch_wait_writable(workspace)
    own_slice = inbox[rank * geometry.local_candidates * 2 :]
    launch_pack(workspace, scores, local_indices, row_starts, own_slice, row_words, geometry.slots, layout.slot_words)
    _push(workspace, inbox, buffer.peer_addresses, rows)
    launch_publish(workspace, rows)
    launch_wait(workspace, rows)
    launch_inbox_select(workspace, inbox, out)
    launch_complete(workspace)


def launch_wait_writable(workspace: Workspace) -> None:
    """Launch the wait for the peers' acknowledgements, where the discipline has them."""
    if workspace.geometry.discipline == "acknowledged":
        assert workspace.buffer is not None
        acknowledged = workspace.layout.array(workspace.buffer.local, workspace.layout.acknowledged)
        wait_writable[(workspace.fabric.world_size,)](acknowledged, workspace.state, workspace.max_polls, num_warps=1)


def launch_pack(
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
    block, tiles = cover(geometry.local_candidates)
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
    block, tiles = cover(2 * geometry.local_candidates)
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


def launch_publish(workspace: Workspace, rows: int) -> None:
    """Launch the publication of the epoch and the number of rows to every rank."""
    assert workspace.buffer is not None
    world_size = workspace.fabric.world_size
    publish[(world_size,)](
        workspace.buffer.peer_addresses,
        workspace.state,
        rows,
        world_size=world_size,
        rank=workspace.fabric.rank,
        published_offset=workspace.layout.published,
        rows_offset=workspace.layout.published_rows,
        num_warps=1,
    )


def launch_wait(workspace: Workspace, rows: int) -> None:
    """Launch the wait until every rank has published the epoch."""
    assert workspace.buffer is not None
    local, layout, world_size = workspace.buffer.local, workspace.layout, workspace.fabric.world_size
    wait[(world_size,)](
        layout.array(local, layout.published),
        layout.array(local, layout.published_rows),
        workspace.state,
        rows,
        workspace.max_polls,
        world_size=world_size,
        num_warps=1,
    )


def launch_inbox_select(workspace: Workspace, inbox: torch.Tensor, out: torch.Tensor) -> None:
    """Launch the selection of ``out`` [rows, k] from the first rows of the epoch's inbox slot."""
    geometry, world_size = workspace.geometry, workspace.fabric.world_size
    launch_select(
        inbox,
        out,
        count=world_size * geometry.local_candidates,
        source_candidates=geometry.local_candidates,
        source_words=geometry.local_candidates * 2,
        row_words=world_size * geometry.local_candidates * 2,
        policy=workspace.policy,
        contract=geometry.contract,
        implementation=geometry.implementation,
        state=workspace.state,
        slots=geometry.slots,
        slot_words=workspace.layout.slot_words,
    )


def launch_complete(workspace: Workspace) -> None:
    """Launch the end of the exchange: acknowledgement, where the discipline has it, and the next epoch."""
    assert workspace.buffer is not None
    complete[(1,)](
        workspace.buffer.peer_addresses,
        workspace.state,
        world_size=workspace.fabric.world_size,
        rank=workspace.fabric.rank,
        acknowledged_offset=workspace.layout.acknowledged,
        acknowledges=workspace.geometry.discipline == "acknowledged",
        num_warps=1,
    )


def cover(length: int) -> tuple[int, int]:
    """Return a power-of-two block for ``length`` lanes, and how many blocks cover them."""
    block = min(1 << (length - 1).bit_length(), LARGEST_BLOCK)
    return block, -(-length // block)
