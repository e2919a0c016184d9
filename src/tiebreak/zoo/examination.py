"""What the PTX machine reports of a kernel of the zoo."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiebreak.sim.ptx.executor import execute
from tiebreak.sim.ptx.findings import Finding, FindingError
from tiebreak.sim.ptx.memory_global import GlobalMemory
from tiebreak.sim.ptx.races import RaceDetector

from .kernel import Trial
from .specimen import Specimen

SPINS = 1000
"""Turns in vain after which a wait has no end; the kernels of the zoo need few."""


@dataclass(frozen=True)
class Examination:
    """An execution of a kernel of the zoo.

    Attributes:
        specimen: The kernel.
        findings: What was reported.
        ended: Whether the execution came to its end.
        differences: Parameters whose arrays are not what a correct kernel leaves; all, if it did not end.
    """

    specimen: Specimen
    findings: tuple[Finding, ...]
    ended: bool
    differences: tuple[str, ...]

    @property
    def expected(self) -> list[Finding]:
        """The findings that show the kernel's mistake."""
        expectation = self.specimen.expectation
        return [finding for finding in self.findings if expectation is not None and expectation.is_met_by(finding)]

    @property
    def passed(self) -> bool:
        """Whether a broken kernel was caught, or a correct one ran without a finding and with the right output."""
        if self.specimen.expectation is not None:
            return bool(self.expected)
        return not self.findings and not self.differences


def examine(specimen: Specimen, trial: Trial, schedule: str = "lockstep", steps: int = 200_000) -> Examination:
    """Run a kernel once.

    Args:
        specimen: The kernel.
        trial: Arguments of the launch, made for it: their arrays are written to.
        schedule: Order of the warps.
        steps: Bound of the steps.
    """
    memory = GlobalMemory()
    for name, value in trial.arguments.items():
        if isinstance(value, np.ndarray):
            memory.register(value, name=name, exact=True)
    detector = RaceDetector(place=memory.place)
    fatal: list[Finding] = []
    try:
        execute(
            specimen.code.kernel,
            specimen.code.module,
            specimen.grid,
            specimen.threads,
            specimen.list_arguments(trial),
            shared_bytes=specimen.code.shared_bytes,
            cluster=specimen.cluster,
            observer=detector,
            schedule=schedule,
            memory=memory,
            steps=steps,
            spins=SPINS,
        )
    except FindingError as error:
        fatal.append(error.finding)
        detector.finish()
    findings = [finding for finding in detector.findings if finding not in fatal] + fatal
    differences = tuple(trial.expected) if fatal else tuple(trial.find_differences())
    return Examination(specimen, tuple(findings), not fatal, differences)
