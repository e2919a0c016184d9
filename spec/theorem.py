"""Reading order 7 of 11: when exchanging K candidates per rank is exact.

Theorem.  Let every rank keep K of its candidates and let the merge select K of
what was kept, by the total order.

1. If the local selection uses the total order too, the merge returns exactly
   the ids of the unsharded selection.  A candidate of the global top-K has at
   most K - 1 candidates above it, so at most K - 1 on its own rank, so its
   rank keeps it.
2. If the local selection orders by score and breaks ties in any other way, the
   merge still returns exactly the scores of the unsharded selection, because
   the same argument holds for "strictly higher score".  The ids may differ.

The precondition of the first half is needed.  Public counterexample: all
scores equal, local ties to the highest index, reference ties to the lowest id
(https://github.com/vllm-project/vllm/pull/54955).  Sorting the result
afterwards cannot repair it, because the right ids never left their rank.

Both halves depend only on which scores tie and which is higher, not on the
numbers.  So they are checked here over every tie pattern (weak ordering) of a
few candidates, every assignment of the candidates to the ranks (empty ranks
and hence smaller worlds included) and every K: complete, not sampled.
A set of candidates is a bit mask of one byte, which makes that cheap.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tiebreak.errors import InputError

from .layout import Layout
from .merge import Shard, local_topk, merge, shard
from .order import Ids

Levels = NDArray[np.uint8]
Masks = NDArray[np.uint8]
Failures = NDArray[np.bool_]

LARGEST_PATTERN = 6
"""Candidates up to which patterns are enumerated; 6 have 4683 weak orderings."""


class Claim(enum.Enum):
    """What the merged selection shares with the unsharded one."""

    IDS = "ids"
    SCORES = "scores"


class TieBreak(enum.Enum):
    """How the local selection chooses among equal scores."""

    TOTAL_ORDER = "lowest id"
    HIGHEST_ID = "highest id"
    EVERY = "every permutation"


@dataclass(frozen=True)
class Statement:
    """One half of the theorem, or the need of its precondition.

    Attributes:
        name: The statement in words.
        claim: What is compared.
        tie_break: The local selection's rule.
        candidates: Largest number of candidates that is enumerated.
        exact: True when no case may fail, False when some case must.
    """

    name: str
    claim: Claim
    tie_break: TieBreak
    candidates: int
    exact: bool


STATEMENTS = (
    Statement("ids are exact under one total order", Claim.IDS, TieBreak.TOTAL_ORDER, LARGEST_PATTERN, True),
    Statement("scores are exact with local ties to the highest id", Claim.SCORES, TieBreak.HIGHEST_ID, 6, True),
    # 4! tie-breaks of 75 patterns; the ranks' candidates are disjoint, so one permutation spans every mix of rules.
    Statement("scores are exact with any local tie-break", Claim.SCORES, TieBreak.EVERY, 4, True),
    Statement("ids are not exact with local ties to the highest id", Claim.IDS, TieBreak.HIGHEST_ID, 6, False),
)


@dataclass(frozen=True)
class Counterexample:
    """A case in which the merge differs from the unsharded selection.

    Attributes:
        levels: Score of each candidate, by id; higher is better.
        owners: Rank of each candidate, by id.
        k: Candidates kept per rank and selected in the end.
        expected: Ids of the unsharded selection, ascending.
        actual: Ids of the merge, ascending.
    """

    levels: tuple[int, ...]
    owners: tuple[int, ...]
    k: int
    expected: tuple[int, ...]
    actual: tuple[int, ...]


@dataclass(frozen=True)
class Report:
    """Outcome of an exhaustive check.

    Attributes:
        name: The statement.
        patterns: Tie patterns enumerated, over all numbers of candidates.
        cases: Patterns times assignments times K times tie-breaks.
        failures: Cases in which the claim does not hold.
        counterexamples: The first failing case, if there is one; it has the
            fewest candidates.
        holds: Whether the failures are as stated.
    """

    name: str
    patterns: int
    cases: int
    failures: int
    counterexamples: tuple[Counterexample, ...]
    holds: bool


def tie_patterns(candidates: int) -> Levels:
    """Every weak ordering of some candidates, all equal first.

    Meaning:
        Row p gives each candidate a level; levels are 0..max without a gap, a
        higher level is a higher score, and equal levels tie.  There are 1, 3,
        13, 75, 541 and 4683 patterns of 1 to 6 candidates.
    Shapes:
        uint8[patterns, candidates].
    Errors:
        ``InputError`` for a number outside 1..6.
    Source:
        Fubini numbers, https://oeis.org/A000670.
    """
    if not 1 <= candidates <= LARGEST_PATTERN:
        raise InputError("candidates", value=candidates, limit=f"must be within 1..{LARGEST_PATTERN}")
    levels = np.indices((candidates,) * candidates, dtype=np.uint8).reshape(candidates, -1).T
    distinct = sum(np.any(levels == level, axis=1).astype(np.uint8) for level in range(candidates))
    return np.ascontiguousarray(levels[levels.max(axis=1) + 1 == distinct])


def assignments(candidates: int, ranks: int) -> Levels:
    """Every assignment of candidates to ranks.

    Meaning:
        Row a gives each candidate its rank.  Ranks may be empty, so the
        assignments of every smaller world are among them.
    Shapes:
        uint8[ranks ** candidates, candidates].
    Errors:
        ``InputError`` for no rank, or candidates outside 1..6.
    Source:
        None; an enumeration.
    """
    if ranks < 1 or not 1 <= candidates <= LARGEST_PATTERN:
        raise InputError("(candidates, ranks)", value=(candidates, ranks), limit="must be within 1..6 and at least 1")
    return np.indices((ranks,) * candidates, dtype=np.uint8).reshape(candidates, -1).T


def check_statement(statement: Statement, ranks: int = 3) -> Report:
    """Evaluate one statement over every case.

    Meaning:
        For 1 up to the statement's number of candidates: every tie pattern,
        every assignment to the ranks, every K from 1 to the number of
        candidates, every local tie-break that the statement names.
    Shapes:
        None.
    Errors:
        ``InputError`` for no rank or candidates outside 1..6.
    Source:
        The module's theorem.
    """
    patterns = cases = failures = 0
    found: list[Counterexample] = []
    for candidates in range(1, statement.candidates + 1):
        levels, owners = tie_patterns(candidates), assignments(candidates, ranks)
        patterns += len(levels)
        for priority in _priorities(statement.tie_break, candidates):
            for k, failed, merged in _evaluate(statement.claim, levels, owners, priority):
                cases += failed.size
                failures += int(np.count_nonzero(failed))
                if not found and failed.any():
                    found.append(_counterexample(levels, owners, k, failed, merged))
    return Report(statement.name, patterns, cases, failures, tuple(found), statement.exact == (failures == 0))


def check_all(ranks: int = 3) -> tuple[Report, ...]:
    """Evaluate the whole theorem.

    Meaning:
        One report for each of ``STATEMENTS``; the theorem stands when all hold.
    Shapes:
        None.
    Errors:
        ``InputError`` for no rank.
    Source:
        The module's theorem.
    """
    return tuple(check_statement(statement, ranks) for statement in STATEMENTS)


def find_counterexample(equal_shards: bool = True) -> Counterexample:
    """Smallest input on which local ties to the highest id change the ids.

    Meaning:
        Searches 2 or 3 ranks of an interleaved layout with S = 1 by number of
        candidates, then ranks, then K, running ``merge`` itself.  With shards
        of equal length: 4 equal scores, 2 ranks, K = 1; rank 0 keeps id 2,
        rank 1 keeps id 3, the merge answers 2 and the reference 0.  A rank 1
        that kept id 1 would make it 1, which is wrong as well.  Unequal shards
        admit 3 candidates.
    Shapes:
        None.
    Errors:
        None.
    Source:
        Reduced from https://github.com/vllm-project/vllm/pull/54955.
    """
    for candidates, ranks in itertools.product(range(2, LARGEST_PATTERN + 1), (2, 3)):
        if equal_shards and candidates % ranks:
            continue
        levels, layout = tie_patterns(candidates), Layout(ranks, 1)
        rows = levels.astype(np.float32)
        lengths = np.full(len(rows), candidates, dtype=np.int32)
        shards = shard(rows, lengths, layout)
        for k in range(1, candidates + 1):
            kept = [_highest_topk(part, k) for part in shards]
            actual = np.sort(merge([part.scores for part in shards], kept, layout, k), axis=1)
            expected = np.sort(local_topk(rows, lengths, k), axis=1)
            for row in np.flatnonzero(np.any(actual != expected, axis=1))[:1]:
                owners = layout.owner(np.arange(candidates))
                return Counterexample(
                    tuple(levels[row].tolist()),
                    tuple(owners.tolist()),
                    k,
                    tuple(expected[row].tolist()),
                    tuple(actual[row].tolist()),
                )
    raise AssertionError("the precondition of the theorem turned out not to be needed")


def _highest_topk(part: Shard, k: int) -> Ids:
    """Local selection whose ties go to the highest index: mirror, select, mirror back."""
    width = part.scores.shape[1]
    starts = width - part.lengths
    mirrored = local_topk(part.scores[:, ::-1], part.lengths, k, row_starts=starts)
    kept: Ids = np.where(mirrored < 0, mirrored, part.lengths[:, None] - 1 - mirrored)
    return kept


def _priorities(tie_break: TieBreak, candidates: int) -> Iterator[Sequence[int]]:
    """Priorities among tied candidates, by id; the lower priority is preferred."""
    if tie_break is TieBreak.EVERY:
        yield from itertools.permutations(range(candidates))
    elif tie_break is TieBreak.HIGHEST_ID:
        yield range(candidates - 1, -1, -1)
    else:
        yield range(candidates)


def _better(levels: Levels, priority: Sequence[int]) -> Masks:
    """Mask of the candidates that each candidate loses to, [patterns, candidates]."""
    preferred = np.asarray(priority)
    higher = levels[:, None, :] > levels[:, :, None]
    tied = levels[:, None, :] == levels[:, :, None]
    wins = higher | (tied & (preferred[None, :] < preferred[:, None]))
    bits = (1 << np.arange(levels.shape[1])).astype(np.uint8)
    better: Masks = (wins * bits).sum(axis=2, dtype=np.uint8)
    return better


def _select(better: Masks, offered: Masks, k: int) -> Masks:
    """Masks of the k best offered candidates; ``better`` is [patterns, candidates]."""
    chosen = np.zeros(np.broadcast_shapes((len(better), 1), offered.shape), dtype=np.uint8)
    for candidate in range(better.shape[1]):
        ahead = np.bitwise_count(better[:, candidate, None] & offered)
        chosen |= (offered & np.uint8(1 << candidate)) * (ahead < k)
    return chosen


def _evaluate(
    claim: Claim, levels: Levels, owners: Levels, priority: Sequence[int]
) -> Iterator[tuple[int, Failures, Masks]]:
    """For every k: the failing cases and the merged masks, both [patterns, assignments]."""
    candidates = levels.shape[1]
    total, local = _better(levels, range(candidates)), _better(levels, priority)
    bits = (1 << np.arange(candidates)).astype(np.uint8)
    # neighbours[a, i] holds the candidates on the rank of candidate i, so a local position does not depend on k.
    neighbours = ((owners[:, None, :] == owners[:, :, None]) * bits).sum(axis=2, dtype=np.uint8)
    positions = [np.bitwise_count(local[:, i, None] & neighbours[None, :, i]) for i in range(candidates)]
    everyone = np.full((1, 1), (1 << candidates) - 1, dtype=np.uint8)
    signature = _signatures(claim, levels)
    for k in range(1, candidates + 1):
        kept = np.zeros(positions[0].shape, dtype=np.uint8)
        for candidate, position in enumerate(positions):
            kept |= (position < k) * bits[candidate]
        merged = _select(total, kept, k)
        wanted = np.take_along_axis(signature, _select(total, everyone, k).astype(np.intp), axis=1)
        yield k, np.take_along_axis(signature, merged.astype(np.intp), axis=1) != wanted, merged


def _signatures(claim: Claim, levels: Levels) -> NDArray[np.int64]:
    """What the claim compares, as one number for each pattern and each mask of candidates."""
    patterns, candidates = levels.shape
    masks = np.arange(1 << candidates)
    if claim is Claim.IDS:
        return np.broadcast_to(masks, (patterns, len(masks)))
    # Base 8 digits count the selected candidates of each level; no level has more than six.
    members = masks[:, None] >> np.arange(candidates) & 1
    return (8 ** levels.astype(np.int64)) @ members.T


def _counterexample(levels: Levels, owners: Levels, k: int, failed: Failures, merged: Masks) -> Counterexample:
    pattern, assignment = np.argwhere(failed)[0]
    chosen = levels[pattern : pattern + 1]
    everyone = np.full((1, 1), (1 << levels.shape[1]) - 1, dtype=np.uint8)
    expected = _select(_better(chosen, range(levels.shape[1])), everyone, k)[0, 0]
    return Counterexample(
        tuple(chosen[0].tolist()),
        tuple(owners[assignment].tolist()),
        k,
        _members(int(expected)),
        _members(int(merged[pattern, assignment])),
    )


def _members(mask: int) -> tuple[int, ...]:
    return tuple(candidate for candidate in range(LARGEST_PATTERN) if mask >> candidate & 1)
