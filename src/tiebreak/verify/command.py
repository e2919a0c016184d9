"""The one pasteable command that repeats a finding."""

from __future__ import annotations

import shlex

from .scenario import Scenario


def replay_command(scenario: Scenario, schedule: str, backend: str, mutant: str = "") -> str:
    """Return the command that runs a scenario under a schedule again."""
    words = ["tiebreak", "replay", scenario.text(), "--backend", backend, "--schedule", f"replay:{schedule}"]
    if mutant:
        words += ["--mutant", mutant]
    return shlex.join(words)
