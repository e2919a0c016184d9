"""Smallest, largest, absolute and negated floating-point values (PTX ISA, "Floating Point" and "Half Precision").

Every function here works on bits.  NaN results are those of the hardware.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .floating import Arithmetic, build_parts
from .floats import FORMATS, canonical, flush, is_nan, order_key, propagate, quiet
from .form import Array, Entry, Form, ValueOperation

_FLOATS = ("f32", "f64")
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")

ABS = Entry("abs", "abs", "9.7.3.9", types=_FLOATS)
NEG = Entry("neg", "neg", "9.7.3.10", types=_FLOATS)
MIN = Entry("min", "min", "9.7.3.11", types=_FLOATS)
MAX = Entry("max", "max", "9.7.3.12", types=_FLOATS)
COPYSIGN = Entry("copysign", "copysign", "9.7.3.2", types=_FLOATS)
HALF_NEG = Entry("neg", "neg", "9.7.4.5", types=_HALVES)
HALF_ABS = Entry("abs", "abs", "9.7.4.6", types=_HALVES)
HALF_MIN = Entry("min", "min", "9.7.4.7", types=_HALVES)
HALF_MAX = Entry("max", "max", "9.7.4.8", types=_HALVES)


def _pick_singles(operation: str) -> Arithmetic:
    """Smaller or larger of two f32, numbers before NaNs."""
    compare, join = (np.fmin, np.bitwise_or) if operation == "min" else (np.fmax, np.bitwise_and)

    def evaluate(a: Array, b: Array) -> Array:
        left, right = a.view(np.float32), b.view(np.float32)
        result = np.asarray(compare(left, right)).view(np.uint32)
        # Equal numbers have equal bits, but for zeros of two signs.
        return canonical(np.where(left == right, join(a, b), result), "f32")

    return evaluate


def extreme(operation: str, kind: str, *, nan: bool = False, xorsign: bool = False) -> Arithmetic:
    """Smallest or largest of numbers; minus zero is below plus zero.

    Args:
        operation: ``min`` or ``max``.
        kind: Format.
        nan: Whether one NaN among the operands makes the result a NaN; else numbers are preferred.
        xorsign: Whether magnitudes are compared and the result gets the exclusive or of the signs.
    """
    number = FORMATS[kind]
    if (kind, nan, xorsign) == ("f32", False, False):
        return _in_turn(_pick_singles(operation))

    def pick(a: Array, b: Array) -> Array:
        sign = (a ^ b) & a.dtype.type(number.sign)
        left, right = is_nan(a, kind), is_nan(b, kind)
        if xorsign:
            a, b = (operand & operand.dtype.type(number.sign - 1) for operand in (a, b))
        first = order_key(a, kind) < order_key(b, kind)
        result = np.where(first if operation == "min" else ~first, a, b)
        result = np.where(left, b, np.where(right, a, result))
        if xorsign:
            result = result | sign
        if kind == "f64":
            return quiet(result)
        return np.where((left | right) if nan else (left & right), a.dtype.type(number.nan), result)

    return _in_turn(pick)


def _in_turn(pick: Arithmetic) -> Arithmetic:
    """Apply a function of two operands to two or more."""

    def evaluate(a: Array, *others: Array) -> Array:
        for other in others:
            a = pick(a, other)
        return a

    return evaluate


def _extreme(form: Form) -> ValueOperation:
    ftz, nan = form.take("ftz"), form.take("NaN")
    xorsign, magnitude, kind = form.take("xorsign"), form.take("abs"), form.take_type()
    single, count = kind.removesuffix("x2"), len(form.source_operands)
    if bool(xorsign) != bool(magnitude) or (single == "f64" and (ftz or nan or xorsign)) or (single == "bf16" and ftz):
        form.reject("this type has no such modifiers")
    if count not in (2, 3) or (count == 3 and kind != "f32"):
        form.reject("it takes two sources, or three of .f32")
    function = extreme(form.instruction.opcode, single, nan=bool(nan), xorsign=bool(xorsign))
    if not ftz:
        return build_parts(form, kind, function, count)
    return build_parts(form, kind, lambda *operands: function(*(flush(operand, single) for operand in operands)), count)


def _sign(form: Form) -> ValueOperation:
    """The sign bit is cleared or flipped (abs, neg); a NaN becomes the one that arithmetic returns."""
    magnitude = form.instruction.opcode == "abs"
    ftz, kind = form.take("ftz"), form.take_type()
    single = kind.removesuffix("x2")
    if ftz and single not in ("f32", "f16"):
        form.reject("this type has no .ftz")
    sign = FORMATS[single].sign

    def evaluate(a: Array) -> Array:
        bits = flush(a, single) if ftz else a
        result = bits & bits.dtype.type(sign - 1) if magnitude else bits ^ bits.dtype.type(sign)
        if single == "f64":
            return propagate(result, (a,), (0,))
        return canonical(result, single)

    return build_parts(form, kind, evaluate, 1)


def _copy_sign(form: Form) -> ValueOperation:
    """copysign: the sign of ``a`` on the magnitude of ``b``."""
    kind = form.take_type()
    sign = FORMATS[kind].sign
    return build_parts(form, kind, lambda a, b: (a & a.dtype.type(sign)) | (b & b.dtype.type(sign - 1)), 2)


RULES: dict[Entry, Callable[[Form], ValueOperation]] = {
    **dict.fromkeys((ABS, NEG, HALF_ABS, HALF_NEG), _sign),
    **dict.fromkeys((MIN, MAX, HALF_MIN, HALF_MAX), _extreme),
    COPYSIGN: _copy_sign,
}
"""How each instruction of this module is resolved."""
