"""Reading order 11 of 11: the exchange in one kernel, whose candidates are messages, explored.

A fused merge is one kernel per rank with one CTA per row and one CTA more.  A
candidate is one word, a packet, and carries a phase besides its score and id.
The CTA of a row sends its packets to every rank, waits until the packets that
it holds of every rank have the phase of this use of their places, and selects.
Nothing releases a packet: who reads its phase has read all of it.

The phase is the parity of how often that row of that slot has been used, which
each rank counts for itself.  All ranks merge the same rows in every exchange,
so they agree.  The parity of the epoch would not do: a row that fewer rows left
out keeps what an older use left there, with the phase that the next one awaits.

The CTA without a row meets the peers: it releases a flag, this exchange's, to
every rank, and waits for theirs.  So every exchange, also of no rows, makes each
rank wait for every other one, which is what two slots in turn rest on: a rank
sends epoch n + 2 into the slot of n after it acquired the flag of n + 1 of every
rank, which each releases in its kernel n + 1, and that starts after its kernel n
has read the slot.  A CTA reads the epoch when it starts; the last one of the
kernel to finish advances it, and the next kernel of the stream starts after that.

A CTA waits for CTAs of other ranks, which must therefore be running: a kernel
may have no more of them than a device holds at once.  A merge of more rows is
separate kernels, as ``exchange`` has them; here it is one CTA that sends all
rows, to an inbox of its own, and meets the peers before it selects.  Both kinds
may follow one another, since they share no memory but the epoch.

As in ``exchange``, a step is executed at once, and memory order is not modelled
here.  The packets of a row and source are sent together; what if only some have
come is what each packet's own phase answers.  Flags are compared as there, so
epochs do not wrap here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from tiebreak.errors import InputError

from .exchange import Part
from .protocol import Verdict
from .search import Exploration, Invariant, search

Item = TypeVar("Item")


class Action(enum.Enum):
    """What a CTA does; with its last action it finishes."""

    SEND = "send"
    POLL = "poll"
    RELEASE = "release"
    MEET = "meet"
    SELECT = "select"


class Task(enum.Enum):
    """What a CTA is for."""

    ROW = (Action.SEND, Action.POLL, Action.SELECT)
    MEETING = (Action.RELEASE, Action.MEET)
    SEPARATE = (Action.SEND, Action.RELEASE, Action.MEET, Action.SELECT)
    """All kernels of a separate merge."""


@dataclass(frozen=True)
class Merge:
    """One merge, the same on all ranks."""

    rows: int
    fused: bool = True


class Phase(enum.Enum):
    """What the phase of a packet is the parity of."""

    USES = "uses of the row of the slot"
    EPOCH = "uses of the slot, as the epoch has it"
    CONSTANT = "nothing"


@dataclass(frozen=True)
class FusedVariation:
    """The fused exchange with one thing changed, and what is stated about it.

    Attributes:
        name: The change in words.
        stated: Stated verdict.
        merges: The merges, in turn.
        slots: Number of inbox slots.
        phase: What the phase is the parity of.
        own_only: Whether a CTA polls the packets of its own rank only.
        meets: Whether there is a CTA that meets the peers.
        first_advances: Whether the first CTA to finish advances the epoch.
        residency: CTAs that a device holds at once; it starts them in any order.
        exchanges: Exchanges from which on the verdict is stated.
    """

    name: str
    stated: Verdict
    merges: tuple[Merge, ...] = (Merge(2),)
    slots: int = 2
    phase: Phase = Phase.USES
    own_only: bool = False
    meets: bool = True
    first_advances: bool = False
    residency: int = 3
    exchanges: int = 1


_CORRECT, _WRONG, _DEADLOCK = Verdict.CORRECT, Verdict.WRONG_DATA, Verdict.DEADLOCK

FUSED = FusedVariation("fused", _CORRECT)

ROWS_CHANGE = FusedVariation("fused, rows change", _CORRECT, merges=(Merge(2), Merge(0), Merge(1)))

_SELDOM = (Merge(1), Merge(0), Merge(0), Merge(0))
"""Leaves one use of the row out, so that the next one has the epoch's phase of that before."""

