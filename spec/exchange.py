"""Reading order 10 of 11: the exchange as a transition system, explored.

A state is the memory of every rank and the position of its stream.  A step is
one kernel of one rank, executed at once; ranks interleave freely and the
kernels of a rank run in stream order.  That is sequential consistency at kernel
granularity: which stores a release covers and how the programs of a kernel
overlap is not modelled here.

A waiting kernel is a step that is not enabled.  Every step advances a rank, so
no run is endless, and freedom from deadlock means that every rank finishes.  An exchange may be an eager launch or
a graph replay alike: its kernels get nothing from the host, and the variation
with a frozen epoch shows what a host scalar would do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import NamedTuple

from tiebreak.errors import InputError

from .protocol import VARIATIONS, Comparison, Discipline, Kernel, System
from .search import Exploration, Invariant, search


class Part(NamedTuple):
    """One rank's part of an inbox slot or of the returned ids: whose exchange it holds, and whether that was read."""

    exchange: int
    read: bool


class Rank(NamedTuple):
    """State of one rank.

    ``exchange`` and ``position`` say where its stream stands; the exchange is
    the true ordinal, which no kernel knows.  The rest is device memory.
    """

    exchange: int
    position: int
    counter: int
    inbox: tuple[tuple[Part, ...], ...]
    published: tuple[int, ...]
    acknowledged: tuple[int, ...]
    returned_ids: tuple[Part, ...]
    returned: tuple[int, ...]


State = tuple[Rank, ...]


class Step(NamedTuple):
    """One kernel of one rank, in its ``exchange``-th exchange."""

    rank: int
    kernel: Kernel
    exchange: int

    def __str__(self) -> str:
        return f"rank {self.rank} {self.kernel.value} {self.exchange}"


def initial_state(system: System) -> State:
    """State before the first exchange.

    Meaning:
        Flags and counters agree; the inboxes hold nothing that is worth
        keeping.
    Shapes:
        One ``Rank`` per rank.
    Errors:
        None.
    Source:
        None; a convention.
    """
    flags = (system.variation.initial_epoch,) * system.world_size
    parts = (Part(0, True),) * system.world_size
    rank = Rank(1, 0, system.variation.initial_epoch, (parts,) * system.slots, flags, flags, parts, flags)
    return (rank,) * system.world_size


def finished(system: System, state: State, rank: int) -> bool:
    """Whether a rank has run all its exchanges.

    Meaning:
        Its stream is empty.
    Shapes:
        None.
    Errors:
        None.
    Source:
        None; a convention.
    """
    return state[rank].exchange > system.exchanges_of(rank)


def enabled(system: System, state: State, rank: int) -> bool:
    """Whether the next kernel of a rank can run.

    Meaning:
        Always, except for the waits, which need every flag of the rank's own
        memory to have reached the target, and for a finished rank.
    Shapes:
        None.
    Errors:
        None.
    Source:
        Half-range comparison as in the symmetric barrier of NCCL
        (https://github.com/NVIDIA/nccl).
    """
    if finished(system, state, rank):
        return False
    own = state[rank]
    kernel, epoch = system.program(own.exchange)[own.position], _epoch(system, own)
    if kernel is Kernel.WAIT:
        return all(_reached(system, flag, epoch) for flag in own.published)
    if kernel is Kernel.WAIT_RETURNED:
        return all(_reached(system, flag, epoch) for flag in own.returned)
    if kernel is Kernel.WAIT_WRITABLE:
        return all(_reached(system, flag, _wrap(system, epoch - 1)) for flag in own.acknowledged)
    return True


