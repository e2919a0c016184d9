"""The fidelity summary: which instructions ran, and how exactly the PTX machine performs each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .form import Entry
from .module import Kernel
from .table import find_entry


@dataclass(frozen=True)
class Fidelity:
    """Which instructions a kernel has, or an execution ran.

    Attributes:
        runs: How often each entry of the table occurs or ran, most frequent first.
    """

    runs: tuple[tuple[Entry, int], ...]

    @property
    def inexact(self) -> tuple[Entry, ...]:
        """Entries whose results may differ from the hardware's."""
        return tuple(entry for entry, _ in self.runs if entry.exactness != "exact")

    def describe(self) -> str:
        """One line per entry, and a last line that says whether all are exact."""
        rows = [
            f"{count:>12} {entry.title:<16} {entry.section:<12} {_remark(entry)}".rstrip() for entry, count in self.runs
        ]
        inexact = ", ".join(entry.title for entry in self.inexact)
        return "\n".join([*rows, f"inexact: {inexact}" if inexact else "no inexact instruction"])


def _remark(entry: Entry) -> str:
    return f"{entry.exactness}; {entry.note}" if entry.note else entry.exactness


def summarise_runs(runs: Mapping[Entry, int]) -> Fidelity:
    """Fidelity of an execution: ``Report.instructions`` of the executor."""
    return Fidelity(tuple(sorted(runs.items(), key=lambda item: (-item[1], item[0].title))))


def summarise_kernel(kernel: Kernel) -> Fidelity:
    """Fidelity of a kernel's text, whether or not its instructions ever run.

    Raises:
        UnknownInstructionError: An instruction is not in the table.
    """
    runs: dict[Entry, int] = {}
    for instruction in kernel.body:
        entry = find_entry(instruction, kernel.name)
        runs[entry] = runs.get(entry, 0) + 1
    return summarise_runs(runs)
