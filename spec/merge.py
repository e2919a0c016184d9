"""Reading order 6 of 11: the merge, end to end.

Local top-K on every rank, packing, exchange, selection.  The exchange is a
plain gather here; how memory and flags carry it is the subject of
``exchange``.  ``merge`` is what every rank must return, also when each row is
merged by one rank only (``merge_by_owner``), and ``merge_in_place`` where the
ids are to stand in the order of the candidates; ``local_topk`` on an
unsharded row is what the whole chain must be equal to, and ``theorem`` states
when it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiebreak.errors import InputError

from .layout import Layout
from .order import PADDING_ID, Ids, Preset, Scores, require_array, require_shape
from .packing import gather_row_major, pack, require_row_starts, unpack
from .selection import select, select_in_place


class Shard(NamedTuple):
    """One rank's part of unsharded rows.

    Attributes:
        scores: float32[rows, width]; columns beyond a row's length are NaN.
        lengths: int32[rows], tokens of each row that the rank owns.
    """

    scores: Scores
    lengths: Ids


def shard(scores: Scores, lengths: Ids, layout: Layout) -> list[Shard]:
    """Shards of unsharded rows, one per rank.

    Meaning:
        Column l of rank r holds the score of global id ``global(r, l)``.  Every
        shard is as wide as its longest row, so a rank that owns nothing of any
        row has width 0.  Unused columns hold NaN, which no correct consumer
        reads.
    Shapes:
        float32[rows, N] and int32[rows] to W shards.
    Errors:
        ``InputError`` for other dtypes or shapes, or a length outside 0..N.
    Source:
        https://github.com/vllm-project/vllm/pull/46076 (interleaved context
        parallelism of the decode cache).
    """
    _require_lengths(scores, lengths, np.zeros(len(scores), dtype=np.int64))
    shards = []
    for rank in range(layout.world_size):
        local = layout.local_length(rank, lengths)
        columns = np.arange(local.max(initial=0))
        present = columns < local[:, None]
        part = np.full(present.shape, np.nan, dtype=np.float32)
        row, column = np.nonzero(present)
        part[row, column] = scores[row, layout.global_id(rank, column)]
        shards.append(Shard(part, local.astype(np.int32)))
    return shards


def local_topk(
    scores: Scores,
    lengths: Ids,
    k: int,
    preset: str | Preset = "ieee",
    row_starts: NDArray[np.integer] | None = None,
) -> Ids:
    """Local indices of the K best scores of every row, best first.

    Meaning:
        Row r consists of the ``lengths[r]`` columns from ``row_starts[r]`` on;
        indices count from there.  Ties go to the lowest index, which on one
        rank is the lowest global id, so this is the total order of ``order``.
        Unused slots hold -1.
    Shapes:
        float32[rows, width], int32[rows] and integers[rows] to int32[rows, k].
    Errors:
        ``InputError`` for other dtypes or shapes, a negative k, an unknown
        preset, or a row that does not lie within the width.
    Source:
        Contract of the local stage of https://github.com/vllm-project/vllm/pull/46076.
        No public backend of that stage is tie-stable by default
        (https://github.com/vllm-project/vllm/pull/54955).
    """
    starts = require_row_starts(row_starts, len(scores))
    _require_lengths(scores, lengths, starts)
    # Columns before the start get negative indices, which are padding like those after the end.
    index = np.arange(scores.shape[1]) - starts[:, None]
    return select(scores, np.where(index < lengths[:, None], index, PADDING_ID).astype(np.int32), k, preset)


def merge(
    per_rank_scores: Sequence[Scores],
    per_rank_local_indices: Sequence[Ids],
    layout: Layout,
    k: int,
    preset: str | Preset = "ieee",
    row_starts: Sequence[NDArray[np.integer] | None] | None = None,
) -> Ids:
    """Global ids that every rank must return, best first.

    Meaning:
        Packs what each rank selected locally, gathers it, and selects.  Ranks
        of width 0 take part with padding.  The local indices may come from any
        local selection; ``theorem`` says what the result is then worth.
    Shapes:
        Per rank float32[rows, width], int32[rows, L] and integers[rows] (the
        width may differ between ranks, rows and L may not), to int32[rows, k].
    Errors:
        ``InputError`` for a number of ranks that is not the layout's, and for
        whatever ``pack``, ``gather_row_major`` and ``select`` reject.
    Source:
        https://github.com/vllm-project/vllm/pull/46076.
    """
    return select(*_gather(per_rank_scores, per_rank_local_indices, layout, row_starts), k, preset)


def merge_in_place(
    per_rank_scores: Sequence[Scores],
    per_rank_local_indices: Sequence[Ids],
    layout: Layout,
    k: int,
    preset: str | Preset = "ieee",
    row_starts: Sequence[NDArray[np.integer] | None] | None = None,
) -> Ids:
    """The same ids as ``merge``, in the order in which the ranks offer them.

    Meaning:
        The candidates of rank 0 in the order of its local indices, then those
        of rank 1, and so on; see ``select_in_place``.
    Shapes:
        As ``merge``.
    Errors:
        As ``merge``.
    Source:
        None; see ``select_in_place``.
    """
    return select_in_place(*_gather(per_rank_scores, per_rank_local_indices, layout, row_starts), k, preset)


def owned_rows(rows: int, world_size: int) -> list[slice]:
    """Rows that each rank merges when rows have owners.

    Meaning:
        Equal shares of ceil(rows / W) rows in rank order, so that the last
        ranks may own fewer rows, or none.
    Shapes:
        One slice per rank; together they are rows 0..rows-1 in order.
    Errors:
        ``InputError`` for fewer than 0 rows or 1 rank.
    Source:
        https://github.com/local-inference-lab/vllm/pull/178.
    """
    for name, value, least in (("rows", rows, 0), ("world size", world_size, 1)):
        if value < least:
            raise InputError(name, value=value, limit=f"must be at least {least}")
    share = -(-rows // world_size)
    return [slice(min(rank * share, rows), min((rank + 1) * share, rows)) for rank in range(world_size)]


def merge_by_owner(
    per_rank_scores: Sequence[Scores],
    per_rank_local_indices: Sequence[Ids],
    layout: Layout,
    k: int,
    preset: str | Preset = "ieee",
    row_starts: Sequence[NDArray[np.integer] | None] | None = None,
) -> Ids:
    """The same ids as ``merge``, each row merged by its owner only.

    Meaning:
        Every rank merges the candidates of the rows that it owns, and all ranks
        get all ids.  A merge treats rows one by one, so this is ``merge``.
    Shapes:
        As ``merge``.
    Errors:
        As ``merge``.
    Source:
        https://github.com/local-inference-lab/vllm/pull/178.
    """
    starts = [None] * layout.world_size if row_starts is None else row_starts
    shares = owned_rows(len(per_rank_local_indices[0]) if per_rank_local_indices else 0, layout.world_size)
    returned = [
        merge(
            [scores[rows] for scores in per_rank_scores],
            [indices[rows] for indices in per_rank_local_indices],
            layout,
            k,
            preset,
            [None if start is None else start[rows] for start in starts],
        )
        for rows in shares
    ]
    return np.concatenate(returned)


def _gather(
    per_rank_scores: Sequence[Scores],
    per_rank_local_indices: Sequence[Ids],
    layout: Layout,
    row_starts: Sequence[NDArray[np.integer] | None] | None,
) -> tuple[Scores, Ids]:
    """Scores and ids of every rank's candidates, as each rank has them after the exchange."""
    ranks = range(layout.world_size)
    starts = [None] * layout.world_size if row_starts is None else row_starts
    for what, parts in (("scores", per_rank_scores), ("local indices", per_rank_local_indices), ("row starts", starts)):
        if len(parts) != layout.world_size:
            raise InputError(f"number of {what}", value=len(parts), limit=f"must be {layout.world_size}, one per rank")
    packed = [pack(per_rank_scores[rank], per_rank_local_indices[rank], rank, layout, starts[rank]) for rank in ranks]
    return unpack(gather_row_major(packed))


def _require_lengths(scores: Scores, lengths: Ids, starts: NDArray[np.int64]) -> None:
    require_array("scores", scores, np.float32, dimensions=2)
    require_array("lengths", lengths, np.int32)
    require_shape("lengths", lengths, scores.shape[:1])
    for row in np.flatnonzero((lengths < 0) | (starts + lengths > scores.shape[1])).tolist():
        raise InputError(
            f"length of row {row}",
            value=int(lengths[row]),
            limit=f"must be within 0..{scores.shape[1] - int(starts[row])}",
        )
