"""Public localisation: which of the selected ids this rank owns, and where."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tiebreak.errors import InputError

from .geometry import check_integer
from .kernels_localise import localise as localise_kernel
from .kernels_state import LARGEST_ID
from .launch import device_guard
from .select import check_tensor, prepare_output

LARGEST_BLOCK = 1024


@dataclass(frozen=True)
class BlockTable:
    """Where a paged cache keeps each request's blocks.

    Attributes:
        blocks: int32 ``[requests, blocks]``: physical block of a logical one.
        block_size: Positions per block.
        block_stride: Distance of physical blocks, in positions; the block size if absent.
        requests: int32 ``[rows]``: request of each row; row r is request r if absent.
    """

    blocks: torch.Tensor
    block_size: int
    block_stride: int | None = None
    requests: torch.Tensor | None = None


def localise(
    global_ids: torch.Tensor,
    rank: int,
    world_size: int,
    interleave: int = 1,
    *,
    table: BlockTable | None = None,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep the ids that a rank owns, as local positions, in input order.

    With a block table a local position l becomes the physical slot
    ``blocks[request, l div block_size] * block_stride + l mod block_size``.  A
    row with a position that the table does not hold (a request or block outside
    it, a negative entry, a slot beyond int32) becomes -1 everywhere, with the
    count -1: a consumer must not read memory that nobody mapped.

    Args:
        global_ids: int32 ``[rows, k]``; negative ids are skipped.
        rank: The rank.
        world_size: Number of ranks.
        interleave: Consecutive tokens that one rank owns.
        table: Block table of a paged cache.
        out: int32 ``[rows, k]`` to write to; must not overlap ``global_ids``.

    Returns:
        int32 ``[rows, k]``: owned positions in front, -1 behind; and int32
        ``[rows]``: how many there are, -1 for a row that the table does not hold.

    Raises:
        InputError: A wrong dtype, shape, stride, device, rank or size.

    Source:
        https://github.com/vllm-project/vllm/pull/50365 (order of the packed prefix).
    """
    check_localisation(global_ids, rank, world_size, interleave, table)
    rows, k = global_ids.shape
    out = prepare_output(out, rows, k, global_ids.device)
    if out.numel() > 0 and out.untyped_storage().data_ptr() == global_ids.untyped_storage().data_ptr():
        raise InputError("out", limit="must not share memory with global_ids", remedy="pass another tensor")
    counts = torch.empty((rows,), dtype=torch.int32, device=global_ids.device)
    if rows > 0:
        _launch(global_ids, out, counts, rank, world_size, interleave, table)
    return out, counts


def check_localisation(
    global_ids: torch.Tensor, rank: int, world_size: int, interleave: int, table: BlockTable | None
) -> None:
    """Check the arguments of ``localise`` but its output."""
    check_tensor("global_ids", global_ids, torch.int32, (None, None))
    check_integer("world_size", world_size, 1, LARGEST_ID.value)
    check_integer("rank", rank, 0, world_size - 1)
    check_integer("interleave", interleave, 1, LARGEST_ID.value)
    if table is not None:
        _check_table(table, global_ids.shape[0], global_ids.device)


def _check_table(table: BlockTable, rows: int, device: torch.device) -> None:
    """Check a block table against the rows that use it."""
    check_integer("block_size", table.block_size, 1, LARGEST_ID.value)
    if table.block_stride is not None:
        check_integer("block_stride", table.block_stride, table.block_size, LARGEST_ID.value)
    check_tensor("blocks", table.blocks, torch.int32, (None, None), device)
    if table.requests is not None:
        check_tensor("requests", table.requests, torch.int32, (rows,), device)
    elif table.blocks.shape[0] != rows:
        raise InputError("requests of blocks", value=table.blocks.shape[0], limit=f"must be {rows}, one per row")


def _launch(
    global_ids: torch.Tensor,
    out: torch.Tensor,
    counts: torch.Tensor,
    rank: int,
    world_size: int,
    interleave: int,
    table: BlockTable | None,
) -> None:
    """Launch the localisation kernel, one program per row."""
    rows, k = global_ids.shape
    blocks = counts.view(rows, 1) if table is None else table.blocks
    block_size = 1 if table is None else table.block_size
    block_stride = block_size if table is None or table.block_stride is None else table.block_stride
    requests = None if table is None else table.requests
    with device_guard(global_ids.device):
        localise_kernel[(rows,)](
            global_ids,
            out,
            counts,
            blocks,
            counts if requests is None else requests,
            k,
            global_ids.stride(0),
            out.stride(0),
            blocks.stride(0),
            blocks.shape[0],
            blocks.shape[1],
            block_size,
            block_stride,
            world_size=world_size,
            rank=rank,
            interleave=interleave,
            has_table=table is not None,
            has_requests=requests is not None,
            tile=min(max(1 << (k - 1).bit_length(), 16), LARGEST_BLOCK),
        )
