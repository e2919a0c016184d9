"""A plot of one run: time per contender over the candidates or the rows, one panel per series of shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiebreak.errors import InputError, MissingBackendError

from .model import Document, Measurement, require_writable

COLUMNS = 3
"""Panels side by side."""


def write_plot(document: Document, path: Path) -> None:
    """Write the medians of a run with their spread; the suffix of the path decides the form.

    Args:
        document: A run with at least one measurement.
        path: For example ``select.svg`` or ``select.png``.

    Raises:
        InputError: Nothing was measured, or the file cannot be written in that form.
        MissingBackendError: matplotlib is not installed.
    """
    backend = require_plotting(path)
    panels = group_panels(document)
    if not panels:
        raise InputError("measurements", value=0, limit="a plot needs at least one")
    names = list(dict.fromkeys(measurement.contender for measurement in document.measurements))
    columns = min(len(panels), COLUMNS)
    lines = -(-len(panels) // columns)
    figure = backend.Figure(figsize=(6 * columns, 5 * lines), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for panel, (title, measurements) in zip(axes, panels.items(), strict=False):
        _draw_panel(panel, title, measurements, names)
    for unused in axes[len(panels) :]:
        unused.set_axis_off()
    figure.suptitle(f"{document.machine.count} x {document.machine.device}")
    figure.savefig(path)


def require_plotting(path: Path) -> Any:
    """See that a plot can be written, before a long run, and return matplotlib's figures.

    Raises:
        InputError: matplotlib does not know the suffix, or the file cannot be written.
        MissingBackendError: matplotlib is not installed.
    """
    try:
        from matplotlib import figure
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        remedy = "install tiebreak[bench], or leave --plot out and plot the JSON elsewhere"
        raise MissingBackendError("matplotlib", limit="a plot needs it", remedy=remedy) from error
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:] not in known:
        raise InputError("suffix of the plot", value=path.suffix, limit=f"must be one of {', '.join(sorted(known))}")
    require_writable(path)
    return figure


def group_panels(document: Document) -> dict[str, list[Measurement]]:
    """Return the measurements of each panel: one panel per kind of input and number of candidates."""
    panels: dict[str, list[Measurement]] = {}
    for measurement in document.measurements:
        shape = measurement.shape
        title = f"{measurement.benchmark}, {measurement.kind}, {shape.candidates} candidates, K {shape.k}"
        panels.setdefault(title, []).append(measurement)
    return panels


def _draw_panel(panel: Any, title: str, measurements: list[Measurement], names: list[str]) -> None:
    """Draw one line per contender, in the same colour in every panel."""
    for contender in dict.fromkeys(measurement.contender for measurement in measurements):
        line = sorted(
            (measurement for measurement in measurements if measurement.contender == contender),
            key=lambda measurement: measurement.shape.rows,
        )
        rows = [measurement.shape.rows for measurement in line]
        medians = [measurement.time.median for measurement in line]
        below = [measurement.time.median - measurement.time.p10 for measurement in line]
        above = [measurement.time.p90 - measurement.time.median for measurement in line]
        style = "-o" if line[0].ours else "--s"
        colour = f"C{names.index(contender) % 10}"
        errors = [below, above]
        panel.errorbar(rows, medians, errors, fmt=style, color=colour, markersize=4, capsize=3, label=contender)
    panel.set(title=title, xlabel="rows", ylabel="microseconds per launch", xscale="log", yscale="log")
    ticks = sorted({measurement.shape.rows for measurement in measurements})
    panel.set_xticks(ticks, [str(tick) for tick in ticks])
    panel.legend(fontsize="small")
    panel.grid(visible=True, alpha=0.3)
