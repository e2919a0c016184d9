"""What became of faults: where they struck, how the ranks beside the faulty one ended, and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tiebreak.backends import Outcome
from tiebreak.report.model import FaultCount

from .finding import Finding
from .scenario import STEP_FAULTS, Scenario

HANGS = ("deadlock", "livelock", "budget")
"""Violations of an execution that did not end by itself."""

WRONG = ("exact-order", "agreement")
"""Properties that a wrong result breaks."""


@dataclass
class Strikes:
    """Executions with a fault each, by kind of fault.

    Attributes:
        places: Steps, or merges, of the executions without a fault that the others were compared with.
        scenarios: Executions.
        struck: Those in which the fault took a step or a merge away, or put it off.
        hangs: Those that did not end.
        wrong: Those with a wrong result.
        ends: How ranks ended that were not at fault, as ``fault: class of the error``.
    """

    places: Counter[str] = field(default_factory=Counter)
    scenarios: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    hangs: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    def note(self, scenario: Scenario, outcome: Outcome, findings: Sequence[Finding]) -> None:
        """Count an execution; one without a fault says at how many places each kind must strike."""
        fault = scenario.fault
        if fault == "none":
            self.places.update(dict.fromkeys(STEP_FAULTS, sum(outcome.rank_steps)))
            self.places["skips"] += scenario.ranks * scenario.epochs
            return
        self.scenarios[fault] += 1
        self.struck[fault] += _has_struck(scenario, outcome)
        self.hangs[fault] += any(name in HANGS for name, _ in outcome.violations)
        self.wrong[fault] += any(finding.property in WRONG for finding in findings)
        survivors = [error for rank, error in enumerate(outcome.errors) if rank != scenario.fault_rank]
        self.ends.update(f"{fault}: {type(error).__name__ if error else 'all merges'}" for error in survivors)

    def counts(self) -> tuple[FaultCount, ...]:
        """The counts for reports; of a sample every fault is a place where it must strike."""
        return tuple(
            FaultCount(
                fault=fault,
                scenarios=self.scenarios[fault],
                struck=self.struck[fault],
                places=self.places[fault] or self.scenarios[fault],
                hangs=self.hangs[fault],
                wrong=self.wrong[fault],
            )
            for fault in sorted(self.scenarios | self.places)
        )


def join_strikes(parts: Iterable[Strikes]) -> Strikes:
    """All executions of several parts."""
    whole = Strikes()
    for part in parts:
        for name, counter in vars(whole).items():
            counter.update(getattr(part, name))
    return whole


def find_vacuous(counts: Iterable[FaultCount]) -> str:
    """Say where a fault struck at fewer places than there are; an empty string if nowhere."""
    missed = (f"{one.fault} struck at {one.struck} of {one.places}" for one in counts if one.struck < one.places)
    return ", ".join(missed)


def _has_struck(scenario: Scenario, outcome: Outcome) -> bool:
    """Whether a fault had an effect."""
    if scenario.fault == "skips":
        return len(outcome.outputs[scenario.fault_rank]) < scenario.epochs
    return outcome.struck
