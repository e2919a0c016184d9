"""The merge, end to end: sharded equals unsharded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.errors import InputError
from tiebreak.impl.layout import rows_per_owner
from tiebreak.spec.contracts import Contract, check_selection
from tiebreak.spec.layout import Layout
from tiebreak.spec.merge import local_topk, merge, merge_by_owner, owned_rows, shard
from tiebreak.spec.order import PRESETS

NAN, INFINITY = float("nan"), float("inf")
SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, NAN, -NAN, INFINITY, -INFINITY, 2.0**-149, -(2.0**-149)]),
    st.floats(width=32),
)


def reference(row: list[float], k: int) -> list[int]:
    """Unsharded selection under the default preset, by sorting Python floats."""

    def goodness(index: int) -> tuple[bool, float]:
        return (row[index] == row[index], row[index] if row[index] == row[index] else 0.0)

    best = sorted(range(len(row)), key=lambda index: (*(-part for part in goodness(index)), index))[:k]
    return best + [-1] * (k - len(best))


@given(st.lists(SCORES, max_size=24), st.integers(0, 10))
def test_local_topk_is_the_sorted_row(row: list[float], k: int) -> None:
    scores = np.array([row], np.float32).reshape(1, len(row))
    assert local_topk(scores, np.array([len(row)], np.int32), k).tolist() == [reference(row, k)]


@given(
    st.lists(st.lists(SCORES, max_size=24), max_size=3),
    st.integers(0, 10),
    st.sampled_from([1, 2, 3, 4, 8]),
    st.sampled_from([1, 2, 4, 64]),
    st.sampled_from(sorted(PRESETS)),
)
def test_merge_of_shards_is_the_unsharded_selection(rows, k, world_size, interleave, preset) -> None:
    lengths = np.array([len(row) for row in rows], np.int32)
    scores = np.full((len(rows), lengths.max(initial=0)), 7.0, np.float32)
    for row, values in enumerate(rows):
        scores[row, : len(values)] = values
    layout = Layout(world_size, interleave)
    shards = shard(scores, lengths, layout)
    kept = [local_topk(part.scores, part.lengths, k, preset) for part in shards]
    merged = merge([part.scores for part in shards], kept, layout, k, preset)
    assert merged.tolist() == local_topk(scores, lengths, k, preset).tolist()
    by_owner = merge_by_owner([part.scores for part in shards], kept, layout, k, preset)
    assert by_owner.tolist() == merged.tolist()


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 7, 8, 9, 100])
def test_every_row_has_one_owner_in_rank_order(rows: int, world_size: int) -> None:
    shares = owned_rows(rows, world_size)
    assert [row for share in shares for row in range(rows)[share]] == list(range(rows))
    sizes = [len(range(rows)[share]) for share in shares]
    assert len(sizes) == world_size
    assert max(sizes) == (rows + world_size - 1) // world_size == rows_per_owner(rows, world_size)
    assert sizes == sorted(sizes, reverse=True)


def test_owners_need_rows_and_ranks() -> None:
    for arguments in ((-1, 2), (3, 0)):
        with pytest.raises(InputError, match="at least"):
            owned_rows(*arguments)


def test_rows_that_start_at_a_column_have_the_same_owner_as_others() -> None:
    random = np.random.default_rng(5)
    layout, rows = Layout(3, 2), 5
    scores = [random.integers(0, 3, (rows, 40)).astype(np.float32) for _ in range(3)]
    starts = [np.arange(rows) * 4 for _ in range(3)]
    kept = [
        local_topk(part, np.full(rows, 4, np.int32), 3, "ieee", start)
        for part, start in zip(scores, starts, strict=True)
    ]
    expected = merge(scores, kept, layout, 7, "torch", starts)
    assert merge_by_owner(scores, kept, layout, 7, "torch", starts).tolist() == expected.tolist()


def test_shards_deal_the_columns() -> None:
    scores = np.arange(10, dtype=np.float32).reshape(2, 5)
    first, second = shard(scores, np.array([5, 2], np.int32), Layout(2, 1))
    np.testing.assert_array_equal(first.scores, [[0, 2, 4], [5, NAN, NAN]])
    np.testing.assert_array_equal(second.scores, [[1, 3], [6, NAN]])
    assert (first.lengths.tolist(), second.lengths.tolist()) == ([3, 1], [2, 1])


def test_rank_without_tokens_takes_part() -> None:
    layout = Layout(4, 64)
    shards = shard(np.ones((1, 65), np.float32), np.array([65], np.int32), layout)
    assert [part.scores.shape[1] for part in shards] == [64, 1, 0, 0]
    kept = [local_topk(part.scores, part.lengths, 2) for part in shards]
    assert kept[3].tolist() == [[-1, -1]]
    assert merge([part.scores for part in shards], kept, layout, 66).tolist()[0] == [0, 1, 64] + [-1] * 63


def test_row_starts_select_a_window_of_packed_columns() -> None:
    scores = np.array([[9, 1, 3, 2, 9, 9], [9, 9, 9, 9, 4, 5]], np.float32)
    lengths, starts = np.array([3, 2], np.int32), np.array([1, 4], np.int32)
    kept = local_topk(scores, lengths, 3, row_starts=starts)
    assert kept.tolist() == [[1, 2, 0], [1, 0, -1]]
    other = np.zeros((2, 0), np.float32), np.full((2, 3), -1, np.int32)
    merged = merge([scores, other[0]], [kept, other[1]], Layout(2, 1), 2, row_starts=[starts, None])
    assert merged.tolist() == [[2, 4], [2, 0]]


def test_arbitrary_local_ties_keep_the_values_contract_only() -> None:
    """Smallest public form: rank 0 keeps id 2, rank 1 keeps id 1; the merge answers 1, the reference 0."""
    layout, row = Layout(2, 1), np.ones((1, 4), np.float32)
    shards = [part.scores for part in shard(row, np.array([4], np.int32), layout)]
    merged = merge(shards, [np.array([[1]], np.int32), np.array([[0]], np.int32)], layout, 1)
    assert merged.tolist() == [[1]]
    ids = np.arange(4, dtype=np.int32)[None]
    assert not check_selection(row, ids, 1, merged, Contract.VALUES)
    (violation,) = check_selection(row, ids, 1, merged, Contract.SET)
    assert (violation.expected, violation.actual) == ((0,), (1,))


def test_larger_local_indices_reproduce_the_public_counterexample() -> None:
    """2048 equal scores, K = 512, 2 ranks that keep local 512..1023: the merge keeps 1024..1535."""
    layout, kept = Layout(2, 1), np.arange(512, 1024, dtype=np.int32)[None]
    merged = merge([np.ones((1, 1024), np.float32)] * 2, [kept, kept], layout, 512)
    assert merged[0].tolist() == list(range(1024, 1536))


def test_bad_arguments_are_rejected() -> None:
    scores, kept, layout = np.zeros((1, 2), np.float32), np.zeros((1, 1), np.int32), Layout(2, 1)
    with pytest.raises(InputError, match="number of scores is 1"):
        merge([scores], [kept, kept], layout, 1)
    with pytest.raises(InputError, match="number of local indices is 3"):
        merge([scores] * 2, [kept] * 3, layout, 1)
    with pytest.raises(InputError, match="number of row starts is 1"):
        merge([scores] * 2, [kept] * 2, layout, 1, row_starts=[None])
    with pytest.raises(InputError, match="shard of rank 1"):
        merge([scores] * 2, [kept, np.zeros((1, 2), np.int32)], layout, 1)
    for length in (-1, 3):
        with pytest.raises(InputError, match="length of row 0"):
            local_topk(scores, np.array([length], np.int32), 1)
    with pytest.raises(InputError, match=r"within 0\.\.1"):
        local_topk(scores, np.array([2], np.int32), 1, row_starts=np.array([1]))
    with pytest.raises(InputError, match="lengths"):
        local_topk(scores, np.array([1], np.int64), 1)
