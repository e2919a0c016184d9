"""The exchange, explored: the protocol keeps its invariants, and each variation breaks as stated."""

from __future__ import annotations

import pytest

from tiebreak.errors import InputError
from tiebreak.spec.exchange import Step, check_variations, enabled, explore, finished, initial_state, step
from tiebreak.spec.protocol import AS_SPECIFIED, AT_WRAP, VARIATIONS, Discipline, Kernel, System, Variation, Verdict
from tiebreak.spec.search import Exploration, Invariant

BY_NAME = {variation.name: variation for variation in VARIATIONS}
BY_OWNER = [variation for variation in VARIATIONS if variation.name.startswith("merged by owner")]
ALTERNATING, ACKNOWLEDGED = Discipline.ALTERNATING, Discipline.ACKNOWLEDGED
APPLICABLE = [
    pytest.param(variation, discipline, id=f"{variation.name}-{discipline.value}")
    for variation in VARIATIONS
    for discipline, stated in ((ALTERNATING, variation.alternating), (ACKNOWLEDGED, variation.acknowledged))
    if stated is not None
]


@pytest.mark.parametrize("variation", [AS_SPECIFIED, AT_WRAP, *BY_OWNER], ids=lambda variation: variation.name)
@pytest.mark.parametrize("discipline", Discipline)
@pytest.mark.parametrize(("world_size", "exchanges"), [(1, 4), (2, 1), (2, 2), (2, 3), (2, 4), (3, 2), (3, 4)])
def test_protocol_is_correct(variation: Variation, discipline: Discipline, world_size: int, exchanges: int) -> None:
    result = explore(System(discipline, variation, world_size, exchanges))
    assert (result.verdict, result.schedule) == (Verdict.CORRECT, ())


@pytest.mark.parametrize(("world_size", "exchanges", "states"), [(2, 3, 118), (3, 2, 375)])
def test_acknowledged_reaches_the_published_number_of_states(world_size: int, exchanges: int, states: int) -> None:
    assert explore(System(ACKNOWLEDGED, world_size=world_size, exchanges=exchanges)).states == states


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("exchanges", [3, 4])
def test_every_variation_is_as_stated(world_size: int, exchanges: int) -> None:
    results = check_variations(world_size, exchanges)
    assert len(results) == len(APPLICABLE)
    assert [result.message for result in results if not result.as_stated] == []


def test_every_named_fault_is_among_the_variations() -> None:
    faulty = {variation.name for variation in VARIATIONS if variation not in (AS_SPECIFIED, AT_WRAP, *BY_OWNER)}
    assert faulty == {
        "no wait before overwrite",
        "acknowledge before select",
        "publish before push",
        "no wait for publish",
        "epoch frozen at capture",
        "one slot where two are needed",
        "one rank runs one merge fewer",
        "equality instead of at-least",
        "plain comparison at wrap",
        "returned published before ids",
        "no wait for returned",
        "ids returned before the wait",
    }
    wrong = (Verdict.WRONG_DATA, Verdict.DEADLOCK)
    assert all(BY_NAME[name].alternating in wrong or BY_NAME[name].acknowledged in wrong for name in faulty)


@pytest.mark.parametrize(("variation", "discipline"), APPLICABLE)
def test_schedule_replays_to_the_violation(variation: Variation, discipline: Discipline) -> None:
    system = System(discipline, variation)
    result = explore(system)
    state, broken = initial_state(system), None
    for taken in result.schedule:
        assert broken is None
        own = state[taken.rank]
        assert (system.program(own.exchange)[own.position], own.exchange) == (taken.kernel, taken.exchange)
        state, broken = step(system, state, taken.rank)
    if result.invariant is Invariant.PROGRESS:
        assert broken is None
        assert not any(enabled(system, state, rank) for rank in range(2))
        assert not all(finished(system, state, rank) for rank in range(2))
    else:
        assert broken is result.invariant


def shortest_by_depth(system: System, limit: int) -> int | None:
    """Length of a shortest violating schedule, by plain iteration over levels of states."""
    level = {initial_state(system)}
    for depth in range(1, limit + 1):
        following = set()
        for state in level:
            for rank in range(system.world_size):
                if enabled(system, state, rank):
                    after, broken = step(system, state, rank)
                    if broken is not None:
                        return depth
                    following.add(after)
        level = following
        for state in level:
            waiting = [not finished(system, state, rank) for rank in range(system.world_size)]
            if any(waiting) and not any(enabled(system, state, rank) for rank in range(system.world_size)):
                return depth
    return None


@pytest.mark.parametrize(("variation", "discipline"), APPLICABLE)
def test_schedule_is_shortest(variation: Variation, discipline: Discipline) -> None:
    system = System(discipline, variation)
    everything = system.world_size * sum(len(system.program(number + 1)) for number in range(system.exchanges))
    assert (shortest_by_depth(system, everything) or 0) == len(explore(system).schedule)


SEED_VERDICTS = [
    # Name, verdict, and the length of the shortest schedule that was published for the one-slot protocol.
    ("no wait before overwrite", Verdict.WRONG_DATA, 13),
    ("publish before push", Verdict.WRONG_DATA, 9),
    ("no wait for publish", Verdict.WRONG_DATA, 5),
    ("acknowledge before select", Verdict.WRONG_DATA, None),
    ("epoch frozen at capture", Verdict.WRONG_DATA, None),
    ("one rank runs one merge fewer", Verdict.DEADLOCK, None),
    ("equality instead of at-least", Verdict.CORRECT, None),
]


