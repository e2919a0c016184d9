"""Reading order 11 of 11: the exchange in one kernel, whose rows are messages, explored.

A fused merge is one kernel per rank with one CTA per row.  Every row is a
message of its own: the CTA sends its candidates to every rank, releases a flag
that is this row's, waits for the flags of the same row of every rank, and
selects.  A CTA reads the epoch when it starts; the last one of the kernel to
finish advances it, and the next kernel of the stream starts after that.

A merge of no rows has one CTA all the same, which releases and awaits the flag
of row 0.  So every exchange makes each rank wait for every other one, which is
what two slots in turn rest on: a rank sends epoch n + 2 into the slot of n after
it acquired a flag of n + 1 of every rank, which each releases in its kernel
n + 1, and that starts after its kernel n has read the slot.

A CTA waits for CTAs of other ranks, which must therefore be running: a kernel
may have no more of them than a device holds at once.  A merge of more rows is
separate kernels, as ``exchange`` has them; here it is one CTA with one message
of all rows and a flag of its own.  Both kinds may follow one another.

As in ``exchange``, a step is executed at once, and which stores a release covers
is not modelled here.  Flags are compared as there, so epochs do not wrap here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from tiebreak.errors import InputError

from .exchange import Part
from .protocol import Verdict
from .search import Exploration, Invariant, search


class Action(enum.Enum):
    """What a CTA does."""

    SEND = "send"
    RELEASE = "release"
    WAIT = "wait"
    SELECT = "select"
    """Also finishes; the last CTA of its kernel advances the epoch."""


@dataclass(frozen=True)
class Merge:
    """One merge, the same on all ranks."""

    rows: int
    fused: bool = True


class Message(NamedTuple):
    """What one CTA sends: the flag that releases it, and its rows."""

    flag: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class FusedVariation:
    """The fused exchange with one thing changed, and what is stated about it.

    Attributes:
        name: The change in words.
        stated: Stated verdict.
        merges: The merges, in turn.
        slots: Number of inbox slots.
        released_first: Whether a flag is released before its row is sent.
        first_row_only: Whether every CTA waits for the flags of row 0.
        silent_if_empty: Whether a merge of no rows neither releases nor waits.
        first_advances: Whether the first CTA to finish advances the epoch.
        residency: CTAs that a device holds at once; it starts them in any order.
    """

    name: str
    stated: Verdict
    merges: tuple[Merge, ...] = (Merge(2),)
    slots: int = 2
    released_first: bool = False
    first_row_only: bool = False
    silent_if_empty: bool = False
    first_advances: bool = False
    residency: int = 2


_CORRECT, _WRONG, _DEADLOCK = Verdict.CORRECT, Verdict.WRONG_DATA, Verdict.DEADLOCK

FUSED = FusedVariation("fused", _CORRECT)

ROWS_CHANGE = FusedVariation("fused, rows change", _CORRECT, merges=(Merge(2), Merge(0), Merge(1)))

FUSED_VARIATIONS: tuple[FusedVariation, ...] = (
    FUSED,
    ROWS_CHANGE,
    FusedVariation("fused and separate in turn", _CORRECT, merges=(Merge(2), Merge(2, fused=False))),
    FusedVariation("separate at first, then fused", _CORRECT, merges=(Merge(2, fused=False), Merge(1), Merge(0))),
    FusedVariation("row released before it is sent", _WRONG, released_first=True),
    FusedVariation("wait for row 0 only", _WRONG, first_row_only=True),
    replace(ROWS_CHANGE, name="no flag in a merge of no rows", stated=_WRONG, silent_if_empty=True),
    FusedVariation("one slot where fused rows need two", _WRONG, slots=1),
    FusedVariation("epoch advanced by the first CTA", _WRONG, first_advances=True),
    FusedVariation("more rows than a device holds", _DEADLOCK, residency=1),
)
"""Every named variation, the unchanged protocol first."""


@dataclass(frozen=True)
class FusedSystem:
    """One instance to explore.

    Attributes:
        variation: What is changed.
        world_size: Number of ranks.
        exchanges: Exchanges that every rank runs.
    """

    variation: FusedVariation = FUSED
    world_size: int = 2
    exchanges: int = 3

    def __post_init__(self) -> None:
        for name in ("world_size", "exchanges"):
            if getattr(self, name) < 1:
                raise InputError(name, value=getattr(self, name), limit="must be at least 1")

    @property
    def name(self) -> str:
        """The variation."""
        return self.variation.name

    @property
    def stated(self) -> Verdict:
        """Verdict that the variation states."""
        return self.variation.stated

    @property
    def inbox_rows(self) -> int:
        """Rows of an inbox slot."""
        return max(1, *(merge.rows for merge in self.variation.merges))

    def messages(self, exchange: int) -> tuple[Message, ...]:
        """Messages of each rank in one exchange, one per CTA.

        Meaning:
            One per row, and one without rows if there are none; of a separate
            merge one of all rows, whose flag follows those of the rows.
        Shapes:
            None.
        Errors:
            None.
        Source:
            Flags per row, waited for by the CTA that selects from the row:
            https://github.com/vllm-project/vllm/pull/47348 has one flag for all.
        """
        merge = self.variation.merges[(exchange - 1) % len(self.variation.merges)]
        if not merge.fused:
            return (Message(self.inbox_rows, tuple(range(merge.rows))),)
        return tuple(Message(row, (row,)) for row in range(merge.rows)) or (Message(0, ()),)

    def program(self, exchange: int) -> tuple[Action, ...]:
        """Actions of every CTA of one exchange.

        Meaning:
            Those of ``Action``, in that order unless the variation changes it.
        Shapes:
            None.
        Errors:
            None.
        Source:
            The text at the top.
        """
        variation = self.variation
        if variation.silent_if_empty and not any(message.rows for message in self.messages(exchange)):
            return (Action.SEND, Action.SELECT)
        if variation.released_first:
            return (Action.RELEASE, Action.SEND, Action.WAIT, Action.SELECT)
        return tuple(Action)


class Cta(NamedTuple):
    """One CTA: the action it is at, and the epoch it has read."""

    position: int
    epoch: int


class FusedRank(NamedTuple):
    """State of one rank: its exchange, by true ordinal, the CTAs of that kernel, and its memory.

    ``inbox[slot][row][source]`` is a part, ``flags[flag][source]`` an epoch.
    """

    exchange: int
    ctas: tuple[Cta, ...]
    counter: int
    inbox: tuple[tuple[tuple[Part, ...], ...], ...]
    flags: tuple[tuple[int, ...], ...]


FusedState = tuple[FusedRank, ...]


class FusedStep(NamedTuple):
    """One action of one CTA of one rank, in its ``exchange``-th exchange."""

    rank: int
    cta: int
    action: Action
    exchange: int

    def __str__(self) -> str:
        return f"rank {self.rank} CTA {self.cta} {self.action.value} {self.exchange}"


def explore_fused(system: FusedSystem) -> Exploration[FusedStep]:
    """Explore every interleaving of the CTAs of all ranks.

    Meaning:
        The first violation, by a shortest schedule, or none.
    Shapes:
        None.
    Errors:
        None.
    Source:
        ``search``.
    """
    row = (Part(0, True),) * system.world_size
    inbox = ((row,) * system.inbox_rows,) * system.variation.slots
    flags = ((0,) * system.world_size,) * (system.inbox_rows + 1)
    start = (FusedRank(1, _idle(system, 1), 0, inbox, flags),) * system.world_size
    return search(system, start, partial(_successors, system), partial(_stuck, system))


def check_fused_variations(world_size: int = 2, exchanges: int = 3) -> tuple[Exploration[FusedStep], ...]:
    """Explore every variation of the fused exchange.

    Meaning:
        One exploration each; the model stands when all are as stated, which
        includes that every faulty variation is found faulty.
    Shapes:
        None.
    Errors:
        ``InputError`` for sizes below 1.
    Source:
        ``FUSED_VARIATIONS``.
    """
    return tuple(explore_fused(FusedSystem(variation, world_size, exchanges)) for variation in FUSED_VARIATIONS)


def _idle(system: FusedSystem, exchange: int) -> tuple[Cta, ...]:
    """CTAs of a kernel that has not started."""
    return (Cta(0, 0),) * len(system.messages(exchange))


def _finished(system: FusedSystem, own: FusedRank) -> bool:
    return own.exchange > system.exchanges


def _enabled(system: FusedSystem, own: FusedRank, cta: int) -> bool:
    program, (position, epoch) = system.program(own.exchange), own.ctas[cta]
    if position == 0:
        running = sum(0 < other.position < len(program) for other in own.ctas)
        return running < system.variation.residency
    if position == len(program):
        return False
    if program[position] is Action.WAIT:
        flag = 0 if system.variation.first_row_only else system.messages(own.exchange)[cta].flag
        return all(observed >= epoch for observed in own.flags[flag])
    return True


def _successors(system: FusedSystem, state: FusedState) -> Iterator[tuple[FusedStep, FusedState, Invariant | None]]:
    for rank, own in enumerate(state):
        if _finished(system, own):
            continue
        for cta, (position, _) in enumerate(own.ctas):
            if _enabled(system, own, cta):
                action = system.program(own.exchange)[position]
                yield FusedStep(rank, cta, action, own.exchange), *_step(system, state, rank, cta)


def _stuck(system: FusedSystem, state: FusedState) -> bool:
    waiting = [own for own in state if not _finished(system, own)]
    return bool(waiting) and not any(_enabled(system, own, cta) for own in waiting for cta in range(len(own.ctas)))


def _step(system: FusedSystem, state: FusedState, rank: int, cta: int) -> tuple[FusedState, Invariant | None]:
    """Run the next action of one CTA."""
    own = state[rank]
    position, epoch = own.ctas[cta]
    if position == 0:
        epoch = own.counter + 1
    ctas = (*own.ctas[:cta], Cta(position + 1, epoch), *own.ctas[cta + 1 :])
    ranks = list(state)
    ranks[rank] = own._replace(ctas=ctas)
    action, message = system.program(own.exchange)[position], system.messages(own.exchange)[cta]
    broken = None
    if action is Action.SEND:
        broken = _send(system, ranks, rank, message, epoch)
    elif action is Action.RELEASE:
        _release(ranks, rank, message, epoch)
    elif action is Action.SELECT:
        broken = _select(system, ranks, rank, message, epoch)
    return tuple(ranks), broken


def _send(system: FusedSystem, ranks: list[FusedRank], rank: int, message: Message, epoch: int) -> Invariant | None:
    slot, content, lost = epoch % system.variation.slots, Part(ranks[rank].exchange, False), False
    for peer, other in enumerate(ranks):
        rows = list(other.inbox[slot])
        for row in message.rows:
            lost |= not rows[row][rank].read
            rows[row] = (*rows[row][:rank], content, *rows[row][rank + 1 :])
        ranks[peer] = other._replace(inbox=(*other.inbox[:slot], tuple(rows), *other.inbox[slot + 1 :]))
    return Invariant.UNREAD_KEPT if lost else None


def _release(ranks: list[FusedRank], rank: int, message: Message, epoch: int) -> None:
    for peer, other in enumerate(ranks):
        flags = list(other.flags)
        flags[message.flag] = (*flags[message.flag][:rank], epoch, *flags[message.flag][rank + 1 :])
        ranks[peer] = other._replace(flags=tuple(flags))


def _select(system: FusedSystem, ranks: list[FusedRank], rank: int, message: Message, epoch: int) -> Invariant | None:
    own, slot = ranks[rank], epoch % system.variation.slots
    rows = list(own.inbox[slot])
    fresh = all(part.exchange == own.exchange for row in message.rows for part in rows[row])
    for row in message.rows:
        rows[row] = tuple(part._replace(read=True) for part in rows[row])
    own = own._replace(inbox=(*own.inbox[:slot], tuple(rows), *own.inbox[slot + 1 :]))
    ranks[rank] = _finish(system, own, epoch)
    return None if fresh else Invariant.OWN_EPOCH


def _finish(system: FusedSystem, own: FusedRank, epoch: int) -> FusedRank:
    """Count a CTA as finished; the last one ends the kernel."""
    end = len(system.program(own.exchange))
    finished = sum(cta.position == end for cta in own.ctas)
    last = finished == len(own.ctas)
    if finished == 1 if system.variation.first_advances else last:
        own = own._replace(counter=epoch)
    if last:
        own = own._replace(exchange=own.exchange + 1, ctas=_idle(system, own.exchange + 1))
    return own
