"""Runs mutants: each must be caught by a property that it was meant to break."""

from __future__ import annotations

import time

import msgspec

from tiebreak.backends.simulated import SimulatedBackend
from tiebreak.mutants.catalogue import MUTANTS
from tiebreak.mutants.loader import load_mutated
from tiebreak.mutants.mutant import Mutant
from tiebreak.report.model import MutantResult

from .command import replay_command
from .judgement import judge
from .shrinking import Failing, Shrinker


def mutated_backend(mutant: Mutant) -> SimulatedBackend:
    """Return a backend that runs the mutated implementation."""
    return SimulatedBackend(mutant.scenario.backend, load_mutated(mutant.name, mutant.edits))


def run_mutant(name: str) -> MutantResult:
    """Look for a schedule that kills a mutant; shrink the first that is found.

    The unmutated code must pass the same scenario under the same schedule;
    otherwise the kill says nothing, and the mutant counts as alive.
    """
    started = time.monotonic()
    result = _find_kill(MUTANTS[name])
    return msgspec.structs.replace(result, seconds=round(time.monotonic() - started, 3))


def _find_kill(mutant: Mutant) -> MutantResult:
    """The first schedule that kills a mutant, shrunk."""
    mutated, original = mutated_backend(mutant), SimulatedBackend(mutant.scenario.backend)
    for schedule in mutant.schedules:
        outcome = mutated.run(mutant.scenario, schedule)
        found = [finding for finding in judge(mutant.scenario, outcome) if finding.property in mutant.properties]
        if not found:
            continue
        clean = judge(mutant.scenario, original.run(mutant.scenario, schedule))
        if clean:
            return _result(mutant, False, message=f"the unmutated code fails too: {clean[0].message}")
        failing = Shrinker(mutated).shrink(Failing(mutant.scenario, outcome, found[0]), schedule)
        return _result(
            mutant,
            True,
            failing.finding.property,
            failing.outcome.schedule,
            replay_command(failing.scenario, failing.outcome.schedule, mutant.scenario.backend, mutant.name),
            failing.finding.message,
        )
    return _result(mutant, False, message=f"survived {', '.join(mutant.schedules)}")


def _result(
    mutant: Mutant, killed: bool, broken: str = "", schedule: str = "", replay: str = "", message: str = ""
) -> MutantResult:
    return MutantResult(
        name=mutant.name,
        rule=mutant.rule,
        killed=killed,
        property=broken,
        schedule=schedule,
        replay=replay,
        message=message,
        source=mutant.source,
    )
