"""Contracts against their definitions, by brute force over every possible output of small rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.errors import InputError
from tiebreak.spec.contracts import Contract, Violation, check_agreement, check_selection
from tiebreak.spec.order import score_words
from tiebreak.spec.selection import select

NAN, NEGATIVE_NAN = float("nan"), float(np.copysign(np.float32("nan"), np.float32(-1)))
SCORES = st.sampled_from([NAN, NEGATIVE_NAN, float("-inf"), -1.0, -0.0, 0.0, 1.0])


def arrays(row: list[tuple[float, int]]) -> tuple[np.ndarray, np.ndarray]:
    scores = np.array([[score for score, _ in row]], np.float32).reshape(1, len(row))
    return scores, np.array([[number for _, number in row]], np.int32).reshape(1, len(row))


def allowed_by_values(row: list[tuple[float, int]], k: int, preset: str) -> set[tuple[int, ...]]:
    """Sorted outputs that the values contract allows: ids of every subset with the best score multiset."""
    valid = [(score, number) for score, number in row if number >= 0]
    words = score_words(np.array([score for score, _ in valid], np.float32), preset).tolist()
    size = min(k, len(valid))
    best = sorted(words, reverse=True)[:size]
    allowed = set()
    for subset in itertools.combinations(range(len(valid)), size):
        if sorted((words[index] for index in subset), reverse=True) == best:
            allowed.add(tuple(sorted([valid[index][1] for index in subset] + [-1] * (k - size))))
    return allowed


@given(
    st.lists(st.tuples(SCORES, st.integers(-2, 2)), max_size=4),
    st.integers(0, 3),
    st.sampled_from(["ieee", "torch", "vllm-cutedsl"]),
)
def test_contracts_are_their_definitions(row: list[tuple[float, int]], k: int, preset: str) -> None:
    scores, ids = arrays(row)
    expected = select(scores, ids, k, preset)[0].tolist()
    values = allowed_by_values(row, k, preset)
    for output in itertools.product(range(-2, 4), repeat=k):
        given_output = np.array([output], np.int32).reshape(1, k)
        kept = {contract: not check_selection(scores, ids, k, given_output, contract, preset) for contract in Contract}
        assert kept[Contract.ORDER] == (list(output) == expected)
        assert kept[Contract.SET] == (sorted(output) == sorted(expected))
        assert kept[Contract.VALUES] == (tuple(sorted(output)) in values)


def check(row: list[tuple[float, int]], output: list[int], contract: Contract, preset: str = "ieee") -> list[Violation]:
    return check_selection(*arrays(row), len(output), np.array([output], np.int32), contract, preset)


TIED = [(1.0, 4), (1.0, 5), (1.0, 5), (2.0, 9)]


def test_duplicates_are_not_hidden() -> None:
    (violation,) = check(TIED, [9, 5, 5], Contract.SET)
    assert violation == Violation("set", 0, "missing [4], unexpected [5]", (9, 4, 5), (9, 5, 5))
    assert not check(TIED, [9, 5, 5], Contract.VALUES)
    (violation,) = check(TIED, [4, 4, 9], Contract.VALUES)
    assert violation.message == "id 4 is used 2 times but offered 1 times at or above the cut-off"


def test_violations_say_what_is_wrong() -> None:
    (violation,) = check(TIED, [4, 5, 9], Contract.ORDER)
    assert violation.message == "same ids in another order from slot 0"
    assert str(violation).startswith("order, row 0: same ids")
    assert "expected (9, 4, 5), actual (4, 5, 9)" in str(violation)
    assert check(TIED, [4, 5, 5], Contract.VALUES)[0].message.startswith("id 9 scores above the cut-off")
    assert check(TIED, [9, 4, 7], Contract.VALUES)[0].message.startswith("id 7 is used 1 times but offered 0 times")
    assert check(TIED, [9, 4, -1], Contract.VALUES)[0].message == "1 slots hold -1 instead of 0"
    assert check([(0.0, -1)], [-3], Contract.VALUES)[0].message == "0 slots hold -1 instead of 1"


def test_unused_slots_may_stand_anywhere_except_in_order() -> None:
    row, output = [(2.0, 1), (1.0, 2)], [-1, 1, -1, 2]
    assert not check(row, output, Contract.VALUES)
    assert not check(row, output, Contract.SET)
    assert check(row, output, Contract.ORDER)


def test_nan_policy_decides_what_ties() -> None:
    row = [(NAN, 0), (NEGATIVE_NAN, 1)]
    assert not check(row, [1], Contract.VALUES, "ieee")
    assert check(row, [1], Contract.VALUES, "vllm-cutedsl")
    assert check([(0.0, 0), (-0.0, 1)], [1], Contract.VALUES, "vllm-cutedsl")
    assert not check([(0.0, 0), (-0.0, 1)], [1], Contract.VALUES, "torch")


def test_padding_that_ties_at_the_cut_off_cannot_be_selected() -> None:
    for contract in Contract:
        assert check([(1.0, -2), (1.0, 3)], [-2], contract)


def test_each_wrong_row_is_reported_once() -> None:
    scores, ids = np.tile(np.float32([3, 2, 1]), (3, 1)), np.tile(np.int32([0, 1, 2]), (3, 1))
    output = np.int32([[0, 1], [1, 2], [2, 0]])
    for contract in Contract:
        assert [violation.row for violation in check_selection(scores, ids, 2, output, contract)] == [1, 2]


def test_agreement_by_contract() -> None:
    first, same, swapped, other = (np.array([row], np.int32) for row in ([1, 1, 2], [1, 1, 2], [2, 1, 1], [2, 2, 1]))
    assert not check_agreement([first], Contract.ORDER)
    assert not check_agreement([first, same], Contract.ORDER)
    (violation,) = check_agreement([first, same, swapped], Contract.ORDER)
    assert violation.message == "rank 2 differs from rank 0: same ids in another order from slot 0"
    for contract in (Contract.SET, Contract.VALUES):
        assert not check_agreement([first, swapped], contract)
        (violation,) = check_agreement([first, other], contract)
        assert violation.property == "agreement"
        assert violation.message == "rank 1 differs from rank 0: missing [1], unexpected [2]"


def test_bad_arguments_are_rejected() -> None:
    scores, ids = np.zeros((1, 2), np.float32), np.zeros((1, 2), np.int32)
    for output in (np.zeros((1, 3), np.int32), np.zeros((1, 2), np.int64), np.zeros(2, np.int32)):
        with pytest.raises(InputError, match="output"):
            check_selection(scores, ids, 2, output, Contract.SET)
    with pytest.raises(InputError, match="number of outputs"):
        check_agreement([], Contract.SET)
    with pytest.raises(InputError, match="output of rank 1"):
        check_agreement([ids, ids[:, :1]], Contract.SET)
