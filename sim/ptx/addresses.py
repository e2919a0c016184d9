"""Addresses as far as the text of a kernel tells: a variable, and bounds of the distance from it.

Compilers write each register once, so following definitions backwards finds how
an address was computed.  Bounds are those of the thread's number, which the
kernel's ``.reqntid`` limits, carried through shifts, masks, sums and products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .module import Address, Guard, Immediate, Instruction, Kernel, Operand, Register, Symbol
from .table import split_operands

LIMIT = 2**31
LANES = 32
DEPTH = 64


@dataclass(frozen=True)
class Place:
    """An address, or a number on the way to one.

    Attributes:
        symbol: Variable that it is relative to; empty for a plain number.
        low: Least distance from there, in bytes.
        high: Largest distance.
    """

    symbol: str
    low: int
    high: int


class Addresses:
    """What the text of a kernel tells about its addresses.

    Args:
        kernel: The kernel.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._threads = kernel.directives.get("reqntid", (0,))[0]
        self._written: dict[str, list[Instruction]] = {}
        self._known: dict[tuple[str, Guard | None], Place | None] = {}
        for instruction in kernel.body:
            for operand in split_operands(instruction)[0]:
                if isinstance(operand, Register):
                    self._written.setdefault(operand.name, []).append(instruction)

    def find(self, instruction: Instruction) -> Place | None:
        """Return where a memory instruction may go, or None where the text does not tell."""
        address = next((operand for operand in instruction.operands if isinstance(operand, Address)), None)
        place = None if address is None else self._resolve(address, instruction.guard, 0)
        return place if place is not None and place.symbol else None

    def _resolve(self, operand: Operand, guard: Guard | None, depth: int) -> Place | None:
        """Return the bounds of a value as seen by an instruction under a guard."""
        if isinstance(operand, Immediate):
            number = (operand.bits + LIMIT) % (2 * LIMIT) - LIMIT
            return Place("", number, number)
        if isinstance(operand, Symbol):
            return Place(operand.name, 0, 0)
        if isinstance(operand, Address):
            return _add(self._resolve(operand.base, guard, depth), Place("", operand.offset, operand.offset))
        if not isinstance(operand, Register) or depth > DEPTH:
            return None
        key = operand.name, guard
        if key not in self._known:
            # A register that depends on itself is not known.
            self._known[key] = None
            self._known[key] = self._follow(operand.name, guard, depth)
        return self._known[key]

    def _follow(self, name: str, guard: Guard | None, depth: int) -> Place | None:
        if name == "%tid.x" and self._threads:
            return Place("", 0, self._threads - 1)
        if name == "%laneid":
            return Place("", 0, LANES - 1)
        written = self._written.get(name, [])
        if len(written) != 1 or written[0].guard is not None:
            return None
        return self._compute(written[0], guard, depth + 1)

    def _compute(self, instruction: Instruction, guard: Guard | None, depth: int) -> Place | None:
        compute = _RULES.get(instruction.opcode)
        if compute is None or "hi" in instruction.modifiers:
            return None
        sources = instruction.operands[1:3] if instruction.opcode == "selp" else instruction.operands[1:]
        values = [self._resolve(source, guard, depth) for source in sources]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            # A mask bounds what it is applied to, whatever that is.
            masks = [value for value in known if instruction.opcode == "and" and _is_number(value) and value.low >= 0]
            return Place("", 0, masks[0].high) if masks else None
        place = compute(*known)
        return place if place is not None and -LIMIT < place.low <= place.high < LIMIT else None


def lie_apart(first: Place, first_width: int, second: Place, second_width: int) -> bool:
    """Whether accesses at two places never overlap."""
    if first.symbol != second.symbol:
        return False
    return first.high + first_width <= second.low or second.high + second_width <= first.low


def _is_number(value: Place) -> bool:
    return not value.symbol


def _add(first: Place | None, second: Place | None) -> Place | None:
    if first is None or second is None or (first.symbol and second.symbol):
        return None
    return Place(first.symbol or second.symbol, first.low + second.low, first.high + second.high)


def _subtract(first: Place, second: Place) -> Place | None:
    return None if second.symbol else Place(first.symbol, first.low - second.high, first.high - second.low)


def _multiply(first: Place, second: Place) -> Place | None:
    if first.symbol or second.symbol or first.low < 0 or second.low < 0:
        return None
    return Place("", first.low * second.low, first.high * second.high)


def _multiply_add(first: Place, second: Place, third: Place) -> Place | None:
    return _add(_multiply(first, second), third)


def _shift_left(value: Place, places: Place) -> Place | None:
    if places.symbol or places.low != places.high or not 0 <= places.low < LANES:
        return None
    factor = 1 << places.low
    return _multiply(value, Place("", factor, factor))


def _shift_right(value: Place, places: Place) -> Place | None:
    if value.symbol or places.symbol or value.low < 0 or places.low != places.high or not 0 <= places.low < LANES:
        return None
    return Place("", value.low >> places.low, value.high >> places.low)


def _mask(first: Place, second: Place) -> Place | None:
    if first.symbol or second.symbol:
        return None
    bounds = [value.high for value in (first, second) if value.low >= 0]
    return Place("", 0, min(bounds)) if bounds else None


def _unite_bits(first: Place, second: Place) -> Place | None:
    if first.symbol or second.symbol or first.low < 0 or second.low < 0:
        return None
    return Place("", 0, first.high + second.high)


def _choose(first: Place, second: Place) -> Place | None:
    if first.symbol != second.symbol:
        return None
    return replace(first, low=min(first.low, second.low), high=max(first.high, second.high))


def _keep(value: Place) -> Place | None:
    return value if value.symbol or value.low >= 0 else None


_RULES: dict[str, Callable[..., Place | None]] = {
    "mov": lambda value: value,
    "cvt": _keep,
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "mad": _multiply_add,
    "shl": _shift_left,
    "shr": _shift_right,
    "and": _mask,
    "or": _unite_bits,
    "xor": _unite_bits,
    "selp": _choose,
}
