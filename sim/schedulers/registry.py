"""Schedulers by the text that ``--schedule`` takes."""

from __future__ import annotations

from collections.abc import Callable

from tiebreak.errors import InputError

from . import Scheduler
from .depth_first import DepthFirst
from .pct import Pct
from .random_walk import RandomWalk
from .replay import Replay, decode
from .round_robin import RoundRobin

FORMS: dict[str, str] = {
    "default": "default",
    "round-robin": "round-robin",
    "random": "random[:SEED[:EXECUTIONS]]",
    "pct": "pct[:SEED[:EXECUTIONS[:DEPTH]]]",
    "dfs": "dfs[:PREEMPTIONS[:EXECUTIONS]]",
    "replay": "replay:SCHEDULE",
}


def _numbers(text: str, defaults: tuple[int, ...]) -> list[int]:
    given = [int(part) for part in text.split(":")] if text else []
    if len(given) > len(defaults) or any(number < 0 for number in given):
        raise ValueError(text)
    return given + list(defaults[len(given) :])


_MAKERS: dict[str, Callable[[str], Scheduler]] = {
    "default": lambda text: Replay({}),
    "round-robin": lambda text: RoundRobin(),
    "random": lambda text: RandomWalk(*_numbers(text, (0, 1))),
    "pct": lambda text: Pct(*_numbers(text, (0, 1, 3))),
    "dfs": lambda text: DepthFirst(*_numbers(text, (2, 1000))),
    "replay": lambda text: Replay(decode(text)),
}


def make_scheduler(text: str) -> Scheduler:
    """Return the scheduler that ``text`` describes.

    Raises:
        InputError: The text fits none of ``FORMS``.
    """
    name, _, rest = text.partition(":")
    try:
        return _MAKERS[name](rest)
    except (KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            "schedule", value=text, limit=f"forms are {', '.join(FORMS.values())}", remedy="use one of them"
        ) from error
