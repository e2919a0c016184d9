"""Asynchronous instructions in generated code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .access import resolve_access
from .form import UnknownInstructionError
from .module import Instruction, Kernel, Operand, Register


@dataclass(frozen=True)
class AsyncInstruction:
    """An asynchronous instruction.

    Attributes:
        targets: Destinations.
        sources: Sources and the NumPy type in which each is read.
        perform: ``perform(cta, group, guard, targets, sources)``; an address is a pair of an array or None, and an
            offset.
    """

    targets: tuple[Register | None, ...]
    sources: tuple[tuple[Operand, str], ...]
    perform: Callable[..., None]

    def __call__(self, *arguments: Any) -> None:
        """Perform it for the threads of a group that a guard lets through."""
        self.perform(*arguments)


def make_async(instruction: Instruction, kernel: Kernel) -> AsyncInstruction | None:
    """Return what performs an instruction, or None for one without effect.

    Raises:
        UnknownInstructionError: It is not known.
    """
    if instruction.opcode == "cp" and resolve_access(instruction, kernel.name).kind == "none":
        return None
    raise UnknownInstructionError(
        f"instruction of line {instruction.line} of kernel {kernel.name}",
        value=instruction.name, limit="the executor does not know it",
    )  # fmt: skip
