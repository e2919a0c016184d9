"""The verification of a target as a cell of the report."""

from __future__ import annotations

import shlex

from tiebreak.report.model import Cell, Failure
from tiebreak.spec.contracts import Contract
from tiebreak.target.search import TargetReport


def replay_command(name: str, contract: Contract, preset: str, token: str) -> str:
    """Command line that tries one input on a target again."""
    options = ["--target", name, "--contract", contract.value, "--preset", preset, "--replay-input", token]
    return shlex.join(["tiebreak", "verify", *options])


def target_cell(name: str, contract: Contract, preset: str, report: TargetReport, seconds: float) -> Cell:
    """Cell of one target under one contract; the backend is the target's name."""
    failures: tuple[Failure, ...] = ()
    if report.finding is not None:
        message = f"{report.finding.example}\n{report.finding.message}"
        if report.captured:
            message += f"\n{report.captured_failures} of {report.captured} selections of captured scores fail too"
        replay = replay_command(name, contract, preset, report.finding.token)
        failures = (
            Failure(
                property=report.finding.property, backend=name, message=message, schedule="", table="", replay=replay
            ),
        )
    return Cell(
        property=contract.value,
        backend=name,
        executions=report.executions,
        inputs=report.inputs,
        result="failed" if failures else "passed",
        seconds=seconds,
        failures=failures,
    )
