"""Reduction of a failing input that Hypothesis did not draw.

Delta debugging (Zeller and Hildebrandt, TSE 2002) over candidates: drop ever
smaller blocks for as long as the input still fails, with as few slots as will
do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tiebreak.target.tokens import TargetInput

ATTEMPTS = 2000
"""Largest number of inputs that a reduction tries."""


def reduce_input(example: TargetInput, fails: Callable[[TargetInput], bool], attempts: int = ATTEMPTS) -> TargetInput:
    """Reduce a failing input until no smaller neighbour fails, or the attempts run out.

    Args:
        example: Input for which ``fails`` holds.
        fails: Predicate; it is called on smaller inputs only.
        attempts: Largest number of calls of ``fails``.

    Returns:
        An input for which ``fails`` held.
    """
    while attempts > 0:
        for smaller in _smaller_inputs(example):
            attempts -= 1
            if fails(smaller):
                example = smaller
                break
            if attempts <= 0:
                break
        else:
            break
    return example


def _smaller_inputs(example: TargetInput) -> Iterator[TargetInput]:
    """Neighbours of an input with fewer slots or fewer candidates, the smallest first."""
    width, k = len(example.ids), example.k
    size = max(width // 2, 1)
    while size and width > 1:
        for start in range(0, width, size):
            kept = np.r_[0:start, min(start + size, width) : width]
            dropped = width - len(kept)
            for slots in sorted({max(k - dropped, 1), k}):
                yield TargetInput(example.scores[kept], example.ids[kept], slots)
        size //= 2
    for slots in sorted({1, k // 2, k - 1} - {0, k}):
        if slots > 0:
            yield TargetInput(example.scores, example.ids, slots)
