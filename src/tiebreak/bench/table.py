"""The tables of a benchmark in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .model import EMPTY_KERNEL, PACKED_COPY, Document, Machine, Measurement, Shape
from .targets import Verdict, baseline, judge, random_baseline, ratio


def print_document(document: Document, console: Console) -> None:
    """Print machine, method, times beside ratios, what was rejected, counts of replays, and the targets."""
    _print_plain(describe_machine(document.machine), console)
    if document.measurements:
        if document.method is not None:
            _print_plain(document.method.describe(), console)
        console.print(time_table(document))
    for rejection in document.rejections:
        shape = describe_shape(rejection.shape)
        text = f"{rejection.contender} not timed on {shape}, {rejection.kind}: {rejection.reason}"
        console.print(Text(text, style="bold red" if rejection.ours else "yellow"), soft_wrap=True)
    verdicts = judge(document)
    if verdicts:
        console.print(target_table(verdicts))


def time_table(document: Document) -> Table:
    """Times in microseconds beside their ratios; one section per shape and kind of input."""
    table = Table(title="Microseconds per launch", title_justify="left")
    for name in ("Shape", "Input", "Contender", "Contract"):
        table.add_column(name, overflow="fold")
    for name in ("Median", "p10", "p90", "x empty", "x copy", "x random"):
        table.add_column(name, justify="right", no_wrap=True)
    previous: tuple[str, str] | None = None
    for measurement in document.measurements:
        group = (describe_shape(measurement.shape), measurement.kind)
        if previous is not None and group != previous:
            table.add_section()
        shown = group if group != previous else ("", "")
        names = (*shown, measurement.contender, measurement.contract)
        table.add_row(*names, *_figures(document, measurement), style="bold" if measurement.ours else "")
        previous = group
    return table


def target_table(verdicts: list[Verdict]) -> Table:
    """Targets beside what was reached."""
    table = Table(title="Targets", title_justify="left")
    for name in ("What", "Contender", "Limit", "Measured", "Result"):
        table.add_column(name, overflow="fold")
    for verdict in verdicts:
        result = Text("pass", style="green") if verdict.passed else Text("fail", style="bold red")
        table.add_row(verdict.subject, verdict.contender, verdict.limit, verdict.measured, result)
    return table


def describe_machine(machine: Machine) -> str:
    """The machine in one line."""
    clocks = f"clocks {machine.sm_clock_mhz} MHz (SM), {machine.memory_clock_mhz} MHz (memory)"
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    head = f"{machine.count} x {machine.device}, driver {machine.driver}, {clocks}"
    return f"{head}; {versions}; commit {machine.commit}; {machine.date}"


def describe_shape(shape: Shape) -> str:
    """A shape in a few characters."""
    return f"{shape.rows} x {shape.candidates}, K {shape.k}"


def describe_measurement(measurement: Measurement) -> str:
    """A measurement in one line, as printed while a run goes on."""
    time = measurement.time
    spread = f"{time.median:.2f} us ({time.p10:.2f} to {time.p90:.2f})"
    return f"{describe_shape(measurement.shape)}, {measurement.kind}: {measurement.contender} {spread}"


def _figures(document: Document, measurement: Measurement) -> tuple[str, ...]:
    time = measurement.time
    bases = [baseline(document, measurement, name) for name in (EMPTY_KERNEL, PACKED_COPY)]
    if measurement.kind != "random":
        bases.append(random_baseline(document, measurement))
    ratios = [ratio(measurement, base) for base in bases]
    shown = ["-" if value is None else f"{value:.2f}" for value in ratios]
    return (f"{time.median:.2f}", f"{time.p10:.2f}", f"{time.p90:.2f}", *shown)


def _print_plain(text: str, console: Console) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
