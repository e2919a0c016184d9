"""Selection of gathered candidates: one body for spec, simulated kernels and whatever else is chosen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiebreak.backends import Backend
from tiebreak.spec import packing
from tiebreak.verify.case import KINDS
from tiebreak.verify.checks import compare_selection, draw_gathered, try_selection

CONTRACTS = ["order", "set"]
PRESETS = ["ieee", "torch", "vllm-cutedsl", "vllm-triton"]
ONE_PER_TEST = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

WORDS = st.sampled_from(
    [
        0x00000000,
        0x80000000,
        0x00000001,
        0x80000001,
        0x3F800000,
        0x3F800001,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0xFFC00000,
    ]
) | st.integers(0, 2**32 - 1)
IDS = st.sampled_from([-1, 0, 1, 2**24, 2**24 + 1, 2**30 - 1]) | st.integers(-1, 2**30 - 1)


@st.composite
def gathered_candidates(draw: st.DrawFn) -> np.ndarray:
    ranks, rows, local = draw(st.integers(1, 3)), draw(st.integers(0, 2)), draw(st.integers(0, 6))
    count = ranks * rows * local
    words = draw(st.lists(WORDS, min_size=count, max_size=count))
    ids = draw(st.lists(IDS, min_size=count, max_size=count))
    pairs = np.stack([np.array(words, dtype=np.uint32).view(np.int32), np.array(ids, dtype=np.int32)], axis=-1)
    return pairs.reshape(ranks, rows, local, 2)


@ONE_PER_TEST
@given(
    gathered_candidates(),
    st.integers(1, 20),
    st.sampled_from(PRESETS),
    st.sampled_from(["row-major", "rank-major", "peers"]),
    st.sampled_from(CONTRACTS),
)
def test_the_best_candidates_stand_where_the_contract_says(
    backend: Backend, gathered: np.ndarray, k: int, preset: str, arrangement: str, contract: str
) -> None:
    given_form = packing.gather_row_major(list(gathered)) if arrangement == "row-major" else gathered
    assert try_selection(backend, given_form, gathered, k, preset, arrangement, contract) == ""


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("kind", "contract"), [*((kind, "order") for kind in KINDS), ("special", "set"), ("zeros", "set"), ("ties", "set")]
)
def test_every_distribution_under_every_preset(backend: Backend, kind: str, preset: str, contract: str) -> None:
    gathered = draw_gathered(np.random.default_rng(7), kind, ranks=3, rows=2, local=11)
    assert try_selection(backend, gathered, gathered, 9, preset, "rank-major", contract) == ""


def test_duplicates_count_as_often_as_they_occur(backend: Backend) -> None:
    pairs = np.array([[[[1065353216, 4], [1065353216, 5], [1065353216, 5]]]], dtype=np.int32)
    assert backend.select(pairs, 2, "ieee", "rank-major").tolist() == [[4, 5]]
    assert backend.select(pairs, 4, "ieee", "rank-major").tolist() == [[4, 5, 5, -1]]


def test_the_first_of_equal_candidates_are_selected_by_position(backend: Backend) -> None:
    """A row of several tiles, in each of which both candidates above the cut and equal to it are met."""
    row = [[1065353216 + (place % 5 == 4), 9 - (place % 5 == 4)] for place in range(45)]
    pairs = np.array([[row]], dtype=np.int32)
    for k in (8, 9, 12, 15):
        places = sorted(sorted(range(45), key=lambda place: (place % 5 != 4, place))[:k])
        expected = [9 - (place % 5 == 4) for place in places]
        assert backend.select(pairs, k, "ieee", "rank-major", "set").tolist() == [expected]


@pytest.mark.parametrize("k", [45, 50, 100])
def test_all_candidates_keep_their_places(backend: Backend, k: int) -> None:
    ids = np.random.default_rng(k).permutation(45)
    pairs = np.stack([np.zeros(45), np.where(ids % 4 == 0, -1, ids)], axis=-1).astype(np.int32)[None, None]
    kept = ids[ids % 4 != 0].tolist()
    assert backend.select(pairs, k, "ieee", "rank-major", "set").tolist() == [kept + [-1] * (k - len(kept))]


def test_ids_up_to_the_largest_int32_come_back_exactly(backend: Backend) -> None:
    ids = [2**24 + 1, 2**24 + 3, 2**31 - 2, 2**31 - 1]
    pairs = np.array([[[[0, number] for number in ids]]], dtype=np.int32)
    assert backend.select(pairs, 4, "ieee", "rank-major").tolist() == [ids]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_ids_stand_where_they_are_written(backend: Backend, contract: str) -> None:
    """A selection fills its output, also the slots that no candidate takes."""
    pairs = np.zeros((1, 3, 0, 2), dtype=np.int32)
    assert backend.select(pairs, 5, "ieee", "rank-major", contract).tolist() == [[-1] * 5] * 3
    assert backend.select(pairs[:, :0], 5, "ieee", "rank-major", contract).shape == (0, 5)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_padding_never_beats_a_valid_minus_infinity(backend: Backend, contract: str) -> None:
    pairs = np.array([[[[0x7F800000, -1], [-8388608, 7], [0x7FC00000, 9]]]], dtype=np.int32)
    assert backend.select(pairs, 3, "ieee", "rank-major", contract).tolist() == [[7, 9, -1]]


def test_the_comparison_notices_a_wrong_selection() -> None:
    gathered = draw_gathered(np.random.default_rng(3), "random", ranks=2, rows=1, local=8)
    right = np.array([[0, 1, 2, 3]], dtype=np.int32)
    assert "expected" in compare_selection(gathered, 4, "ieee", right - 1)
    assert "shape" in compare_selection(gathered, 5, "ieee", right)


def test_the_comparison_tells_the_contracts_apart() -> None:
    gathered = np.array([[[[1, 7], [2, 5], [1, 7], [2, 6]]]], dtype=np.int32)
    by_position, best_first = np.array([[7, 5, 6]], dtype=np.int32), np.array([[5, 6, 7]], dtype=np.int32)
    assert compare_selection(gathered, 3, "ieee", best_first) == ""
    assert compare_selection(gathered, 3, "ieee", by_position, "set") == ""
    assert "expected [5, 6, 7]" in compare_selection(gathered, 3, "ieee", by_position)
    assert "expected [7, 5, 6]" in compare_selection(gathered, 3, "ieee", best_first, "set")
