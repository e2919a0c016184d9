"""Localisation: the owned ids of a global selection, as local or physical positions."""

import triton
import triton.language as tl

from .kernels_state import LARGEST_ID


@triton.jit
def physical_slots(
    table: tl.tensor,
    request: tl.tensor,
    position: tl.tensor,
    owned: tl.tensor,
    table_stride: tl.tensor,
    request_count: tl.tensor,
    block_count: tl.tensor,
    block_size: tl.tensor,
    block_stride: tl.tensor,
) -> tl.tensor:
    """Slots of local positions in a paged cache (int64), -1 for what the table does not hold."""
    block = position // block_size
    blocks_held = tl.where((request >= 0) & (request < request_count), block_count, 0)
    held = owned & (block < blocks_held)
    physical = tl.load(table + request * table_stride + block, mask=held, other=-1).to(tl.int64)
    slot = physical * block_stride + position % block_size
    return tl.where((physical >= 0) & (slot <= LARGEST_ID), slot, -1)


@triton.jit(
    do_not_specialize=[
        "k",
        "ids_stride",
        "output_stride",
        "table_stride",
        "request_count",
        "block_count",
        "block_size",
        "block_stride",
    ]
)
def localise(
    global_ids: tl.tensor,
    output: tl.tensor,
    counts: tl.tensor,
    block_table: tl.tensor,
    requests: tl.tensor,
    k: tl.tensor,
    ids_stride: tl.tensor,
    output_stride: tl.tensor,
    table_stride: tl.tensor,
    request_count: tl.tensor,
    block_count: tl.tensor,
    block_size: tl.tensor,
    block_stride: tl.tensor,
    world_size: tl.constexpr,
    rank: tl.constexpr,
    interleave: tl.constexpr,
    has_table: tl.constexpr,
    has_requests: tl.constexpr,
    tile: tl.constexpr,
) -> None:
    """Pack the positions of owned ids to the front, in input order.  Grid (rows,).

    Tiles run one after another with a running count, so the order does not
    depend on timing.  The tail is -1 and ``counts`` gets the number of entries.
    A row with a position that the block table does not hold becomes -1
    everywhere, with the count -1.
    """
    row = tl.program_id(0).to(tl.int64)
    request = tl.load(requests + row).to(tl.int64) if has_requests else row
    target = output + row * output_stride
    kept = 0
    missing = 0
    for start in range(0, k, tile):
        lane = start + tl.arange(0, tile)
        identity = tl.load(global_ids + row * ids_stride + lane, mask=lane < k, other=-1)
        run = identity // interleave
        owned = (identity >= 0) & (run % world_size == rank)
        position = ((run // world_size) * interleave + identity % interleave).to(tl.int64)
        if has_table:
            position = physical_slots(
                block_table,
                request,
                position,
                owned,
                table_stride,
                request_count,
                block_count,
                block_size,
                block_stride,
            )
            missing += tl.sum((owned & (position < 0)).to(tl.int32), axis=0)
        place = kept + tl.cumsum(owned.to(tl.int32), axis=0) - 1
        tl.store(target + place, position.to(tl.int32), mask=owned)
        kept += tl.sum(owned.to(tl.int32), axis=0)
    kept = tl.where(missing > 0, 0, kept)
    tl.store(counts + row, tl.where(missing > 0, -1, kept))
    # The tail of a broken row covers entries that other lanes stored.
    tl.debug_barrier()
    for start in range(0, k, tile):
        lane = start + tl.arange(0, tile)
        tl.store(target + lane, tl.full((tile,), -1, tl.int32), mask=(lane >= kept) & (lane < k))
