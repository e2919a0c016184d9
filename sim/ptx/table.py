"""The instruction table: one entry per instruction, with the section of the PTX ISA that specifies it."""

from __future__ import annotations

from . import approximate, bits, comparison, conversion, extremes, floating, integer, logic, movement
from .form import (
    CARRY,
    VIEWS,
    Entry,
    Form,
    UnknownInstructionError,
    ValueOperation,
    register_storage,
    split_operands,
    storage_of,
)
from .machine_entries import MACHINE_ENTRIES
from .module import Instruction, Kernel

__all__ = [
    "CARRY",
    "ENTRIES",
    "Entry",
    "UnknownInstructionError",
    "ValueOperation",
    "find_entry",
    "register_storage",
    "resolve_value",
    "split_operands",
    "storage_of",
]

_RULES = {
    **integer.RULES,
    **logic.RULES,
    **bits.RULES,
    **comparison.RULES,
    **movement.RULES,
    **conversion.RULES,
    **floating.RULES,
    **extremes.RULES,
    **approximate.RULES,
}

ENTRIES: tuple[Entry, ...] = (*_RULES, *MACHINE_ENTRIES)
"""Every instruction of the table."""

_BY_OPCODE: dict[str, tuple[Entry, ...]] = {
    # Entries that ask for a modifier come first, so that an entry without such a mark means "none of them".
    opcode: tuple(sorted((entry for entry in ENTRIES if entry.opcode == opcode), key=lambda entry: not entry.marks))
    for opcode in {entry.opcode for entry in ENTRIES}
}


def find_entry(instruction: Instruction, kernel: str = "") -> Entry:
    """Entry of an instruction.

    Raises:
        UnknownInstructionError: The table has no such instruction; the error names it, its line and the kernel.
    """
    kinds = [part for part in instruction.modifiers if part in VIEWS]
    for entry in _BY_OPCODE.get(instruction.opcode, ()):
        marked = not entry.marks or any(mark in instruction.modifiers for mark in entry.marks)
        if marked and (not entry.types or (kinds and kinds[-1] in entry.types)):
            return entry
    raise UnknownInstructionError(
        f"instruction of line {instruction.line}" + (f" of kernel {kernel}" if kernel else ""),
        value=instruction.name, limit="it is not in the instruction table", remedy="add it to the table",
    )  # fmt: skip


def resolve_value(instruction: Instruction, kernel: Kernel) -> ValueOperation:
    """What an instruction of kind ``value`` computes.

    Raises:
        UnknownInstructionError: The table has no such instruction, or not in this form.
    """
    entry = find_entry(instruction, kernel.name)
    form = Form(instruction, kernel, entry)
    rule = _RULES.get(entry)
    if rule is None:
        return form.reject(f"it is of kind {entry.kind}")
    return rule(form)
