"""The shortest of several counterexamples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tiebreak.sim.explorer.counterexample import Counterexample, explain
from tiebreak.sim.explorer.exploration import Exploration, Options
from tiebreak.sim.explorer.judging import Check, Failure
from tiebreak.sim.explorer.program import Program

FAILURES, CLASSES = 32, 256
"""How many failures are compared, and after how many classes no more are looked for."""

FEW = 4
"""Failures of the fused merge that are compared: a CTA takes its time on the PTX machine."""


def find_failures(
    program: Program,
    options: Options,
    check: Check | None = None,
    persist: bool = True,
    enough: int = FAILURES,
) -> Exploration:
    """Explore on after the first failure, as far as there is something to compare it with.

    ``persist`` explores to the end where nothing fails; ``enough`` failures end it.
    """
    exploration = Exploration(program, replace(options, stop=False, shard=0, shards=1), check)

    def is_enough() -> bool:
        found = len(exploration.failures)
        return found >= enough or (exploration.counts.classes >= CLASSES and (found > 0 or not persist))

    exploration.run(pause=is_enough)
    return exploration


def find_counterexample(
    program: Program, options: Options, check: Check | None, failures: Sequence[Failure], enough: int = FAILURES
) -> Counterexample:
    """The counterexample with the fewest switches, and of those with the fewest events, among failures to be found."""
    others = find_failures(program, options, check, persist=False, enough=enough).failures
    return explain(program, *(others or failures))
