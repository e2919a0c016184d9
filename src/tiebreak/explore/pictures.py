"""A counterexample as pictures: a table, a space-time diagram, a trace for Perfetto, and its execution graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

from tiebreak.sim.explorer.blame import Ghost, Node
from tiebreak.sim.explorer.counterexample import Counterexample
from tiebreak.sim.explorer.execution import Event
from tiebreak.sim.explorer.layout import WRITE
from tiebreak.sim.explorer.program import Program

from .table import draw_table, say

COLUMN, ROW, TOP = 380, 34, 60


@dataclass(frozen=True)
class Pictures:
    """A counterexample as text.

    Attributes:
        table: One column per thread.
        diagram: SVG.
        trace: JSON for Perfetto.
        graph: DOT.
    """

    table: str
    diagram: str
    trace: str
    graph: str

    def write(self, folder: Path) -> None:
        """Write what is not for the console."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedule.svg").write_text(self.diagram, encoding="utf-8")
        (folder / "schedule.trace.json").write_text(self.trace, encoding="utf-8")
        (folder / "execution.dot").write_text(self.graph, encoding="utf-8")


def draw(program: Program, example: Counterexample) -> Pictures:
    """All pictures of a counterexample."""
    drawn = (picture(program, example) for picture in (draw_table, draw_diagram, write_trace, write_graph))
    return Pictures(*drawn)


def draw_diagram(program: Program, example: Counterexample) -> str:
    """Space-time diagram as SVG: threads from left to right, time downwards, the missing edge in red."""
    nodes: list[Event | Ghost] = [*example.schedule, *example.blame.ghosts]
    places = {_key(node): (COLUMN * node.thread + 30, TOP + ROW * row) for row, node in enumerate(nodes)}
    width, height = COLUMN * len(program.threads), TOP + ROW * (len(places) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace" '
        'font-size="12"><defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs><rect width="100%" height="100%" fill="#fff"/>'
    ]
    for index, thread in enumerate(program.threads):
        x = COLUMN * index + 30
        parts.append(f'<text x="{x}" y="24" font-weight="bold">{escape(thread.name or f"thread {index}")}</text>')
        parts.append(f'<line x1="{x}" y1="34" x2="{x}" y2="{height - 10}" stroke="#999"/>')
    for node in nodes:
        (x, y), colour = places[_key(node)], "#d00" if isinstance(node, Ghost) else "#000"
        text = node.text if isinstance(node, Ghost) else say(node, example)
        parts.append(
            f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>'
            f'<text x="{x + 10}" y="{y + 4}" fill="{colour}">{escape(text)}</text>'
        )
        if isinstance(node, Event) and node.source in places:
            parts.append(_arrow(places[node.source], (x, y), "#000", ""))
        for arrival in node.synchronised & places.keys() if isinstance(node, Event) else ():
            if places[arrival][0] != x:
                parts.append(_arrow(places[arrival], (x, y), "#bbb", ""))
    for first, second in example.blame.missing:
        end = places[_key(second)]
        start = (4, end[1] - ROW // 2) if first is None else places[_key(first)]
        parts.append(_arrow(start, end, "#d00", ' stroke-dasharray="6 3" stroke-width="2"'))
    return "".join([*parts, "</svg>"])


def _key(node: Node) -> Ghost | int | None:
    """What a node goes by: events by their number."""
    return node.number if isinstance(node, Event) else node


def _arrow(start: tuple[int, int], end: tuple[int, int], colour: str, style: str) -> str:
    """A line with a tip."""
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}"{style} marker-end="url(#tip)"/>'


def write_trace(program: Program, example: Counterexample) -> str:
    """Trace Event JSON, which Perfetto reads: a process per GPU, a track per thread, a flow per value read."""
    times = {event.number: 10 * row for row, event in enumerate(example.schedule)}
    records: list[dict[str, object]] = []
    for index, thread in enumerate(program.threads):
        name = {"name": thread.name or f"thread {index}"}
        records.append({"ph": "M", "name": "thread_name", "pid": thread.gpu, "tid": index, "args": name})
    for event in example.schedule:
        record = {"ph": "X", "name": say(event, example), "ts": times[event.number], "dur": 8}
        records.append(record | _track(program, event))
        if event.source in times and event.source is not None:
            source = example.failure.execution.events[event.source]
            flow = {"name": "reads from", "cat": "memory", "id": event.number}
            records.append({"ph": "s", "ts": times[source.number] + 4} | flow | _track(program, source))
            records.append({"ph": "f", "bp": "e", "ts": times[event.number] + 4} | flow | _track(program, event))
    return json.dumps({"traceEvents": records}, indent=1)


def _track(program: Program, event: Event) -> dict[str, object]:
    """Where Perfetto shows an event."""
    return {"pid": program.threads[event.thread].gpu, "tid": event.thread}


def write_graph(program: Program, example: Counterexample) -> str:
    """Execution graph in DOT: program order, reads-from, coherence, and the edge that is missing."""
    lines = ["digraph execution {", "  node [shape=box, fontname=monospace];"]
    for index, thread in enumerate(program.threads):
        events = [event for event in example.schedule if event.thread == index]
        label = json.dumps(thread.name or f"thread {index}")
        nodes = " ".join(f"e{event.number} [label={json.dumps(say(event, example))}];" for event in events)
        lines.append(f"  subgraph cluster_{index} {{ label={label}; {nodes} }}")
        lines += [f"  e{a.number} -> e{b.number} [label=po];" for a, b in pairwise(events)]
    shown = {event.number for event in example.schedule}
    for event in example.schedule:
        if event.source in shown:
            lines.append(f"  e{event.source} -> e{event.number} [label=rf, color=blue, constraint=false];")
        if event.kind == WRITE and (last := max(event.earlier & shown, key=_depth(example), default=None)) is not None:
            lines.append(f"  e{last} -> e{event.number} [label=co, color=gray, constraint=false];")
    for index, ghost in enumerate(example.blame.ghosts):
        lines.append(f"  g{index} [label={json.dumps(ghost.text)}, color=red];")
    for first, second in example.blame.missing:
        ends = f"{_name(example, first)} -> {_name(example, second)}"
        lines.append(f"  {ends} [label=missing, color=red, style=dashed, constraint=false];")
    return "\n".join([*lines, "}"])


def _name(example: Counterexample, node: Node) -> str:
    """Name of a node in DOT."""
    if isinstance(node, Event):
        return f"e{node.number}"
    return "nobody" if node is None else f"g{example.blame.ghosts.index(node)}"


def _depth(example: Counterexample) -> Callable[[int], int]:
    """How late writes are in coherence order."""
    return lambda number: len(example.failure.execution.events[number].earlier)
