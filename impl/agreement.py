"""Decisions that all ranks take together, on the host channel.

An exception on one rank must never become a split decision, where one rank
leaves and the others wait for it.  Whatever can fail on one rank is therefore
followed by a gather of the outcomes, and every rank acts on all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tiebreak.errors import WorkspaceError

from .fabric import Fabric

Result = TypeVar("Result")


def attempt(fabric: Fabric, action: Callable[[], Result]) -> tuple[Result | None, dict[int, str]]:
    """Run ``action`` on every rank and share the outcomes.

    Returns:
        The action's result on this rank, None if it raised, and the message of
        the exception of every rank on which it raised; the latter is the same on
        all ranks.
    """
    result: Result | None = None
    failure: str | None = None
    try:
        result = action()
    except Exception as error:  # Whatever it is, the peers must hear of it.
        failure = f"{type(error).__name__}: {error}"
    outcomes = fabric.gather_objects(failure)
    return result, {rank: outcome for rank, outcome in enumerate(outcomes) if outcome is not None}


def require(fabric: Fabric, what: str, action: Callable[[], Result], remedy: str) -> Result:
    """Run ``action`` on every rank, and raise on every rank if it failed on any.

    Raises:
        WorkspaceError: The action raised on some rank; names the ranks and why.
    """
    result, failures = attempt(fabric, action)
    if failures or result is None:
        raise failure_error(what, failures, remedy)
    return result


def failure_error(what: str, failures: dict[int, str], remedy: str) -> WorkspaceError:
    """Return the error that every rank raises for ``failures``."""
    reasons = ", ".join(f"rank {rank} ({reason})" for rank, reason in failures.items())
    return WorkspaceError(f"{what} failed on {reasons}", remedy=remedy)
