"""Faults of simulated ranks: a rank that dies before a step of its own, or waits there.

Steps count per rank, over its host and all its programs, from 0 and in the order of the execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .agent import Agent

FaultKind: TypeAlias = Literal["dies", "late", "stalled"]


@dataclass(frozen=True)
class Fault:
    """What happens to a rank before one of its steps.

    Attributes:
        kind: ``dies``: neither its host nor its device does anything more, and its memory stays as it is.
            ``late``: it waits until nobody else can move, and no time passes.  ``stalled``: it waits until the
            bounded waits of the others have run out, and then goes on.
        rank: The rank.
        step: Number of the step.
    """

    kind: FaultKind
    rank: int
    step: int


class FaultWatch:
    """Tells which ranks may move.

    Args:
        fault: What happens, or None.
        ranks: World size.

    Attributes:
        steps: Steps that each rank has taken.
    """

    def __init__(self, fault: Fault | None, ranks: int) -> None:
        self._fault = fault
        self._released = False
        self.steps = [0] * ranks

    def is_dead(self, rank: int) -> bool:
        """Whether a rank has died."""
        return self._struck(rank) and self._fault is not None and self._fault.kind == "dies"

    def is_held(self, rank: int) -> bool:
        """Whether a rank waits where its fault struck."""
        return self._struck(rank) and not self._released

    def release(self, moving: Sequence[Agent]) -> bool:
        """Let a rank go on when the others, ``moving``, cannot; tell whether there was one to let go.

        A stalled rank waits on while any of the others polls: time passes, and their waits run out.
        """
        fault = self._fault
        if fault is None or fault.kind == "dies" or not self.is_held(fault.rank):
            return False
        polls = any(agent.pending is not None and agent.pending.value is not None for agent in moving)
        if fault.kind == "stalled" and polls:
            return False
        self._released = True
        return True

    def has_struck(self, finished: Sequence[bool]) -> bool:
        """Whether, at the end, the fault took a step away or put one off; ``finished`` says so of each rank's host."""
        fault = self._fault
        if fault is None:
            return False
        if fault.kind == "dies":
            return self.steps[fault.rank] == fault.step and not finished[fault.rank]
        return self.steps[fault.rank] > fault.step

    def _struck(self, rank: int) -> bool:
        fault = self._fault
        return fault is not None and fault.rank == rank and self.steps[rank] >= fault.step
