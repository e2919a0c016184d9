"""Reading order 8 of 11: the protocol of the exchange, and what can go wrong with it.

Each rank owns one buffer: inbox slots, each with one part per source rank, and
two rows of flags, ``published[source]`` and ``acknowledged[peer]``.  A rank
writes into the buffers of others and polls its own only.  Exchanges are counted
by an epoch, one more than a counter in the rank's own device memory, so every
launch and every graph replay computes it afresh.  One exchange on one stream:

============== ============================================================
kernel         effect
============== ============================================================
wait_writable  acknowledged discipline: until every rank's acknowledgement
               has reached the previous epoch
pack           own part of the own slot := own candidates
push           the same part of every peer's slot := own part
publish        ``published[rank]`` of every rank := epoch
wait           until every ``published[source]`` has reached the epoch
select         reads every part of the own slot
complete       acknowledged discipline: ``acknowledged[rank]`` of every
               rank := epoch; then own counter := epoch
============== ============================================================

An exchange may be owner-sharded, the same ones on all ranks: each rank merges
the rows that it owns, and returns their ids.  ``pack`` then fills memory of its
own, ``push`` sends every rank, the own one included, its rows, ``select`` reads
those, and in front of ``complete`` stand

================ ==========================================================
return           own part of every rank's returned ids := ids of own rows
publish_returned ``returned[rank]`` of every rank := epoch
wait_returned    until every ``returned[owner]`` has reached the epoch
collect          reads every part of the own returned ids
================ ==========================================================

Two disciplines keep a slot from being overwritten before it was read.
``alternating`` has two slots, used in turn, and no acknowledgement: a rank
pushes epoch n only after it saw every rank publish n - 1, which each does
after its selection of n - 2, the last reader of that slot.  ``acknowledged``
has one slot and waits for the readers' word.  Returned ids have one slot under
both: an owner returns n after it saw every rank publish n, which each does
after it collected its last returned ids before n.

Named variations change one thing each.  All but the correct ones are faults of
public record, and ``exchange`` finds a shortest schedule for each.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from tiebreak.errors import InputError


class Discipline(enum.Enum):
    """How the reuse of an inbox slot is guarded."""

    ALTERNATING = "alternating"
    ACKNOWLEDGED = "acknowledged"


class Kernel(enum.Enum):
    """A kernel of the exchange."""

    WAIT_WRITABLE = "wait_writable"
    PACK = "pack"
    PUSH = "push"
    PUBLISH = "publish"
    WAIT = "wait"
    SELECT = "select"
    ACKNOWLEDGE = "acknowledge"
    """Only in the variation that takes the acknowledgement out of ``complete``."""
    RETURN = "return"
    PUBLISH_RETURNED = "publish_returned"
    WAIT_RETURNED = "wait_returned"
    COLLECT = "collect"
    COMPLETE = "complete"


OWNER_KERNELS = frozenset((Kernel.RETURN, Kernel.PUBLISH_RETURNED, Kernel.WAIT_RETURNED, Kernel.COLLECT))
"""Kernels of owner-sharded exchanges only."""


class Comparison(enum.Enum):
    """How a wait compares a flag with its target."""

    REACHED = "wrapping flag - target >= 0"
    EQUAL = "flag == target"
    PLAIN = "flag >= target"


class Verdict(enum.Enum):
    """What an exploration found, by consequence."""

    CORRECT = "correct"
    WRONG_DATA = "wrong data"
    DEADLOCK = "deadlock"


@dataclass(frozen=True)
class Variation:
    """The protocol with one thing changed, and what is stated about it.

    Attributes:
        name: The change in words.
        alternating: Stated verdict under that discipline; None where the
            change does not apply.
        acknowledged: Likewise.
        dropped: Kernel that is left out.
        moved: Kernel that runs early, and the kernel it runs before.
        slots: Number of inbox slots, 0 for the discipline's own.
        frozen_epoch: Whether every replay uses the epoch of the capture.
        owners: Which exchanges are owner-sharded, in turn.
        missing_exchanges: Exchanges that the last rank leaves out at the end.
        comparison: How waits compare.
        counter_bits: Width of the signed, wrapping counters.
        initial_epoch: Value of every counter and flag at the start.
    """

    name: str
    alternating: Verdict | None
    acknowledged: Verdict | None
    dropped: Kernel | None = None
    moved: tuple[Kernel, Kernel] | None = None
    slots: int = 0
    frozen_epoch: bool = False
    owners: tuple[bool, ...] = (False,)
    missing_exchanges: int = 0
    comparison: Comparison = Comparison.REACHED
    counter_bits: int = 64
    initial_epoch: int = 0


_CORRECT, _WRONG, _DEADLOCK = Verdict.CORRECT, Verdict.WRONG_DATA, Verdict.DEADLOCK

AS_SPECIFIED = Variation("as specified", _CORRECT, _CORRECT)

# Three bits count -4..3; starting at 2, the second exchange wraps.
AT_WRAP = Variation("counters wrap", _CORRECT, _CORRECT, counter_bits=3, initial_epoch=2)

BY_OWNER = Variation("merged by owner", _CORRECT, _CORRECT, owners=(True,))

VARIATIONS: tuple[Variation, ...] = (
    AS_SPECIFIED,
    AT_WRAP,
    BY_OWNER,
    replace(AT_WRAP, name="merged by owner, counters wrap", owners=(True,)),
    replace(BY_OWNER, name="merged by owner at first, then in turn", owners=(True, False)),
    replace(BY_OWNER, name="merged by owner in turn", owners=(False, True)),
    Variation("no wait before overwrite", None, _WRONG, dropped=Kernel.WAIT_WRITABLE),
    Variation("acknowledge before select", None, _WRONG, moved=(Kernel.ACKNOWLEDGE, Kernel.SELECT)),
    Variation("publish before push", _WRONG, _WRONG, moved=(Kernel.PUBLISH, Kernel.PUSH)),
    Variation("no wait for publish", _WRONG, _WRONG, dropped=Kernel.WAIT),
    Variation("epoch frozen at capture", _WRONG, _WRONG, frozen_epoch=True),
    Variation("one slot where two are needed", _WRONG, None, slots=1),
    Variation("one rank runs one merge fewer", _DEADLOCK, _DEADLOCK, missing_exchanges=1),
    # With acknowledgements no flag can pass its target before everybody saw it, so equality is enough there.
    Variation("equality instead of at-least", _DEADLOCK, _CORRECT, comparison=Comparison.EQUAL),
    Variation(
        "returned published before ids", _WRONG, _WRONG, moved=(Kernel.PUBLISH_RETURNED, Kernel.RETURN), owners=(True,)
    ),
    Variation("no wait for returned", _WRONG, _WRONG, dropped=Kernel.WAIT_RETURNED, owners=(True,)),
    # The wait keeps one slot of returned ids enough; acknowledgements, which follow the collection, would do so too.
    Variation("ids returned before the wait", _WRONG, _CORRECT, moved=(Kernel.RETURN, Kernel.WAIT), owners=(True,)),
    replace(
        AT_WRAP, name="plain comparison at wrap", comparison=Comparison.PLAIN, alternating=_WRONG, acknowledged=_WRONG
    ),
)
"""Every named variation, the unchanged protocol first."""


@dataclass(frozen=True)
class System:
    """One protocol instance to explore.

    Attributes:
        discipline: Reuse discipline.
        variation: What is changed.
        world_size: Number of ranks.
        exchanges: Exchanges that every rank runs.
    """

    discipline: Discipline
    variation: Variation = AS_SPECIFIED
    world_size: int = 2
    exchanges: int = 3

    def __post_init__(self) -> None:
        for name in ("world_size", "exchanges"):
            if getattr(self, name) < 1:
                raise InputError(name, value=getattr(self, name), limit="must be at least 1")
        if self.stated is None:
            raise InputError(
                "variation", value=self.variation.name, limit=f"means nothing when {self.discipline.value}"
            )

    @property
    def name(self) -> str:
        """Variation and discipline."""
        return f"{self.variation.name}, {self.discipline.value}"

    @property
    def stated(self) -> Verdict | None:
        """Verdict that the variation states for the discipline."""
        alternating = self.discipline is Discipline.ALTERNATING
        return self.variation.alternating if alternating else self.variation.acknowledged

    @property
    def acknowledges(self) -> bool:
        """Whether the discipline uses acknowledgements."""
        return self.discipline is Discipline.ACKNOWLEDGED

    @property
    def slots(self) -> int:
        """Number of inbox slots."""
        return self.variation.slots or (1 if self.acknowledges else 2)

    def by_owner(self, exchange: int) -> bool:
        """Whether an exchange is owner-sharded.

        Meaning:
            Exchanges are numbered from 1 and take the variation's pattern in turn.
        Shapes:
            None.
        Errors:
            None.
        Source:
            https://github.com/local-inference-lab/vllm/pull/178.
        """
        owners = self.variation.owners
        return owners[(exchange - 1) % len(owners)]

    def program(self, exchange: int) -> tuple[Kernel, ...]:
        """Kernels of one exchange in stream order.

        Meaning:
            The kernels of the tables above, less those that the discipline and
            the kind of the exchange do without, as the variation changes them.
        Shapes:
            None.
        Errors:
            None.
        Source:
            The tables at the top.
        """
        omitted = {Kernel.ACKNOWLEDGE, self.variation.dropped}
        if not self.acknowledges:
            omitted.add(Kernel.WAIT_WRITABLE)
        if not self.by_owner(exchange):
            omitted |= OWNER_KERNELS
        order = [kernel for kernel in Kernel if kernel not in omitted]
        if self.variation.moved is not None:
            early, target = self.variation.moved
            order = [kernel for kernel in order if kernel is not early]
            order.insert(order.index(target), early)
        return tuple(order)

    def exchanges_of(self, rank: int) -> int:
        """Exchanges that one rank runs.

        Meaning:
            All of them, less those that the last rank of a variation misses.
        Shapes:
            None.
        Errors:
            None.
        Source:
            Unequal numbers of merges hang public deployments:
            https://github.com/local-inference-lab/vllm/pull/37.
        """
        last = rank == self.world_size - 1
        return self.exchanges - (self.variation.missing_exchanges if last else 0)
