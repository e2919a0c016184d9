"""The tables that a run ends with in the terminal.

Commands and schedules are printed without wrapping or markup, so that they can
be pasted back.
"""

from __future__ import annotations

import itertools

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiebreak.report.model import Cell, Failure, MutantResult, Proof, Report

_STYLES = {"passed": "green", "failed": "bold red", "not applicable": "dim"}


def print_summary(report: Report, console: Console) -> None:
    """Print every failure, the table of properties, that of mutants, and the verdict."""
    for cell in report.cells:
        for failure in cell.failures:
            _print_failure(failure, console)
    if report.cells:
        console.print(_property_table(report.cells))
        for line in itertools.chain.from_iterable(map(describe_faults, report.cells)):
            _print_plain(line, console)
    if report.mutants:
        console.print(_mutant_table(report.mutants))
        _print_proofs(report.proofs, console)
        for mutant in report.mutants:
            if mutant.killed:
                _print_plain(f"{mutant.name}: {mutant.replay}", console)
    console.print(Text(verdict(report), style="green" if report.exit_status == 0 else "bold red"))


def verdict(report: Report) -> str:
    """The outcome of a run in one line; an execution counts as often as properties judged it."""
    failed = sum(cell.result == "failed" for cell in report.cells)
    ran = sum(cell.result != "not applicable" for cell in report.cells)
    judgements = sum(cell.executions for cell in report.cells)
    parts = []
    if report.cells:
        parts.append(f"checks failed: {failed} of {ran}" if failed else f"checks passed: {ran}")
        parts.append(f"judgements: {judgements:,} in {report.seconds:.0f} s")
    for checker in dict.fromkeys(mutant.checker for mutant in report.mutants):
        own = [mutant for mutant in report.mutants if mutant.checker == checker]
        killed, seconds = sum(mutant.killed for mutant in own), sum(mutant.seconds for mutant in own)
        parts.append(f"mutants killed by the {checker}: {killed} of {len(own)} in {seconds:.0f} s")
    return f"{', '.join(parts)}; exit status {report.exit_status}"


def _property_table(cells: tuple[Cell, ...]) -> Table:
    table = Table(title="Properties", title_justify="left")
    for name in ("Property", "Backend"):
        table.add_column(name, overflow="fold")
    for name in ("Executions", "Inputs"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Result", no_wrap=True)
    previous = ""
    for cell in cells:
        if previous and cell.property != previous:
            table.add_section()
        name = "" if cell.property == previous else cell.property
        counts = (f"{cell.executions:,}", f"{cell.inputs:,}")
        result = Text(cell.result, style=_STYLES[cell.result])
        table.add_row(Text(name), Text(cell.backend), *counts, result)
        previous = cell.property
    return table


def describe_faults(cell: Cell) -> list[str]:
    """Say what became of faults at every step: totals, then kind by kind how the other ranks ended."""
    if not cell.faults:
        return []
    scenarios = sum(one.scenarios for one in cell.faults)
    hangs, wrong = sum(one.hangs for one in cell.faults), sum(one.wrong for one in cell.faults)
    lines = [f"{cell.property} on {cell.backend}: {scenarios:,} scenarios, {hangs} hangs, {wrong} wrong results"]
    for one in cell.faults:
        places = "merges" if one.fault == "skips" else "steps"
        own = ((end.partition(": "), count) for end, count in cell.ends.items())
        ends = ", ".join(f"{end} {count:,}" for (fault, _, end), count in own if fault == one.fault)
        lines.append(f"{one.fault} at {one.struck:,} of {one.places:,} {places}; other ranks: {ends}")
    return lines


def _mutant_table(mutants: tuple[MutantResult, ...]) -> Table:
    table = Table(title="Mutants", title_justify="left")
    for name in ("Mutant", "Rule broken", "Killed by"):
        table.add_column(name, overflow="fold")
    table.add_column("Seconds", justify="right", no_wrap=True)
    previous = ""
    for mutant in mutants:
        if previous and mutant.checker != previous:
            table.add_section()
        previous = mutant.checker
        killer = Text(mutant.property, style="green") if mutant.killed else Text("survived", style="bold red")
        table.add_row(Text(mutant.name), Text(mutant.rule), killer, f"{mutant.seconds:.2f}")
    return table


def _print_proofs(proofs: tuple[Proof, ...], console: Console) -> None:
    """Print what the explorer concludes of the correct protocols."""
    for proof in proofs:
        _print_plain(
            f"correct: {proof.name}: {proof.verdict}, {proof.classes:,} classes, {proof.seconds:.2f} s", console
        )


def _print_failure(failure: Failure, console: Console) -> None:
    console.print(Text(f"{failure.property} failed on {failure.backend}", style="bold red"))
    _print_plain(failure.message, console)
    if failure.schedule:
        _print_plain(f"schedule: {failure.schedule}", console)
    if failure.table:
        _print_plain(failure.table, console)
    _print_plain(f"replay: {failure.replay}\n", console)


def _print_plain(text: str, console: Console) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
