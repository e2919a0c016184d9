"""What compiled kernels cost, as a table, and which cost too much."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.table import Column, Table

from .impl.kernel_binary import SHARED_LIMIT, KernelBinary

SPILL_LIMIT = 512
"""Most bytes of registers that a thread may spill."""


def tabulate_kernels(binaries: Iterable[KernelBinary]) -> Table:
    """Return a table with one row per kernel."""
    table = Table(
        Column("kernel", overflow="fold"), "target", "registers", "shared bytes", "spilled bytes", "PTX bytes"
    )
    for binary in binaries:
        costs = (binary.registers, binary.shared_bytes, binary.spilled_bytes, len(binary.ptx))
        table.add_row(binary.name, binary.architecture, *map(str, costs))
    return table


def find_excesses(binaries: Iterable[KernelBinary]) -> Iterator[str]:
    """Yield one line for every kernel that spills more than ``SPILL_LIMIT`` or does not fit every target.

    Some spilling is the price of occupancy: two CTAs of 512 threads, or one of 1024, on one
    multiprocessor leave 64 registers to a thread.  What does not fit belongs to
    the rare paths (ties, rows that need more passes, sorting), where it was
    measured not to matter.  The limit keeps it from growing unnoticed.
    """
    for binary in binaries:
        name = f"{binary.name} for {binary.architecture}"
        if binary.shared_bytes > SHARED_LIMIT:
            yield f"{name} needs {binary.shared_bytes} bytes of shared memory; GB10 has {SHARED_LIMIT}"
        if binary.spilled_bytes > SPILL_LIMIT:
            yield f"{name} spills {binary.spilled_bytes} bytes per thread; at most {SPILL_LIMIT} are accepted"
