"""The fused merge as a program of the explorer, and with what a compiler may lose of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tiebreak.errors import InputError
from tiebreak.ptx.lowering_mutants import LOWERING_MUTANTS
from tiebreak.ptx.ranks import Edit, keep_text
from tiebreak.sim.explorer.judging import Check
from tiebreak.sim.explorer.program import Program
from tiebreak.verify.scenario import Scenario, parse_scenario

from .compiled import ARCHITECTURE, open_compiled

FUSED = "fused"
"""Name of the program."""

SMALLEST = "transport=symmetric,launches=fused,contract=set,rows=1,k=1,local=1,length=1,data_points=False"
"""A row is a CTA, and another CTA meets the peers; with more candidates each has more events."""

FUSED_MUTANTS = {
    name: mutant for name, mutant in LOWERING_MUTANTS.items() if mutant.scenario.launches == FUSED and not mutant.sound
}
"""Seeded bugs of compilers in the fused merge."""


@contextlib.contextmanager
def open_fused(
    parameters: Sequence[str] = (), mutant: str = "", architecture: str = ARCHITECTURE, *, take_turns: bool = True
) -> Iterator[tuple[Program, Check]]:
    """The fused merge, and what must hold of its executions.

    Args:
        parameters: ``name=value`` of fields of the scenario.
        mutant: Name of a seeded bug, or an empty string.
        architecture: Target to compile for.
        take_turns: Whether one order of interchangeable arrivals stands for all, see ``sim.explorer.arrivals``.

    Raises:
        InputError: There is no such mutant.
        MissingBackendError: The merge is not compiled, and CuTeDSL is not there.
    """
    with open_compiled(
        fused_scenario(parameters), architecture=architecture, edit=_find_edit(mutant), take_turns=take_turns
    ) as (program, check):  # fmt: skip
        yield program, check


def fused_scenario(parameters: Sequence[str] = ()) -> Scenario:
    """The smallest scenario of the fused merge, but for some fields."""
    names = {parameter.partition("=")[0] for parameter in parameters}
    kept = [part for part in SMALLEST.split(",") if part.partition("=")[0] not in names]
    scenario = parse_scenario(",".join((*kept, *parameters)))
    return replace(scenario, launches=FUSED)


def _find_edit(mutant: str) -> Edit:
    """What changes the code of kernels."""
    if not mutant:
        return keep_text
    if mutant not in FUSED_MUTANTS:
        raise InputError("mutant", value=mutant, limit=f"one of {', '.join(FUSED_MUTANTS)}")
    return FUSED_MUTANTS[mutant].edit
