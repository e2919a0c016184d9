"""PTX text as typed values: modules, kernels, instructions and operands.

Nothing here knows what an instruction means; ``parser`` makes these values and
``table`` gives them meaning.  Terms are those of the PTX ISA, chapters 4
(syntax), 5 (state spaces and types) and 6 (operands).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Location:
    """A source position from ``.loc`` (PTX ISA, "Debugging Directives: .loc").

    Attributes:
        file: Path as the compiler wrote it, or its last part if that is all there is.
        line: Line, from 1; 0 where the compiler gives none.
        column: Column, from 1; 0 where the compiler gives none.
        inlined_at: Position of the call that this position was inlined at, or None.
    """

    file: str
    line: int
    column: int = 0
    inlined_at: Location | None = None


@dataclass(frozen=True)
class Register:
    """A declared or special register: ``%r1``, ``%p3``, ``%tid.x``."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A constant.

    Attributes:
        text: As written, for messages.
        bits: Value: an integer, or the bits of a float constant (``0f``: 32 bits, ``0d`` and decimal: 64 bits).
        floating: 32 or 64 for a float constant, 0 for an integer.
    """

    text: str
    bits: int
    floating: int = 0


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, a parameter, a label or a function."""

    name: str


@dataclass(frozen=True)
class Address:
    """A memory operand ``[base + offset]``; ``offset`` in bytes.  ``mov`` takes one without brackets too."""

    base: Register | Symbol | Immediate
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """A vector operand ``{a, b, c, d}`` of two or more elements; None stands for the sink ``_``."""

    elements: tuple[Register | Immediate | Symbol | None, ...]


@dataclass(frozen=True)
class Coordinates:
    """A tensor operand ``[map, {x, y}]`` (PTX ISA, "Tensors")."""

    map: Address
    elements: Vector


@dataclass(frozen=True)
class Pair:
    """Two destinations ``d|p``; None stands for the sink ``_``."""

    first: Register | None
    second: Register | None


Operand: TypeAlias = Register | Immediate | Symbol | Address | Coordinates | Vector | Pair | None
"""An operand; None stands for the sink ``_``."""


@dataclass(frozen=True)
class Guard:
    """A guard ``@p`` or ``@!p`` (PTX ISA, "Predicated Execution")."""

    register: str
    negated: bool = False


@dataclass(frozen=True)
class Instruction:
    """One instruction of a kernel.

    Attributes:
        index: Place in ``Kernel.body``; the program counter.
        opcode: First part of the name: ``ld``.
        modifiers: Other parts, as written and in order: ``("global", "v4", "b32")``.
        operands: Operands, destinations first.  A negated predicate source ``!p`` is a ``Register`` named ``!%p1``.
        guard: Guard, or None.
        line: Line of the PTX text, from 1.
        location: Source position, or None.
    """

    index: int
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    location: Location | None = None

    @property
    def name(self) -> str:
        """Full name: ``ld.global.v4.b32``."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter.

    Attributes:
        name: Name.
        kind: Type without the dot: ``u64``, ``b8``.
        size: Size in bytes, of the whole array if it is one.
        alignment: Alignment in bytes.
        offset: Place in the parameter space, in bytes.
    """

    name: str
    kind: str
    size: int
    alignment: int
    offset: int


@dataclass(frozen=True)
class Variable:
    """A variable in a state space.

    Attributes:
        name: Name.
        space: ``shared``, ``global``, ``const`` or ``local``.
        kind: Element type without the dot.
        size: Size in bytes; 0 for dynamic shared memory (``.extern .shared .b8 x[]``).
        alignment: Alignment in bytes.
        initial: Initial bytes, or an empty string where there are none.
    """

    name: str
    space: str
    kind: str
    size: int
    alignment: int
    initial: bytes = b""


@dataclass(frozen=True)
class Kernel:
    """An entry function.

    Attributes:
        name: Name.
        parameters: Parameters, in order.
        registers: Type of every declared register by name: ``{"%r1": "b32", "%p1": "pred"}``.
        variables: Variables declared in the kernel.
        body: Instructions.
        labels: Place in ``body`` that each label stands before (may equal ``len(body)``).
        directives: Performance directives such as ``{"reqntid": (512, 1, 1), "reqnctapercluster": (2, 1, 1)}``.
        targets: Labels of each ``.branchtargets`` list by its name.
    """

    name: str
    parameters: tuple[Parameter, ...]
    registers: dict[str, str]
    variables: tuple[Variable, ...]
    body: tuple[Instruction, ...]
    labels: dict[str, int]
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """A PTX module.

    Attributes:
        version: PTX ISA version: ``"9.4"``.
        target: Target: ``"sm_100a"``.
        kernels: Entry functions by name.
        variables: Module-level variables.
        text: The PTX text.
    """

    version: str
    target: str
    kernels: dict[str, Kernel]
    variables: tuple[Variable, ...]
    text: str
