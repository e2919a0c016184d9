"""The one pasteable command that repeats a finding."""

from __future__ import annotations

import shlex

from tiebreak.backends import Backend

from .judgement import judge
from .scenario import Scenario


def replay_command(scenario: Scenario, schedule: str, backend: str, mutant: str = "") -> str:
    """Return the command that runs a scenario under a schedule again."""
    words = ["tiebreak", "replay", scenario.text(), "--backend", backend, "--schedule", f"replay:{schedule}"]
    if mutant:
        words += ["--mutant", mutant]
    return shlex.join(words)


def require_clean(backend: Backend, scenario: Scenario, schedule: str) -> None:
    """Run a scenario, for use in tests.

    Raises:
        AssertionError: A property was broken; the message says how, and how to see it again.
    """
    outcome = backend.run(scenario, schedule)
    findings = judge(scenario, outcome)
    if findings:
        lines = [f"{finding.property}: {finding.message}" for finding in findings]
        replay = replay_command(scenario, outcome.schedule, backend.name)
        raise AssertionError("\n".join([*lines, outcome.table, f"replay: {replay}"]))
