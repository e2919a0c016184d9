"""Findings that the executor itself makes, as errors or as reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from .findings import Actor, Finding, FindingError, FindingKind
from .module import Instruction

if TYPE_CHECKING:
    from .executor_cta import Cta


def make_actor(cta: Cta, instruction: Instruction, thread: int, action: str) -> Actor:
    """Return a thread of a CTA at an instruction."""
    position = cta.position
    return Actor(position.rank, position.launch, position.cta, thread, instruction, action, cta.launch.kernel.name)


def make_finding(
    cta: Cta, kind: FindingKind, instruction: Instruction, threads: Iterable[int], action: str, place: str, missing: str
) -> Finding:
    """Return a finding about threads of one CTA at one instruction."""
    actors = tuple(make_actor(cta, instruction, int(thread), action) for thread in threads)
    return Finding(kind, actors, place, missing, cta.launch.replay)


def fail(
    cta: Cta, kind: FindingKind, instruction: Instruction, threads: Iterable[int], action: str, place: str, missing: str
) -> NoReturn:
    """End the execution with a finding.

    Raises:
        FindingError: Always.
    """
    raise FindingError(make_finding(cta, kind, instruction, threads, action, place, missing))


def report(
    cta: Cta, kind: FindingKind, instruction: Instruction, threads: Iterable[int], action: str, place: str, missing: str
) -> None:
    """Tell the observer of a finding that does not end the execution; without an observer it does.

    Raises:
        FindingError: Nobody watches.
    """
    _tell(cta, make_finding(cta, kind, instruction, threads, action, place, missing))


def report_race(cta: Cta, actors: tuple[Actor, Actor], place: str, missing: str) -> None:
    """Tell the observer of a race that the executor sees; without an observer it ends the execution.

    Raises:
        FindingError: Nobody watches.
    """
    first, second = sorted(actors, key=lambda actor: actor.instruction.index)
    _tell(cta, Finding("race", (first, second), place, missing, cta.launch.replay))


def _tell(cta: Cta, finding: Finding) -> None:
    if cta.observer is None:
        raise FindingError(finding)
    cta.observer.report(finding)
