"""Replay: follow a recorded schedule.

The text of a schedule lists its deviations from the default choice (stay with
the current agent, else the next in order) as ``STEP:AGENT`` pairs joined by
commas, for example ``12:r1.p0,40:h0``; ``-`` is the schedule without any.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiebreak.errors import InputError, ReplayError

from . import A, continue_or_first

EMPTY = "-"


def encode(deviations: dict[int, str]) -> str:
    """Return the text of a schedule."""
    return ",".join(f"{step}:{name}" for step, name in sorted(deviations.items())) or EMPTY


def decode(text: str) -> dict[int, str]:
    """Return the deviations in the text of a schedule.

    Raises:
        InputError: The text is not a list of ``STEP:AGENT`` pairs.
    """
    if text == EMPTY:
        return {}
    deviations: dict[int, str] = {}
    for part in text.split(","):
        step, separator, name = part.partition(":")
        if not separator or not step.isdigit() or not name:
            raise InputError(
                "schedule",
                value=part,
                limit="a schedule is STEP:AGENT pairs joined by commas, or - for the default order",
                remedy="paste the schedule exactly as the failure printed it",
            )
        deviations[int(step)] = name
    return deviations


class Replay:
    """Follows recorded deviations once.

    Args:
        deviations: Agent name by step.
        strict: Whether a deviation that does not fit the program is an error;
            otherwise the default choice is taken (used while shrinking).
    """

    def __init__(self, deviations: dict[int, str], *, strict: bool = True) -> None:
        self._deviations = deviations
        self._strict = strict
        self._left = 1

    def begin(self) -> bool:
        """Return True once."""
        self._left -= 1
        return self._left >= 0

    def choose(self, step: int, enabled: Sequence[A], current: A | None) -> A:
        """Return the recorded agent, or the default choice where none is recorded.

        Raises:
            ReplayError: The recorded agent is not enabled at this step.
        """
        name = self._deviations.get(step)
        if name is None:
            return continue_or_first(enabled, current)
        chosen = next((agent for agent in enabled if agent.name == name), None)
        if chosen is None and self._strict:
            raise ReplayError(
                f"step {step} of the schedule",
                value=name,
                limit=f"enabled here: {', '.join(agent.name for agent in enabled)}",
                remedy="replay with the program, ranks, lowering and inputs that recorded it",
            )
        return chosen or continue_or_first(enabled, current)

    def describe(self) -> str:
        """Return ``replay:SCHEDULE``."""
        return f"replay:{encode(self._deviations)}"
