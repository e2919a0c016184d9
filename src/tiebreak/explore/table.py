"""A counterexample as text: one column per thread, one line per event."""

from __future__ import annotations

from tiebreak.sim.explorer.counterexample import Counterexample
from tiebreak.sim.explorer.execution import Event, describe
from tiebreak.sim.explorer.layout import ARRIVED, DEPARTED, READ, STARVED, WRITE
from tiebreak.sim.explorer.operations import Await
from tiebreak.sim.explorer.program import Program


def draw_table(program: Program, example: Counterexample) -> str:
    """The schedule in columns; a wait stands as one line, however often it polled."""
    names = [thread.name or f"thread {index}" for index, thread in enumerate(program.threads)]
    lines = [(event.thread, _mark(event, example) + say(event, example)) for event in example.schedule if _shown(event)]
    lines += [(ghost.thread, f"-> {ghost.text}") for ghost in example.blame.ghosts]
    widths = [max([len(name), *(len(text) for thread, text in lines if thread == index)]) for index, name in
              enumerate(names)]  # fmt: skip
    rows = ["  step | " + " | ".join(name.ljust(width) for name, width in zip(names, widths, strict=True))]
    for step, (thread, text) in enumerate(lines, 1):
        cells = [(text if index == thread else "").ljust(width) for index, width in enumerate(widths)]
        rows.append(f"{step:>6} | " + " | ".join(cells))
    summary = (f"{example.failure.property}: {example.failure.message}", summarise(example))
    return "\n".join([*(row.rstrip() for row in rows), *summary])


def summarise(example: Counterexample) -> str:
    """How long a counterexample is, of how many it is the shortest, and how often it happened again."""
    among = f", the shortest of {example.candidates} failures" if example.candidates > 1 else ""
    return (
        f"{example.switches} switches, {len(example.schedule)} events{among}; executed again {example.replayed} times "
        f"out of {example.attempts}"
    )


def _shown(event: Event) -> bool:
    """Whether an event has a line of its own; the halves of an update share one."""
    return event.kind != WRITE or event.partner is None


def _mark(event: Event, example: Counterexample) -> str:
    """Point at the events that the failure is about."""
    return "-> " if any(event in edge for edge in example.blame.missing) else ""


def say(event: Event, example: Counterexample) -> str:
    """An event in words."""
    execution = example.failure.execution
    if event.kind in (ARRIVED, DEPARTED):
        return f"{'arrive at' if event.kind == ARRIVED else 'leave'} {describe(event.operation)}"
    if event.kind == STARVED:
        return f"{describe(event.operation)}, for ever"
    if event.kind == READ:
        source = "at first" if event.source in (None, -1) else f"of thread {execution.events[event.source or 0].thread}"
        read = f": {event.value!r} {source}"
        spun = "poll, " if isinstance(event.operation, Await) else ""
        wrote = f", writes {execution.events[event.partner].value!r}" if event.partner is not None else ""
        return f"{spun}{describe(event.operation)}{read}{wrote}"
    return describe(event.operation)
