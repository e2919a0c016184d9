"""PCT: probabilistic concurrency testing.

Agents get random priorities and the highest enabled one runs; at ``depth - 1``
random steps the running agent drops below all others.  A bug that needs
``depth`` ordering constraints among ``n`` agents and ``k`` steps is found with
probability at least 1 / (n * k^(depth-1)) per execution (Burckhardt, Kothari,
Musuvathi, Nagarakatte, ASPLOS 2010).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from . import A


class Pct:
    """Priority scheduling with random priority drops.

    Args:
        seed: Seed of the first execution; execution ``i`` uses ``seed + i``.
        executions: Number of executions.
        depth: Number of ordering constraints aimed at; ``depth - 1`` drops.
        steps: Expected number of steps, over which the drops are spread; after
            the first execution the length of the longest one so far is used.
    """

    def __init__(self, seed: int, executions: int = 1, depth: int = 3, steps: int = 200) -> None:
        self._seed = seed
        self._executions = executions
        self._left = executions
        self._depth = depth
        self._steps = steps
        self._random = random.Random(seed)
        self._priorities: dict[str, float] = {}
        self._drops: set[int] = set()

    def begin(self) -> bool:
        """Draw the drop points of the next execution."""
        if self._left == 0:
            return False
        self._random = random.Random(self._seed + self._executions - self._left)
        self._left -= 1
        self._priorities.clear()
        self._drops = {self._random.randrange(self._steps) for _ in range(self._depth - 1)}
        return True

    def choose(self, step: int, enabled: Sequence[A], current: A | None) -> A:
        """Return the enabled agent of highest priority, after any drop due at this step."""
        self._steps = max(self._steps, step + 1)
        for agent in enabled:
            if agent.name not in self._priorities:
                self._priorities[agent.name] = 1.0 + self._random.random()
        chosen = max(enabled, key=lambda agent: self._priorities[agent.name])
        if step in self._drops and len(enabled) > 1:
            self._priorities[chosen.name] = -float(step)
            chosen = max(enabled, key=lambda agent: self._priorities[agent.name])
        return chosen

    def describe(self) -> str:
        """Return ``pct:SEED:EXECUTIONS:DEPTH``."""
        return f"pct:{self._seed}:{self._executions}:{self._depth}"
