"""A merge in one launch: a CTA per row, which a device starts as it has room for them.

Every row is a message of its own, and a CTA waits for the CTAs of the same row
on other ranks; the last one to finish advances the epoch.  A lane of the
protocol is the CTA of a row here.
"""

from __future__ import annotations

from ..explorer.operations import Load, Order, Store, add
from ..explorer.residency import leave, occupy
from .protocol import Protocol, Step, Steps, Turn
from .steps import ACQ_REL, ACQUIRE, GPU, RELEASE, SYSTEM, barrier, begin, wait_for


def start(turn: Turn, step: Step) -> Steps:
    """Wait for room on the device."""
    yield from occupy(turn.rank, turn.ordinal, turn.protocol.residency)


def send(turn: Turn, step: Step) -> Steps:
    """Store the candidates of the row into every peer's inbox."""
    for peer in turn.peers:
        yield Store(("inbox", peer, turn.slot, turn.lane, turn.rank), turn.payload(turn.rank, turn.lane), Order.WEAK)


def release(turn: Turn, step: Step) -> Steps:
    """Release the row's flag on every peer."""
    for peer in turn.peers:
        yield Store(("arrived", peer, turn.lane, turn.rank), turn.epoch, step.order, step.scope)


def wait(turn: Turn, step: Step) -> Steps:
    """Wait for the flags of the row of every peer."""
    for peer in turn.peers:
        yield wait_for(("arrived", turn.rank, turn.lane, peer), turn.epoch, step)


def wait_for_first_row(turn: Turn, step: Step) -> Steps:
    """Wait for the flags of row 0 of every peer."""
    for peer in turn.peers:
        yield wait_for(("arrived", turn.rank, 0, peer), turn.epoch, step)


def select(turn: Turn, step: Step) -> Steps:
    """Read the row."""
    for peer in turn.peers:
        value = yield Load(("inbox", turn.rank, turn.slot, turn.lane, peer), Order.WEAK)
        turn.expect(value, turn.payload(peer, turn.lane), f"row {turn.lane} of rank {peer}")


def _finish(turn: Turn, step: Step, advancing: int) -> Steps:
    finished = yield add(("finished", turn.rank), 1, step.order, step.scope)
    if finished % turn.protocol.lanes == advancing:
        yield Store(("epoch", turn.rank), turn.epoch, Order.WEAK)


def finish(turn: Turn, step: Step) -> Steps:
    """Count the CTA; the last one advances the epoch."""
    yield from _finish(turn, step, turn.protocol.lanes - 1)


def finish_as_first(turn: Turn, step: Step) -> Steps:
    """Count the CTA; the first one advances the epoch."""
    yield from _finish(turn, step, 0)


def end(turn: Turn, step: Step) -> Steps:
    """Make room on the device."""
    yield from leave(turn.rank, turn.ordinal)


ROWS = Protocol(
    "rows",
    (
        Step("start", start),
        Step("begin", begin),
        Step("send", send),
        Step("release", release, None, RELEASE, SYSTEM),
        Step("wait", wait, None, ACQUIRE, SYSTEM),
        Step("select", select),
        Step("finish", finish, None, ACQ_REL, GPU),
        Step("end", end),
        barrier("boundary"),
    ),
    epochs=1,
    slots=2,
    residency=2,
    lane_is_cta=True,
)
