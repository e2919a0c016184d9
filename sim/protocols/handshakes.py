"""Flags that are set and reset, and sentinels instead of flags.

``RESET`` sets a flag to 1 and its reader sets it back, as vLLM's custom
all-reduce did before https://github.com/vllm-project/vllm/pull/8558, here with
a second flag that says so.  ``SENTINEL`` has no flags: a place that holds the
sentinel has not been written yet, as in the one-shot all-reduce of
TensorRT-LLM, with three buffers in turn.
"""

from __future__ import annotations

from ..explorer.operations import Await, Barrier, Lanes, Load, Order, Store, Value
from .protocol import Action, Protocol, Step, Steps, Turn
from .push import push, read
from .steps import ACQUIRE, RELAXED, RELEASE, barrier, by_first, wait_for

UNWRITTEN = 0
"""The sentinel: what buffers hold at first, and after they have been cleared."""


def set_flag(flag: str) -> Action:
    """Set a flag at every peer."""

    def action(turn: Turn, step: Step) -> Steps:
        for peer in turn.peers:
            yield Store((flag, peer, turn.rank), 1, step.order, step.scope)

    return action


def wait_flag(flag: str) -> Action:
    """Wait for a flag of every peer."""

    def action(turn: Turn, step: Step) -> Steps:
        for peer in turn.peers:
            yield wait_for((flag, turn.rank, peer), 1, step)

    return action


def reset_flag(flag: str) -> Action:
    """Set a flag of every peer back."""

    def action(turn: Turn, step: Step) -> Steps:
        for peer in turn.peers:
            yield Store((flag, turn.rank, peer), 0, RELAXED)

    return action


def zero_flags(turn: Turn, step: Step) -> Steps:
    """Zero the rank's flags when its memory has been allocated."""
    if turn.ordinal == 1:
        for peer in turn.peers:
            yield Store(("ready", turn.rank, peer), 0, Order.WEAK)


def meet(turn: Turn, step: Step) -> Steps:
    """Exchange handles with all hosts, once."""
    if turn.ordinal == 1:
        yield Barrier("handles", turn.protocol.ranks)


def rendezvous_of_lanes(turn: Turn, step: Step) -> Steps:
    """What the host of a rank did comes before its kernels."""
    if turn.ordinal == 1:
        yield Barrier(("launch", turn.rank), turn.protocol.lanes)


def send(turn: Turn, step: Step) -> Steps:
    """Store two words into every peer's buffer, which are their own flags."""
    yield from _send(turn, step, turn.payload(turn.rank, 0))


def send_the_sentinel(turn: Turn, step: Step) -> Steps:
    """Likewise, where the first word of rank 1 in its second exchange is the sentinel."""
    yield from _send(turn, step, UNWRITTEN if (turn.rank, turn.ordinal) == (1, 2) else turn.payload(turn.rank, 0))


def _send(turn: Turn, step: Step, first: Value) -> Steps:
    for peer in turn.peers:
        place = ("buffer", peer, turn.ordinal % turn.protocol.slots, turn.rank)
        words = enumerate((first, turn.payload(turn.rank, 1)))
        yield Lanes(tuple(Store((*place, word), value, step.order, step.scope) for word, value in words))


def clear(turn: Turn, step: Step) -> Steps:
    """Put the sentinel into the buffer of the exchange before."""
    if turn.ordinal > 1:
        slot = (turn.ordinal - 1) % turn.protocol.slots
        words = [("buffer", turn.rank, slot, peer, word) for peer in turn.peers for word in range(2)]
        yield Lanes(tuple(Store(word, UNWRITTEN, RELAXED) for word in words))


def _poll(turn: Turn, step: Step, words: int) -> Steps:
    slot = turn.ordinal % turn.protocol.slots
    for peer in turn.peers:
        for word in range(words):
            place = ("buffer", turn.rank, slot, peer, word)
            yield Await(place, lambda value: value != UNWRITTEN, step.order, step.scope, "written")


def poll_words(turn: Turn, step: Step) -> Steps:
    """Wait until no word of any peer is the sentinel."""
    yield from _poll(turn, step, 2)


def poll_first_word(turn: Turn, step: Step) -> Steps:
    """Wait until the first word of every peer is not the sentinel."""
    yield from _poll(turn, step, 1)


def take_words(turn: Turn, step: Step) -> Steps:
    """Read the words of every peer."""
    slot = turn.ordinal % turn.protocol.slots
    for peer in turn.peers:
        for word in range(2):
            value = yield Load(("buffer", turn.rank, slot, peer, word), RELAXED)
            turn.expect(value, turn.payload(peer, word), f"word {word} of rank {peer}")


RESET = Protocol(
    "reset",
    (
        by_first("zero", zero_flags, Order.WEAK),
        by_first("meet", meet, Order.WEAK),
        Step("launch", rendezvous_of_lanes),
        Step("push", push),
        barrier("gather"),
        by_first("set ready", set_flag("ready"), RELEASE),
        Step("wait ready", wait_flag("ready"), 0, ACQUIRE, comparison="=="),
        by_first("reset ready", reset_flag("ready"), RELAXED),
        barrier("spread"),
        Step("read", read),
        barrier("settle"),
        by_first("set done", set_flag("done"), RELEASE),
        Step("wait done", wait_flag("done"), 0, ACQUIRE, comparison="=="),
        by_first("reset done", reset_flag("done"), RELAXED),
        barrier("boundary"),
    ),
    epochs=2,
)

SENTINEL = Protocol(
    "sentinel",
    (
        by_first("send", send, RELEASE),
        by_first("clear", clear, RELAXED),
        by_first("poll", poll_words, ACQUIRE),
        by_first("take", take_words, RELAXED),
    ),
    lanes=1,
    epochs=4,
    slots=3,
)
