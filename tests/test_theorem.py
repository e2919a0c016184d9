"""The theorem, exhaustively, and the enumeration behind it against spec.merge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.errors import InputError
from tiebreak.spec import theorem
from tiebreak.spec.contracts import Contract, check_selection
from tiebreak.spec.selection import select
from tiebreak.spec.theorem import STATEMENTS, Claim, Statement, TieBreak, assignments, check_statement, tie_patterns

WEAK_ORDERINGS = {1: 1, 2: 3, 3: 13, 4: 75, 5: 541, 6: 4683}


@pytest.mark.parametrize(("candidates", "count"), WEAK_ORDERINGS.items())
def test_every_tie_pattern_is_enumerated_once(candidates: int, count: int) -> None:
    patterns = [tuple(row) for row in tie_patterns(candidates).tolist()]
    assert len(patterns) == len(set(patterns)) == count
    assert patterns[0] == (0,) * candidates
    assert all(set(pattern) == set(range(max(pattern) + 1)) for pattern in patterns)


def test_every_assignment_is_enumerated_once() -> None:
    owners = [tuple(row) for row in assignments(4, 3).tolist()]
    assert len(owners) == len(set(owners)) == 3**4
    assert set(np.unique(owners)) == {0, 1, 2}


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.name)
def test_statement_holds(statement: Statement) -> None:
    report = check_statement(statement)
    assert report.holds
    assert (report.failures == 0) == statement.exact
    tie_breaks = {1: 1, 2: 2, 3: 6, 4: 24} if statement.tie_break is TieBreak.EVERY else dict.fromkeys(range(1, 7), 1)
    sizes = range(1, statement.candidates + 1)
    assert report.patterns == sum(WEAK_ORDERINGS[size] for size in sizes)
    assert report.cases == sum(WEAK_ORDERINGS[size] * 3**size * size * tie_breaks[size] for size in sizes)


def test_all_statements_are_checked() -> None:
    assert {(statement.claim, statement.exact) for statement in STATEMENTS} == {
        (Claim.IDS, True),
        (Claim.IDS, False),
        (Claim.SCORES, True),
    }
    assert [statement.candidates for statement in STATEMENTS] == [6, 6, 4, 6]


def test_a_false_statement_does_not_hold() -> None:
    claimed = Statement("ids are exact with any local tie-break", Claim.IDS, TieBreak.EVERY, 3, True)
    report = check_statement(claimed)
    assert not report.holds
    assert report.counterexamples[0].levels == (0, 0)
    needless = Statement("ids need more than the total order", Claim.IDS, TieBreak.TOTAL_ORDER, 3, False)
    assert not check_statement(needless).holds


def merge_by_hand(
    levels: tuple[int, ...], owners: tuple[int, ...], k: int, priority: list[int]
) -> tuple[list[int], list[int]]:
    """Expected and merged ids by sorting, rank by rank."""
    everyone = range(len(levels))
    kept = []
    for rank in set(owners):
        mine = [number for number in everyone if owners[number] == rank]
        kept += sorted(mine, key=lambda number: (-levels[number], priority[number]))[:k]
    expected = sorted(everyone, key=lambda number: (-levels[number], number))[:k]
    return sorted(expected), sorted(sorted(kept, key=lambda number: (-levels[number], number))[:k])


@given(st.data())
def test_enumeration_agrees_with_sorting(data: st.DataObject) -> None:
    candidates = data.draw(st.integers(1, 5))
    levels, owners = tie_patterns(candidates), assignments(candidates, 3)
    pattern = data.draw(st.integers(0, len(levels) - 1))
    assignment = data.draw(st.integers(0, len(owners) - 1))
    priority = data.draw(st.permutations(range(candidates)))
    for claim in Claim:
        evaluated = theorem._evaluate(claim, levels[pattern : pattern + 1], owners, priority)
        for k, failed, merged in evaluated:
            drawn = tuple(levels[pattern].tolist()), tuple(owners[assignment].tolist())
            expected, actual = merge_by_hand(*drawn, k, priority)
            assert list(theorem._members(int(merged[0, assignment]))) == actual
            if claim is Claim.SCORES:
                expected, actual = (sorted(drawn[0][number] for number in ids) for ids in (expected, actual))
            assert failed[0, assignment] == (expected != actual)


@pytest.mark.parametrize("candidates", [1, 3, 4])
def test_signatures_tell_multisets_of_scores_apart(candidates: int) -> None:
    levels = tie_patterns(candidates)
    for pattern, row in zip(levels.tolist(), theorem._signatures(Claim.SCORES, levels).tolist(), strict=True):
        multisets = [sorted(pattern[number] for number in theorem._members(mask)) for mask in range(1 << candidates)]
        pairs = {(signature, tuple(multiset)) for signature, multiset in zip(row, multisets, strict=True)}
        assert len(pairs) == len({signature for signature, _ in pairs}) == len({multiset for _, multiset in pairs})


def test_smallest_counterexample_is_found() -> None:
    found = theorem.find_counterexample()
    assert (found.levels, found.owners, found.k) == ((0, 0, 0, 0), (0, 1, 0, 1), 1)
    assert (found.expected, found.actual) == ((0,), (2,))
    unequal = theorem.find_counterexample(equal_shards=False)
    assert (unequal.levels, unequal.owners, unequal.k) == ((0, 0, 0), (0, 1, 0), 1)
    assert (unequal.expected, unequal.actual) == ((0,), (1,))


def test_counterexample_keeps_the_scores() -> None:
    found = theorem.find_counterexample()
    scores = np.array([found.levels], np.float32)
    ids = np.arange(len(found.levels), dtype=np.int32)[None]
    output = np.array([found.actual], np.int32)
    assert select(scores, ids, found.k).tolist() == [list(found.expected)]
    assert not check_selection(scores, ids, found.k, output, Contract.VALUES)
    assert check_selection(scores, ids, found.k, output, Contract.SET)


def test_bad_sizes_are_rejected() -> None:
    for candidates in (0, 7):
        with pytest.raises(InputError, match="candidates"):
            tie_patterns(candidates)
        with pytest.raises(InputError, match="candidates"):
            assignments(candidates, 2)
    with pytest.raises(InputError, match="ranks"):
        check_statement(STATEMENTS[0], ranks=0)
