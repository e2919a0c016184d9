"""The fused merge as a program of the explorer, and with what a compiler may lose of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tiebreak.errors import InputError, MissingBackendError, SimulationError
from tiebreak.impl.kernel_binary import COMPILER_REMEDY
from tiebreak.impl.kernel_store import find_compiler
from tiebreak.ptx.lowering_mutants import LOWERING_MUTANTS
from tiebreak.ptx.ranks import Edit, keep_text
from tiebreak.sim.explorer.judging import Check
from tiebreak.sim.explorer.program import Program
from tiebreak.verify.scenario import Scenario, parse_scenario

from .compiled import ARCHITECTURE, open_compiled, record_run

FUSED = "fused"
"""Name of the program."""

SMALLEST = "transport=symmetric,launches=fused,contract=set,rows=1,k=1,local=1,length=1,data_points=False"
"""A row is a CTA, and another CTA meets the peers; with more candidates each has more events."""

_EDITS = {name: edit for name, edit in LOWERING_MUTANTS.items() if edit.scenario.launches == FUSED}
FUSED_MUTANTS = {name: mutant for name, mutant in _EDITS.items() if not mutant.sound}
"""Seeded bugs of compilers in the fused merge."""

FUSED_VARIANTS = {name: variant for name, variant in _EDITS.items() if variant.sound}
"""Other correct lowerings of it."""

PAIRS = ("local=2", "k=2", "length=4")
"""Parameters with which packets travel two at a time."""


@contextlib.contextmanager
def open_fused(
    parameters: Sequence[str] = (), mutant: str = "", architecture: str = ARCHITECTURE, *, take_turns: bool = True
) -> Iterator[tuple[Program, Check]]:
    """The fused merge, and what must hold of its executions.

    Args:
        parameters: ``name=value`` of fields of the scenario.
        mutant: Name of a seeded bug or a variant, or an empty string.
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
    if mutant not in _EDITS:
        raise InputError("mutant", value=mutant, limit=f"one of {', '.join(_EDITS)}")
    return _EDITS[mutant].edit


def require_fused() -> None:
    """See that the fused merge is there to be explored.

    Raises:
        MissingBackendError: It is not compiled, and CuTeDSL is not there.
    """
    if find_compiler() is not None:
        return
    try:
        record_run(fused_scenario(("epochs=1",)))
    except SimulationError as error:
        limit = "mutants of the fused merge need it, and its kernels are in no folder either"
        raise MissingBackendError("CuTeDSL", limit=limit, remedy=COMPILER_REMEDY) from error
