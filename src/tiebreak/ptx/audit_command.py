"""``tiebreak audit``: which barriers and fences of a kernel are needed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tiebreak.sim.ptx.findings import describe_location

from .audit import NEEDED, REDUNDANT, UNREACHED, Audit, Input, Verdict, audit_kernel
from .command import EXIT_CLEAN, EXIT_FINDINGS, prepare_from_text

_UNSEEDED = re.compile(r"(^|=)random:[a-z]+\d+:[\dx]+$")

STYLES = {NEEDED: "green", REDUNDANT: "yellow", UNREACHED: "dim"}


def audit_from_text(
    target: str,
    console: Console,
    *,
    arguments: Sequence[str],
    draws: int = 1,
    schedules: Sequence[str] = ("lockstep",),
    outputs: bool = False,
    as_json: bool = False,
    strict: bool = False,
    **options: Any,
) -> int:
    """Audit a kernel; returns the exit status: 1 with findings, and if ``strict`` with something redundant.

    Args:
        target: The kernel.
        console: Where to print.
        arguments: Arguments of each launch.
        draws: How often to draw the random arrays of each.
        schedules: Orders of warps.
        outputs: Whether to compare outputs too.
        as_json: Print JSON, not a table.
        strict: See above.
        options: See ``tiebreak.ptx.command.prepare_from_text``.

    Raises:
        TiebreakError: What was asked for cannot be.
    """
    texts = [seed_random(text, draw) for text in arguments for draw in range(draws)]
    inputs = [Input(text, prepare_from_text(target, arguments=text, **options)) for text in dict.fromkeys(texts)]
    audit = audit_kernel(inputs, schedules, outputs=outputs)
    if as_json:
        console.print_json(json.dumps(audit.as_dict()))
    else:
        print_audit(audit, console)
    failed = bool(audit.findings) or (strict and audit.count(REDUNDANT) > 0)
    return EXIT_FINDINGS if failed else EXIT_CLEAN


def seed_random(text: str, draw: int) -> str:
    """Return arguments in which every random array that states no seed has one of its own, another in each draw."""
    words = shlex.split(text)
    seeded = (
        f"{word}:{draw * len(words) + place}" if _UNSEEDED.search(word) else word for place, word in enumerate(words)
    )
    return shlex.join(seeded)


def print_audit(audit: Audit, console: Console) -> None:
    """Print an audit as a table, and what it rests on."""
    table = Table(title=audit.kernel, title_justify="left")
    for column in ("PTX line", "instruction", "source", "verdict", "because", "race between", "output without it"):
        table.add_column(column, overflow="fold")
    for verdict in audit.verdicts:
        table.add_row(*_cells(verdict), style=STYLES[verdict.status])
    console.print(table)
    for finding in audit.findings:
        console.print(str(finding), markup=False, soft_wrap=True)
    counts = ", ".join(f"{audit.count(status)} {status}" for status in (NEEDED, REDUNDANT, UNREACHED))
    console.print(f"{counts}; findings in the kernel as it is: {len(audit.findings)}", markup=False)
    if audit.together is not None:
        text = f"what is redundant is not so together: {audit.together.place}: {audit.together.missing}"
        console.print(text, markup=False, soft_wrap=True)
    tried = f"tried: {'; '.join(audit.inputs)}; schedules: {', '.join(audit.schedules)}"
    console.print(tried, markup=False, soft_wrap=True)
    note = "Redundant means that no race appeared on what was tried, one omission at a time; only a proof says more."
    console.print(note, markup=False, soft_wrap=True)


def _cells(verdict: Verdict) -> Sequence[str]:
    instruction = verdict.edge.instruction
    between = ""
    if verdict.witness is not None:
        between = "\n".join(actor.site for actor in verdict.witness.actors)
    wrong = f"differs: {', '.join(verdict.wrong)}" if verdict.wrong else ""
    source = describe_location(instruction.location)
    argument = f"{verdict.argument} [{verdict.shown_by}]" if verdict.shown_by else verdict.argument
    return str(instruction.line), instruction.name, source, verdict.status, argument.replace("[", "\\["), between, wrong
