"""Reading order 5 of 11: candidates as memory.

A candidate travels as two 32-bit words: the bits of its fp32 score and its
int32 global id.  Both are carried bit-cast in an int32 array whose last axis
has length 2.  No number is converted on the way, so a NaN keeps its payload
and every id of int32 arrives exact; public transports that convert the id to
fp32 round from 2**24 + 1 on.  Padding travels as (-inf, -1).

The candidates of W ranks meet in one of these shapes, which hold the same
pairs in different places:

=============================== ==========================================
shape                           where it is used
=============================== ==========================================
``[rows, W * K, 2]``            row-major; all-gather along dimension 1
``[max_rows, W, K, 2]``         inbox in symmetric memory; its first rows
                                reshape to row-major without a copy
``[W, rows, K, 2]``             rank-major; owner-local shards in one view
W arrays ``[max_rows, K, 2]``   owner-local shards behind a table of peers
=============================== ==========================================

The last part of the module goes the way back: from selected global ids to
the local positions, or the slots of a paged cache, that one rank owns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tiebreak.errors import InputError

from .layout import Layout, Positions
from .order import LARGEST_ID, PADDING_ID, Ids, Scores, require_array, require_shape

Candidates = NDArray[np.int32]
"""int32[..., 2]: the bits of an fp32 score, then an id."""

PADDING_SCORE = np.float32(-np.inf)
"""Score of padding; the negative id is what marks it, never the score."""


def pack(
    scores: Scores,
    local_indices: Ids,
    rank: int,
    layout: Layout,
    row_starts: NDArray[np.integer] | None = None,
) -> Candidates:
    """Candidates that one rank offers.

    Meaning:
        A local index l >= 0 of row r becomes the pair of the score in column
        ``row_starts[r] + l`` and the global id of l.  A negative index becomes
        (-inf, -1).  ``row_starts`` are the columns at which the rows of a
        ragged batch begin; without them every row begins at column 0.  A rank
        that owns nothing has width 0 and offers padding only.
    Shapes:
        float32[rows, width], int32[rows, K] and integers[rows] to
        int32[rows, K, 2].
    Errors:
        ``InputError`` for other dtypes or shapes, a rank outside the layout, a
        negative row start, a column outside the width, or a global id above
        2**31 - 1.  Public kernels clamp the column instead.
    Source:
        https://github.com/vllm-project/vllm/pull/46076 (which converts ids to
        fp32); ids bit-cast in https://github.com/vllm-project/vllm/pull/55961.
    """
    require_array("scores", scores, np.float32, dimensions=2)
    require_array("local_indices", local_indices, np.int32, dimensions=2)
    rows, width = scores.shape
    require_shape("local_indices", local_indices, (rows, local_indices.shape[1]))
    valid = local_indices >= 0
    columns = local_indices.astype(np.int64) + require_row_starts(row_starts, rows)[:, None]
    if np.any(valid & (columns >= width)):
        raise InputError("column of a local index", value=int(columns[valid].max()), limit=f"must be below {width}")
    ids = layout.global_id(rank, np.where(valid, local_indices, 0))
    if np.any(valid & (ids > LARGEST_ID)):
        raise InputError("global id", value=int(ids[valid].max()), limit=f"must be at most {LARGEST_ID}")
    packed = np.empty((*local_indices.shape, 2), dtype=np.int32)
    packed[..., 0] = PADDING_SCORE.view(np.int32)
    row, slot = np.nonzero(valid)
    packed[row, slot, 0] = scores[row, columns[row, slot]].view(np.int32)
    packed[..., 1] = np.where(valid, ids, PADDING_ID)
    return packed


def unpack(candidates: Candidates) -> tuple[Scores, Ids]:
    """Scores and ids of candidates.

    Meaning:
        The two words of every pair, bit-cast back.
    Shapes:
        int32[..., 2] to float32[...] and int32[...].
    Errors:
        ``InputError`` for another dtype or a last axis that is not 2.
    Source:
        None beyond ``pack``.
    """
    _require_candidates("candidates", candidates)
    return candidates[..., 0].copy().view(np.float32), candidates[..., 1].copy()


def gather_row_major(shards: Sequence[Candidates]) -> Candidates:
    """Row-major gather: the candidates of a row side by side.

    Meaning:
        Rank blocks of K candidates stand contiguous inside each row, rank 0
        first: the result of an all-gather along dimension 1.
    Shapes:
        W arrays int32[rows, K, 2], rank 0 first, to int32[rows, W * K, 2].
    Errors:
        ``InputError`` for no shard, other dtypes, or unequal shapes.
    Source:
        https://github.com/vllm-project/vllm/pull/46076.
    """
    return rank_major_to_row_major(gather_rank_major(shards))


def gather_rank_major(shards: Sequence[Candidates]) -> Candidates:
    """Rank-major gather: whole shards behind one another.

    Meaning:
        What a view over owner-local shards shows.
    Shapes:
        W arrays int32[rows, K, 2], rank 0 first, to int32[W, rows, K, 2].
    Errors:
        ``InputError`` for no shard, other dtypes, or unequal shapes.
    Source:
        https://github.com/vllm-project/vllm/pull/50366.
    """
    if not shards:
        raise InputError("number of shards", value=0, limit="a gather needs the shard of at least one rank")
    for rank, shard in enumerate(shards):
        _require_candidates(f"shard of rank {rank}", shard, dimensions=3)
        require_shape(f"shard of rank {rank}", shard, shards[0].shape)
    return np.stack(list(shards))


def gather_inbox(shards: Sequence[Candidates], max_rows: int) -> Candidates:
    """Inbox of symmetric memory after a complete exchange.

    Meaning:
        Row r of rank s stands at ``inbox[r, s]``.  Rows from ``rows`` on belong
        to no exchange; they are filled with padding here, hold leftovers of
        earlier exchanges in a real inbox, and must not be read.
    Shapes:
        W arrays int32[rows, K, 2] to int32[max_rows, W, K, 2].
    Errors:
        ``InputError`` as ``gather_rank_major``, or for rows above ``max_rows``.
    Source:
        https://github.com/vllm-project/vllm/pull/47348.
    """
    gathered = np.swapaxes(gather_rank_major(shards), 0, 1)
    rows = gathered.shape[0]
    if rows > max_rows:
        raise InputError("rows", value=rows, limit=f"the inbox has room for {max_rows}")
    inbox = np.empty((max_rows, *gathered.shape[1:]), dtype=np.int32)
    inbox[..., 0] = PADDING_SCORE.view(np.int32)
    inbox[..., 1] = PADDING_ID
    inbox[:rows] = gathered
    return inbox


def inbox_to_row_major(inbox: Candidates, rows: int) -> Candidates:
    """Row-major candidates of the first rows of an inbox.

    Meaning:
        A reshape without a copy, which is why the inbox has its rows first.
    Shapes:
        int32[max_rows, W, K, 2] to int32[rows, W * K, 2].
    Errors:
        ``InputError`` for another dtype or shape, or rows outside
        0..max_rows.
    Source:
        https://github.com/vllm-project/vllm/pull/47348.
    """
    _require_candidates("inbox", inbox, dimensions=4)
    if not 0 <= rows <= inbox.shape[0]:
        raise InputError("rows", value=rows, limit=f"must be within 0..{inbox.shape[0]}")
    return inbox[:rows].reshape(rows, inbox.shape[1] * inbox.shape[2], 2)


def peers_to_row_major(peers: Sequence[Candidates], rows: int) -> Candidates:
    """Row-major candidates read through a table of peers.

    Meaning:
        Each peer's own buffer has room for ``max_rows``; its first rows are
        gathered.  The buffers may differ in their room, not in K.
    Shapes:
        W arrays int32[max_rows, K, 2] to int32[rows, W * K, 2].
    Errors:
        ``InputError`` as ``gather_row_major``, or for rows outside a buffer.
    Source:
        https://github.com/vllm-project/vllm/pull/50366 and pull/50010.
    """
    for rank, peer in enumerate(peers):
        _require_candidates(f"buffer of rank {rank}", peer, dimensions=3)
        if not 0 <= rows <= peer.shape[0]:
            raise InputError("rows", value=rows, limit=f"rank {rank} has room for {peer.shape[0]}")
    return gather_row_major([peer[:rows] for peer in peers])


def rank_major_to_row_major(candidates: Candidates) -> Candidates:
    """Row-major form of rank-major candidates.

    Meaning:
        The same pairs; inverse of ``row_major_to_rank_major``.
    Shapes:
        int32[W, rows, K, 2] to int32[rows, W * K, 2].
    Errors:
        ``InputError`` for another dtype or shape.
    Source:
        None; a transposition.
    """
    _require_candidates("candidates", candidates, dimensions=4)
    world_size, rows, width, _ = candidates.shape
    return np.swapaxes(candidates, 0, 1).reshape(rows, world_size * width, 2)


def row_major_to_rank_major(candidates: Candidates, world_size: int) -> Candidates:
    """Rank-major form of row-major candidates.

    Meaning:
        The same pairs; inverse of ``rank_major_to_row_major``.
    Shapes:
        int32[rows, W * K, 2] to int32[W, rows, K, 2].
    Errors:
        ``InputError`` for another dtype or shape, or a number of candidates
        that W does not divide.
    Source:
        None; a transposition.
    """
    _require_candidates("candidates", candidates, dimensions=3)
    rows, total, _ = candidates.shape
    if world_size < 1 or total % world_size:
        raise InputError("world_size", value=world_size, limit=f"must divide the {total} candidates of a row")
    blocks = candidates.reshape(rows, world_size, total // world_size, 2)
    return np.ascontiguousarray(np.swapaxes(blocks, 0, 1))


def localise(
    global_ids: Ids,
    rank: int,
    layout: Layout,
    block_table: Ids | None = None,
    block_size: int = 64,
    block_stride: int | None = None,
    requests: NDArray[np.integer] | None = None,
) -> tuple[Ids, Ids]:
    """Local positions of the selected ids that one rank owns.

    Meaning:
        Row by row, the owned ids in input order, packed to the front, and
        their number; -1 fills the tail.  Without a block table a position is
        the local index l.  With one it is the slot of a paged cache,
        ``block_table[request, l div block_size] * block_stride + l mod block_size``,
        where ``block_stride`` (default ``block_size``) is the distance of two
        blocks in slots and row r belongs to request ``requests[r]`` (default r).
    Shapes:
        int32[rows, K], int32[number of requests, blocks] and integers[rows] to
        int32[rows, K] and int32[rows].
    Errors:
        ``InputError`` for other dtypes or shapes, a rank outside the layout, a
        block size below 1, a stride below the block size, a request or block
        outside the table, a negative table entry in use, or a slot above
        2**31 - 1.
    Source:
        Filter stage of https://github.com/vllm-project/vllm/pull/46076; a
        deterministic prefix since https://github.com/vllm-project/vllm/pull/50365.
    """
    require_array("global_ids", global_ids, np.int32, dimensions=2)
    valid = global_ids >= 0
    positive = np.where(valid, global_ids, 0)
    # The layout knows which ranks exist; asking it for no position checks the rank and nothing else.
    layout.global_id(rank, np.empty(0, dtype=np.int64))
    owned = valid & (layout.owner(positive) == rank)
    row, slot = np.nonzero(owned)
    positions = layout.local_index(positive[row, slot])
    if block_table is not None:
        request = row if requests is None else _requests(requests, len(global_ids))[row]
        stride = block_size if block_stride is None else block_stride
        positions = _physical_slots(positions, request, block_table, block_size, stride)
    counts = np.count_nonzero(owned, axis=1)
    local = np.full(global_ids.shape, PADDING_ID, dtype=np.int32)
    # nonzero walks row by row, so the k-th owned id of a row goes to slot k of that row.
    local[row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]] = positions
    return local, counts.astype(np.int32)


def require_row_starts(row_starts: NDArray[np.integer] | None, rows: int) -> Positions:
    """Row starts as int64, zeros when there are none.

    Meaning:
        One column per row at which the row's scores begin.
    Shapes:
        integers[rows] to int64[rows].
    Errors:
        ``InputError`` for another shape, another kind of dtype, or a negative
        start.
    Source:
        ``cu_seqlen_ks`` of https://github.com/vllm-project/vllm/pull/46076.
    """
    if row_starts is None:
        return np.zeros(rows, dtype=np.int64)
    starts = _integers("row_starts", row_starts, rows)
    if np.any(starts < 0):
        raise InputError("row start", value=int(starts.min()), limit="must be at least 0")
    return starts


def _integers(what: str, array: NDArray[np.integer], rows: int) -> Positions:
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"dtype of {what}", value=str(array.dtype), limit="must be an integer type")
    require_shape(what, array, (rows,))
    return array.astype(np.int64)


def _requests(requests: NDArray[np.integer], rows: int) -> Positions:
    return _integers("requests", requests, rows)


def _physical_slots(
    local: Positions, request: Positions, block_table: Ids, block_size: int, block_stride: int
) -> Positions:
    require_array("block_table", block_table, np.int32, dimensions=2)
    if block_size < 1:
        raise InputError("block_size", value=block_size, limit="must be at least 1")
    if block_stride < block_size:
        raise InputError("block_stride", value=block_stride, limit=f"must be at least the block size {block_size}")
    block = local // block_size
    for what, index, bound in (("request", request, block_table.shape[0]), ("block", block, block_table.shape[1])):
        if np.any((index < 0) | (index >= bound)):
            raise InputError(f"{what} of an owned id", value=int(index.max()), limit=f"the table has {bound}")
    physical = block_table[request, block].astype(np.int64)
    slots = physical * block_stride + local % block_size
    if np.any(physical < 0) or np.any(slots > LARGEST_ID):
        raise InputError("block_table", limit=f"an entry in use leads outside slots 0..{LARGEST_ID}")
    return slots


def _require_candidates(what: str, candidates: Candidates, dimensions: int | None = None) -> None:
    require_array(what, candidates, np.int32, dimensions)
    if candidates.ndim == 0 or candidates.shape[-1] != 2:
        raise InputError(f"shape of {what}", value=candidates.shape, limit="the last axis must be 2: score bits, id")
