"""Exchanges in which ranks read peers' buffers between two barriers of all ranks.

``PADS`` has barriers of signal pads as PyTorch's symmetric memory has them: a
place of a peer's pad goes from 0 to 1 and back by compare-and-swap.  Those of
``COUNTERS`` add to a counter of every rank that is never reset, as Iris and
MSCCL++ do.
"""

from __future__ import annotations

from ..explorer.operations import Await, Load, Order, Store, Update, add, exchange
from .protocol import Protocol, Step, Steps, Turn
from .steps import ACQUIRE, RELAXED, RELEASE, barrier, by_first, wait_for


def fill(turn: Turn, step: Step) -> Steps:
    """Store candidates into the rank's own buffer."""
    yield Store(("buffer", turn.rank, turn.lane), turn.payload(turn.rank, turn.lane), Order.WEAK)


def pull(turn: Turn, step: Step) -> Steps:
    """Read what another lane of every peer has stored."""
    lane = (turn.lane + 1) % turn.protocol.lanes
    for peer in turn.peers:
        value = yield Load(("buffer", peer, lane), Order.WEAK)
        turn.expect(value, turn.payload(peer, lane), f"the candidate of rank {peer}")


def put(turn: Turn, step: Step) -> Steps:
    """Signal every peer, once it has taken the signal before."""
    for peer in turn.peers:
        pad = ("pad", peer, turn.rank)
        yield Await(pad, lambda value: value == 0, RELAXED, step.scope, "== 0")
        yield exchange(pad, 1, step.order, step.scope)


def put_at_once(turn: Turn, step: Step) -> Steps:
    """Signal every peer, whether or not it has taken the signal before."""
    for peer in turn.peers:
        yield Store(("pad", peer, turn.rank), 1, step.order, step.scope)


def take(turn: Turn, step: Step) -> Steps:
    """Wait for the signal of every peer, and take it."""
    for peer in turn.peers:
        pad = ("pad", turn.rank, peer)
        yield Await(pad, lambda value: value == 1, RELAXED, step.scope, "== 1")
        yield exchange(pad, 0, step.order, step.scope)


def arrive(turn: Turn, step: Step) -> Steps:
    """Add to the counter of every rank."""
    for rank in range(turn.protocol.ranks):
        yield add(("arrived", rank), 1, step.order, step.scope)


def arrive_by_two_accesses(turn: Turn, step: Step) -> Steps:
    """Add to the counter of every rank by a load and a store."""
    for rank in range(turn.protocol.ranks):
        arrived = yield Load(("arrived", rank), RELAXED, step.scope)
        yield Store(("arrived", rank), arrived + 1, step.order, step.scope)


def arrive_in_narrow_counter(turn: Turn, step: Step) -> Steps:
    """Add to counters that turn over at 4, from 3 to -4."""

    def increase(value: object) -> int:
        assert isinstance(value, int)
        return -4 if value == 3 else value + 1

    for rank in range(turn.protocol.ranks):
        yield Update(("arrived", rank), increase, step.order, step.scope, "add 1, 3 bits")


def gather_all(turn: Turn, step: Step) -> Steps:
    """Wait until every rank has arrived; two barriers belong to an exchange."""
    barriers = 2 * turn.ordinal - (step.name == "enter")
    yield wait_for(("arrived", turn.rank), turn.protocol.ranks * barriers - step.lag, step)


def gather_from_baseline(turn: Turn, step: Step) -> Steps:
    """Wait until the counter has grown by all ranks since it is looked at, after the rank has arrived itself."""
    baseline = yield Load(("arrived", turn.rank), RELAXED)
    yield wait_for(("arrived", turn.rank), baseline + turn.protocol.ranks, step)


def gather_and_reset(turn: Turn, step: Step) -> Steps:
    """Wait until every rank has arrived, then set the counter back to 0."""
    yield wait_for(("arrived", turn.rank), turn.protocol.ranks, step)
    yield Store(("arrived", turn.rank), 0, RELAXED)


PADS = Protocol(
    "pads",
    (
        Step("fill", fill),
        barrier("gather"),
        by_first("put", put, RELEASE),
        by_first("take", take, ACQUIRE),
        barrier("spread"),
        Step("pull", pull),
        barrier("settle"),
        by_first("put at exit", put, RELEASE),
        by_first("take at exit", take, ACQUIRE),
        barrier("boundary"),
    ),
    epochs=2,
)

COUNTERS = Protocol(
    "counters",
    (
        Step("fill", fill),
        barrier("gather"),
        by_first("arrive", arrive, RELEASE),
        by_first("enter", gather_all, ACQUIRE),
        barrier("spread"),
        Step("pull", pull),
        barrier("settle"),
        by_first("arrive at exit", arrive, RELEASE),
        by_first("leave", gather_all, ACQUIRE),
        barrier("boundary"),
    ),
    epochs=2,
)
