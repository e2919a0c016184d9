"""What a simulated execution did: events, violations, and how to print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Site:
    """A source position of an access: kernel (or device function), file and line."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function}:{self.line}"


@dataclass(frozen=True)
class Event:
    """One scheduled operation.

    Attributes:
        step: Position in the execution, from 0.
        rank: Rank whose device or host performed it; the column of the table.
        agent: Agent that performed it, for example ``r0.p1`` or ``h0``.
        action: The operation in words, for example ``atomic add release.sys``.
        place: Memory that it touched, or an empty string.
        value: Value read or written, where one number says it.
        site: Source position, or None for host operations.
    """

    step: int
    rank: int
    agent: str
    action: str
    place: str = ""
    value: str = ""
    site: Site | None = None

    def text(self) -> str:
        """Return the cell text of this event in the rank table."""
        where = f" {self.place}" if self.place else ""
        value = f" = {self.value}" if self.value else ""
        site = f" @{self.site}" if self.site else ""
        return f"{self.agent} {self.action}{where}{value}{site}"


@dataclass(frozen=True)
class Violation:
    """A property that an execution broke.

    Attributes:
        property: ``race``, ``uninitialised-read``, ``out-of-bounds``,
            ``deadlock``, ``livelock``, ``budget`` or ``host-error``.
        message: What happened, with both sides where there are two.
        step: Step at which it was seen.
    """

    property: str
    message: str
    step: int


@dataclass
class Trace:
    """Events of one execution, in execution order."""

    events: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Append ``event``."""
        self.events.append(event)

    def table(self, ranks: int, last: int = 60) -> str:
        """Return a table with one column per rank, rows in execution order.

        Repeated polls of one agent at one place are folded into one row.  Only
        the ``last`` rows are printed; the first line says how many were cut.
        """
        rows = fold_spins(self.events)
        lines = [f"... {len(rows) - last} earlier rows"] if len(rows) > last else []
        return "\n".join(lines + _columns(rows[-last:], ranks))


def fold_spins(events: Sequence[Event]) -> list[tuple[Event, int]]:
    """Fold runs of the same operation by the same agent; return (event, count)."""
    folded: list[tuple[Event, int]] = []
    latest: dict[str, int] = {}
    for event in events:
        index = latest.get(event.agent)
        if index is not None and folded[index][0].text() == event.text():
            folded[index] = (folded[index][0], folded[index][1] + 1)
            continue
        latest[event.agent] = len(folded)
        folded.append((event, 1))
    return folded


def _columns(rows: Sequence[tuple[Event, int]], ranks: int) -> list[str]:
    """Lay rows out in one column per rank."""
    cells = [(event.step, event.rank, event.text() + (f" (x{count})" if count > 1 else "")) for event, count in rows]
    widths = [
        max([len(f"rank {rank}")] + [len(text) for _, owner, text in cells if owner == rank]) for rank in range(ranks)
    ]
    header = "  step | " + " | ".join(f"rank {rank}".ljust(width) for rank, width in enumerate(widths))
    lines = [header.rstrip(), "-" * len(header)]
    for step, owner, text in cells:
        columns = [(text if rank == owner else "").ljust(width) for rank, width in enumerate(widths)]
        lines.append(f"{step:6d} | " + " | ".join(columns).rstrip())
    return lines
