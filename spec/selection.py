"""Reading order 2 of 11: the global top-K of gathered candidates.

After the exchange every rank holds the same candidates, W*K pairs of a score
and a global id per row.  Selection is a pure function of those pairs: sort by
the key of ``order``, keep K.  Ranks that evaluate it on the same candidates
therefore agree, however the candidates are arranged.

A sort of integer keys is used and never ``argpartition`` or a library top-K:
those leave the choice among ties open, which is the very thing specified here.
"""

from __future__ import annotations

import numpy as np

from tiebreak.errors import InputError

from .order import PADDING_ID, Ids, Preset, Scores, keys, require_array


def require_k(k: int) -> None:
    """Check a number of slots.

    Meaning:
        Any number from zero up is a K; public kernels restrict it (512, 1024
        or 2048), the specification does not.
    Shapes:
        None.
    Errors:
        ``InputError`` for a negative number or anything but an integer.
    Source:
        None; a house rule.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 0:
        raise InputError("k", value=k, limit="must be an integer of at least 0")


def select(scores: Scores, ids: Ids, k: int, preset: str | Preset = "ieee") -> Ids:
    """Ids of the K best candidates of every row, best first.

    Meaning:
        Row by row, the ids of the K largest keys in descending order.  Slots
        that no valid candidate fills hold -1 and stand last; they occur when a
        row has fewer than K valid candidates, K above N included.  Candidates
        are counted with multiplicity: a pair offered twice may be selected
        twice, and takes two slots.  A valid candidate with score -inf or NaN
        is selected before any padding.
    Shapes:
        float32[rows, N] and int32[rows, N] to int32[rows, k]; rows, N and k
        may each be zero.
    Errors:
        ``InputError`` for other dtypes or shapes, a negative k, an unknown
        preset, or an id above the preset's ``id_limit``.
    Source:
        Membership at the cut-off as in https://github.com/vllm-project/vllm/pull/46076
        (score descending, then lowest global id).  The public kernel leaves
        the output order open; best first is this project's choice.
    """
    require_k(k)
    require_array("scores", scores, np.float32, dimensions=2)
    # Complementing the key makes an ascending sort put the best first.
    best_first = np.argsort(~keys(scores, ids, preset), axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(ids, best_first, axis=1)
    output = np.full((scores.shape[0], k), PADDING_ID, dtype=np.int32)
    output[:, : chosen.shape[1]] = np.where(chosen < 0, np.int32(PADDING_ID), chosen)
    return output


def select_in_place(scores: Scores, ids: Ids, k: int, preset: str | Preset = "ieee") -> Ids:
    """Ids of the K best candidates of every row, in the order in which they were offered.

    Meaning:
        The multiset of ids is that of ``select``; the chosen candidates keep
        their positions relative to one another, and -1 stands behind them.  Of
        equal pairs of which some only are chosen, the first ones are.
    Shapes:
        As ``select``.
    Errors:
        As ``select``.
    Source:
        None; the order that a selection by count, scan and indexed store leaves.
    """
    require_k(k)
    require_array("scores", scores, np.float32, dimensions=2)
    # A stable sort puts the first of equal candidates first.
    best_first = np.argsort(~keys(scores, ids, preset), axis=1, kind="stable")[:, :k]
    valid_first = np.sort(np.where(np.take_along_axis(ids, best_first, axis=1) < 0, ids.shape[1], best_first), axis=1)
    offered = np.concatenate([ids, np.full((ids.shape[0], 1), PADDING_ID, dtype=np.int32)], axis=1)
    output = np.full((scores.shape[0], k), PADDING_ID, dtype=np.int32)
    output[:, : valid_first.shape[1]] = np.take_along_axis(offered, valid_first, axis=1)
    return output
