"""Signals that pass through a third rank, and two exchanges of the same ranks.

``RELAY`` hands data on by a flag of every rank to the next one, ``CHAIN`` by
one flag that ranks add to.  ``GROUPS`` has two exchanges, each with flags and
buffers of its own, as two process groups have.
"""

from __future__ import annotations

from ..explorer.operations import Load, Order, Store, add
from .protocol import Protocol, Step, Steps, Turn
from .steps import ACQUIRE, RELAXED, RELEASE, by_first, wait_for


def produce(turn: Turn, step: Step) -> Steps:
    """Rank 0 stores the data."""
    if turn.rank == 0:
        yield Store("data", turn.payload(0, 0), Order.WEAK)


def wait_for_previous(turn: Turn, step: Step) -> Steps:
    """Wait for the signal of the rank before."""
    if turn.rank > 0:
        yield wait_for(("signal", turn.rank), 1, step)


def signal_next(turn: Turn, step: Step) -> Steps:
    """Signal the rank after this one."""
    if turn.rank + 1 < turn.protocol.ranks:
        yield Store(("signal", turn.rank + 1), 1, step.order, step.scope)


def wait_for_count(turn: Turn, step: Step) -> Steps:
    """The last rank waits until all before it have counted, the others for nobody."""
    if turn.rank + 1 == turn.protocol.ranks:
        yield wait_for("count", turn.rank, step)


def count(turn: Turn, step: Step) -> Steps:
    """Rank 0 counts, with an order; the ranks between add to what they find there, without one."""
    if turn.rank == 0:
        yield add("count", 1, step.order, step.scope)
    elif turn.rank + 1 < turn.protocol.ranks:
        yield wait_for("count", turn.rank, Step("found", count, 0, RELAXED))
        yield add("count", 1, RELAXED, step.scope)


def count_by_store(turn: Turn, step: Step) -> Steps:
    """Likewise, where the ranks between store the number instead of adding to it."""
    if turn.rank == 0:
        yield add("count", 1, step.order, step.scope)
    elif turn.rank + 1 < turn.protocol.ranks:
        yield wait_for("count", turn.rank, Step("found", count, 0, RELAXED))
        yield Store("count", turn.rank + 1, RELAXED, step.scope)


def consume(turn: Turn, step: Step) -> Steps:
    """The last rank reads the data."""
    if turn.rank + 1 == turn.protocol.ranks:
        value = yield Load("data", Order.WEAK)
        turn.expect(value, turn.payload(0, 0), "the data")


def _exchange(turn: Turn, step: Step, group: int, channel: int) -> Steps:
    """One exchange of a group: store, release, acquire, read."""
    for peer in turn.peers:
        yield Store(("buffer", peer, channel, turn.rank), f"{group}{turn.payload(turn.rank, 0)}", Order.WEAK)
        yield Store(("flag", peer, channel, turn.rank), turn.ordinal, RELEASE)
    for peer in turn.peers:
        yield wait_for(("flag", turn.rank, channel, peer), turn.ordinal, Step("wait", consume, order=ACQUIRE))
        value = yield Load(("buffer", turn.rank, channel, peer), Order.WEAK)
        turn.expect(value, f"{group}{turn.payload(peer, 0)}", f"the candidate of rank {peer} in group {group}")


def exchange_in_groups(turn: Turn, step: Step) -> Steps:
    """Exchange in both groups, in the same order on all ranks."""
    for group in range(2):
        yield from _exchange(turn, step, group, group)


def exchange_in_opposite_order(turn: Turn, step: Step) -> Steps:
    """Exchange in both groups, in an order that depends on the rank."""
    for group in (0, 1) if turn.rank % 2 == 0 else (1, 0):
        yield from _exchange(turn, step, group, group)


def exchange_on_one_channel(turn: Turn, step: Step) -> Steps:
    """Exchange in both groups through the same flags and buffers."""
    for group in range(2):
        yield from _exchange(turn, step, group, 0)


RELAY = Protocol(
    "relay",
    (
        by_first("produce", produce, Order.WEAK),
        by_first("wait", wait_for_previous, ACQUIRE),
        by_first("signal", signal_next, RELEASE),
        by_first("consume", consume, Order.WEAK),
    ),
    ranks=3,
    lanes=1,
    epochs=1,
)

CHAIN = Protocol(
    "chain",
    (
        by_first("produce", produce, Order.WEAK),
        by_first("count", count, RELEASE),
        by_first("wait", wait_for_count, ACQUIRE),
        by_first("consume", consume, Order.WEAK),
    ),
    ranks=3,
    lanes=1,
    epochs=1,
)

GROUPS = Protocol("groups", (by_first("exchange", exchange_in_groups, Order.WEAK),), lanes=1, epochs=1)
