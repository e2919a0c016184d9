"""Lines of generated code, and the arrays and objects that they use.

The code of a run is ``def run(v, c, g)``: the slots, the CTA, and the group of
threads.  In it ``k`` is the mask of an instruction's guard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tiebreak.errors import InputError

from .executor_liveness import list_written
from .executor_registers import Slot, read_immediate
from .form import register_storage
from .module import Address, Immediate, Instruction, Kernel, Operand, Register, Symbol

CLOCKS = ("%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")


class Emission:
    """Code under construction.

    Args:
        kernel: The kernel.
        diverged: Whether some threads of the range are elsewhere; their registers are then kept.
        private: Registers that no thread elsewhere needs.
        live: Whether anything may read a register from a place on.

    Attributes:
        slots: Arrays that the code uses.
        objects: Functions and objects that it uses, by name.
    """

    def __init__(
        self, kernel: Kernel, diverged: bool, private: frozenset[str], live: Callable[[str, int], bool]
    ) -> None:
        self.kernel = kernel
        self.diverged = diverged
        self.live = live
        self.slots: list[Slot] = []
        self.objects: dict[str, Any] = {}
        self._private = private
        self._lines: list[str] = []
        self._numbers: dict[Slot, int] = {}
        self._names: dict[int, str] = {}

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append(text)

    def text(self) -> str:
        """Return the function."""
        head = ["def run(v, c, g):", *([" m = g.mask"] if self.diverged else [])]
        return "\n".join([*head, *(f" {line}" for line in self._lines), " return", ""])

    def bind(self, value: Any) -> str:
        """Return the name of an object in the code."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"f{len(self.objects)}"
            self.objects[name] = value
        return name

    def slot(self, name: str, view: str, bits: int = 0) -> str:
        """Return the expression of an array."""
        slot = Slot(name, view, bits)
        number = self._numbers.get(slot)
        if number is None:
            number = self._numbers[slot] = len(self.slots)
            self.slots.append(slot)
        return f"v[{number}]"

    def register(self, register: Register, view: str = "") -> str:
        """Return the expression of a register to write, or to read in its own width."""
        return self.slot(register.name, view or register_storage(register.name, self.kernel))

    def source(self, operand: Operand, view: str) -> str:
        """Return the expression of a source operand that is read as a NumPy type.

        Raises:
            InputError: The operand is none that has a value.
        """
        if isinstance(operand, Immediate):
            width = 8 * np.dtype(view).itemsize
            bits = read_immediate(operand, view)
            return self.slot("", view, bits % (1 << width) if view != "bool" else bits)
        if isinstance(operand, Register):
            return self._read(operand.name, view)
        symbol, offset = (operand.base, operand.offset) if isinstance(operand, Address) else (operand, 0)
        if isinstance(symbol, Symbol):
            return f"c.address_array({symbol.name!r}, {offset}, {view!r})"
        raise InputError(f"operand of kernel {self.kernel.name}", value=operand, limit="a register or a constant")

    def guard(self, instruction: Instruction) -> str:
        """Add the line that finds which threads perform an instruction; returns ``k``, or an empty string for all."""
        if instruction.guard is None:
            return ""
        predicate = self.slot(instruction.guard.register, "bool")
        if self.diverged:
            self.line(f"k = {'greater' if instruction.guard.negated else 'bitwise_and'}(m, {predicate})")
        elif instruction.guard.negated:
            self.line(f"k = invert({predicate})")
        else:
            # The guard decides, also of what it writes to its own register.
            own = instruction.guard.register in list_written(instruction)
            self.line(f"k = {predicate}.copy()" if own else f"k = {predicate}")
        return "k"

    def keep(self, instruction: Instruction, destination: Register) -> str:
        """Return the mask that a write of a register needs, or an empty string if all threads may write."""
        if instruction.guard is not None:
            return "k"
        return "m" if self.diverged and destination.name not in self._private else ""

    def _read(self, name: str, view: str) -> str:
        negated, bare = name.startswith("!"), name.removeprefix("!")
        storage = register_storage(bare, self.kernel)
        narrow = np.dtype(storage).itemsize != np.dtype(view).itemsize
        expression = self.slot(bare, storage if narrow else view)
        if bare in CLOCKS:
            self.line(f"{expression}[...] = c.read_clock({bare!r})")
        if negated:
            return f"invert({expression})"
        return f"{expression}.astype({view!r})" if narrow else expression
