"""What a memory instruction touches: state space, order, scope, element type and vector length.

Qualifiers come in any order: compilers write both ``ld.global.sys.acquire.b64``
and ``ld.acquire.sys.global.b64``.  See "Data Movement and Conversion
Instructions" and "Memory Consistency Model" of the PTX ISA.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from .form import VIEWS, Entry, UnknownInstructionError
from .module import Instruction
from .observation import Order, Scope
from .table import find_entry

Space: TypeAlias = Literal["generic", "global", "shared", "cluster", "local", "const", "param"]
"""State space; ``shared`` is ``.shared`` and ``.shared::cta``, ``cluster`` is ``.shared::cluster``."""

AccessKind: TypeAlias = Literal["read", "write", "update", "copy", "none"]

_SPACES: dict[str, Space] = {
    "global": "global", "shared": "shared", "shared::cta": "shared", "shared::cluster": "cluster", "local": "local",
    "const": "const", "param": "param", "param::entry": "param", "param::func": "param",
}  # fmt: skip
_SCOPES: tuple[Scope, ...] = ("cta", "cluster", "gpu", "sys")
_HINTS = ("ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "unified", "level", "L1", "L2")
_OPERATIONS = ("add", "inc", "dec", "min", "max", "and", "or", "xor", "exch", "cas")
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_KINDS: dict[str, AccessKind] = {"ld": "read", "ldu": "read", "st": "write", "atom": "update", "red": "update"}
_TRANSPARENT = ("prefetch", "prefetchu", "applypriority", "discard")
_COPY_WORDS = ("async", "bulk", "prefetch", "bulk_group", "mbarrier::complete_tx::bytes")


@dataclass(frozen=True)
class AccessForm:
    """What a memory instruction touches.

    Attributes:
        entry: The entry of the table.
        kind: What it does; ``copy`` is an asynchronous copy, ``none`` has no effect on values.
        space: State space; of the destination of a copy.
        source_space: State space of the source of a copy, ``space`` otherwise.
        order: Memory order, ``weak`` for plain accesses.
        scope: Scope of an access that is not weak, else None.
        element: Type of an element: ``b32``; ``b8`` for copies, whose size is an operand.
        vector: Elements per thread.
        operation: Operation of an update: ``add``; an empty string otherwise.
    """

    entry: Entry
    kind: AccessKind
    space: Space
    source_space: Space
    order: Order
    scope: Scope | None
    element: str
    vector: int
    operation: str = ""

    @cached_property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return np.dtype(VIEWS[self.element]).itemsize

    @cached_property
    def width(self) -> int:
        """Bytes that each thread touches."""
        return self.vector * self.element_bytes


def resolve_access(instruction: Instruction, kernel: str = "") -> AccessForm:
    """What ``ld``, ``st``, ``atom``, ``red``, ``ldmatrix``, ``stmatrix``, ``cp.async`` or a cache hint touches.

    Raises:
        UnknownInstructionError: The table has no such instruction, or not in this form.
    """
    entry = find_entry(instruction, kernel)
    words = [word for word in instruction.modifiers if word.split("::")[0] not in _HINTS]
    if entry.opcode in ("ldmatrix", "stmatrix"):
        return _matrix_form(entry, words, instruction, kernel)
    if entry.opcode in _TRANSPARENT or (entry.opcode == "cp" and "prefetch" in words):
        space: Space = next((_SPACES[word] for word in words if word in _SPACES), "generic")
        return AccessForm(entry, "none", space, space, "weak", None, "b8", 1)
    if entry.opcode == "cp":
        return _copy_form(entry, words, instruction, kernel)
    if entry.opcode not in _KINDS:
        raise _unknown(instruction, kernel, "it does not access memory")
    return _plain_form(entry, words, instruction, kernel)


def _plain_form(entry: Entry, words: list[str], instruction: Instruction, kernel: str) -> AccessForm:
    """The form of ld, st, atom and red."""
    kind = _KINDS[entry.opcode]
    spaces = [word for word in words if word in _SPACES]
    scopes: list[str] = [word for word in words if word in _SCOPES]
    orders = [
        word for word in words if word in ("weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "mmio")
    ]
    elements = [word for word in words if word in VIEWS]
    vectors = [word for word in words if word in _VECTORS]
    operations = [word for word in words if kind == "update" and word in _OPERATIONS]
    rest = set(words).difference(spaces, scopes, orders, elements, vectors, operations)
    rest.discard("noftz" if kind == "update" else "")
    if rest or len(elements) != 1 or (kind == "update") != (len(operations) == 1):
        why = f"the table has no .{' .'.join(sorted(rest))} here" if rest else "it needs one type"
        raise _unknown(instruction, kernel, why)
    order, scope = _order_and_scope(orders, scopes, kind)
    space: Space = _SPACES[spaces[0]] if spaces else "generic"
    return AccessForm(
        entry, kind, space, space, order, scope, elements[0],
        _VECTORS[vectors[0]] if vectors else 1, operations[0] if operations else "",
    )  # fmt: skip


def _order_and_scope(orders: list[str], scopes: list[str], kind: AccessKind) -> tuple[Order, Scope | None]:
    """Order and scope; ``atom`` and ``red`` are relaxed at scope gpu unless they say otherwise."""
    order = "relaxed" if "mmio" in orders else orders[0] if orders else "relaxed" if kind == "update" else "weak"
    if order == "weak":
        return "weak", None
    if order == "volatile":
        return "volatile", "sys"
    return order, (scopes[0] if scopes else "gpu")  # type: ignore[return-value]  # members of the literals, from above


def _matrix_form(entry: Entry, words: list[str], instruction: Instruction, kernel: str) -> AccessForm:
    """The form of ldmatrix and stmatrix: a row of 16 bytes per lane that gives an address."""
    counts = {"x1": 1, "x2": 2, "x4": 4}
    known = {"sync", "aligned", "m8n8", "trans", "b16", *counts, "shared", "shared::cta"}
    if not set(words) <= known or "m8n8" not in words or "b16" not in words:
        raise _unknown(instruction, kernel, "only .m8n8 of .b16 is in the table")
    space: Space = "shared" if {"shared", "shared::cta"} & set(words) else "generic"
    return AccessForm(entry, "read" if entry.opcode == "ldmatrix" else "write", space, space, "weak", None, "b16", 8)


def _copy_form(entry: Entry, words: list[str], instruction: Instruction, kernel: str) -> AccessForm:
    """The form of cp.async and cp.async.bulk with two memory operands."""
    spaces = [_SPACES[word] for word in words if word in _SPACES]
    rest = [word for word in words if word not in _SPACES and word not in _COPY_WORDS]
    if rest or len(spaces) != 2:
        raise _unknown(
            instruction, kernel, f"the table has no .{' .'.join(rest)} here" if rest else "it copies nothing"
        )
    return AccessForm(entry, "copy", spaces[0], spaces[1], "weak", None, "b8", 1)


def _unknown(instruction: Instruction, kernel: str, why: str) -> UnknownInstructionError:
    return UnknownInstructionError(
        f"instruction of line {instruction.line}" + (f" of kernel {kernel}" if kernel else ""),
        value=instruction.name, limit=why, remedy="add the form to the instruction table",
    )  # fmt: skip
