"""A protocol: steps that every rank takes in every exchange, in order, and what can be changed about them.

A rank is a CTA of a few threads, its lanes, on a GPU of its own.  A step is
taken by all lanes or by one.  Protocols are broken by changing a step, leaving
it out or moving it, so a mutant is a correct protocol and one such change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tiebreak.errors import InputError

from ..explorer.operations import Lanes, Location, Operation, Order, Scope, Value
from ..explorer.program import Program, Thread

Steps = Generator[Operation | Lanes, Any, None]


@dataclass
class Turn:
    """One exchange of one lane of a rank.

    Attributes:
        protocol: The protocol.
        rank, lane: Who takes it.
        ordinal: Number of the exchange, from 1, whatever counters say.
        epoch: What the rank takes the number for.
        noted: Values that one step of the turn leaves for a later one.
    """

    protocol: Protocol
    rank: int
    lane: int
    ordinal: int
    epoch: int = 0
    noted: dict[str, int] = field(default_factory=dict)

    @property
    def peers(self) -> list[int]:
        """The other ranks."""
        return [rank for rank in range(self.protocol.ranks) if rank != self.rank]

    @property
    def slot(self) -> int:
        """Slot of the epoch."""
        return self.epoch % self.protocol.slots

    def payload(self, rank: int, lane: int) -> str:
        """What a lane of a rank sends in this exchange."""
        return f"{self.ordinal}:r{rank}.{lane}"

    def expect(self, value: Value, wanted: Value, what: str) -> None:
        """Fail the execution unless a value is the one that is wanted."""
        if value != wanted:
            raise AssertionError(f"rank {self.rank}, exchange {self.ordinal}: {what} is {value!r}, not {wanted!r}")


Action = Callable[[Turn, "Step"], Steps]


@dataclass(frozen=True)
class Step:
    """Something that lanes do.

    Attributes:
        name: Unique in its protocol.
        action: What is done.
        lane: The lane that does it; None for all.
        order, scope: Of its strong accesses or its fence.
        comparison: How a wait compares what it polls with what it wants, ``>=`` or ``==``.
        lag: How many epochs before the present one a wait asks for.
    """

    name: str
    action: Action
    lane: int | None = None
    order: Order = Order.WEAK
    scope: Scope = Scope.SYSTEM
    comparison: str = ">="
    lag: int = 0


@dataclass(frozen=True)
class Protocol:
    """Ranks that take the same steps.

    Attributes:
        name: Name on the command line.
        steps: What every rank does in every exchange.
        ranks, lanes, epochs, slots: Sizes.
        initial: Values that locations start with, beside 0.
        residency: CTAs that a device holds at once, where the steps ask for room.
        lane_is_cta: Whether the lanes of a rank are CTAs, and not threads of one.
    """

    name: str
    steps: tuple[Step, ...]
    ranks: int = 2
    lanes: int = 2
    epochs: int = 3
    slots: int = 1
    initial: Mapping[Location, Value] = field(default_factory=dict)
    residency: int = 132
    lane_is_cta: bool = False

    @property
    def program(self) -> Program:
        """A thread per lane of each rank."""
        part = "CTA" if self.lane_is_cta else "lane"
        threads = (
            Thread(
                functools.partial(self._run, rank, lane),
                f"rank {rank} {part} {lane}" if self.lanes > 1 else f"rank {rank}",
                cta=lane if self.lane_is_cta else 0,
                gpu=rank,
            )
            for rank in range(self.ranks)
            for lane in range(self.lanes)
        )
        sizes = f"{self.ranks} ranks, {self.epochs} epochs"
        return Program(tuple(threads), self.initial, f"{self.name}, {sizes}")

    def _run(self, rank: int, lane: int) -> Steps:
        for ordinal in range(1, self.epochs + 1):
            turn = Turn(self, rank, lane, ordinal)
            for step in self.steps:
                if step.lane in (None, lane):
                    yield from step.action(turn, step)

    def alter(self, name: str, **fields: Any) -> Protocol:
        """The protocol with a step changed."""
        place = self._find(name)
        return self._with(*self.steps[:place], replace(self.steps[place], **fields), *self.steps[place + 1 :])

    def drop(self, *names: str) -> Protocol:
        """The protocol without some steps."""
        dropped = {self._find(name) for name in names}
        return self._with(*(step for place, step in enumerate(self.steps) if place not in dropped))

    def move(self, name: str, before: str) -> Protocol:
        """The protocol with a step taken at another time."""
        step, rest = self.steps[self._find(name)], self.drop(name)
        place = rest._find(before)
        return rest._with(*rest.steps[:place], step, *rest.steps[place:])

    def add(self, step: Step, before: str) -> Protocol:
        """The protocol with another step."""
        place = self._find(before)
        return self._with(*self.steps[:place], step, *self.steps[place:])

    def resize(
        self,
        ranks: int | None = None,
        lanes: int | None = None,
        epochs: int | None = None,
        slots: int | None = None,
        residency: int | None = None,
    ) -> Protocol:
        """The protocol with other sizes; None leaves one as it is.

        Raises:
            InputError: A size is below 1.
        """
        sizes = {"ranks": ranks, "lanes": lanes, "epochs": epochs, "slots": slots, "residency": residency}
        changed: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
        for name, size in changed.items():
            if size < 1:
                raise InputError(name, value=size, limit="at least 1")
        return replace(self, **changed)

    def _with(self, *steps: Step) -> Protocol:
        return replace(self, steps=steps)

    def _find(self, name: str) -> int:
        names = [step.name for step in self.steps]
        if names.count(name) != 1:
            raise InputError("step", value=name, limit=f"one of {', '.join(names)}")
        return names.index(name)
