"""Inputs for targets: what Hypothesis draws, and the captured scores.

Selectors go wrong on ties and on special values, so a drawn row takes its
scores from a pool of at most four, most often special ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from tiebreak.inputs.captured import CapturedInput
from tiebreak.spec.order import Preset
from tiebreak.target.tokens import TargetInput

LARGEST_ROW = 80
CAPTURED_SLOTS = (64, 512, 2048)

# 1, -1, 0, -0, 2, both infinities, smallest subnormals, largest subnormal, neighbours of 1, NaNs of either sign.
_SPECIAL_BITS = (
    *(0x3F800000, 0xBF800000, 0x00000000, 0x80000000, 0x40000000, 0x7F800000, 0xFF800000),
    *(0x00000001, 0x80000001, 0x007FFFFF, 0x3F800001, 0x3F7FFFFF, 0x7FC00000, 0xFFC00000, 0x7F800001),
)


@st.composite
def target_inputs(draw: st.DrawFn, preset: Preset) -> TargetInput:
    """Strategy of rows with at least one candidate and one slot.

    Ids are distinct columns in any order, or arbitrary ones: duplicates,
    padding, and ids about 2**24 (where fp32 stops being exact) and the largest
    that the preset carries.
    """
    pool = draw(st.lists(st.sampled_from(_SPECIAL_BITS) | st.integers(0, 2**32 - 1), min_size=1, max_size=4))
    width = draw(st.integers(1, 6) | st.integers(1, LARGEST_ROW))
    bits = draw(st.lists(st.sampled_from(pool), min_size=width, max_size=width))
    limit = preset.id_limit
    wide = st.sampled_from((-1, 2**24, 2**24 + 1, 2**24 + 3, limit - 1, limit)) | st.integers(-1, limit)
    arbitrary = st.lists(st.integers(-1, 4) | wide, min_size=width, max_size=width)
    ids = draw(st.permutations(range(width)) | arbitrary)
    scores = np.array(bits, dtype=np.uint32).view(np.float32)
    return TargetInput(scores, np.array(ids, dtype=np.int32), draw(st.integers(1, width + 2)))


def captured_inputs(captured: CapturedInput) -> Iterator[TargetInput]:
    """Every row of a captured run, at every number of slots."""
    for row, length in enumerate(captured.lengths):
        for slots in CAPTURED_SLOTS:
            yield TargetInput(captured.scores[row, :length], captured.ids[row, :length], slots)
