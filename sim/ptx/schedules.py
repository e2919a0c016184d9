"""Orders of warps: lockstep, and schedules that turn a race into a wrong output where they can.

A schedule other than ``lockstep`` chooses among the warps that can go on, before
each access that they make.  The strategies of the simulated ranks
(``sim.schedulers``) serve here as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiebreak.errors import InputError

from ..schedulers import Scheduler
from ..schedulers.registry import FORMS as RANK_FORMS
from ..schedulers.registry import make_scheduler
from .executor_groups import Unit

FORMS: dict[str, str] = {
    "lockstep": "lockstep",
    "ahead": "ahead:WARP",
    "behind": "behind:WARP",
    **{name: form for name, form in RANK_FORMS.items() if name not in ("default", "dfs")},
}
"""Forms of a schedule; those of the simulated ranks run once."""


class Ahead:
    """Lets one warp of each CTA run as far as barriers allow before any other does.

    Args:
        warp: Its number.
    """

    def __init__(self, warp: int) -> None:
        self._suffix = f".w{warp}"
        self._warp = warp

    def choose(self, step: int, enabled: Sequence[Unit], current: Unit | None) -> Unit:
        """Return that warp if it can go on, else the first that can."""
        return next((unit for unit in enabled if unit.name.endswith(self._suffix)), enabled[0])

    def describe(self) -> str:
        """Return ``ahead:WARP``."""
        return f"ahead:{self._warp}"


class Behind:
    """Lets one warp of each CTA run only when no other can.

    Args:
        warp: Its number.
    """

    def __init__(self, warp: int) -> None:
        self._suffix = f".w{warp}"
        self._warp = warp

    def choose(self, step: int, enabled: Sequence[Unit], current: Unit | None) -> Unit:
        """Return the first warp that can go on and is another one."""
        return next((unit for unit in enabled if not unit.name.endswith(self._suffix)), enabled[0])

    def describe(self) -> str:
        """Return ``behind:WARP``."""
        return f"behind:{self._warp}"


def make_schedule(text: str) -> Scheduler | Ahead | Behind | None:
    """Return the schedule that a text describes; None for ``lockstep``.

    Raises:
        InputError: The text fits none of ``FORMS``.
    """
    name, _, rest = text.partition(":")
    if text == "lockstep":
        return None
    if name in ("ahead", "behind") and rest.isdigit():
        return (Ahead if name == "ahead" else Behind)(int(rest))
    if name not in FORMS or name in ("lockstep", "ahead", "behind"):
        raise InputError("schedule", value=text, limit=f"forms are {', '.join(FORMS.values())}")
    scheduler = make_scheduler(text)
    scheduler.begin()
    return scheduler
