"""Bounded depth-first search over choices, fewest switches first along each path.

Iterative context bounding (Musuvathi and Qadeer, PLDI 2007): a preemption is a
switch away from an agent that could go on; paths with more than the bound are
not taken.  The search is exhaustive within its bounds and says when it was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import A, continue_or_first


@dataclass
class _Choice:
    names: list[str]
    taken: int


class DepthFirst:
    """Enumerates executions by backtracking.

    Args:
        preemptions: Largest number of preemptions in one execution.
        executions: Largest number of executions.

    Attributes:
        complete: Whether every path within the preemption bound was taken.
    """

    def __init__(self, preemptions: int = 2, executions: int = 1000) -> None:
        self._preemptions = preemptions
        self._executions = executions
        self._left = executions
        self._path: list[_Choice] = []
        self._used = 0
        self._depth = 0
        self._first = True
        self.complete = False

    def begin(self) -> bool:
        """Backtrack to the deepest choice with an alternative left."""
        if self._left == 0:
            return False
        if not self._first:
            while self._path and self._path[-1].taken + 1 == len(self._path[-1].names):
                self._path.pop()
            if not self._path:
                self.complete = True
                return False
            self._path[-1].taken += 1
        self._first = False
        self._left -= 1
        self._used = 0
        self._depth = 0
        return True

    def choose(self, step: int, enabled: Sequence[A], current: A | None) -> A:
        """Follow the path; beyond its end take the default choice first."""
        preferred = continue_or_first(enabled, current)
        may_preempt = current not in enabled or self._used < self._preemptions
        if self._depth == len(self._path):
            others = [agent.name for agent in enabled if agent is not preferred] if may_preempt else []
            self._path.append(_Choice([preferred.name, *others], 0))
        choice = self._path[self._depth]
        self._depth += 1
        name = choice.names[choice.taken]
        if current in enabled and current is not None and name != current.name:
            self._used += 1
        return next(agent for agent in enabled if agent.name == name)

    def describe(self) -> str:
        """Return ``dfs:PREEMPTIONS:EXECUTIONS``."""
        return f"dfs:{self._preemptions}:{self._executions}"
