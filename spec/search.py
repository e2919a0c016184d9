"""Reading order 9 of 11: breadth-first search through the states of a protocol.

A system is given by its initial state and by the steps that can be taken in a
state.  A waiting rank is a step that cannot be taken, so a system that can
neither step nor is finished is deadlocked; a bounded wait turns that into an
error record.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from .protocol import Verdict

State = TypeVar("State", bound=Hashable)
Step = TypeVar("Step")


class Invariant(enum.Enum):
    """What must hold in every run."""

    UNREAD_KEPT = "no slot is overwritten before it was read"
    OWN_EPOCH = "every selection reads its own epoch from every rank"
    """Likewise every collection of returned ids."""
    PROGRESS = "no rank waits for ever"


class Stated(Protocol):
    """A system, and what is stated about it."""

    @property
    def name(self) -> str:
        """What is explored, in words."""
        ...

    @property
    def stated(self) -> Verdict | None:
        """Verdict that an exploration must find."""
        ...


@dataclass(frozen=True)
class Exploration(Generic[Step]):
    """Result of exploring a system.

    Attributes:
        system: What was explored.
        states: Distinct states reached, up to the violation if there is one.
        invariant: The invariant that breaks, None if none does.
        schedule: A shortest schedule that breaks it, ending with the step that
            does (or, for a deadlock, after which nothing can run).
    """

    system: Stated
    states: int
    invariant: Invariant | None = None
    schedule: tuple[Step, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The consequence of the broken invariant."""
        if self.invariant is None:
            return Verdict.CORRECT
        return Verdict.DEADLOCK if self.invariant is Invariant.PROGRESS else Verdict.WRONG_DATA

    @property
    def name(self) -> str:
        """What was explored, in words."""
        return self.system.name

    @property
    def as_stated(self) -> bool:
        """Whether the verdict is the one stated."""
        return self.verdict is self.system.stated

    @property
    def message(self) -> str:
        """The verdict, with the schedule that shows it."""
        if self.invariant is None:
            return f"{self.verdict.value} in {self.states} states"
        steps = "; ".join(str(step) for step in self.schedule)
        return f"{self.verdict.value}, against '{self.invariant.value}', after {len(self.schedule)} steps: {steps}"


def search(
    system: Stated,
    start: State,
    successors: Callable[[State], Iterable[tuple[Step, State, Invariant | None]]],
    stuck: Callable[[State], bool],
    invariants: Collection[Invariant] = tuple(Invariant),
) -> Exploration[Step]:
    """Explore every interleaving, breadth first.

    Meaning:
        Visits every reachable state once and stops at the first violation of
        one of ``invariants``; breadth first, so no schedule to any of them is
        shorter.  ``successors`` gives, for every step that can be taken, the
        state after it and the invariant that it breaks; ``stuck`` says whether
        a state is a deadlock.
    Shapes:
        None.
    Errors:
        None.
    Source:
        Explicit-state search.
    """
    origin: dict[State, tuple[State, Step] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for taken, after, broken in successors(state):
            if broken in invariants:
                return Exploration(system, len(origin), broken, (*_path(origin, state), taken))
            if after in origin:
                continue
            origin[after] = (state, taken)
            if Invariant.PROGRESS in invariants and stuck(after):
                return Exploration(system, len(origin), Invariant.PROGRESS, _path(origin, after))
            queue.append(after)
    return Exploration(system, len(origin))


def _path(origin: dict[State, tuple[State, Step] | None], state: State) -> tuple[Step, ...]:
    """Schedule from the initial state to a state."""
    steps = []
    while (link := origin[state]) is not None:
        state, taken = link
        steps.append(taken)
    return tuple(reversed(steps))