def step(system: System, state: State, rank: int) -> tuple[State, Invariant | None]:
    """Run the next kernel of one rank.

    Meaning:
        The state afterwards, and the invariant that the kernel broke, if any:
        ``UNREAD_KEPT`` by a store into a part that its owner has not read,
        ``OWN_EPOCH`` by a read that meets another exchange.
    Shapes:
        None.
    Errors:
        ``InputError`` when the kernel is not enabled.
    Source:
        The table at the top of ``protocol``.
    """
    if not enabled(system, state, rank):
        raise InputError("rank", value=rank, limit="its next kernel cannot run in this state")
    program = system.program(state[rank].exchange)
    kernel = program[state[rank].position]
    ranks = list(state)
    broken = _EFFECTS[kernel](system, ranks, rank) if kernel in _EFFECTS else None
    own = ranks[rank]
    last = own.position == len(program) - 1
    ranks[rank] = own._replace(exchange=own.exchange + last, position=0 if last else own.position + 1)
    return tuple(ranks), broken


def explore(system: System, invariants: Collection[Invariant] = tuple(Invariant)) -> Exploration[Step]:
    """Explore every interleaving, breadth first.

    Meaning:
        The first violation of one of ``invariants``.  Leaving out
        ``UNREAD_KEPT`` asks what an overwrite leads to.
    Shapes:
        None.
    Errors:
        None.
    Source:
        ``acknowledged`` reaches as many states as the protocol of
        https://github.com/vllm-project/vllm/pull/47348 (118 for 2
        ranks and 3 exchanges, 375 for 3 ranks and 2): the same dependences,
        with the flags at the reader instead of the writer.
    """
    return search(system, initial_state(system), partial(_successors, system), partial(_stuck, system), invariants)


def check_variations(world_size: int = 2, exchanges: int = 3) -> tuple[Exploration[Step], ...]:
    """Explore every variation under every discipline it applies to.

    Meaning:
        One exploration each; the model stands when all are as stated, which
        includes that every faulty variation is found faulty.
    Shapes:
        None.
    Errors:
        ``InputError`` for sizes below 1.
    Source:
        Each fault is one of public record: a missing or early acknowledgement
        and an early publish (https://github.com/vllm-project/vllm/pull/47348),
        an epoch frozen by capture (https://github.com/ROCm/aiter/pull/3928),
        one slot for every replay (https://github.com/local-inference-lab/b12x/pull/101),
        a collective that one rank skips (https://github.com/local-inference-lab/vllm/pull/37).
    """
    return tuple(
        explore(System(discipline, variation, world_size, exchanges))
        for variation in VARIATIONS
        for discipline, stated in zip(Discipline, (variation.alternating, variation.acknowledged), strict=True)
        if stated is not None
    )


def _wrap(system: System, value: int) -> int:
    """Value of a signed counter of the system's width."""
    half = 1 << (system.variation.counter_bits - 1)
    return (value + half) % (2 * half) - half


def _epoch(system: System, own: Rank) -> int:
    """Epoch that a kernel of the rank computes."""
    counter = system.variation.initial_epoch if system.variation.frozen_epoch else own.counter
    return _wrap(system, counter + 1)


def _reached(system: System, flag: int, target: int) -> bool:
    if system.variation.comparison is Comparison.EQUAL:
        return flag == target
    if system.variation.comparison is Comparison.PLAIN:
        return flag >= target
    return _wrap(system, flag - target) >= 0


def _store(ranks: list[Rank], owner: int, slot: int, source: int, exchange: int) -> Invariant | None:
    """Write one part of one rank's slot."""
    inbox = list(ranks[owner].inbox)
    lost = not inbox[slot][source].read
    inbox[slot] = (*inbox[slot][:source], Part(exchange, False), *inbox[slot][source + 1 :])
    ranks[owner] = ranks[owner]._replace(inbox=tuple(inbox))
    return Invariant.UNREAD_KEPT if lost else None


def _pack(system: System, ranks: list[Rank], rank: int) -> Invariant | None:
    own = ranks[rank]
    if system.by_owner(own.exchange):
        return None
    return _store(ranks, rank, _epoch(system, own) % system.slots, rank, own.exchange)


