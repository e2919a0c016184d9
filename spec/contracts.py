"""Reading order 3 of 11: what a caller may rely on.

One selection can be right in three senses, from weak to strong.  A caller
states which one is meant, and nothing stronger is then held against it:

``values``
    The scores of the selected candidates are the K best scores, as a multiset
    under the preset's ties.  Which of several tied ids was taken is open.
``set``
    The selected ids are exactly those of the total order, as a multiset with
    counts.  A Python set would hide {5, 5} where {4, 5} is right.
``order``
    The ids stand exactly as ``selection.select`` returns them.

In all three, a slot without a candidate holds -1; where it stands is open
except under ``order``, which puts it last.  Each contract implies the ones
before it.  Agreement between ranks is a fourth property: every rank must
return the same ids, because the ranks go on to split them by owner and any
difference double-counts or loses tokens silently.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiebreak.errors import InputError

from .order import PADDING_ID, Ids, Preset, Scores, require_array, require_shape, score_words
from .selection import select


class Contract(enum.Enum):
    """Strength of the promise about one rank's output."""

    VALUES = "values"
    SET = "set"
    ORDER = "order"


@dataclass(frozen=True)
class Violation:
    """One row that breaks one property.

    Attributes:
        property: "values", "set", "order" or "agreement".
        row: Row of the output.
        message: What is wrong, in one sentence.
        expected: An output row that the property allows, best first; for
            agreement, the row of rank 0.
        actual: The row found.
    """

    property: str
    row: int
    message: str
    expected: tuple[int, ...]
    actual: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.property}, row {self.row}: {self.message}; expected {self.expected}, actual {self.actual}"


def check_selection(
    scores: Scores, ids: Ids, k: int, output: Ids, contract: Contract, preset: str | Preset = "ieee"
) -> list[Violation]:
    """Violations of one contract by one output, at most one per row.

    Meaning:
        Empty when the output keeps the contract.  An id that is not among the
        candidates, or is used more often than offered, breaks every contract;
        so does a wrong number of -1 slots or another negative id.
    Shapes:
        float32[rows, N], int32[rows, N] and output int32[rows, k].
    Errors:
        ``InputError`` for arguments that ``selection.select`` rejects or an
        output of another dtype or shape.
    Source:
        Three separate properties because public tests compare sorted rows
        only (https://github.com/vllm-project/vllm/pull/47348) or score
        multisets only (https://github.com/ROCm/ATOM/pull/1832).
    """
    expected = select(scores, ids, k, preset)
    require_array("output", output, np.int32, dimensions=2)
    require_shape("output", output, expected.shape)
    if contract is Contract.ORDER:
        differing = np.any(output != expected, axis=1)
    else:
        differing = np.any(np.sort(output, axis=1) != np.sort(expected, axis=1), axis=1)
    violations = []
    for row in np.flatnonzero(differing).tolist():
        # Equal multisets of ids satisfy the values contract, so only rows that differ are looked at closely.
        if contract is Contract.VALUES:
            message = _explain_values(ids[row], score_words(scores[row], preset), expected[row], output[row])
        else:
            message = _explain_ids(expected[row], output[row])
        if message:
            violations.append(_violation(contract.value, row, message, expected[row], output[row]))
    return violations


def check_agreement(outputs: Sequence[Ids], contract: Contract) -> list[Violation]:
    """Violations of cross-rank agreement, at most one per row and rank.

    Meaning:
        Under ``ORDER`` every rank's array equals that of rank 0 slot by slot.
        Under ``SET`` and ``VALUES`` the multisets of ids are equal: ``VALUES``
        leaves the choice among ties open, but the ranks must make it alike.
        Agreement says nothing about correctness; all may be wrong together.
    Shapes:
        One int32[rows, k] per rank, of one shape.
    Errors:
        ``InputError`` for no output at all, another dtype, or unequal shapes.
    Source:
        Downstream use by owner: https://github.com/vllm-project/vllm/pull/46076.
    """
    if not outputs:
        raise InputError("number of outputs", value=0, limit="agreement needs the output of at least one rank")
    for rank, output in enumerate(outputs):
        require_array(f"output of rank {rank}", output, np.int32, dimensions=2)
        require_shape(f"output of rank {rank}", output, outputs[0].shape)
    violations = []
    compared = [output if contract is Contract.ORDER else np.sort(output, axis=1) for output in outputs]
    for rank in range(1, len(outputs)):
        for row in np.flatnonzero(np.any(compared[rank] != compared[0], axis=1)).tolist():
            first, other = outputs[0][row], outputs[rank][row]
            message = f"rank {rank} differs from rank 0: {_explain_ids(first, other)}"
            violations.append(_violation("agreement", row, message, first, other))
    return violations


def _violation(name: str, row: int, message: str, expected: Ids, actual: Ids) -> Violation:
    return Violation(name, row, message, tuple(expected.tolist()), tuple(actual.tolist()))


def _explain_ids(expected: Ids, actual: Ids) -> str:
    """Difference of two rows of ids as multisets, or the first slot that differs."""
    wanted, found = Counter(expected.tolist()), Counter(actual.tolist())
    parts = []
    if wanted - found:
        parts.append(f"missing {sorted((wanted - found).elements())}")
    if found - wanted:
        parts.append(f"unexpected {sorted((found - wanted).elements())}")
    if not parts:
        slot = int(np.flatnonzero(expected != actual)[0])
        parts.append(f"same ids in another order from slot {slot}")
    return ", ".join(parts)


def _explain_values(ids: Ids, words: np.ndarray, expected: Ids, actual: Ids) -> str:
    """First breach of the values contract in one row, or the empty string.

    Every candidate above the cut-off word must be there, and the remaining
    slots must come from the candidates that tie at it.  Counting both per id
    decides the contract also when one id is offered with several scores.
    """
    found = Counter(actual.tolist())
    unused = int(np.count_nonzero(expected < 0))
    if found.pop(PADDING_ID, 0) != unused:
        return f"{int(np.count_nonzero(actual == PADDING_ID))} slots hold -1 instead of {unused}"
    if len(expected) == unused:
        return f"ids {sorted(found)} are not -1" if found else ""
    best = np.sort(words[ids >= 0])[::-1]
    cut = best[len(expected) - unused - 1]
    above = Counter(ids[(ids >= 0) & (words > cut)].tolist())
    reachable = above + Counter(ids[(ids >= 0) & (words == cut)].tolist())
    for number, count in sorted(found.items()):
        if count > reachable[number]:
            return f"id {number} is used {count} times but offered {reachable[number]} times at or above the cut-off"
    for number, count in sorted(above.items()):
        if found[number] < count:
            return f"id {number} scores above the cut-off {count} times but is used {found[number]} times"
    return ""
