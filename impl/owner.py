"""Launches of one owner-sharded exchange: each rank merges some of the rows, and returns their ids to the others.

With many rows most of the time goes into moving candidates and selecting.  Here
a row's candidates travel to one rank only, which alone selects: W - 1 slices of
L candidates (8 bytes each) and W - 1 times k ids (4 bytes each) cross the links
for a row, instead of W (W - 1) slices.  The price is a second hop.

Source: https://github.com/local-inference-lab/vllm/pull/178.
"""

from __future__ import annotations

import torch

from .exchange import (
    cover,
    launch_complete,
    launch_inbox_select,
    launch_pack,
    launch_publish,
    launch_wait,
    launch_wait_writable,
)
from .kernels_owner import collect, publish_returned, push_to_owners, return_ids, wait_returned
from .layout import rows_per_owner
from .workspace import Workspace


def exchange_by_owner(
    workspace: Workspace,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    row_starts: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Launch one exchange of at least one row: its owner gets a row's candidates, and every rank the ids."""
    assert workspace.buffer is not None
    rows, geometry = scores.shape[0], workspace.geometry
    owned_rows = rows_per_owner(rows, workspace.fabric.world_size)
    returned_ids = workspace.layout.returned_words(workspace.buffer.local).view(-1, geometry.k)
    shape = (rows, geometry.local_candidates, 2)
    packed = torch.empty(shape, dtype=torch.int32, device=scores.device)
    launch_wait_writable(workspace)
    launch_pack(workspace, scores, local_indices, row_starts, packed, geometry.local_candidates * 2, 1, 0)
    _push_to_owners(workspace, packed, owned_rows)
    launch_publish(workspace, rows)
    launch_wait(workspace, rows)
    first_row = min(workspace.fabric.rank * owned_rows, rows)
    own_ids = returned_ids[first_row : min(first_row + owned_rows, rows)]
    launch_inbox_select(workspace, workspace.layout.inbox_words(workspace.buffer.local), own_ids)
    _return_ids(workspace, returned_ids, first_row, own_ids.shape[0])
    _collect(workspace, returned_ids, out)
    launch_complete(workspace)


def _push_to_owners(workspace: Workspace, packed: torch.Tensor, owned_rows: int) -> None:
    """Launch the push of every row's candidates to its owner."""
    assert workspace.buffer is not None
    geometry, layout = workspace.geometry, workspace.layout
    block, tiles = cover(2 * geometry.local_candidates)
    push_to_owners[(packed.shape[0], tiles)](
        packed,
        workspace.buffer.peer_addresses,
        workspace.state,
        owned_rows,
        layout.slot_words,
        world_size=workspace.fabric.world_size,
        rank=workspace.fabric.rank,
        local_candidates=geometry.local_candidates,
        slots=geometry.slots,
        inbox_offset=layout.inbox,
        block=block,
    )


def _return_ids(workspace: Workspace, returned_ids: torch.Tensor, first_row: int, count: int) -> None:
    """Launch the return of this rank's ids to every peer, and its publication."""
    assert workspace.buffer is not None
    world_size, rank, layout = workspace.fabric.world_size, workspace.fabric.rank, workspace.layout
    addresses, state, k = workspace.buffer.peer_addresses, workspace.state, workspace.geometry.k
    block, tiles = cover(k)
    if count > 0:
        return_ids[(count, tiles, world_size - 1)](
            returned_ids,
            addresses,
            state,
            first_row,
            k,
            world_size=world_size,
            rank=rank,
            returned_ids_offset=layout.returned_ids,
            block=block,
        )
    publish_returned[(world_size,)](addresses, state, rank=rank, returned_offset=layout.returned, num_warps=1)


def _collect(workspace: Workspace, returned_ids: torch.Tensor, out: torch.Tensor) -> None:
    """Launch the wait for every owner's ids, and their copy to ``out``."""
    assert workspace.buffer is not None
    layout, state, k = workspace.layout, workspace.state, workspace.geometry.k
    returned = layout.array(workspace.buffer.local, layout.returned)
    wait_returned[(workspace.fabric.world_size,)](returned, state, workspace.max_polls, num_warps=1)
    block, tiles = cover(k)
    collect[(out.shape[0], tiles)](returned_ids, out, state, out.stride(0), k, block=block)
