"""Localisation: the owned ids of a global selection, as local or physical positions."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["k", "ids_stride", "output_stride", "table_stride", "block_size", "block_stride"])
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
    block_size: tl.tensor,
    block_stride: tl.tensor,
    world_size: tl.constexpr,
    rank: tl.constexpr,
    interleave: tl.constexpr,
    has_table: tl.constexpr,
    has_requests: tl.constexpr,
    tile: tl.constexpr,
) -> None:
    """Pack the local positions of owned ids to the front, in input order.  Grid (rows,).

    Tiles run one after another with a running count, so the order does not
    depend on timing.  The tail is -1 and ``counts`` gets the number of entries.
    """
    row = tl.program_id(0).to(tl.int64)
    kept = 0
    table = block_table
    if has_table:
        request = row
        if has_requests:
            request = tl.load(requests + row).to(tl.int64)
        table += request * table_stride
    for start in range(0, k, tile):
        lane = start + tl.arange(0, tile)
        identity = tl.load(global_ids + row * ids_stride + lane, mask=lane < k, other=-1)
        run = identity // interleave
        owned = (identity >= 0) & (run % world_size == rank)
        position = (run // world_size) * interleave + identity % interleave
        if has_table:
            block = tl.load(table + position // block_size, mask=owned, other=0)
            position = block * block_stride + position % block_size
        place = kept + tl.cumsum(owned.to(tl.int32), axis=0) - 1
        tl.store(output + row * output_stride + place, position, mask=owned)
        kept += tl.sum(owned.to(tl.int32), axis=0)
    tl.store(counts + row, kept)
    for start in range(0, k, tile):
        lane = start + tl.arange(0, tile)
        tl.store(output + row * output_stride + lane, tl.full((tile,), -1, tl.int32), mask=(lane >= kept) & (lane < k))
