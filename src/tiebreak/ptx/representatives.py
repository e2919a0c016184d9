"""Audits every representative CuTeDSL kernel: ``python -m tiebreak.ptx.representatives``, or with ``--all`` many more.

Prints for each kernel how many barriers are shown to be needed and how many the
text proves redundant, and fails if one is neither, or if a kernel has findings
as it is.  The barriers of a merge that order ranks are judged with several
ranks instead, by the mutants of ``tiebreak.ptx.lowering_mutants``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console

from tiebreak.impl.fused import merge_recipe
from tiebreak.impl.kernel_binary import KernelRecipe
from tiebreak.impl.kernel_recipes import list_representatives, standard_merges, standard_specializations
from tiebreak.impl.selector import selector_recipe
from tiebreak.sim.ptx.module import Location

from . import merge_audit, selector_audit
from .audit import NEEDED, Audit, Input, Verdict, audit_kernel

MERGE = "merge-"
SELECTION_FILES = ("cut.py", "histogram.py", "output.py", "resident.py", "sorting.py", "streamed.py")
"""Files whose barriers order the threads of one CTA."""


def draw_inputs(name: str, architecture: str, seed: int = 0) -> Iterator[Input]:
    """Yield launches of a kernel by its name, a selector's or a merge's."""
    specialization = selector_audit.parse_specialization(name.removeprefix(MERGE))
    draw = merge_audit.draw_inputs if name.startswith(MERGE) else selector_audit.draw_inputs
    return draw(specialization, architecture, seed)


def list_auditable(architecture: str) -> list[KernelRecipe]:
    """Kernels that are built ahead of time: selectors of candidates in one buffer, and merges."""
    chosen = [each for each in standard_specializations() if each.sources == "one" and not each.stateful]
    selectors = [selector_recipe(each, architecture) for each in chosen]
    return selectors + [merge_recipe(each, architecture) for each in standard_merges()]


def list_barriers(audit: Audit) -> list[Verdict]:
    """Verdicts on the barriers that order the threads of a CTA for a selection."""
    return [each for each in audit.verdicts if each.edge.role == "barrier" and _selects(each.edge.instruction.location)]


def list_open(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Verdicts on what is neither shown to be needed nor proven to be redundant."""
    return [each for each in verdicts if each.status != NEEDED and not each.proof]


def _selects(location: Location | None) -> bool:
    """Whether a position, or a call around it, is part of the selection."""
    while location is not None:
        if location.file.rsplit("/", 1)[-1] in SELECTION_FILES:
            return True
        location = location.inlined_at
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit, print a line for each kernel, and return 1 if anything is open."""
    parser = argparse.ArgumentParser(prog="python -m tiebreak.ptx.representatives", description="Audit CuTeDSL kernels")
    parser.add_argument("--architecture", default="sm_100a", help="target, such as sm_90a")
    parser.add_argument("--only", default="", help="part of the names of the kernels to audit")
    parser.add_argument("--seed", type=int, default=0, help="seed of the rows")
    parser.add_argument("--all", action="store_true", help="audit all that are built, as far as an audit takes them")
    options = parser.parse_args(arguments)
    console, failed = Console(), False
    recipes = list_auditable(options.architecture) if options.all else list_representatives(options.architecture)
    for recipe in recipes:
        if options.only in recipe.name:
            inputs = list(draw_inputs(recipe.name, options.architecture, options.seed))
            audit = audit_kernel(inputs, together=False)
            failed |= _print_audit(recipe.name, audit, console)
    return int(failed)


def _print_audit(name: str, audit: Audit, console: Console) -> bool:
    """Print a line for a kernel, and what is open; returns whether anything is."""
    barriers = list_barriers(audit)
    needed = sum(each.status == NEEDED for each in barriers)
    proven = sum(each.status != NEEDED and bool(each.proof) for each in barriers)
    still_open = list_open(barriers)
    console.print(
        f"{name}: {len(barriers)} barriers, {needed} needed, {proven} proven redundant, {len(still_open)} open; "
        f"{len(audit.inputs)} rows, {len(audit.findings)} findings",
        markup=False,
        soft_wrap=True,
    )
    for each in still_open:
        console.print(f"  line {each.edge.instruction.line}: {each.status}: {each.argument}", markup=False)
    for finding in audit.findings:
        console.print(str(finding), markup=False)
    return bool(still_open or audit.findings or not barriers)


if __name__ == "__main__":
    sys.exit(main())