@pytest.mark.parametrize(("name", "verdict", "length"), SEED_VERDICTS)
def test_one_slot_verdicts_agree_with_the_public_protocol(name: str, verdict: Verdict, length: int | None) -> None:
    """Judged by what selections read, as there: its search had no invariant about overwriting."""
    result = explore(System(ACKNOWLEDGED, BY_NAME[name]), (Invariant.OWN_EPOCH, Invariant.PROGRESS))
    assert result.verdict is verdict
    assert length is None or len(result.schedule) == length


@pytest.mark.parametrize(("variation", "discipline"), APPLICABLE)
def test_every_overwrite_leads_to_a_wrong_selection(variation: Variation, discipline: Discipline) -> None:
    system = System(discipline, variation)
    if explore(system).invariant is Invariant.UNREAD_KEPT:
        assert explore(system, (Invariant.OWN_EPOCH,)).invariant is Invariant.OWN_EPOCH


def run(variation: str, discipline: Discipline) -> Exploration[Step]:
    return explore(System(discipline, BY_NAME[variation]))


def test_overwrites_are_seen_when_they_happen() -> None:
    for name, discipline in (
        ("no wait before overwrite", ACKNOWLEDGED),
        ("acknowledge before select", ACKNOWLEDGED),
        ("epoch frozen at capture", ALTERNATING),
        ("epoch frozen at capture", ACKNOWLEDGED),
        ("one slot where two are needed", ALTERNATING),
    ):
        result = run(name, discipline)
        assert result.invariant is Invariant.UNREAD_KEPT
        assert (result.schedule[-1].kernel, result.schedule[-1].exchange) == (Kernel.PUSH, 2)


def test_frozen_epoch_needs_a_replay() -> None:
    frozen = BY_NAME["epoch frozen at capture"]
    for discipline in Discipline:
        assert explore(System(discipline, frozen, exchanges=1)).verdict is Verdict.CORRECT
        assert explore(System(discipline, frozen, exchanges=2)).verdict is Verdict.WRONG_DATA


def test_equality_hangs_a_rank_that_a_peer_has_overtaken() -> None:
    result = run("equality instead of at-least", ALTERNATING)
    assert result.verdict is Verdict.DEADLOCK
    assert (result.schedule[-1].kernel, result.schedule[-1].exchange) == (Kernel.PUBLISH, 2)
    assert run("equality instead of at-least", ACKNOWLEDGED).verdict is Verdict.CORRECT


def test_plain_comparison_fails_only_where_counters_wrap() -> None:
    plain = BY_NAME["plain comparison at wrap"]
    for discipline in Discipline:
        assert explore(System(discipline, plain, exchanges=1)).verdict is Verdict.CORRECT
        result = explore(System(discipline, plain, exchanges=2))
        assert result.invariant is Invariant.OWN_EPOCH
        assert result.schedule[-1].exchange == 2


def test_message_reads_as_a_schedule() -> None:
    result = run("no wait for publish", ALTERNATING)
    assert result.name == "no wait for publish, alternating"
    assert result.message == (
        "wrong data, against 'every selection reads its own epoch from every rank', after 4 steps: "
        "rank 0 pack 1; rank 0 push 1; rank 0 publish 1; rank 0 select 1"
    )
    assert run("as specified", ACKNOWLEDGED).message == "correct in 118 states"


def test_a_blocked_kernel_cannot_be_stepped() -> None:
    system = System(ALTERNATING)
    state = initial_state(system)
    for _ in range(3):
        state, _ = step(system, state, 0)
    assert system.program(1)[state[0].position] is Kernel.WAIT
    with pytest.raises(InputError, match="cannot run"):
        step(system, state, 0)


def test_programs_are_the_documented_ones() -> None:
    plain = [Kernel.PACK, Kernel.PUSH, Kernel.PUBLISH, Kernel.WAIT, Kernel.SELECT, Kernel.COMPLETE]
    assert list(System(ALTERNATING).program(1)) == plain
    assert list(System(ACKNOWLEDGED).program(1)) == [Kernel.WAIT_WRITABLE, *plain]
    assert (System(ALTERNATING).slots, System(ACKNOWLEDGED).slots) == (2, 1)
    by_owner = System(ALTERNATING, BY_NAME["merged by owner in turn"])
    returning = [Kernel.RETURN, Kernel.PUBLISH_RETURNED, Kernel.WAIT_RETURNED, Kernel.COLLECT]
    assert [list(by_owner.program(exchange)) for exchange in (1, 2, 3)] == [
        plain,
        [*plain[:-1], *returning, Kernel.COMPLETE],
        plain,
    ]


def test_returned_ids_in_one_slot_rest_on_the_wait_for_every_peer() -> None:
    result = run("ids returned before the wait", ALTERNATING)
    assert result.invariant is Invariant.UNREAD_KEPT
    assert (result.schedule[-1].kernel, result.schedule[-1].exchange) == (Kernel.RETURN, 2)
    assert run("ids returned before the wait", ACKNOWLEDGED).verdict is Verdict.CORRECT


def test_meaningless_systems_are_rejected() -> None:
    with pytest.raises(InputError, match="means nothing when alternating"):
        System(ALTERNATING, BY_NAME["no wait before overwrite"])
    with pytest.raises(InputError, match="means nothing when acknowledged"):
        System(ACKNOWLEDGED, BY_NAME["one slot where two are needed"])
    for sizes in ({"world_size": 0}, {"exchanges": 0}):
        with pytest.raises(InputError, match="at least 1"):
            System(ALTERNATING, **sizes)
