"""Two places that a rank has to hold at once, its own and its peer's, before it writes to both.

Ranks take the places in one order.  Those that take their own first can wait
for each other, or give way to each other for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..explorer.operations import Load, Order, Store, compare_and_swap, equal_to
from .protocol import Protocol, Step, Steps, Turn
from .steps import ACQUIRE, RELAXED, RELEASE, by_first


def _order(turn: Turn) -> list[int]:
    """The places in the order that all ranks keep."""
    return sorted((turn.rank, turn.peers[0]))


def _take(turn: Turn, step: Step, places: Sequence[int]) -> Steps:
    for place in places:
        held = True
        while held:
            yield equal_to(("lock", place), 0, RELAXED)
            held = (yield compare_and_swap(("lock", place), 0, 1, step.order, step.scope)) != 0


def take(turn: Turn, step: Step) -> Steps:
    """Wait for one place after the other, in the order of their numbers."""
    yield from _take(turn, step, _order(turn))


def take_own_first(turn: Turn, step: Step) -> Steps:
    """Wait for the rank's own place, then for its peer's."""
    yield from _take(turn, step, (turn.rank, turn.peers[0]))


def take_or_give_way(turn: Turn, step: Step) -> Steps:
    """Take the rank's own place; if the peer's is held, free the own one and try again."""
    while True:
        if (yield compare_and_swap(("lock", turn.rank), 0, 1, step.order, step.scope)) == 0:
            if (yield compare_and_swap(("lock", turn.peers[0]), 0, 1, step.order, step.scope)) == 0:
                return
            yield Store(("lock", turn.rank), 0, RELEASE)


def write(turn: Turn, step: Step) -> Steps:
    """Add one to what both places guard."""
    for place in _order(turn):
        value = yield Load(("guarded", place), Order.WEAK)
        yield Store(("guarded", place), value + 1, Order.WEAK)


def free(turn: Turn, step: Step) -> Steps:
    """Free both places."""
    for place in _order(turn):
        yield Store(("lock", place), 0, step.order, step.scope)


LOCKS = Protocol(
    "locks",
    (by_first("take", take, ACQUIRE), by_first("write", write, Order.WEAK), by_first("free", free, RELEASE)),
    lanes=1,
    epochs=1,
)
