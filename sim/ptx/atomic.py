"""What an atomic operation writes (PTX ISA, "Parallel Synchronization and Communication Instructions: atom, red")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .access import resolve_access
from .floating import arithmetic
from .floats import each_part
from .form import VIEWS, Array, Entry, UnknownInstructionError, storage_of, stored
from .module import Instruction

_INTEGERS = ("u32", "s32", "u64", "s64")
_BITS = ("b32", "b64")
_FLOATS = ("f32", "f64")
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_TYPES: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f32", "f64", *_HALVES),
    "inc": ("u32",),
    "dec": ("u32",),
    "min": _INTEGERS,
    "max": _INTEGERS,
    "and": _BITS,
    "or": _BITS,
    "xor": _BITS,
    "exch": _BITS,
    "cas": ("b16", *_BITS),
}


@dataclass(frozen=True)
class UpdateOperation:
    """What an atomic operation writes, as a function of what it read.

    Attributes:
        entry: The entry of the table.
        storage: Storage of an element in memory and of the operands.
        operands: Operands beside the address.
        evaluate: Element-wise new value of the old one and the operands, all in ``storage``.
    """

    entry: Entry
    storage: str
    operands: int
    evaluate: Callable[..., Array]


def resolve_update(instruction: Instruction, space: str = "global", kernel: str = "") -> UpdateOperation:
    """What ``atom`` or ``red`` writes.

    Args:
        instruction: The instruction.
        space: ``global`` or ``shared``, once a generic address has been resolved: additions of f32 flush subnormals in
            global memory and keep them in shared memory.
        kernel: Name of the kernel, for errors.

    Raises:
        UnknownInstructionError: The table has no such operation on this type.
    """
    form = resolve_access(instruction, kernel)
    kind = form.element
    if kind not in _TYPES.get(form.operation, ()):
        raise UnknownInstructionError(
            f"instruction of line {instruction.line}" + (f" of kernel {kernel}" if kernel else ""),
            value=instruction.name, limit=f"the table has no .{form.operation} of .{kind}",
        )  # fmt: skip
    count = 2 if form.operation == "cas" else 1
    if kind in (*_FLOATS, *_HALVES):
        return UpdateOperation(form.entry, storage_of(kind), count, _add_floats(kind, space))
    function, view = _INTEGER_FUNCTIONS[form.operation], VIEWS[kind]

    def evaluate(*values: Array) -> Array:
        return stored(function(*(value.view(view) for value in values)))

    return UpdateOperation(form.entry, storage_of(kind), count, evaluate)


def _add_floats(kind: str, space: str) -> Callable[..., Array]:
    """Addition, rounded to nearest even; halves keep subnormals (``.noftz``)."""
    add = arithmetic("add", kind.removesuffix("x2"), ftz=kind == "f32" and space == "global")
    return each_part(add, kind) if kind.endswith("x2") else add


_INTEGER_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "inc": lambda old, limit: np.where(old >= limit, 0, old + old.dtype.type(1)).astype(old.dtype),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda _old, new: new,
    "cas": lambda old, expected, new: np.asarray(np.where(old == expected, new, old)),
}
