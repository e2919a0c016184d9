"""Audits of merges in one launch: a world of one rank, one launch for each row of ``selector_rows``.

The one rank sends its row to itself, awaits it, and selects.  The CTA of the row
is launched alone: what the one that meets the peers orders is judged with
several ranks (``tiebreak.ptx.ranks``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tiebreak.impl.fused import merge_recipe
from tiebreak.impl.specialization import SelectorSpecialization

from .arguments import Array, Placed
from .audit import Input
from .cutedsl import obtain_recipe_code
from .launch import Prepared
from .selector_rows import SelectorRow, draw_rows

PACKET_BYTES, LONG = 8, 8
ARRIVED, ARRIVED_ROWS, USES, PACKETS = 0, 64, 128, 192
"""Offsets in the buffer of a rank: flags, numbers of rows by slot, numbers of uses, and two slots of one row."""

STATE_WORDS = 16
POLLS = 16


def draw_inputs(specialization: SelectorSpecialization, architecture: str, seed: int = 0) -> Iterator[Input]:
    """Yield a launch for every row that leads the selector in a merge down another path, and one that fails.

    Ids are columns of the scores: they lie close to one another, and equal ids have one score.

    Raises:
        MissingBackendError: The merge is not compiled, and CuTeDSL is not there.
    """
    code = obtain_recipe_code(merge_recipe(specialization, architecture))
    block = (specialization.threads, 1, 1)
    for row in draw_rows(specialization, seed):
        scores, indices = _shard(row)
        yield Input(row.name, Prepared(code, _list_arguments(scores, indices, row.k), (1, 1, 1), block))
    wrong = np.append(indices[:-1], np.int32(len(scores)))
    yield Input("a wrong index", Prepared(code, _list_arguments(scores, wrong, row.k), (1, 1, 1), block))


def _list_arguments(scores: Array, indices: Array, k: int) -> tuple[Placed | int, ...]:
    """Arguments of the kernel in order (``impl.cutedsl.merge.PARAMETERS``)."""
    count = len(indices)
    slot_bytes = PACKET_BYTES * count
    # Packets start on a multiple of 16 bytes, as vector accesses ask for; int64 arrays of NumPy do.
    buffer = Placed(np.zeros((PACKETS + 2 * slot_bytes) // LONG, np.int64))
    peers = Placed(np.array([buffer.address], np.int64), addressed=(buffer,))
    state, output = Placed(np.zeros(STATE_WORDS, np.int64)), Placed(np.full(k, -1, np.int32))
    addresses = (Placed(scores), Placed(indices), 0, peers, buffer, state, output)
    distances = (0, count, k, slot_bytes, POLLS, PACKETS, USES, ARRIVED, ARRIVED_ROWS)
    return (*addresses, *distances, 1, len(scores), count, 1, 0, 1, k)


def _shard(row: SelectorRow) -> tuple[Array, Array]:
    """Scores by column, and the columns of the candidates: int32[count]."""
    used, columns = np.unique(row.ids, return_inverse=True)
    padding = int(used[0] == -1)
    scores = np.zeros(max(1, len(used) - padding), np.float32)
    indices = columns.astype(np.int32) - padding
    scores[indices[indices >= 0]] = row.scores[indices >= 0]
    return scores, indices
