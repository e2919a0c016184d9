"""``tiebreak audit``: which barriers and fences of a kernel are needed."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiebreak.sim.ptx.findings import describe_location

from .audit import NEEDED, REDUNDANT, UNREACHED, Audit, Input, Verdict, audit_kernel
from .command import EXIT_CLEAN, EXIT_FINDINGS, prepare_from_text
from .selector_audit import PREFIX as SELECTORS
from .selector_audit import draw_inputs, parse_specialization

SHOWN_INPUTS = 12

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
        target: The kernel; ``select-threads=128-vectors=1`` is a selector, on rows made for it.
        console: Where to print.
        arguments: Arguments of each launch; a selector takes none.
        draws: How often to draw the random arrays of each.
        schedules: Orders of warps.
        outputs: Whether to compare outputs too.
        as_json: Print JSON, not a table.
        strict: See above.
        options: See ``tiebreak.ptx.command.prepare_from_text``.

    Raises:
        TiebreakError: What was asked for cannot be.
    """
    if target.startswith(SELECTORS):
        rows = (draw_inputs(parse_specialization(target), options["architecture"], seed) for seed in range(draws))
        inputs = list(itertools.chain(*rows))
    else:
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
    for column in ("PTX line", "instruction", "source", "verdict"):
        table.add_column(column, overflow="fold")
    table.add_column("because", overflow="fold", ratio=1)
    for verdict in audit.verdicts:
        instruction = verdict.edge.instruction
        cells = (str(instruction.line), instruction.name, describe_location(instruction.location), verdict.status)
        table.add_row(*map(Text, cells), Text("\n".join(_explain(verdict))), style=STYLES[verdict.status])
    console.print(table)
    for line in _summarise(audit):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _explain(verdict: Verdict) -> Iterator[str]:
    yield verdict.argument + (f" ({verdict.shown_by})" if verdict.shown_by else "")
    if verdict.witness is not None:
        yield from (f"  {actor.action}, {actor.code}" for actor in verdict.witness.actors)
    if verdict.wrong:
        yield f"output differs without it: {'; '.join(verdict.wrong)}"


def _summarise(audit: Audit) -> Iterator[str]:
    yield from map(str, audit.findings)
    counts = ", ".join(f"{audit.count(status)} {status}" for status in (NEEDED, REDUNDANT, UNREACHED))
    yield f"{counts}; findings in the kernel as it is: {len(audit.findings)}"
    if audit.together is not None:
        yield f"not all that is redundant can go at once: {audit.together.place}: {audit.together.missing}"
    yield from (f"input {number}: {name}" for number, name in enumerate(audit.inputs[:SHOWN_INPUTS], 1))
    if len(audit.inputs) > SHOWN_INPUTS:
        yield f"and {len(audit.inputs) - SHOWN_INPUTS} more inputs, which --json lists"
    yield f"schedules: {', '.join(audit.schedules)}"
    yield "Redundant: no race on these inputs, each left out by itself. Only a proof holds for others."
