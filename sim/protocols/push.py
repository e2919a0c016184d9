"""Exchanges that push candidates into peers' inboxes and poll local flags.

``ALTERNATING`` is the exchange of this project without acknowledgements,
``ACKNOWLEDGED`` that of https://github.com/vllm-project/vllm/pull/47348 with
local polls, and ``FENCED`` releases and acquires by fences around relaxed
accesses, as NCCL's barrier between GPUs of one node does.
"""

from __future__ import annotations

from ..explorer.operations import Load, Order, Store
from .protocol import Protocol, Step, Steps, Turn
from .steps import (
    ACQ_REL,
    ACQUIRE,
    RELAXED,
    RELEASE,
    advance,
    barrier,
    begin,
    by_first,
    fence,
    wait_for,
)


def push(turn: Turn, step: Step) -> Steps:
    """Store candidates into every peer's inbox."""
    for peer in turn.peers:
        place = ("inbox", peer, turn.slot, turn.rank, turn.lane)
        yield Store(place, turn.payload(turn.rank, turn.lane), Order.WEAK)


def publish(turn: Turn, step: Step) -> Steps:
    """Tell every peer the epoch."""
    for peer in turn.peers:
        yield Store(("published", peer, turn.rank), turn.epoch, step.order, step.scope)


def publish_to_all_but_one(turn: Turn, step: Step) -> Steps:
    """Tell the epoch to every peer but the last."""
    for peer in turn.peers[:-1]:
        yield Store(("published", peer, turn.rank), turn.epoch, step.order, step.scope)


def wait(turn: Turn, step: Step) -> Steps:
    """Wait until every peer has told the epoch."""
    for peer in turn.peers:
        yield wait_for(("published", turn.rank, peer), turn.epoch - step.lag, step)


def wait_for_one(turn: Turn, step: Step) -> Steps:
    """Wait for the first peer only."""
    yield wait_for(("published", turn.rank, turn.peers[0]), turn.epoch, step)


def read(turn: Turn, step: Step) -> Steps:
    """Read what another lane of every peer sent."""
    lane = (turn.lane + 1) % turn.protocol.lanes
    for peer in turn.peers:
        value = yield Load(("inbox", turn.rank, turn.slot, peer, lane), Order.WEAK)
        turn.expect(value, turn.payload(peer, lane), f"the candidate of rank {peer}")


def acknowledge(turn: Turn, step: Step) -> Steps:
    """Tell every peer that its candidates have been read."""
    for peer in turn.peers:
        yield Store(("acknowledged", peer, turn.rank), turn.epoch, step.order, step.scope)


def wait_writable(turn: Turn, step: Step) -> Steps:
    """Wait until every peer has read the candidates of an earlier epoch."""
    for peer in turn.peers:
        yield wait_for(("acknowledged", turn.rank, peer), turn.epoch - step.lag, step)


_SENDING = (Step("push", push), barrier("gather"), by_first("publish", publish, RELEASE))
_RECEIVING = (by_first("wait", wait, ACQUIRE), barrier("spread"), Step("read", read), barrier("settle"))
_ENDING = (by_first("advance", advance, Order.WEAK), barrier("boundary"))

ALTERNATING = Protocol("alternating", (Step("begin", begin), *_SENDING, *_RECEIVING, *_ENDING), slots=2)

ACKNOWLEDGED = Protocol(
    "acknowledged",
    (
        Step("begin", begin),
        Step("wait writable", wait_writable, 0, ACQUIRE, lag=1),
        barrier("open"),
        *_SENDING,
        *_RECEIVING,
        by_first("acknowledge", acknowledge, RELEASE),
        *_ENDING,
    ),
)

FENCED = (
    ALTERNATING.alter("publish", order=RELAXED)
    .alter("wait", order=RELAXED)
    .add(by_first("fence before publish", fence, ACQ_REL), before="publish")
    .add(by_first("fence after wait", fence, ACQ_REL), before="spread")
)
FENCED = Protocol("fenced", FENCED.steps, slots=2)
