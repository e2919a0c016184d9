"""Random walk: every enabled agent with the same probability, at every step."""

from __future__ import annotations

import random
from collections.abc import Sequence

from . import A


class RandomWalk:
    """Draws each choice uniformly.

    Args:
        seed: Seed of the first execution; execution ``i`` uses ``seed + i``.
        executions: Number of executions.
    """

    def __init__(self, seed: int, executions: int = 1) -> None:
        self._seed = seed
        self._left = executions
        self._executions = executions
        self._random = random.Random(seed)

    def begin(self) -> bool:
        """Reseed for the next execution."""
        if self._left == 0:
            return False
        self._random = random.Random(self._seed + self._executions - self._left)
        self._left -= 1
        return True

    def choose(self, step: int, enabled: Sequence[A], current: A | None) -> A:
        """Return one of the enabled agents at random."""
        return enabled[self._random.randrange(len(enabled))]

    def describe(self) -> str:
        """Return ``random:SEED:EXECUTIONS``."""
        return f"random:{self._seed}:{self._executions}"