def _push(system: System, ranks: list[Rank], rank: int) -> Invariant | None:
    own = ranks[rank]
    slot = _epoch(system, own) % system.slots
    by_owner = system.by_owner(own.exchange)
    content = own.exchange if by_owner else own.inbox[slot][rank].exchange
    peers = (peer for peer in range(system.world_size) if by_owner or peer != rank)
    broken = [_store(ranks, peer, slot, rank, content) for peer in peers]
    return next((invariant for invariant in broken if invariant is not None), None)


def _publish(system: System, ranks: list[Rank], rank: int) -> None:
    epoch = _epoch(system, ranks[rank])
    for peer, other in enumerate(ranks):
        flags = other.published
        ranks[peer] = other._replace(published=(*flags[:rank], epoch, *flags[rank + 1 :]))


def _select(system: System, ranks: list[Rank], rank: int) -> Invariant | None:
    own = ranks[rank]
    slot = _epoch(system, own) % system.slots
    inbox = list(own.inbox)
    inbox[slot] = tuple(part._replace(read=True) for part in inbox[slot])
    ranks[rank] = own._replace(inbox=tuple(inbox))
    fresh = all(part.exchange == own.exchange for part in own.inbox[slot])
    return None if fresh else Invariant.OWN_EPOCH


def _acknowledge(system: System, ranks: list[Rank], rank: int) -> None:
    epoch = _epoch(system, ranks[rank])
    for peer, other in enumerate(ranks):
        flags = other.acknowledged
        ranks[peer] = other._replace(acknowledged=(*flags[:rank], epoch, *flags[rank + 1 :]))


def _return(system: System, ranks: list[Rank], rank: int) -> Invariant | None:
    lost = any(not other.returned_ids[rank].read for other in ranks)
    for peer, other in enumerate(ranks):
        parts, content = other.returned_ids, Part(ranks[rank].exchange, False)
        ranks[peer] = other._replace(returned_ids=(*parts[:rank], content, *parts[rank + 1 :]))
    return Invariant.UNREAD_KEPT if lost else None


def _publish_returned(system: System, ranks: list[Rank], rank: int) -> None:
    epoch = _epoch(system, ranks[rank])
    for peer, other in enumerate(ranks):
        flags = other.returned
        ranks[peer] = other._replace(returned=(*flags[:rank], epoch, *flags[rank + 1 :]))


def _collect(system: System, ranks: list[Rank], rank: int) -> Invariant | None:
    own = ranks[rank]
    ranks[rank] = own._replace(returned_ids=tuple(part._replace(read=True) for part in own.returned_ids))
    fresh = all(part.exchange == own.exchange for part in own.returned_ids)
    return None if fresh else Invariant.OWN_EPOCH


def _complete(system: System, ranks: list[Rank], rank: int) -> None:
    if system.acknowledges and Kernel.ACKNOWLEDGE not in system.program(ranks[rank].exchange):
        _acknowledge(system, ranks, rank)
    ranks[rank] = ranks[rank]._replace(counter=_epoch(system, ranks[rank]))


_EFFECTS: dict[Kernel, Callable[[System, list[Rank], int], Invariant | None]] = {
    Kernel.PACK: _pack,
    Kernel.PUSH: _push,
    Kernel.PUBLISH: _publish,
    Kernel.SELECT: _select,
    Kernel.ACKNOWLEDGE: _acknowledge,
    Kernel.RETURN: _return,
    Kernel.PUBLISH_RETURNED: _publish_returned,
    Kernel.COLLECT: _collect,
    Kernel.COMPLETE: _complete,
}
"""What each kernel changes; the waits change nothing."""


def _successors(system: System, state: State) -> Iterator[tuple[Step, State, Invariant | None]]:
    for rank, own in enumerate(state):
        if enabled(system, state, rank):
            after, broken = step(system, state, rank)
            yield Step(rank, system.program(own.exchange)[own.position], own.exchange), after, broken


def _stuck(system: System, state: State) -> bool:
    ranks = range(system.world_size)
    done = all(finished(system, state, rank) for rank in ranks)
    return not done and not any(enabled(system, state, rank) for rank in ranks)
