"""Candidates as memory: exact transport, the public layouts, localisation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.errors import InputError
from tiebreak.spec.layout import Layout
from tiebreak.spec.packing import (
    gather_inbox,
    gather_rank_major,
    gather_row_major,
    inbox_to_row_major,
    localise,
    pack,
    peers_to_row_major,
    rank_major_to_row_major,
    row_major_to_rank_major,
    unpack,
)

WORLD_SIZES = (1, 2, 3, 4, 8)
INTERLEAVES = (1, 2, 4, 64)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8))
def test_scores_travel_bit_by_bit(bits: list[int]) -> None:
    scores = np.array([bits], np.uint32).view(np.float32)
    indices = np.arange(len(bits), dtype=np.int32)[None]
    carried, ids = unpack(pack(scores, indices, 0, Layout(1, 1)))
    assert carried.view(np.uint32).tolist() == [bits]
    assert ids.tolist() == indices.tolist()


@pytest.mark.parametrize("token", [2**24 - 1, 2**24, 2**24 + 1, 2**24 + 3, 2**30, 2**31 - 1])
def test_ids_are_exact_for_all_of_int32(token: int) -> None:
    # A wide interleave over many ranks reaches every id with few columns.
    layout = Layout(2**15, 2**15)
    rank, local = int(layout.owner(token)), int(layout.local_index(token))
    packed = pack(np.zeros((1, local + 1), np.float32), np.array([[local]], np.int32), rank, layout)
    assert packed[0, 0].tolist() == [0, token]
    assert unpack(packed)[1].tolist() == [[token]]


def test_padding_is_minus_infinity_and_minus_one() -> None:
    packed = pack(np.ones((1, 2), np.float32), np.array([[1, -1, -9]], np.int32), 1, Layout(2, 1))
    scores, ids = unpack(packed)
    assert scores.tolist() == [[1.0, -np.inf, -np.inf]]
    assert ids.tolist() == [[3, -1, -1]]


def test_row_starts_shift_columns_and_not_ids() -> None:
    scores = np.arange(12, dtype=np.float32).reshape(2, 6)
    packed = pack(scores, np.array([[0, 1], [2, -1]], np.int32), 0, Layout(2, 2), np.array([1, 3], np.int32))
    carried, ids = unpack(packed)
    assert carried.tolist() == [[1.0, 2.0], [11.0, -np.inf]]
    assert ids.tolist() == [[0, 1], [4, -1]]


def test_empty_shard_offers_padding_only() -> None:
    packed = pack(np.empty((2, 0), np.float32), np.full((2, 3), -1, np.int32), 1, Layout(2, 4))
    assert (packed[..., 1] == -1).all()
    assert (unpack(packed)[0] == -np.inf).all()
    assert pack(np.empty((0, 0), np.float32), np.empty((0, 3), np.int32), 0, Layout(2, 4)).shape == (0, 3, 2)


@pytest.mark.parametrize(
    ("indices", "row_starts", "message"),
    [
        ([[2]], None, "column of a local index is 2"),
        ([[1]], [1], "column of a local index is 2"),
        ([[0]], [-1], "row start is -1"),
        ([[0]], [0, 0], "shape of row_starts"),
        ([[0]], [0.0], "dtype of row_starts"),
        ([[0], [0]], None, "shape of local_indices"),
    ],
)
def test_bad_columns_are_rejected(indices: list[list[int]], row_starts: list[int] | None, message: str) -> None:
    starts = None if row_starts is None else np.array(row_starts)
    with pytest.raises(InputError, match=message):
        pack(np.zeros((1, 2), np.float32), np.array(indices, np.int32), 0, Layout(2, 1), starts)


def test_global_id_beyond_int32_is_rejected() -> None:
    # One period of this layout has 2**31 - 1 tokens, of which rank 0 owns the first.
    layout = Layout(2**31 - 1, 1)
    scores = np.zeros((1, 3), np.float32)
    assert pack(scores, np.array([[1]], np.int32), 0, layout)[0, 0, 1] == 2**31 - 1
    with pytest.raises(InputError, match="global id is 4294967294"):
        pack(scores, np.array([[2]], np.int32), 0, layout)


@pytest.mark.parametrize("rank", [-1, 2])
def test_rank_outside_the_layout_is_rejected(rank: int) -> None:
    with pytest.raises(InputError, match="rank"):
        pack(np.zeros((1, 2), np.float32), np.array([[-1]], np.int32), rank, Layout(2, 1))
    with pytest.raises(InputError, match="rank"):
        localise(np.array([[-1]], np.int32), rank, Layout(2, 1))


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("interleave", INTERLEAVES)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_public_layouts_hold_the_same_candidates(world_size: int, interleave: int, rows: int) -> None:
    layout, width = Layout(world_size, interleave), 5
    random = np.random.default_rng([world_size, interleave, rows])
    shards = []
    for rank in range(world_size):
        indices = random.integers(-1, 2 * interleave, (rows, width)).astype(np.int32)
        scores = random.standard_normal((rows, 2 * interleave)).astype(np.float32)
        shards.append(pack(scores, indices, rank, layout))
    row_major, rank_major = gather_row_major(shards), gather_rank_major(shards)
    assert row_major.shape == (rows, world_size * width, 2)
    assert rank_major.shape == (world_size, rows, width, 2)
    for rank, row, slot in np.ndindex(world_size, rows, width):
        pair = shards[rank][row, slot].tolist()
        assert row_major[row, rank * width + slot].tolist() == pair
        assert rank_major[rank, row, slot].tolist() == pair
    assert (rank_major_to_row_major(rank_major) == row_major).all()
    assert (row_major_to_rank_major(row_major, world_size) == rank_major).all()
    inbox = gather_inbox(shards, rows + 2)
    assert inbox.shape == (rows + 2, world_size, width, 2)
    view = inbox_to_row_major(inbox, rows)
    assert (view == row_major).all()
    assert rows == 0 or np.shares_memory(view, inbox)
    roomy = [np.concatenate([part, np.zeros((2, width, 2), np.int32)]) for part in shards]
    assert (peers_to_row_major(roomy, rows) == row_major).all()


def test_bad_gathers_are_rejected() -> None:
    shard = np.zeros((2, 3, 2), np.int32)
    for shards in ([], [shard, shard[:1]], [shard, shard[:, :2]], [shard.astype(np.float32)], [shard[..., 0]]):
        for gather in (gather_row_major, gather_rank_major, lambda parts: gather_inbox(parts, 2)):
            with pytest.raises(InputError):
                gather(shards)
    with pytest.raises(InputError, match="room for 1"):
        gather_inbox([shard], 1)
    with pytest.raises(InputError, match="room for 2"):
        peers_to_row_major([shard], 3)
    with pytest.raises(InputError, match=r"within 0\.\.2"):
        inbox_to_row_major(gather_inbox([shard], 2), 3)
    with pytest.raises(InputError, match="must divide the 3"):
        row_major_to_rank_major(shard, 2)
    with pytest.raises(InputError, match="last axis must be 2"):
        unpack(np.zeros((2, 3), np.int32))


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("interleave", INTERLEAVES)
def test_localise_splits_a_selection_among_the_owners(world_size: int, interleave: int) -> None:
    layout, length = Layout(world_size, interleave), 3 * world_size * interleave + 2
    random = np.random.default_rng([world_size, interleave])
    selected = random.integers(-2, length, (4, 9)).astype(np.int32)
    counted = 0
    for rank in range(world_size):
        local, counts = localise(selected, rank, layout)
        counted += int(counts.sum())
        for row in range(4):
            owned = [
                token for token in selected[row].tolist() if token >= 0 and token // interleave % world_size == rank
            ]
            assert counts[row] == len(owned)
            assert layout.global_id(rank, local[row, : len(owned)]).tolist() == owned
            assert (local[row, len(owned) :] == -1).all()
    assert counted == np.count_nonzero(selected >= 0)


def test_localise_through_a_block_table() -> None:
    layout, table = Layout(2, 1), np.array([[7, 3, -1], [5, 9, 2]], np.int32)
    selected = np.array([[0, 9, 2, 1, -1], [12, 4, 3, 0, 2]], np.int32)
    slots, counts = localise(selected, 0, layout, table, block_size=4)
    # Rank 0 owns the even ids; id g is local g / 2.
    assert slots.tolist() == [[28, 29, -1, -1, -1], [9 * 4 + 2, 5 * 4 + 2, 20, 21, -1]]
    assert counts.tolist() == [2, 4]
    slots, _ = localise(selected, 0, layout, table, block_size=4, block_stride=100)
    assert slots.tolist() == [[700, 701, -1, -1, -1], [902, 502, 500, 501, -1]]
    slots, _ = localise(selected, 0, layout, table, block_size=4, requests=np.array([1, 1]))
    assert slots[0].tolist() == [20, 21, -1, -1, -1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "block_size"),
        ({"block_size": 4, "block_stride": 3}, "block_stride"),
        ({"block_size": 4, "block_stride": 0}, "block_stride"),
        ({"block_size": 4}, "an entry in use leads outside"),
        ({"block_size": 2}, "block of an owned id is 3"),
        ({"block_size": 8, "block_stride": 2**30}, "an entry in use leads outside"),
        ({"block_size": 8, "requests": np.array([1])}, "request of an owned id is 1"),
        ({"block_size": 8, "requests": np.array([-1])}, "request of an owned id is -1"),
        ({"block_size": 8, "requests": np.array([0, 0])}, "shape of requests"),
    ],
)
def test_bad_block_tables_are_rejected(options: dict[str, object], message: str) -> None:
    table = np.array([[2, -1]], np.int32)
    with pytest.raises(InputError, match=message):
        localise(np.array([[0, 14]], np.int32), 0, Layout(2, 1), table, **options)  # type: ignore[arg-type]


def test_localise_without_rows_or_slots() -> None:
    for shape in ((0, 4), (3, 0)):
        local, counts = localise(np.empty(shape, np.int32), 0, Layout(2, 1))
        assert local.shape == shape
        assert counts.tolist() == [0] * shape[0]
