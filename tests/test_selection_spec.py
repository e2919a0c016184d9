"""Global top-K of gathered candidates against Python integers and ``sorted``."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.errors import InputError
from tiebreak.spec.order import PRESETS, NanPolicy, ZeroPolicy, resolve_preset
from tiebreak.spec.selection import select

SPECIAL_BITS = (
    *(0x7FC00000, 0xFFC00000, 0x7F800001, 0x7F800000, 0xFF800000, 0x00000000, 0x80000000),
    *(0x00000001, 0x80000001, 0x3F800000, 0x3F800001, 0xBF800000),
)
SPECIAL_IDS = (0, 1, 2, 511, 512, 2**24, 2**24 + 1, 2**30 - 1)

BITS = st.one_of(st.sampled_from(SPECIAL_BITS), st.integers(0, 2**32 - 1))
IDS = st.one_of(st.sampled_from(SPECIAL_IDS), st.integers(0, 7), st.sampled_from((-1, -2, -(2**31))))
WIDE_IDS = st.one_of(IDS, st.sampled_from((2**30, 2**31 - 2, 2**31 - 1)))


def goodness(bits: int, nan: NanPolicy, zero: ZeroPolicy) -> int:
    """Rank a score among all scores as one Python integer."""
    magnitude, negative = bits & 0x7FFFFFFF, bits >> 31
    if magnitude > 0x7F800000 and nan is NanPolicy.LAST:
        return -(2**33)
    if magnitude > 0x7F800000 and nan is NanPolicy.FIRST:
        return 2**33
    if magnitude == 0 and zero is ZeroPolicy.EQUAL:
        return 0
    return -2 * magnitude - 1 if negative else 2 * magnitude


def oracle(row: list[tuple[int, int]], k: int, name: str) -> list[int]:
    """Best k ids of one row by repeated maximum over Python tuples."""
    preset = resolve_preset(name)
    left = [(goodness(bits, preset.nan, preset.zero), -number) for bits, number in row if number >= 0]
    chosen = []
    while left and len(chosen) < k:
        best = max(left)
        left.remove(best)
        chosen.append(-best[1])
    return chosen + [-1] * (k - len(chosen))


def run(rows: list[list[tuple[int, int]]], k: int, name: str) -> list[list[int]]:
    width = len(rows[0]) if rows else 0
    bits = np.array([[bits for bits, _ in row] for row in rows], dtype=np.uint32).reshape(len(rows), width)
    ids = np.array([[number for _, number in row] for row in rows], dtype=np.int32).reshape(len(rows), width)
    output = select(bits.view(np.float32), ids, k, name)
    assert output.dtype == np.int32
    return output.tolist()


@st.composite
def tables(draw: st.DrawFn, ids: st.SearchStrategy[int]) -> list[list[tuple[int, int]]]:
    width = draw(st.integers(0, 9))
    return draw(st.lists(st.lists(st.tuples(BITS, ids), min_size=width, max_size=width), max_size=3))


@given(tables(IDS), st.integers(0, 12), st.sampled_from(sorted(PRESETS)))
def test_selection_is_the_oracle(rows: list[list[tuple[int, int]]], k: int, name: str) -> None:
    assert run(rows, k, name) == [oracle(row, k, name) for row in rows]


@given(tables(WIDE_IDS), st.integers(0, 12), st.sampled_from(["ieee", "torch", "vllm-cutedsl"]))
def test_selection_is_the_oracle_for_every_id(rows: list[list[tuple[int, int]]], k: int, name: str) -> None:
    assert run(rows, k, name) == [oracle(row, k, name) for row in rows]


@given(tables(IDS), st.integers(0, 12), st.sampled_from(sorted(PRESETS)), st.randoms(use_true_random=False))
def test_arrangement_of_candidates_does_not_matter(rows, k, name, random) -> None:
    shuffled = [random.sample(row, len(row)) for row in rows]
    assert run(shuffled, k, name) == run(rows, k, name)


@pytest.mark.parametrize(
    ("row", "k", "name", "expected"),
    [
        pytest.param([(0x3F800000, 4), (0x3F800000, 5), (0x3F800000, 5)], 2, "ieee", [4, 5], id="duplicate-at-the-cut"),
        pytest.param([(0x3F800000, 5), (0x3F800000, 5)], 3, "ieee", [5, 5, -1], id="multiplicity"),
        pytest.param([(0x80000000, 3), (0x00000000, 9)], 1, "ieee", [3], id="zeros-equal"),
        pytest.param([(0x80000000, 3), (0x00000000, 9)], 1, "vllm-cutedsl", [9], id="zeros-by-bits"),
        pytest.param([(0xFF800000, 7), (0x7F800000, -1)], 2, "ieee", [7, -1], id="valid-minus-infinity-above-padding"),
        pytest.param([(0x7FC00000, 7), (0xFF800000, 8)], 2, "ieee", [8, 7], id="nan-last-but-valid"),
        pytest.param([(0x7FC00000, 7), (0x7F800000, 8)], 1, "torch", [7], id="nan-first"),
        pytest.param([(0xFFC00000, 7), (0xFF800000, 8)], 1, "vllm-cutedsl", [8], id="negative-nan-by-bits"),
        pytest.param([(0, 2**24 + 1), (0, 2**24), (0, 2**24 + 3)], 2, "ieee", [2**24, 2**24 + 1], id="ids-beyond-fp32"),
        pytest.param([], 2, "ieee", [-1, -1], id="no-candidates"),
        pytest.param([(0, -5), (0, -1)], 2, "ieee", [-1, -1], id="padding-is-written-as-minus-one"),
        pytest.param([(0, 1)], 0, "ieee", [], id="no-slots"),
    ],
)
def test_edge_cases(row: list[tuple[int, int]], k: int, name: str, expected: list[int]) -> None:
    assert run([row], k, name) == [expected]


@pytest.mark.parametrize("k", [-1, 1.0, True, None])
def test_bad_k_is_rejected(k: object) -> None:
    with pytest.raises(InputError, match="must be an integer of at least 0"):
        select(np.zeros((1, 2), np.float32), np.zeros((1, 2), np.int32), k)  # type: ignore[arg-type]


def test_a_flat_array_is_rejected() -> None:
    with pytest.raises(InputError, match="2 axes"):
        select(np.zeros(2, np.float32), np.zeros(2, np.int32), 1)


def test_inputs_are_left_alone() -> None:
    scores, ids = np.zeros((1, 3), np.float32), np.array([[2, 1, -7]], np.int32)
    assert select(scores, ids, 4).tolist() == [[1, 2, -1, -1]]
    assert ids.tolist() == [[2, 1, -7]]
