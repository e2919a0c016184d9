"""Values of registers that may depend on reads which nothing has answered yet."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tiebreak.errors import UnsupportedOperationError
from tiebreak.sim.litmus.program import Value


@dataclass(frozen=True)
class Unknown:
    """The value of a read event, by its number."""

    event: int


@dataclass(frozen=True)
class Expression:
    """An operation on terms at least one of which is not known."""

    operation: str
    left: Term
    right: Term


Term: TypeAlias = Value | Unknown | Expression

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "min": min,
    "max": max,
}

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

OPERATIONS = frozenset(_ARITHMETIC) | {"div"}


def compare(comparison: str, left: Value, right: Value) -> bool:
    """Compare two values; addresses have no order among themselves or with integers."""
    if isinstance(left, int) and isinstance(right, int):
        return _COMPARISONS[comparison](left, right)
    if comparison in {"==", "!="}:
        return (left == right) == (comparison == "==")
    raise UnsupportedOperationError("order of addresses")


def calculate(operation: str, left: Value, right: Value) -> Value:
    """Apply an operation in wrapping signed 64-bit arithmetic; a comparison gives 0 or 1."""
    if operation in _COMPARISONS:
        return int(compare(operation, left, right))
    if not isinstance(left, int) or not isinstance(right, int):
        return _displace(operation, left, right)
    if operation == "div":
        if right == 0:
            raise UnsupportedOperationError("division by zero")
        quotient = abs(left) // abs(right)
        return _wrap(quotient if (left < 0) == (right < 0) else -quotient)
    return _wrap(_ARITHMETIC[operation](left, right))


def combine(operation: str, left: Term, right: Term) -> Term:
    """Apply an operation, now if both terms are known."""
    if isinstance(left, Unknown | Expression) or isinstance(right, Unknown | Expression):
        return Expression(operation, left, right)
    return calculate(operation, left, right)


def settle(term: Term, values: Mapping[int, Value]) -> Term:
    """Put the values of reads into a term as far as they are known."""
    if isinstance(term, Unknown):
        return values.get(term.event, term)
    if isinstance(term, Expression):
        return combine(term.operation, settle(term.left, values), settle(term.right, values))
    return term


def is_known(term: Term) -> bool:
    """Whether a term is a value."""
    return not isinstance(term, Unknown | Expression)


def sources(term: Term) -> Iterator[int]:
    """Numbers of the reads that a term depends on."""
    if isinstance(term, Unknown):
        yield term.event
    elif isinstance(term, Expression):
        yield from sources(term.left)
        yield from sources(term.right)


def _displace(operation: str, left: Value, right: Value) -> Value:
    """Add 0 to an address: what a false address dependency does."""
    if operation == "add" and left == 0:
        return right
    if operation in {"add", "sub"} and right == 0:
        return left
    raise UnsupportedOperationError(f"{operation} of an address")


def _wrap(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
