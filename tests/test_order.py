"""The total order: key functions against the stated order, written out by hand and as Python integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.errors import InputError
from tiebreak.spec.order import LARGEST_ID, PRESETS, NanPolicy, Preset, ZeroPolicy, keys, resolve_preset, score_words

POSITIVE_NAN, NEGATIVE_NAN, PAYLOAD_NAN = 0x7FC00000, 0xFFC00000, 0x7F800001
INFINITY, NEGATIVE_INFINITY = 0x7F800000, 0xFF800000
ONE, MINUS_ONE, ZERO, MINUS_ZERO = 0x3F800000, 0xBF800000, 0x00000000, 0x80000000
SMALLEST, MINUS_SMALLEST = 0x00000001, 0x80000001

SPECIAL = (
    *(POSITIVE_NAN, NEGATIVE_NAN, PAYLOAD_NAN, 0xFFFFFFFF, 0x7FFFFFFF, INFINITY, NEGATIVE_INFINITY),
    *(ONE, MINUS_ONE, ONE + 1, ZERO, MINUS_ZERO, SMALLEST, MINUS_SMALLEST, 0x007FFFFF, 0x00800000, 0x7F7FFFFF),
)

# Best first; candidates in one group tie.  The order that was measured on the two public key functions.
ORDERS = {
    "vllm-cutedsl": [
        *([POSITIVE_NAN], [PAYLOAD_NAN], [INFINITY], [ONE], [SMALLEST], [ZERO], [MINUS_ZERO], [MINUS_SMALLEST]),
        *([MINUS_ONE], [NEGATIVE_INFINITY], [NEGATIVE_NAN]),
    ],
    "vllm-triton": [
        *([INFINITY], [ONE], [SMALLEST], [ZERO, MINUS_ZERO], [MINUS_SMALLEST], [MINUS_ONE], [NEGATIVE_INFINITY]),
        [POSITIVE_NAN, PAYLOAD_NAN, NEGATIVE_NAN],
    ],
    "ieee": [
        *([INFINITY], [ONE], [SMALLEST], [ZERO, MINUS_ZERO], [MINUS_SMALLEST], [MINUS_ONE], [NEGATIVE_INFINITY]),
        [POSITIVE_NAN, PAYLOAD_NAN, NEGATIVE_NAN],
    ],
    "torch": [
        [POSITIVE_NAN, PAYLOAD_NAN, NEGATIVE_NAN],
        *([INFINITY], [ONE], [SMALLEST], [ZERO, MINUS_ZERO], [MINUS_SMALLEST], [MINUS_ONE], [NEGATIVE_INFINITY]),
    ],
}


def scores_of(bits: list[int]) -> np.ndarray:
    return np.array(bits, dtype=np.uint32).view(np.float32)


@pytest.mark.parametrize("name", ORDERS)
def test_score_words_follow_the_measured_order(name: str) -> None:
    groups = [score_words(scores_of(group), name).tolist() for group in ORDERS[name]]
    assert all(len(set(group)) == 1 for group in groups)
    words = [group[0] for group in groups]
    assert words == sorted(set(words), reverse=True)


@pytest.mark.parametrize("name", ORDERS)
def test_padding_is_below_every_valid_candidate(name: str) -> None:
    scores = scores_of(list(SPECIAL))
    worst_id = np.full(len(SPECIAL), PRESETS[name].id_limit, dtype=np.int32)
    valid = keys(scores, worst_id, name)
    assert (valid >= np.uint64(1 << 63)).all()
    for padding in (-1, -2, -(2**31)):
        assert (keys(scores, np.full(len(SPECIAL), padding, dtype=np.int32), name) == 0).all()


def test_key_is_the_documented_bit_layout() -> None:
    assert keys(scores_of([ONE]), np.array([5], np.int32)).tolist() == [1 << 63 | 0xBF800000 << 31 | (2**31 - 1 - 5)]
    assert keys(scores_of([POSITIVE_NAN]), np.array([LARGEST_ID], np.int32)).tolist() == [1 << 63]
    assert score_words(scores_of([NEGATIVE_INFINITY, INFINITY])).tolist() == [0x007FFFFF, 0xFF800000]


def goodness(bits: int, preset: Preset) -> tuple[int, int]:
    """Class and magnitude of a score as Python integers; larger is better."""
    magnitude, negative = bits % 2**31, bits >= 2**31
    if magnitude > INFINITY and preset.nan is not NanPolicy.BITS:
        return (-1, 0) if preset.nan is NanPolicy.LAST else (1, 0)
    if magnitude == 0 and preset.zero is ZeroPolicy.EQUAL:
        return (0, 0)
    return (0, -2 * magnitude - 1 if negative else 2 * magnitude)


PATTERNS = st.one_of(st.sampled_from(SPECIAL), st.integers(0, 2**32 - 1))
ANY_PRESET = st.builds(Preset, st.just("drawn"), st.sampled_from(NanPolicy), st.sampled_from(ZeroPolicy), st.just(""))


@given(
    st.lists(st.tuples(PATTERNS, st.sampled_from([0, 1, 2**24, 2**24 + 1, 2**30, 2**31 - 1])), min_size=2, max_size=2),
    ANY_PRESET,
)
def test_keys_compare_as_the_order_does(pair: list[tuple[int, int]], preset: Preset) -> None:
    (first_bits, first_id), (second_bits, second_id) = pair
    first, second = keys(scores_of([first_bits, second_bits]), np.array([first_id, second_id], np.int32), preset)
    stated_first, stated_second = (goodness(first_bits, preset), -first_id), (goodness(second_bits, preset), -second_id)
    assert (first > second) == (stated_first > stated_second)
    assert (first == second) == (stated_first == stated_second)


def test_torch_preset_is_what_torch_does() -> None:
    bits = [group[0] for group in ORDERS["torch"]]
    scores = scores_of(bits[::-1])
    values = torch.topk(torch.from_numpy(scores), len(bits)).values.numpy()
    assert score_words(values, "torch").tolist() == score_words(scores_of(bits), "torch").tolist()
    assert torch.tensor(-0.0) == torch.tensor(0.0)


def test_triton_preset_carries_30_bit_ids_only() -> None:
    limit = PRESETS["vllm-triton"].id_limit
    assert limit == 2**30 - 1
    assert all(preset.id_limit == LARGEST_ID for preset in PRESETS.values() if preset.name != "vllm-triton")
    one = np.ones(1, np.float32)
    keys(one, np.array([limit], np.int32), "vllm-triton")
    with pytest.raises(InputError, match="ids up to 1073741823"):
        keys(one, np.array([limit + 1], np.int32), "vllm-triton")
    keys(one, np.array([limit + 1], np.int32), "ieee")


def test_policies_are_explicit_and_have_sources() -> None:
    assert resolve_preset("ieee") is PRESETS["ieee"]
    assert (PRESETS["ieee"].nan, PRESETS["ieee"].zero) == (NanPolicy.LAST, ZeroPolicy.EQUAL)
    assert all(preset.source for preset in PRESETS.values())
    with pytest.raises(InputError, match="ieee, torch, vllm-cutedsl, vllm-triton"):
        resolve_preset("numpy")


@pytest.mark.parametrize(
    ("scores", "ids"),
    [
        (np.zeros(2, np.float64), np.zeros(2, np.int32)),
        (np.zeros(2, np.float32), np.zeros(2, np.int64)),
        (np.zeros(2, np.float32), np.zeros(3, np.int32)),
        (np.zeros((1, 2), np.float32), np.zeros(2, np.int32)),
        ([0.0], np.zeros(1, np.int32)),
    ],
)
def test_bad_arrays_are_rejected(scores: object, ids: object) -> None:
    with pytest.raises(InputError):
        keys(scores, ids)  # type: ignore[arg-type]


def test_strided_and_empty_arrays_are_accepted() -> None:
    scores = np.arange(8, dtype=np.float32)[::-2]
    assert score_words(scores).tolist() == score_words(scores.copy()).tolist()
    assert keys(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32)).shape == (0, 3)
