"""The form of an instruction: its entry of the table, its types, its operands and what it computes.

The modules of value semantics (``integer``, ``logic``, ``bits``, ``comparison``,
``movement``, ``conversion``, ``floating``, ``extremes``, ``approximate``) map
each ``Entry`` to a rule that reads a ``Form`` and returns a ``ValueOperation``.
Section numbers are those of the PTX ISA 9.0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tiebreak.errors import InputError

from .module import Address, Immediate, Instruction, Kernel, Pair, Register, Symbol, Vector

Array: TypeAlias = npt.NDArray[Any]
"""One value per thread, in any shape."""

Kind: TypeAlias = Literal["value", "warp", "address", "memory", "atomic", "barrier", "fence", "control", "async"]

VIEWS = {
    **{f"{letter}{width}": f"{name}{width}" for letter, name in (("u", "uint"), ("b", "uint"), ("s", "int"))
       for width in (8, 16, 32, 64)},
    **{f"f{width}": f"float{width}" for width in (16, 32, 64)},
    **dict.fromkeys(("f16x2", "bf16x2", "u16x2", "s16x2", "tf32"), "uint32"),
    "bf16": "uint16",
    "f32x2": "uint64",
    "pred": "bool",
    **dict.fromkeys(("e4m3x2", "e5m2x2"), "uint16"),
}  # fmt: skip
"""NumPy type in which a value of each PTX type is read; packed and 16-bit brain floats are read as their bits."""

SPECIAL_REGISTERS = {
    **{f"%{name}.{axis}": "u32" for axis in "xyz" for name in (
        "tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")},
    **dict.fromkeys(
        ("%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%cluster_ctarank", "%cluster_nctarank", "%clock",
         "%clock_hi", "%globaltimer_lo", "%globaltimer_hi", "%lanemask_eq", "%lanemask_le", "%lanemask_lt",
         "%lanemask_ge", "%lanemask_gt", "%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size"), "u32"),
    **dict.fromkeys(("%clock64", "%globaltimer", "%gridid"), "u64"),
    "%is_explicit_cluster": "pred",
}  # fmt: skip
"""Type of each special register (PTX ISA, chapter 10, "Special Registers")."""

CARRY = Register("%cc")
"""The condition code register CC.CF, an implicit operand of add.cc, addc and their like; storage ``bool``."""


class UnknownInstructionError(InputError):
    """Raised when the table has no such instruction, or not in this form."""


@dataclass(frozen=True)
class Entry:
    """One instruction of the table.

    Attributes:
        opcode: First part of the instruction's name.
        title: Name of the section of the PTX ISA that specifies it.
        section: Number of that section in the PTX ISA 9.0.
        kind: What part of a machine performs it.
        types: Type modifiers of this entry, of which an instruction has one last; empty: any, or none.
        marks: Modifiers of which an instruction of this entry has one; empty: no requirement.
        exactness: ``exact`` when results are those of the hardware bit for bit, ``approximate`` when they may differ.
        note: What is approximate, or what the PTX ISA leaves open and how it is settled here.
    """

    opcode: str
    title: str
    section: str
    kind: Kind = "value"
    types: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    exactness: Literal["exact", "approximate"] = "exact"
    note: str = ""


@dataclass(frozen=True)
class ValueOperation:
    """What an instruction of kind ``value`` computes, thread by thread.

    Attributes:
        entry: The entry of the table.
        sources: NumPy type in which ``evaluate`` reads each source operand (see ``split_operands``).
        destinations: Storage of each destination operand.
        evaluate: Pure element-wise function of the sources, of one common shape (immediates may be NumPy scalars of
            the source's type beside arrays); returns the destination, or a tuple of them if there are more than one.
            The caller silences floating-point and integer warnings (``np.errstate(all="ignore")``).
        ufunc: The one ufunc that does the whole of it on arrays viewed as ``view``, or None.
        view: NumPy type of the operands of ``ufunc``, and of its result unless the destination is ``bool``.
    """

    entry: Entry
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    evaluate: Callable[..., Any]
    ufunc: np.ufunc | None = None
    view: str = ""


class Form:
    """An instruction while a rule reads its modifiers.

    Args:
        instruction: The instruction.
        kernel: The kernel, for the types of registers.
        entry: The entry of the table.
    """

    def __init__(self, instruction: Instruction, kernel: Kernel, entry: Entry) -> None:
        self.instruction = instruction
        self.kernel = kernel
        self.entry = entry
        self.destination_operands, self.source_operands = split_operands(instruction)
        self._left = list(instruction.modifiers)

    def take(self, *choices: str) -> str:
        """Read the one modifier of ``choices`` that is there; an empty string if none is."""
        for choice in choices:
            if choice in self._left:
                self._left.remove(choice)
                return choice
        return ""

    def require(self, *choices: str) -> str:
        """Read the one modifier of ``choices`` that is there.

        Raises:
            UnknownInstructionError: None is there.
        """
        return self.take(*choices) or self.reject(f"one of .{', .'.join(choices)} is needed")

    def take_types(self) -> tuple[str, ...]:
        """Read all type modifiers, in order."""
        found = tuple(part for part in self._left if part in VIEWS)
        self._left = [part for part in self._left if part not in VIEWS]
        return found

    def take_type(self) -> str:
        """Read the only type modifier.

        Raises:
            UnknownInstructionError: There is none, or more than one.
        """
        found = self.take_types()
        return found[0] if len(found) == 1 else self.reject("it needs one type")

    def reject(self, why: str) -> Any:
        """Raise the error that names the instruction, its line and the kernel."""
        raise UnknownInstructionError(
            f"instruction of line {self.instruction.line} of kernel {self.kernel.name}",
            value=self.instruction.name, limit=why, remedy="add the form to the instruction table",
        )  # fmt: skip

    def storage(self, operand: object) -> str:
        """Storage of a register operand; an empty string for an operand that has none of its own."""
        return register_storage(operand.name, self.kernel) if isinstance(operand, Register) else ""

    def static(self, place: int) -> int:
        """Value of source ``place``, which has to be an integer constant."""
        operand = self.source_operands[place] if place < len(self.source_operands) else None
        if isinstance(operand, Immediate) and not operand.floating:
            return operand.bits
        return int(self.reject(f"source {place} has to be an integer constant"))

    def build(
        self,
        evaluate: Callable[..., Any],
        sources: tuple[str, ...],
        destinations: tuple[str, ...],
        *,
        ufunc: np.ufunc | None = None,
        view: str = "",
        any_width: bool = False,
    ) -> ValueOperation:
        """Finish: every modifier is read, and operands are as many and as wide as they have to be.

        Raises:
            UnknownInstructionError: A modifier is left, or an operand is missing, superfluous or of another width.
        """
        if self._left:
            self.reject(f"the table has no .{' .'.join(self._left)} here")
        if len(sources) != len(self.source_operands) or len(destinations) != len(self.destination_operands):
            self.reject(f"it takes {len(destinations)} destinations and {len(sources)} sources")
        operands = (*self.destination_operands, *self.source_operands)
        for operand, wanted in zip(operands, (*destinations, *sources), strict=True):
            stored = self.storage(operand)
            if stored and not any_width and np.dtype(stored).itemsize != np.dtype(wanted).itemsize:
                self.reject(f"operand {operand} does not have the width of {wanted}")
        return ValueOperation(self.entry, sources, destinations, evaluate, ufunc, view)


def storage_of(kind: str) -> str:
    """Storage of a register of a PTX type: ``bool``, ``uint16``, ``uint32`` or ``uint64`` for most."""
    view = VIEWS[kind]
    return view if view == "bool" else f"uint{8 * np.dtype(view).itemsize}"


def register_storage(name: str, kernel: Kernel) -> str:
    """Storage of a declared or special register, whose name may have the mark of negation ``!`` before it.

    Raises:
        InputError: There is no such register.
    """
    bare = name.removeprefix("!")
    if bare == CARRY.name:
        return "bool"
    kind = kernel.registers.get(bare) or SPECIAL_REGISTERS.get(bare)
    if kind is None:
        raise InputError(f"register of kernel {kernel.name}", value=bare, limit="it is not declared")
    return storage_of(kind)


def split_operands(
    instruction: Instruction,
) -> tuple[tuple[Register | None, ...], tuple[Register | Immediate | Symbol | Address, ...]]:
    """Destinations and sources of an instruction of kind ``value`` or ``warp``, vectors and pairs taken apart.

    A sink ``_`` is a destination None.  The carry is the last operand where it is an implicit one.
    """
    first, *others = instruction.operands or (None,)
    destinations = [part for part in _parts(first) if part is None or isinstance(part, Register)]
    sources = [part for operand in others for part in _parts(operand) if part is not None]
    if "cc" in instruction.modifiers:
        destinations.append(CARRY)
    if instruction.opcode in ("addc", "subc", "madc"):
        sources.append(CARRY)
    return tuple(destinations), tuple(sources)  # type: ignore[arg-type]  # a pair is never a source


def _parts(operand: object) -> tuple[object, ...]:
    """Elements of a vector or of a pair; the operand itself otherwise."""
    if isinstance(operand, Vector):
        return operand.elements
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand,)


def stored(values: Array) -> Array:
    """Results as they are kept in registers: unsigned bits of the same width, or ``bool``."""
    if values.dtype == np.bool_:
        return values
    return values.view(f"uint{8 * values.dtype.itemsize}")
