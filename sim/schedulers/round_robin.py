"""Round robin: every enabled agent in turn, one step each."""

from __future__ import annotations

from collections.abc import Sequence

from . import A


class RoundRobin:
    """Gives one step to each enabled agent in order; one execution."""

    def __init__(self) -> None:
        self._left = 1
        self._last = ""
        self._order: dict[str, int] = {}

    def begin(self) -> bool:
        """Return True once."""
        self._left -= 1
        self._last = ""
        self._order.clear()
        return self._left >= 0

    def choose(self, step: int, enabled: Sequence[A], current: A | None) -> A:
        """Return the enabled agent that waited longest for its turn."""
        chosen = min(enabled, key=lambda agent: self._order.get(agent.name, -1))
        self._order[chosen.name] = step
        return chosen

    def describe(self) -> str:
        """Return ``round-robin``."""
        return "round-robin"
