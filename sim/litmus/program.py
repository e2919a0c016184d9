"""Litmus programs as values: threads with a placement, what they run, and the condition asked of the final state.

Locations are names, not bytes: accesses of one location overlap completely and those of two never.  Integers are 64
bits wide and signed.  Registers and locations that nothing sets hold 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tiebreak.errors import InputError

Order: TypeAlias = Literal["weak", "relaxed", "acquire", "release", "acq_rel", "sc"]
Scope: TypeAlias = Literal["cta", "cluster", "gpu", "sys"]
Proxy: TypeAlias = Literal["generic", "texture", "surface", "constant"]

SCOPES: tuple[Scope, ...] = ("cta", "cluster", "gpu", "sys")


@dataclass(frozen=True)
class Register:
    """A register of the thread that names it."""

    name: str


@dataclass(frozen=True)
class Address:
    """The address of a location."""

    location: str


Value: TypeAlias = int | Address
Operand: TypeAlias = Register | Address | int


@dataclass(frozen=True)
class Move:
    """Sets a register; no access of memory."""

    register: str
    value: Operand


@dataclass(frozen=True)
class Compute:
    """Sets a register to ``left operation right``."""

    register: str
    operation: str
    left: Operand
    right: Operand


@dataclass(frozen=True)
class Load:
    """A load.  ``scope`` counts only where ``order`` is not weak."""

    register: str
    address: Operand
    order: Order = "weak"
    scope: Scope = "sys"
    proxy: Proxy = "generic"


@dataclass(frozen=True)
class Store:
    """A store."""

    address: Operand
    value: Operand
    order: Order = "weak"
    scope: Scope = "sys"
    proxy: Proxy = "generic"


@dataclass(frozen=True)
class Update:
    """An atomic read-modify-write.

    Attributes:
        register: Where the value read goes, or None (``red``).
        address: What is updated.
        operation: add, sub, mul, and, or, xor, min, max, exch or cas.
        operands: One operand; for cas the expected and the new value.
        order: Order of both halves: acquire of the read, release of the write.
        scope: Scope of both halves.
        proxy: Proxy of both halves.
    """

    register: str | None
    address: Operand
    operation: str
    operands: tuple[Operand, ...]
    order: Order = "relaxed"
    scope: Scope = "gpu"
    proxy: Proxy = "generic"


@dataclass(frozen=True)
class Fence:
    """A fence: acquire, release, acq_rel or sc."""

    order: Order
    scope: Scope


@dataclass(frozen=True)
class ProxyFence:
    """A proxy fence; ``alias`` orders accesses through different virtual addresses of one location."""

    proxy: Proxy | Literal["alias"]


@dataclass(frozen=True)
class Barrier:
    """A barrier of the CTA.

    Attributes:
        key: What names the barrier: all parts must be equal.
        quorum: How many arrivals complete it; None: one by every thread of the CTA that names it.
        waits: False for ``bar.arrive``.
    """

    key: tuple[Operand, ...]
    quorum: Operand | None = None
    waits: bool = True


@dataclass(frozen=True)
class Branch:
    """Goes to a label if ``left comparison right``; always, if ``comparison`` is None."""

    label: str
    comparison: str | None = None
    left: Operand = 0
    right: Operand = 0


@dataclass(frozen=True)
class Label:
    """A place to go to."""

    name: str


Instruction: TypeAlias = Move | Compute | Load | Store | Update | Fence | ProxyFence | Barrier | Branch | Label


@dataclass(frozen=True)
class Placement:
    """Where a thread runs.  A CTA without a cluster is a cluster of its own."""

    cta: int = 0
    gpu: int = 0
    cluster: int | None = None

    def domain(self, scope: Scope) -> tuple[object, ...]:
        """What two threads have in common exactly if each is in the other's scope."""
        cluster = ("cta", self.cta) if self.cluster is None else ("cluster", self.cluster)
        whole = (self.gpu, cluster, self.cta)
        return whole[: {"sys": 0, "gpu": 1, "cluster": 2, "cta": 3}[scope]]


@dataclass(frozen=True)
class Thread:
    """A thread: its name, placement, instructions, and the registers that do not start as 0."""

    name: str
    instructions: tuple[Instruction, ...]
    placement: Placement = Placement()
    registers: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Alias:
    """A further name of a location: another virtual address (``generic``) or the same one through another proxy."""

    target: str
    proxy: Proxy


@dataclass(frozen=True)
class Compare:
    """``left comparison right``; a tuple names a register of a thread, a string a location."""

    comparison: str
    left: tuple[str, str] | str | Value
    right: tuple[str, str] | str | Value


@dataclass(frozen=True)
class Not:
    """Negation."""

    inner: Formula


@dataclass(frozen=True)
class Every:
    """Conjunction; true if empty."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Some:
    """Disjunction; false if empty."""

    parts: tuple[Formula, ...]


Formula: TypeAlias = Compare | Not | Every | Some


@dataclass(frozen=True)
class Condition:
    """What is asked of the final states.

    Attributes:
        quantifier: ``exists``, ``~exists`` or ``forall``.
        formula: What holds of a final state.
        filter: Final states that count; all, if None.
    """

    quantifier: Literal["exists", "~exists", "forall"]
    formula: Formula
    filter: Formula | None = None


@dataclass(frozen=True)
class Program:
    """A litmus program.

    Attributes:
        threads: Threads, in order.
        memory: Locations that do not start as 0.
        aliases: Further names of locations.
        condition: What is asked, or None.
        name: Name, for messages.
    """

    threads: tuple[Thread, ...]
    memory: dict[str, Value] = field(default_factory=dict)
    aliases: dict[str, Alias] = field(default_factory=dict)
    condition: Condition | None = None
    name: str = ""

    def physical(self, name: str) -> str:
        """The location that a name stands for."""
        seen = {name}
        while name in self.aliases:
            name = self.aliases[name].target
            if name in seen:
                raise InputError("alias", value=name, limit="must not name itself", remedy="name a declared location")
            seen.add(name)
        return name

    def virtual(self, name: str) -> str:
        """The virtual address that a name stands for: proxies have no addresses of their own."""
        while name in self.aliases and self.aliases[name].proxy != "generic":
            name = self.aliases[name].target
        return name
