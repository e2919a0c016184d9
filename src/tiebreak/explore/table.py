"""A counterexample as text: one column per thread, one line per event."""

from __future__ import annotations

from tiebreak.sim.explorer.counterexample import Counterexample
from tiebreak.sim.explorer.execution import Event, describe
from tiebreak.sim.explorer.layout import READ, STARVED, WRITE
from tiebreak.sim.explorer.operations import Await
from tiebreak.sim.explorer.program import Program


def draw_table(program: Program, example: Counterexample) -> str:
    """The schedule in columns; a wait stands as one line, however often it polled."""
    names = [thread.name or f"thread {index}" for index, thread in enumerate(program.threads)]
    lines = [(event.thread, _mark(event, example) + say(event, example)) for event in example.schedule if _shown(event)]
    widths = [max([len(name), *(len(text) for thread, text in lines if thread == index)]) for index, name in
              enumerate(names)]  # fmt: skip
    rows = ["  step | " + " | ".join(name.ljust(width) for name, width in zip(names, widths, strict=True))]
    for step, (thread, text) in enumerate(lines, 1):
        cells = [(text if index == thread else "").ljust(width) for index, width in enumerate(widths)]
        rows.append(f"{step:>6} | " + " | ".join(cells))
    summary = (
        f"{example.failure.property}: {example.failure.message}",
        f"{len(lines)} events, {example.switches} switches; played again {example.replayed} times out of "
        f"{example.attempts}",
    )
    return "\n".join([*(row.rstrip() for row in rows), *summary])


def _shown(event: Event) -> bool:
    """Whether an event has a line of its own; the halves of an update share one."""
    return event.kind != WRITE or event.partner is None


def _mark(event: Event, example: Counterexample) -> str:
    """Point at the events that the failure is about."""
    return "-> " if example.failure.events and event.number in example.failure.events else ""


def say(event: Event, example: Counterexample) -> str:
    """An event in words."""
    execution = example.failure.execution
    if event.kind == STARVED:
        return f"{describe(event.operation)}, for ever"
    if event.kind == READ:
        source = "at first" if event.source in (None, -1) else f"of thread {execution.events[event.source or 0].thread}"
        read = f": {event.value!r} {source}"
        spun = "poll, " if isinstance(event.operation, Await) else ""
        wrote = f", writes {execution.events[event.partner].value!r}" if event.partner is not None else ""
        return f"{spun}{describe(event.operation)}{read}{wrote}"
    return describe(event.operation)
