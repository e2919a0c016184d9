"""The interleaved layout against dealing tokens out one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.errors import InputError
from tiebreak.spec.layout import Layout

WORLD_SIZES = (1, 2, 3, 4, 8)
INTERLEAVES = (1, 2, 4, 64)


def deal(world_size: int, interleave: int, length: int) -> list[list[int]]:
    """Deal global ids to ranks as cards, ``interleave`` at a time."""
    hands: list[list[int]] = [[] for _ in range(world_size)]
    receivers = itertools.cycle(range(world_size))
    tokens = iter(range(length))
    while run := list(itertools.islice(tokens, interleave)):
        hands[next(receivers)].extend(run)
    return hands


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("interleave", INTERLEAVES)
def test_layout_is_the_deal(world_size: int, interleave: int) -> None:
    layout, length = Layout(world_size, interleave), 2 * world_size * interleave + 1
    for rank, hand in enumerate(deal(world_size, interleave, length)):
        assert layout.owner(hand).tolist() == [rank] * len(hand)
        assert layout.local_index(hand).tolist() == list(range(len(hand)))
        assert layout.global_id(rank, np.arange(len(hand))).tolist() == hand


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("interleave", INTERLEAVES)
def test_local_length_is_the_size_of_the_hand(world_size: int, interleave: int) -> None:
    layout, longest = Layout(world_size, interleave), 2 * world_size * interleave + 1
    hands = deal(world_size, interleave, longest)
    for rank, hand in enumerate(hands):
        counted = [sum(token < length for token in hand) for length in range(longest + 1)]
        assert layout.local_length(rank, np.arange(longest + 1)).tolist() == counted


@given(st.integers(1, 9), st.integers(1, 200), st.integers(0, 2**31 - 1))
def test_global_id_inverts_owner_and_local_index(world_size: int, interleave: int, token: int) -> None:
    layout = Layout(world_size, interleave)
    assert int(layout.global_id(layout.owner(token), layout.local_index(token))) == token


def test_short_request_leaves_ranks_empty() -> None:
    assert Layout(4, 1).local_length(np.arange(4), 8).tolist() == [2, 2, 2, 2]
    assert Layout(4, 64).local_length(np.arange(4), 65).tolist() == [64, 1, 0, 0]


def test_large_indices_do_not_overflow() -> None:
    assert int(Layout(8, 64).global_id(7, 2**31 - 1)) == (2**31 // 64 - 1) * 512 + 7 * 64 + 63
    assert Layout(2, 1).owner(np.array([2**31 - 1], np.int32)).dtype == np.int64


@pytest.mark.parametrize(("world_size", "interleave"), [(0, 1), (1, 0), (-2, 1), (2, -1), (1.5, 1), (True, 1)])
def test_bad_geometry_is_rejected(world_size: int, interleave: int) -> None:
    with pytest.raises(InputError):
        Layout(world_size, interleave)


def test_too_long_a_period_is_rejected() -> None:
    assert Layout(1, 2**31 - 1).period == 2**31 - 1
    with pytest.raises(InputError, match=r"world_size \* interleave"):
        Layout(2**16, 2**15)


def test_bad_positions_are_rejected() -> None:
    layout = Layout(2, 4)
    for position in (-1, 2**31, [0, -1], 0.0, 2**70):
        for method in (layout.owner, layout.local_index):
            with pytest.raises(InputError, match="global id"):
                method(position)
        with pytest.raises(InputError, match="local index"):
            layout.global_id(0, position)
        with pytest.raises(InputError, match="length"):
            layout.local_length(0, position)
    for rank in (-1, 2):
        with pytest.raises(InputError, match="rank"):
            layout.global_id(rank, 0)
        with pytest.raises(InputError, match="rank"):
            layout.local_length(rank, 1)


def test_empty_arrays_are_accepted() -> None:
    assert Layout(2, 4).owner(np.empty((0, 3), np.int32)).shape == (0, 3)
    assert Layout(2, 4).local_index([]).shape == (0,)