FUSED_VARIATIONS: tuple[FusedVariation, ...] = (
    FUSED,
    ROWS_CHANGE,
    FusedVariation("fused and separate in turn", _CORRECT, merges=(Merge(1), Merge(2, fused=False))),
    FusedVariation("separate at first, then fused", _CORRECT, merges=(Merge(2, fused=False), Merge(1), Merge(0))),
    FusedVariation("poll the own packets only", _WRONG, own_only=True),
    FusedVariation("phase that never changes", _WRONG, merges=(Merge(1),), phase=Phase.CONSTANT, exchanges=3),
    FusedVariation("a row is left out", _CORRECT, merges=_SELDOM, exchanges=5),
    FusedVariation("phase of the epoch", _WRONG, merges=_SELDOM, phase=Phase.EPOCH, exchanges=5),
    FusedVariation("no meeting", _WRONG, merges=(Merge(1), Merge(0)), meets=False, exchanges=3),
    FusedVariation("one slot where fused rows need two", _WRONG, merges=(Merge(1),), slots=1, exchanges=2),
    FusedVariation("epoch advanced by the first CTA", _DEADLOCK, merges=(Merge(1),), first_advances=True),
    FusedVariation("more CTAs than a device holds", _DEADLOCK, residency=1),
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
    def rows(self) -> int:
        """Rows of a slot."""
        return max(1, *(merge.rows for merge in self.variation.merges))

    def merge(self, exchange: int) -> Merge:
        """The merge of one exchange.

        Meaning:
            Those of the variation, in turn.
        Shapes:
            None.
        Errors:
            None.
        Source:
            The text at the top.
        """
        return self.variation.merges[(exchange - 1) % len(self.variation.merges)]

    def tasks(self, exchange: int) -> tuple[Task, ...]:
        """What the CTAs of one exchange are for; a CTA of a row has the row's number.

        Meaning:
            One CTA per row and one that meets the peers; of a separate merge
            one for everything.
        Shapes:
            None.
        Errors:
            None.
        Source:
            Data that carries its own flag: the protocol LL of NCCL,
            https://github.com/NVIDIA/nccl; a flag behind the data:
            https://github.com/vllm-project/vllm/pull/47348.
        """
        merge = self.merge(exchange)
        if not merge.fused:
            return (Task.SEPARATE,)
        meeting = (Task.MEETING,) if self.variation.meets or merge.rows == 0 else ()
        return (Task.ROW,) * merge.rows + meeting


class Cta(NamedTuple):
    """One CTA: the action it is at, and the epoch it has read."""

    position: int
    epoch: int


class Packets(NamedTuple):
    """The packets of one row of a slot from one rank: their phase, and whose exchange they hold."""

    phase: int
    part: Part


class FusedRank(NamedTuple):
    """State of one rank: its exchange, by true ordinal, the CTAs of that kernel, and its memory.

    ``packets[slot][row][source]``, ``uses[slot][row]``, ``inbox[slot][source]``,
    and ``flags[fused][source]`` as epochs, those of separate merges first.
    """

    exchange: int
    ctas: tuple[Cta, ...]
    counter: int
    packets: tuple[tuple[tuple[Packets, ...], ...], ...]
    uses: tuple[tuple[int, ...], ...]
    inbox: tuple[tuple[Part, ...], ...]
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
    world_size, slots, nothing = system.world_size, system.variation.slots, Part(0, True)
    packets = (((Packets(0, nothing),) * world_size,) * system.rows,) * slots
    uses, inbox, flags = ((0,) * system.rows,) * slots, ((nothing,) * world_size,) * slots, ((0,) * world_size,) * 2
    start = (FusedRank(1, _idle(system, 1), 0, packets, uses, inbox, flags),) * world_size
    return search(system, start, partial(_successors, system), partial(_stuck, system))


def check_fused_variations(world_size: int = 2, exchanges: int = 3) -> tuple[Exploration[FusedStep], ...]:
    """Explore every variation of the fused exchange.

    Meaning:
        One exploration each, of more exchanges where the verdict is stated for
        more; the model stands when all are as stated, which includes that every
        faulty variation is found faulty.
    Shapes:
        None.
    Errors:
        ``InputError`` for sizes below 1.
    Source:
        ``FUSED_VARIATIONS``.
    """
    return tuple(
        explore_fused(FusedSystem(variation, world_size, max(exchanges, variation.exchanges)))
        for variation in FUSED_VARIATIONS
    )


def _idle(system: FusedSystem, exchange: int) -> tuple[Cta, ...]:
    """CTAs of a kernel that has not started."""
    return (Cta(0, 0),) * len(system.tasks(exchange))


def _finished(system: FusedSystem, own: FusedRank) -> bool:
    return own.exchange > system.exchanges


def _phase(system: FusedSystem, own: FusedRank, epoch: int, row: int) -> int:
    """Phase of this use of a row; 1 at first, since packets start with 0."""
    variation = system.variation
    if variation.phase is Phase.USES:
        return (own.uses[epoch % variation.slots][row] + 1) % 2
    return (epoch + 1) // 2 % 2 if variation.phase is Phase.EPOCH else 1


def _enabled(system: FusedSystem, state: FusedState, rank: int, cta: int) -> bool:
    own = state[rank]
    tasks, (position, epoch) = system.tasks(own.exchange), own.ctas[cta]
    program = tasks[cta].value
    if position == 0:
        running = sum(0 < other.position < len(task.value) for task, other in zip(tasks, own.ctas, strict=True))
        return running < system.variation.residency
    if position == len(program):
        return False
    if program[position] is Action.MEET:
        if tasks[cta] is Task.MEETING and not system.variation.meets:
            return True
        return all(observed >= epoch for observed in own.flags[tasks[cta] is Task.MEETING])
    if program[position] is Action.POLL:
        row = own.packets[epoch % system.variation.slots][cta]
        polled = (row[rank],) if system.variation.own_only else row
        return all(packets.phase == _phase(system, own, epoch, cta) for packets in polled)
    return True


def _successors(system: FusedSystem, state: FusedState) -> Iterator[tuple[FusedStep, FusedState, Invariant | None]]:
    for rank, own in enumerate(state):
        if _finished(system, own):
            continue
        for cta, (position, _) in enumerate(own.ctas):
            if _enabled(system, state, rank, cta):
                action = system.tasks(own.exchange)[cta].value[position]
                yield FusedStep(rank, cta, action, own.exchange), *_step(system, state, rank, cta)


def _stuck(system: FusedSystem, state: FusedState) -> bool:
    waiting = [(rank, own) for rank, own in enumerate(state) if not _finished(system, own)]
    ctas = ((rank, cta) for rank, own in waiting for cta in range(len(own.ctas)))
    return bool(waiting) and not any(_enabled(system, state, rank, cta) for rank, cta in ctas)


def _step(system: FusedSystem, state: FusedState, rank: int, cta: int) -> tuple[FusedState, Invariant | None]:
    """Run the next action of one CTA."""
    own, broken = state[rank], None
    task, (position, epoch) = system.tasks(own.exchange)[cta], own.ctas[cta]
    if position == 0:
        epoch = own.counter + 1
    ranks = list(state)
    ranks[rank] = own._replace(ctas=_put(own.ctas, cta, Cta(position + 1, epoch)))
    action = task.value[position]
    if action is Action.SEND:
        send = _send_packets if task is Task.ROW else _send_rows
        broken = send(system, ranks, rank, cta, epoch)
    elif action is Action.RELEASE:
        _release(ranks, rank, epoch, fused=task is Task.MEETING)
    elif action is Action.SELECT:
        select = _select_packets if task is Task.ROW else _select_rows
        broken = select(system, ranks, rank, cta, epoch)
    if position + 1 == len(task.value):
        ranks[rank] = _finish(system, ranks[rank], epoch)
    return tuple(ranks), broken


def _put(items: tuple[Item, ...], place: int, item: Item) -> tuple[Item, ...]:
    """Return the items with another one at a place."""
    return (*items[:place], item, *items[place + 1 :])


def _send_packets(system: FusedSystem, ranks: list[FusedRank], rank: int, row: int, epoch: int) -> Invariant | None:
    """Write this rank's packets of a row on every rank."""
    own, slot, lost = ranks[rank], epoch % system.variation.slots, False
    sent = Packets(_phase(system, own, epoch, row), Part(own.exchange, False))
    for peer, other in enumerate(ranks):
        rows = other.packets[slot]
        lost |= not rows[row][rank].part.read
        rows = _put(rows, row, _put(rows[row], rank, sent))
        ranks[peer] = other._replace(packets=_put(other.packets, slot, rows))
    return Invariant.UNREAD_KEPT if lost else None


def _send_rows(system: FusedSystem, ranks: list[FusedRank], rank: int, cta: int, epoch: int) -> Invariant | None:
    """Write this rank's part of a separate merge on every rank."""
    slot, lost = epoch % system.variation.slots, False
    for peer, other in enumerate(ranks):
        parts = other.inbox[slot]
        lost |= not parts[rank].read
        parts = _put(parts, rank, Part(ranks[rank].exchange, False))
        ranks[peer] = other._replace(inbox=_put(other.inbox, slot, parts))
    return Invariant.UNREAD_KEPT if lost else None


def _release(ranks: list[FusedRank], rank: int, epoch: int, fused: bool) -> None:
    for peer, other in enumerate(ranks):
        flags = _put(other.flags[fused], rank, epoch)
        ranks[peer] = other._replace(flags=_put(other.flags, fused, flags))


def _select_packets(system: FusedSystem, ranks: list[FusedRank], rank: int, row: int, epoch: int) -> Invariant | None:
    """Read all packets of a row, and count the use."""
    own, slot = ranks[rank], epoch % system.variation.slots
    rows, uses = own.packets[slot], own.uses[slot]
    fresh = all(packets.part.exchange == own.exchange for packets in rows[row])
    read = tuple(packets._replace(part=packets.part._replace(read=True)) for packets in rows[row])
    own = own._replace(uses=_put(own.uses, slot, _put(uses, row, uses[row] + 1)))
    ranks[rank] = own._replace(packets=_put(own.packets, slot, _put(rows, row, read)))
    return None if fresh else Invariant.OWN_EPOCH


def _select_rows(system: FusedSystem, ranks: list[FusedRank], rank: int, cta: int, epoch: int) -> Invariant | None:
    """Read all parts of a separate merge."""
    own, slot = ranks[rank], epoch % system.variation.slots
    fresh = all(part.exchange == own.exchange for part in own.inbox[slot])
    read = tuple(part._replace(read=True) for part in own.inbox[slot])
    ranks[rank] = own._replace(inbox=_put(own.inbox, slot, read))
    return None if fresh else Invariant.OWN_EPOCH


def _finish(system: FusedSystem, own: FusedRank, epoch: int) -> FusedRank:
    """Count a CTA as finished; the last one ends the kernel."""
    ends = [len(task.value) for task in system.tasks(own.exchange)]
    finished = sum(cta.position == end for cta, end in zip(own.ctas, ends, strict=True))
    last = finished == len(own.ctas)
    if finished == 1 if system.variation.first_advances else last:
        own = own._replace(counter=epoch)
    if last:
        own = own._replace(exchange=own.exchange + 1, ctas=_idle(system, own.exchange + 1))
    return own
