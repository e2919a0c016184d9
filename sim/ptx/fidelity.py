"""The fidelity summary: which instructions ran, and how exactly the PTX machine performs each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .floats import ROUNDINGS
from .form import VIEWS, Entry
from .module import Instruction, Kernel, Register
from .table import find_entry


@dataclass(frozen=True)
class Fidelity:
    """Which instructions a kernel has, or an execution ran.

    Attributes:
        runs: How often each entry of the table occurs or ran, most frequent first.
        contractions: PTX lines of sums that ptxas may fuse with the product that they add, which rounds otherwise.
    """

    runs: tuple[tuple[Entry, int], ...]
    contractions: tuple[int, ...] = ()

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
        if self.contractions:
            rows.append(f"sums that ptxas may fuse with a product: PTX lines {', '.join(map(str, self.contractions))}")
        return "\n".join([*rows, f"inexact: {inexact}" if inexact else "no inexact instruction"])


def _remark(entry: Entry) -> str:
    return f"{entry.exactness}; {entry.note}" if entry.note else entry.exactness


def summarise_runs(runs: Mapping[Entry, int], kernel: Kernel | None = None) -> Fidelity:
    """Fidelity of an execution.

    Args:
        runs: ``Report.instructions`` of the executor.
        kernel: What was executed, to name sums that may be fused; None leaves them out.
    """
    ordered = sorted(runs.items(), key=lambda item: (-item[1], item[0].title))
    return Fidelity(tuple(ordered), find_contractions(kernel) if kernel else ())


def summarise_kernel(kernel: Kernel) -> Fidelity:
    """Fidelity of a kernel's text, whether or not its instructions ever run.

    Raises:
        UnknownInstructionError: An instruction is not in the table.
    """
    runs: dict[Entry, int] = {}
    for instruction in kernel.body:
        entry = find_entry(instruction, kernel.name)
        runs[entry] = runs.get(entry, 0) + 1
    return summarise_runs(runs, kernel)


def find_contractions(kernel: Kernel) -> tuple[int, ...]:
    """PTX lines of sums without a rounding modifier of a product without one (PTX ISA, "Floating Point: add")."""
    plain = [instruction for instruction in kernel.body if _is_plain(instruction)]
    products = {one.operands[0] for one in plain if one.opcode == "mul" and isinstance(one.operands[0], Register)}
    return tuple(one.line for one in plain if one.opcode in ("add", "sub") and products.intersection(one.operands[1:]))


def _is_plain(instruction: Instruction) -> bool:
    """Whether it computes floating-point values and names no rounding mode."""
    words = instruction.modifiers
    return not set(words) & set(ROUNDINGS) and any(word.startswith(("f", "bf")) for word in words if word in VIEWS)
