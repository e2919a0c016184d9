"""The exchange in one kernel, explored: it keeps its invariants, and each variation breaks as stated."""

from __future__ import annotations

import pytest

from tiebreak.errors import InputError
from tiebreak.spec.fused import (
    FUSED,
    FUSED_VARIATIONS,
    Action,
    FusedStep,
    FusedSystem,
    FusedVariation,
    Merge,
    Message,
    check_fused_variations,
    explore_fused,
)
from tiebreak.spec.protocol import Verdict
from tiebreak.spec.search import Exploration, Invariant

BY_NAME = {variation.name: variation for variation in FUSED_VARIATIONS}
CORRECT = [variation for variation in FUSED_VARIATIONS if variation.stated is Verdict.CORRECT]


@pytest.mark.parametrize("variation", CORRECT, ids=lambda variation: variation.name)
@pytest.mark.parametrize(("world_size", "exchanges"), [(1, 4), (2, 1), (2, 2), (2, 3), (2, 5), (3, 2), (3, 3)])
def test_fused_exchange_is_correct(variation: FusedVariation, world_size: int, exchanges: int) -> None:
    result = explore_fused(FusedSystem(variation, world_size, exchanges))
    assert (result.verdict, result.schedule) == (Verdict.CORRECT, ())


@pytest.mark.parametrize(("world_size", "exchanges"), [(2, 3), (2, 4), (3, 3)])
def test_every_variation_is_as_stated(world_size: int, exchanges: int) -> None:
    results = check_fused_variations(world_size, exchanges)
    assert [result.name for result in results] == list(BY_NAME)
    assert [result.message for result in results if not result.as_stated] == []


def test_every_named_fault_is_among_the_variations() -> None:
    assert {variation.name for variation in FUSED_VARIATIONS if variation not in CORRECT} == {
        "row released before it is sent",
        "wait for row 0 only",
        "no flag in a merge of no rows",
        "one slot where fused rows need two",
        "epoch advanced by the first CTA",
        "more rows than a device holds",
    }


def run(name: str, exchanges: int = 3) -> Exploration[FusedStep]:
    return explore_fused(FusedSystem(BY_NAME[name], exchanges=exchanges))


def test_row_that_was_not_awaited_is_read_too_early() -> None:
    result = run("wait for row 0 only")
    assert result.invariant is Invariant.OWN_EPOCH
    assert (result.schedule[-1].action, result.schedule[-1].cta) == (Action.SELECT, 1)


def test_merge_of_no_rows_keeps_ranks_in_step() -> None:
    result = run("no flag in a merge of no rows")
    assert result.invariant is Invariant.UNREAD_KEPT
    assert (result.schedule[-1].action, result.schedule[-1].exchange) == (Action.SEND, 3)
    # Up to the first reuse of a slot the two slots hide the missing flag.
    assert run("no flag in a merge of no rows", exchanges=2).verdict is Verdict.CORRECT


def test_one_slot_is_overwritten_by_the_next_merge() -> None:
    result = run("one slot where fused rows need two")
    assert result.invariant is Invariant.UNREAD_KEPT
    assert (result.schedule[-1].action, result.schedule[-1].exchange) == (Action.SEND, 2)


def test_late_cta_takes_an_epoch_that_was_advanced_under_it() -> None:
    result = run("epoch advanced by the first CTA")
    assert result.invariant is Invariant.OWN_EPOCH
    starts = [taken for taken in result.schedule if taken.action is Action.SEND and taken.rank == 1]
    finished = next(place for place, taken in enumerate(result.schedule) if taken.action is Action.SELECT)
    assert [taken.exchange for taken in starts] == [1, 1]
    assert result.schedule.index(starts[1]) > finished


def test_ranks_that_start_other_rows_wait_for_each_other_for_ever() -> None:
    result = run("more rows than a device holds")
    assert result.message == (
        "deadlock, against 'no rank waits for ever', after 4 steps: "
        "rank 0 CTA 0 send 1; rank 0 CTA 0 release 1; rank 1 CTA 1 send 1; rank 1 CTA 1 release 1"
    )


def test_messages_are_rows_or_one_of_all_rows() -> None:
    system = FusedSystem(FusedVariation("", Verdict.CORRECT, merges=(Merge(2), Merge(0), Merge(2, fused=False))))
    assert [system.messages(exchange) for exchange in (1, 2, 3)] == [
        (Message(0, (0,)), Message(1, (1,))),
        (Message(0, ()),),
        (Message(2, (0, 1)),),
    ]
    assert system.messages(4) == system.messages(1)
    assert system.program(2) == (Action.SEND, Action.RELEASE, Action.WAIT, Action.SELECT)


def test_meaningless_systems_are_rejected() -> None:
    for sizes in ({"world_size": 0}, {"exchanges": 0}):
        with pytest.raises(InputError, match="at least 1"):
            FusedSystem(FUSED, **sizes)
