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
    Task,
    check_fused_variations,
    explore_fused,
)
from tiebreak.spec.protocol import Verdict
from tiebreak.spec.search import Exploration, Invariant

BY_NAME = {variation.name: variation for variation in FUSED_VARIATIONS}
CORRECT = [variation for variation in FUSED_VARIATIONS if variation.stated is Verdict.CORRECT]
ONE_ROW = [variation for variation in CORRECT if all(merge.rows < 2 or not merge.fused for merge in variation.merges)]


@pytest.mark.parametrize("variation", CORRECT, ids=lambda variation: variation.name)
@pytest.mark.parametrize(("world_size", "exchanges"), [(1, 4), (2, 1), (2, 2), (2, 3), (2, 5)])
def test_fused_exchange_is_correct(variation: FusedVariation, world_size: int, exchanges: int) -> None:
    result = explore_fused(FusedSystem(variation, world_size, exchanges))
    assert (result.verdict, result.schedule) == (Verdict.CORRECT, ())


@pytest.mark.parametrize("variation", ONE_ROW, ids=lambda variation: variation.name)
def test_fused_exchange_of_three_ranks_is_correct(variation: FusedVariation) -> None:
    assert len(ONE_ROW) == 3
    result = explore_fused(FusedSystem(variation, world_size=3, exchanges=5))
    assert (result.verdict, result.schedule) == (Verdict.CORRECT, ())


@pytest.mark.parametrize("exchanges", [3, 4])
def test_every_variation_is_as_stated(exchanges: int) -> None:
    results = check_fused_variations(2, exchanges)
    assert [result.name for result in results] == list(BY_NAME)
    assert [result.message for result in results if not result.as_stated] == []


def test_every_named_fault_is_among_the_variations() -> None:
    assert {variation.name for variation in FUSED_VARIATIONS if variation not in CORRECT} == {
        "poll the own packets only",
        "phase that never changes",
        "phase of the epoch",
        "no meeting",
        "one slot where fused rows need two",
        "epoch advanced by the first CTA",
        "more CTAs than a device holds",
    }


def run(name: str, exchanges: int = 3) -> Exploration[FusedStep]:
    return explore_fused(FusedSystem(BY_NAME[name], exchanges=exchanges))


def test_packets_that_were_not_awaited_are_read_too_early() -> None:
    result = run("poll the own packets only")
    assert result.invariant is Invariant.OWN_EPOCH
    assert result.schedule[-1].action is Action.SELECT


@pytest.mark.parametrize(("name", "reused"), [("phase that never changes", 3), ("phase of the epoch", 5)])
def test_old_packets_with_the_phase_of_new_ones_are_taken_for_them(name: str, reused: int) -> None:
    result = run(name, exchanges=reused)
    assert result.invariant is Invariant.OWN_EPOCH
    assert (result.schedule[-1].action, result.schedule[-1].exchange) == (Action.SELECT, reused)
    # Every use before has another phase than what lay there.
    assert run(name, exchanges=reused - 1).verdict is Verdict.CORRECT


def test_meeting_keeps_ranks_in_step_where_there_are_no_rows() -> None:
    result = run("no meeting")
    assert result.invariant is Invariant.UNREAD_KEPT
    assert (result.schedule[-1].action, result.schedule[-1].exchange) == (Action.SEND, 3)
    # Up to the first reuse of a slot the two slots hide that nobody waits.
    assert run("no meeting", exchanges=2).verdict is Verdict.CORRECT


def test_one_slot_is_overwritten_by_the_next_merge() -> None:
    result = run("one slot where fused rows need two")
    assert result.invariant is Invariant.UNREAD_KEPT
    assert (result.schedule[-1].action, result.schedule[-1].exchange) == (Action.SEND, 2)


def test_late_cta_takes_an_epoch_that_was_advanced_under_it() -> None:
    result = run("epoch advanced by the first CTA")
    assert result.invariant is Invariant.PROGRESS
    late = result.schedule[-1]
    assert (late.action, late.exchange) == (Action.SEND, 1)
    assert FusedStep(late.rank, 1, Action.MEET, 1) in result.schedule


def test_ranks_that_start_other_ctas_wait_for_each_other_for_ever() -> None:
    result = run("more CTAs than a device holds")
    assert result.message == (
        "deadlock, against 'no rank waits for ever', after 2 steps: rank 0 CTA 0 send 1; rank 1 CTA 1 send 1"
    )


def test_ctas_are_rows_and_a_meeting_or_all_in_one() -> None:
    system = FusedSystem(FusedVariation("", Verdict.CORRECT, merges=(Merge(2), Merge(0), Merge(2, fused=False))))
    assert [system.tasks(exchange) for exchange in (1, 2, 3)] == [
        (Task.ROW, Task.ROW, Task.MEETING),
        (Task.MEETING,),
        (Task.SEPARATE,),
    ]
    assert system.tasks(4) == system.tasks(1)


def test_meaningless_systems_are_rejected() -> None:
    for sizes in ({"world_size": 0}, {"exchanges": 0}):
        with pytest.raises(InputError, match="at least 1"):
            FusedSystem(FUSED, **sizes)
