"""Kernels as generated NumPy code: one Python function per run of instructions, made when it is first executed.

A run ends before what the executor has to decide (branches, barriers) and
before a place that a branch goes to.  Code for whole warps writes registers
with ``out=``.  Code for diverged threads stops at warp instructions as well,
where threads wait for each other, and keeps the registers of the threads that
are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .executor_control import find_decision
from .executor_emission import Emission
from .executor_liveness import Liveness, list_read, list_written
from .executor_registers import RegisterFile, Slot
from .executor_translation import emit
from .module import Address, Instruction, Kernel, Symbol
from .program import find_program
from .table import Entry, find_entry

_NAMESPACE = {
    "bitwise_and": np.bitwise_and,
    "copyto": np.copyto,
    "greater": np.greater,
    "invert": np.invert,
}


@dataclass(frozen=True)
class Code:
    """A run of instructions.

    Attributes:
        key: Number of it in its kernel.
        start: First instruction.
        stop: Place after the last one.
        slots: What ``run`` finds in its first argument.
        run: Takes slots, the CTA and the group.
        leader: The warp instruction that it starts with, if code for diverged threads does.
    """

    key: int
    start: int
    stop: int
    slots: tuple[Slot, ...]
    run: Callable[[list[Any], Any, Any], None]
    leader: Instruction | None


class CompiledKernel:
    """A kernel, the code made of it so far, and register files that are not in use.

    Args:
        kernel: The kernel.
        fine: Whether code stops before each memory access, so that a schedule can interleave them.

    Attributes:
        entries: Entry of each instruction.
        distinct_entries: Each of them once.
        entry_numbers: Place among those of the entry of each instruction.
        decisions: What the executor does itself at each place, or None.
        touched: Registers that each instruction reads or writes.
        symbols: Symbols that the instructions name.
        exposes_parameters: Whether the address of a parameter is taken.
        undefined: Registers that may be read before they are written.

    Raises:
        UnknownInstructionError: An instruction is not in the table.
    """

    def __init__(self, kernel: Kernel, fine: bool = False) -> None:
        self.kernel = kernel
        self.fine = fine
        self.program = find_program(kernel)
        self.liveness = Liveness(self.program)
        self.entries: tuple[Entry, ...] = tuple(find_entry(instruction, kernel.name) for instruction in kernel.body)
        numbers: dict[Entry, int] = {}
        self.entry_numbers = np.array([numbers.setdefault(entry, len(numbers)) for entry in self.entries], np.int64)
        self.distinct_entries = tuple(numbers)
        self.decisions = tuple(find_decision(instruction) for instruction in kernel.body)
        self.touched = tuple(
            frozenset((*list_written(instruction), *list_read(instruction))) for instruction in kernel.body
        )
        self.symbols = frozenset(_list_symbols(kernel.body))
        # A parameter that is only loaded by name needs no address.
        others = (instruction for instruction in kernel.body if instruction.opcode != "ld")
        names = {parameter.name for parameter in kernel.parameters}
        self.exposes_parameters = not names.isdisjoint(_list_symbols(others))
        self._definitions = self._count_definitions()
        self._codes: dict[tuple[int, bool, bool], Code] = {}
        self._files: dict[int, list[RegisterFile]] = {}
        live = self.liveness.live_before(0)
        self.undefined = tuple(name for name, bit in self.liveness.number.items() if live >> bit & 1)

    def code(self, place: int, diverged: bool, single: bool = False) -> Code:
        """Return the code from a place on, for whole warps or for diverged threads; ``single``: one instruction."""
        found = self._codes.get((place, diverged, single))
        if found is None:
            found = self._codes[place, diverged, single] = self._compile(place, diverged, single)
        return found

    def ends(self, place: int) -> bool:
        """Whether the executor itself goes on at a place."""
        return place == len(self.decisions) or self.decisions[place] is not None

    def take_file(self, width: int) -> RegisterFile:
        """Return a register file for ``width`` threads, whose registers that may be read unwritten are zero."""
        files = self._files.setdefault(width, [])
        file = files.pop() if files else RegisterFile(self.kernel, width)
        for name in self.undefined:
            file.array(name).fill(0)
        return file

    def give_file(self, file: RegisterFile) -> None:
        """Take a register file back."""
        self._files[file.width].append(file)

    def _compile(self, start: int, diverged: bool, single: bool) -> Code:
        stop = self._find_stop(start, diverged)
        if single:
            stop = min(stop, start + 1)
        private = self._find_private(start, stop) if diverged else frozenset()
        emission = Emission(self.kernel, diverged, private, self._is_live)
        for place in range(start, stop):
            emit(emission, self.kernel.body[place], self.entries[place])
        text = emission.text()
        namespace = {**_NAMESPACE, **emission.objects}
        exec(compile(text, f"<{self.kernel.name}:{start}>", "exec"), namespace)
        leads = diverged and start < stop and self.entries[start].kind == "warp"
        return Code(
            len(self._codes), start, stop, tuple(emission.slots), namespace["run"],
            self.kernel.body[start] if leads else None,
        )  # fmt: skip

    def _is_live(self, name: str, place: int) -> bool:
        return bool(self.liveness.live_before(place) >> self.liveness.number[name] & 1)

    def _find_stop(self, start: int, diverged: bool) -> int:
        body, starts = self.kernel.body, self.program.block_at
        place = start
        while place < len(body) and self.decisions[place] is None:
            place += 1
            if place in starts or (place < len(body) and self._pauses(place, diverged)):
                break
        return place

    def _pauses(self, place: int, diverged: bool) -> bool:
        kind = self.entries[place].kind
        return (diverged and kind == "warp") or (self.fine and kind in ("memory", "atomic", "async", "fence"))

    def _find_private(self, start: int, stop: int) -> frozenset[str]:
        """Registers that only this code writes and nothing after it reads: no other thread needs their values."""
        written: dict[str, int] = {}
        for place in range(start, stop):
            for name in self._definitions[1][place]:
                written[name] = written.get(name, 0) + 1
        live = self.liveness.live_before(stop) | self.liveness.live_before(start)
        number, counts = self.liveness.number, self._definitions[0]
        return frozenset(
            name for name, count in written.items() if count == counts[name] and not live >> number[name] & 1
        )

    def _count_definitions(self) -> tuple[dict[str, int], list[list[str]]]:
        each = [list_written(instruction) for instruction in self.kernel.body]
        counts: dict[str, int] = {}
        for names in each:
            for name in names:
                counts[name] = counts.get(name, 0) + 1
        return counts, each


def _list_symbols(instructions: Iterable[Instruction]) -> Iterator[str]:
    for instruction in instructions:
        for operand in instruction.operands:
            symbol = operand.base if isinstance(operand, Address) else operand
            if isinstance(symbol, Symbol):
                yield symbol.name
