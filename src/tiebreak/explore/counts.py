"""The manifest of exact numbers of execution classes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from tiebreak.sim.explorer.exploration import Exploration, Options, explore
from tiebreak.sim.explorer.families import FAMILIES
from tiebreak.sim.explorer.verdicts import Verdict


@dataclass(frozen=True)
class Expectation:
    """What an exploration must find.

    Attributes:
        program: Name of the family.
        arguments: Its arguments.
        model: Memory model.
        merge: Whether all values that end a wait are one class.
        classes: Number of classes, where all is well.
        property: The property that breaks, where one does.
    """

    program: str
    arguments: dict[str, Any]
    model: str
    merge: bool = False
    classes: int | None = None
    property: str = ""

    def __str__(self) -> str:
        arguments = ",".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.program}({arguments})-{self.model}{'-merge' if self.merge else ''}"

    def explore(self, distinct: bool = False) -> Exploration:
        """Explore the program; ``distinct`` compares every class with all others."""
        options = Options(model=self.model, merge_awaits=self.merge, distinct=distinct)
        return explore(FAMILIES[self.program](**self.arguments), options)

    def judge(self, exploration: Exploration) -> str:
        """What is not as expected; empty if all is."""
        counts = exploration.counts
        if counts.blocked or counts.redundant:
            return f"{counts.blocked} blocked and {counts.redundant} redundant executions"
        if self.property:
            found = [failure.property for failure in exploration.failures]
            return "" if found == [self.property] else f"failures {found} instead of {self.property}"
        if exploration.conclusion.verdict is not Verdict.PROVED:
            return str(exploration.conclusion)
        return "" if counts.complete == self.classes else f"{counts.complete} classes instead of {self.classes}"


def read_manifest() -> tuple[Expectation, ...]:
    """All expectations."""
    text = (files("tiebreak.explore") / "counts.toml").read_text(encoding="utf-8")
    return tuple(Expectation(**entry) for entry in tomllib.loads(text)["count"])
