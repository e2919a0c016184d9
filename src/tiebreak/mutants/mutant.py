"""What a mutant is: edits that break one rule, and a scenario that must notice."""

from __future__ import annotations

from dataclasses import dataclass

from tiebreak.verify.scenario import Scenario

from .loader import Edit


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A seeded bug.

    Attributes:
        name: Name on the command line.
        rule: The rule of the protocol or the order that it breaks.
        source: Where the same mistake was made in public, or why it is likely.
        edits: Replacements in the source of ``tiebreak.impl``.
        scenario: A scenario that the unmutated code passes.
        schedules: Strategies to try, in order, until one of them kills it.
        properties: Properties of which one must be the one that is broken.
    """

    name: str
    rule: str
    source: str
    edits: tuple[Edit, ...]
    scenario: Scenario
    schedules: tuple[str, ...] = ("default", "round-robin", "random:0", "random:1", "pct:0:1:3", "pct:1:1:3")
    properties: tuple[str, ...] = ("exact-order", "agreement", "race-free", "initialised-memory", "progress")
