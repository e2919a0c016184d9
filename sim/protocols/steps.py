"""Steps that several protocols share: epochs, barriers of the CTA, fences, and waits for flags."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..explorer.operations import Await, Barrier, Fence, Load, Location, Order, Scope, Store
from .protocol import Action, Step, Steps, Turn

ACQUIRE, RELEASE, RELAXED, ACQ_REL = Order.ACQUIRE, Order.RELEASE, Order.RELAXED, Order.ACQ_REL
SYSTEM, GPU, CTA = Scope.SYSTEM, Scope.GPU, Scope.CTA

COMPARISONS: dict[str, Callable[[Any, int], bool]] = {">=": operator.ge, "==": operator.eq}


def wait_for(location: Location, bound: int, step: Step) -> Await:
    """Wait until a flag compares with a bound as the step says."""
    compare = COMPARISONS[step.comparison]
    name = f"{step.comparison} {bound}"
    return Await(location, lambda value: compare(value, bound), step.order, step.scope, name)


def begin(turn: Turn, step: Step) -> Steps:
    """Take the epoch from device memory, as a kernel of a replayed graph does."""
    turn.epoch = (yield Load(("epoch", turn.rank), Order.WEAK)) + 1


def begin_frozen(turn: Turn, step: Step) -> Steps:
    """Take the epoch that the host passed when it captured the graph."""
    turn.epoch = 1
    yield from ()


def begin_on_host(turn: Turn, step: Step) -> Steps:
    """Take the epoch that the host counts, where rank 1 has counted a warm-up that the others left out."""
    turn.epoch = turn.ordinal + turn.rank
    yield from ()


def advance(turn: Turn, step: Step) -> Steps:
    """Advance the epoch in device memory."""
    yield Store(("epoch", turn.rank), turn.epoch, Order.WEAK)


def synchronise(turn: Turn, step: Step) -> Steps:
    """Barrier of the CTA; between kernels, the kernel boundary."""
    yield Barrier(("cta", turn.rank), turn.protocol.lanes)


def fence(turn: Turn, step: Step) -> Steps:
    """Fence."""
    yield Fence(step.order, step.scope)


def barrier(name: str) -> Step:
    """A barrier of the CTA."""
    return Step(name, synchronise)


def by_first(name: str, action: Action, order: Order, scope: Scope = SYSTEM) -> Step:
    """A step of lane 0, with strong accesses."""
    return Step(name, action, 0, order, scope)
