"""What a thread can do to memory, as values.

Locations and values are anything hashable.  Orders and scopes are those of the
PTX ISA, section "Memory Consistency Model"; a model without scopes ignores
them.  Several operations that a thread issues without an order among them
(the lanes of a block store or load) stand together in ``Lanes``.

A thread of a program may stand for a whole CTA, whose threads share what they
have read.  Its operations then name their strands: bits of the threads of the
CTA that perform them.  Operations in common strands are in program order,
others only if something that all strands take part in is between them
(``BARRIER``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from tiebreak.errors import UnsupportedOperationError

Location = Hashable
Value = Hashable

ALL_STRANDS = -1
"""Strands of what a thread performs as a whole."""


class Order(enum.IntEnum):
    """Memory order of an access or a fence; ``WEAK`` is a plain access."""

    WEAK = 0
    RELAXED = 1
    ACQUIRE = 2
    RELEASE = 3
    ACQ_REL = 4
    SC = 5


class Scope(enum.IntEnum):
    """Threads that a strong operation reaches: those of its CTA, of its GPU, or all."""

    CTA = 0
    GPU = 1
    SYSTEM = 2


@dataclass(frozen=True)
class Load:
    """Read a location; the thread is given the value."""

    location: Location
    order: Order = Order.RELAXED
    scope: Scope = Scope.SYSTEM
    strands: int = ALL_STRANDS


@dataclass(frozen=True)
class Store:
    """Write a value."""

    location: Location
    value: Value
    order: Order = Order.RELAXED
    scope: Scope = Scope.SYSTEM
    strands: int = ALL_STRANDS


@dataclass(frozen=True)
class Update:
    """Atomic read-modify-write; the thread is given the value that was read.

    Attributes:
        function: New value of the value read, None to leave the location alone
            (a compare-and-swap that fails).  Pure.
        name: What it is, in words.
    """

    location: Location
    function: Callable[[Value], Value | None] = field(compare=False)
    order: Order = Order.RELAXED
    scope: Scope = Scope.SYSTEM
    name: str = "update"
    strands: int = ALL_STRANDS


@dataclass(frozen=True)
class Await:
    """Poll a location until its value satisfies a predicate.

    A poll that fails has no effect, so it is no step of any execution.  Unless
    the value is ``given``, what the thread does next does not depend on which
    of the satisfying values ended the wait.

    Attributes:
        predicate: Whether a value ends the wait.  Pure.
        name: The condition, in words.
        given: Whether the thread is given the value; each then makes a class of its own.
    """

    location: Location
    predicate: Callable[[Value], bool] = field(compare=False)
    order: Order = Order.ACQUIRE
    scope: Scope = Scope.SYSTEM
    name: str = "await"
    given: bool = False
    strands: int = ALL_STRANDS


@dataclass(frozen=True)
class Fence:
    """Order the accesses before it with those after it."""

    order: Order = Order.ACQ_REL
    scope: Scope = Scope.SYSTEM
    strands: int = ALL_STRANDS


@dataclass(frozen=True)
class Barrier:
    """Wait until so many threads have arrived at the barrier of this name."""

    name: Hashable
    participants: int

    @property
    def strands(self) -> int:
        """All."""
        return ALL_STRANDS


Operation = Load | Store | Update | Await | Fence | Barrier

BARRIER = Fence(Order.WEAK, Scope.CTA)
"""Barrier of the threads of a CTA, where one thread of the program stands for all of them."""


@dataclass(frozen=True)
class Lanes:
    """Operations without an order among them; the thread goes on when all are done."""

    operations: tuple[Operation, ...]


def add(location: Location, amount: int, order: Order = Order.RELAXED, scope: Scope = Scope.SYSTEM) -> Update:
    """Atomic addition."""
    return Update(location, lambda old: _number(old) + amount, order, scope, f"add {amount}")


def exchange(location: Location, value: Value, order: Order = Order.RELAXED, scope: Scope = Scope.SYSTEM) -> Update:
    """Atomic exchange."""
    return Update(location, lambda _: value, order, scope, f"exchange {value}")


def compare_and_swap(
    location: Location,
    expected: Value,
    value: Value,
    order: Order = Order.RELAXED,
    scope: Scope = Scope.SYSTEM,
) -> Update:
    """Atomic compare-and-swap; it writes only if it reads ``expected``."""

    def swap(old: Value) -> Value | None:
        return value if old == expected else None

    return Update(location, swap, order, scope, f"cas {expected} {value}")


def at_least(location: Location, bound: int, order: Order = Order.ACQUIRE, scope: Scope = Scope.SYSTEM) -> Await:
    """Wait until a counter reaches a bound."""
    return Await(location, lambda value: _number(value) >= bound, order, scope, f">= {bound}")


def equal_to(location: Location, wanted: Value, order: Order = Order.ACQUIRE, scope: Scope = Scope.SYSTEM) -> Await:
    """Wait until a location holds exactly one value."""
    return Await(location, lambda value: value == wanted, order, scope, f"== {wanted}")


def _number(value: Value) -> int:
    """A value that must be an integer."""
    if not isinstance(value, int):
        raise UnsupportedOperationError(f"arithmetic on {value!r}")
    return value
