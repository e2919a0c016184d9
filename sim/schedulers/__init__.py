"""Schedulers: who runs next.  One strategy per file, one small protocol.

A scheduler sees the enabled agents in a fixed order (hosts first, then
programs, by rank, stream and program) and names the one to run.  Everything
else is deterministic, so the choices alone make an execution repeatable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Schedulable(Protocol):
    """What a scheduler chooses among: an agent of the simulated ranks, or a warp of the PTX machine.

    Attributes:
        name: Name of it in recorded schedules.
        rank: Its place in the order of default choices.
    """

    name: str
    rank: int


A = TypeVar("A", bound=Schedulable)


class Scheduler(Protocol):
    """Chooses the next agent, and tells how many executions it wants."""

    def begin(self) -> bool:
        """Prepare the next execution; return False when there is none left."""

    def choose(self, step: int, enabled: Sequence[A], current: A | None) -> A:
        """Return one of ``enabled`` (never empty) to perform step ``step``.

        ``current`` is the agent of the previous step, which may not be enabled.
        """

    def describe(self) -> str:
        """Return the strategy and its parameters in the form ``--schedule`` takes."""


def continue_or_first(enabled: Sequence[A], current: A | None) -> A:
    """Return the default choice: stay with the current agent, else take the next in order.

    Schedules are recorded as deviations from this choice, so a schedule with
    few switches has a short text.
    """
    if current is None:
        return enabled[0]
    if current in enabled:
        return current
    return next((agent for agent in enabled if agent.rank > current.rank), enabled[0])
