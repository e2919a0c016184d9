"""Makes a failing execution small: first the scenario, then the schedule.

A smaller scenario is kept when it breaks the same property under the same
strategy; a schedule is reduced by leaving out deviations from the default
order (Zeller and Hildebrandt's ddmin, TSE 2002), so that the fewest switches
remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tiebreak.backends import Outcome
from tiebreak.backends.simulated import SimulatedBackend
from tiebreak.sim.schedulers.replay import Replay, decode

from .finding import Finding
from .judgement import judge
from .scenario import Scenario

ATTEMPTS = 100
"""Largest number of executions that shrinking may take."""


@dataclass(frozen=True)
class Failing:
    """A failing execution: scenario, outcome and the finding that is kept."""

    scenario: Scenario
    outcome: Outcome
    finding: Finding


class Shrinker:
    """Shrinks executions of one backend within a budget of attempts."""

    def __init__(self, backend: SimulatedBackend, attempts: int = ATTEMPTS) -> None:
        self._backend = backend
        self._left = attempts

    def shrink(self, failing: Failing, schedule: str) -> Failing:
        """Return the smallest failing execution that was found."""
        return self._shrink_schedule(self._shrink_scenario(failing, schedule))

    def _attempt(self, scenario: Scenario, run: Callable[[Scenario], Outcome], wanted: str) -> Failing | None:
        if self._left <= 0:
            return None
        self._left -= 1
        outcome = run(scenario)
        finding = next((one for one in judge(scenario, outcome) if one.property == wanted), None)
        return Failing(scenario, outcome, finding) if finding is not None else None

    def _shrink_scenario(self, failing: Failing, schedule: str) -> Failing:
        progress = True
        while progress:
            progress = False
            for smaller in smaller_scenarios(failing.scenario):
                found = self._attempt(smaller, lambda one: self._backend.run(one, schedule), failing.finding.property)
                if found is not None:
                    failing, progress = found, True
                    break
        return failing

    def _shrink_schedule(self, failing: Failing) -> Failing:
        deviations = list(decode(failing.outcome.schedule).items())
        size = max(len(deviations), 1)
        while size >= 1 and deviations and self._left > 0:
            start, reduced = 0, False
            while start < len(deviations):
                kept = deviations[:start] + deviations[start + size :]
                found = self._attempt(failing.scenario, self._following(kept), failing.finding.property)
                if found is None:
                    start += size
                else:
                    failing, reduced = found, True
                    deviations = list(decode(found.outcome.schedule).items())
            size = size // 2 if not reduced or size > 1 else size
            size = min(size, len(deviations))
        return failing

    def _following(self, deviations: list[tuple[int, str]]) -> Callable[[Scenario], Outcome]:
        def run(scenario: Scenario) -> Outcome:
            scheduler = Replay(dict(deviations), strict=False)
            scheduler.begin()
            return self._backend.run_with(scenario, scheduler)

        return run


def smaller_scenarios(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios that are one step simpler, the most drastic first."""
    for name, least in (("ranks", 2), ("epochs", 1), ("rows", 1), ("local", 1), ("k", 1), ("length", 1)):
        value = getattr(scenario, name)
        for candidate in dict.fromkeys((least, value // 2, value - 1)):
            if least <= candidate < value:
                yield _with(scenario, name, candidate)
    for name, simple in (
        ("kind", "equal"),
        ("seed", 0),
        ("starts", False),
        ("row_counts", 1),
        ("mode", "eager"),
        ("owner_rows", Scenario.owner_rows),
        ("launches", Scenario.launches),
    ):
        if getattr(scenario, name) != simple:
            yield _with(scenario, name, simple)


def _with(scenario: Scenario, name: str, value: Any) -> Scenario:
    # Fewer rows leave fewer numbers of rows to draw from.
    row_counts = min(scenario.row_counts, value + 1) if name == "rows" else scenario.row_counts
    changes = {"row_counts": row_counts, name: value}
    if name == "ranks":
        changes["fault_rank"] = min(scenario.fault_rank, value - 1)
    if name == "epochs" and scenario.fault == "skips":
        changes["fault_step"] = min(scenario.fault_step, value - 1)
    return replace(scenario, **changes)
