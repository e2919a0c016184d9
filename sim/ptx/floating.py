"""Floating-point arithmetic that is exact to the last bit (PTX ISA, "Floating Point" and "Half Precision").

Every function here works on bits.  NaN results are those of the hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from . import exact
from .floats import (
    FORMATS,
    ROUNDINGS,
    add_to_odd,
    canonical,
    divide_to_odd,
    each_part,
    flush,
    is_nan,
    propagate,
    root_to_odd,
    round_to,
    widen,
)
from .form import Array, Entry, Form, ValueOperation, storage_of

_FLOATS = ("f32", "f64")
_WITH_PAIRS = ("f32", "f64", "f32x2")
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_CONTRACTION = "without a rounding modifier ptxas may fuse a product and a sum; here it is computed as written"

ADD = Entry("add", "add", "9.7.3.3", types=_WITH_PAIRS, note=_CONTRACTION)
SUB = Entry("sub", "sub", "9.7.3.4", types=_WITH_PAIRS, note=_CONTRACTION)
MUL = Entry("mul", "mul", "9.7.3.5", types=_WITH_PAIRS, note=_CONTRACTION)
FMA = Entry("fma", "fma", "9.7.3.6", types=_WITH_PAIRS)
MAD = Entry("mad", "mad", "9.7.3.7", types=_FLOATS)
DIV = Entry("div", "div", "9.7.3.8", types=_FLOATS)
RCP = Entry("rcp", "rcp", "9.7.3.13", types=_FLOATS)
SQRT = Entry("sqrt", "sqrt", "9.7.3.15", types=_FLOATS)
HALF_ADD = Entry("add", "add", "9.7.4.1", types=_HALVES, note=_CONTRACTION)
HALF_SUB = Entry("sub", "sub", "9.7.4.2", types=_HALVES, note=_CONTRACTION)
HALF_MUL = Entry("mul", "mul", "9.7.4.3", types=_HALVES, note=_CONTRACTION)
HALF_FMA = Entry("fma", "fma", "9.7.4.4", types=_HALVES)

Arithmetic: TypeAlias = Callable[..., Array]
"""A function of arrays of bits."""


def _add_values(a: Array, b: Array, mode: str) -> Array:
    """Sum of ``float64`` values rounded to odd; an exact zero is negative where the mode rounds down."""
    total = add_to_odd(a, b)
    if mode != "rm":
        return total
    return np.where((total == 0) & (np.signbit(a) | np.signbit(b)), -0.0, total)


_VALUES: dict[str, Callable[..., Array]] = {
    "add": _add_values,
    "sub": lambda a, b, mode: _add_values(a, -b, mode),
    "mul": lambda a, b, _mode: a * b,
    "fma": lambda a, b, c, mode: _add_values(a * b, c, mode),
    "div": lambda a, b, _mode: divide_to_odd(a, b),
    "rcp": lambda a, _mode: divide_to_odd(np.ones_like(a), a),
    "sqrt": lambda a, _mode: root_to_odd(a),
}
"""Results of operands of at most 24 bits of significand in ``float64``, exact or rounded to odd."""

_NATIVE: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
}
"""Functions of NumPy that round to nearest even in the format of their operands (IEEE 754)."""

_NAN_PRIORITY: dict[str, tuple[int, ...]] = {
    "add": (1, 0), "sub": (1, 0), "mul": (1, 0), "fma": (1, 2, 0), "div": (0, 1), "rcp": (0,), "sqrt": (0,),
}  # fmt: skip
"""Operands of ``f64`` in the order in which the hardware looks for a NaN to return."""

_ONE, _SIGN = np.uint64(0x3FF << 52), np.uint64(1 << 63)
_LONG: dict[str, Callable[..., Array]] = {
    "add": lambda a, b, mode: exact.apply(exact.add, mode, a, b),
    "sub": lambda a, b, mode: exact.apply(exact.add, mode, a, np.where(is_nan(b, "f64"), b, b ^ _SIGN)),
    "mul": lambda a, b, mode: exact.apply(exact.multiply, mode, a, b),
    "fma": lambda a, b, c, mode: exact.apply(exact.multiply_add, mode, a, b, c),
    "div": lambda a, b, mode: exact.apply(exact.divide, mode, a, b),
    "rcp": lambda a, mode: exact.apply(exact.divide, mode, np.full_like(a, _ONE), a),
    "sqrt": lambda a, mode: exact.apply(exact.root, mode, a),
}


def arithmetic(operation: str, kind: str, mode: str = "rn", *, ftz: bool = False) -> Arithmetic:
    """A function of bits that rounds once.

    Args:
        operation: ``add``, ``sub``, ``mul``, ``fma``, ``div``, ``rcp`` or ``sqrt``.
        kind: Format of the operands and of the result.
        mode: Rounding mode.
        ftz: Whether subnormal operands and results are replaced by zeros of their sign.
    """
    native = kind in _FLOATS and mode == "rn" and operation in _NATIVE
    fused = (operation, kind, mode) == ("fma", "f32", "rn")

    def evaluate(*operands: Array) -> Array:
        if ftz:
            operands = tuple(flush(operand, kind) for operand in operands)
        if native:
            view = "float32" if kind == "f32" else "float64"
            result = np.asarray(_NATIVE[operation](*(operand.view(view) for operand in operands)))
            result = result.view(storage_of(kind))
        elif fused:
            result = _fuse(*operands)
        elif kind == "f64":
            result = _LONG[operation](*operands, mode)
        else:
            result = round_to(_VALUES[operation](*(widen(operand, kind) for operand in operands), mode), kind, mode)
        if kind == "f64":
            return propagate(result, operands, _NAN_PRIORITY[operation])
        result = canonical(result, kind)
        return flush(result, kind) if ftz else result

    return evaluate


def _fuse(a: Array, b: Array, c: Array) -> Array:
    """Fused multiply-add of f32, to nearest even.

    The product is exact in ``float64``.  Rounding the sum twice is only wrong if the first rounding made a tie, or if
    the result is subnormal; then all of it is done again with rounding to odd.
    """
    left, right, addend = (operand.view(np.float32).astype(np.float64) for operand in (a, b, c))
    total = left * right + addend
    result = total.astype(np.float32)
    tied = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
    if (tied | (np.abs(result) <= np.finfo(np.float32).tiny)).any():
        return round_to(_add_values(left * right, addend, "rn"), "f32")
    return canonical(result.view(np.uint32), "f32")


def saturate(bits: Array, kind: str) -> Array:
    """Values clamped to 0.0 .. 1.0; a NaN and minus zero become plus zero."""
    number = FORMATS[kind]
    one = bits.dtype.type(number.bias << (number.precision - 1))
    if kind == "f32":
        values = np.fmax(bits.view(np.float32), np.float32(0))
        # fmax takes plus or minus zero of two zeros, and zero for a NaN.
        return np.minimum(values, np.float32(1)).view(np.uint32) & np.uint32(number.sign - 1)
    return np.where(is_nan(bits, kind) | (bits & bits.dtype.type(number.sign) != 0), 0, np.minimum(bits, one)).astype(
        bits.dtype
    )


def _rectify(bits: Array, kind: str) -> Array:
    """Negative values become plus zero; a NaN stays the one that arithmetic returns."""
    negative = (bits & bits.dtype.type(FORMATS[kind].sign)) != 0
    return np.where(negative & ~is_nan(bits, kind), 0, canonical(bits, kind)).astype(bits.dtype)


def build_parts(form: Form, kind: str, function: Arithmetic, count: int) -> ValueOperation:
    """An operation on bits of one type, each part of packed operands by itself."""
    storage = storage_of(kind)
    evaluate = each_part(function, kind) if kind.endswith("x2") else function
    return form.build(evaluate, (storage,) * count, (storage,))


def _arithmetic(operation: str, count: int) -> Callable[[Form], ValueOperation]:
    """The rule of an operation that rounds."""

    def rule(form: Form) -> ValueOperation:
        mode = form.take(*ROUNDINGS)
        ftz, saturated, rectified, kind = form.take("ftz"), form.take("sat"), form.take("relu"), form.take_type()
        single = kind.removesuffix("x2")
        if (operation in ("div", "rcp", "sqrt", "fma") and not mode) or (single in _HALVES and mode not in ("", "rn")):
            form.reject("it needs a rounding modifier that this type has")
        if (ftz and single in ("f64", "bf16")) or (saturated and single not in ("f32", "f16")):
            form.reject("this type has no .ftz or .sat")
        if rectified and (operation != "fma" or single not in _HALVES):
            form.reject("only fma of halves has .relu")
        function = arithmetic(operation, single, mode or "rn", ftz=bool(ftz))
        if saturated:
            return build_parts(form, kind, lambda *operands: saturate(function(*operands), single), count)
        if rectified:
            return build_parts(form, kind, lambda *operands: _rectify(function(*operands), single), count)
        return build_parts(form, kind, function, count)

    return rule


RULES: dict[Entry, Callable[[Form], ValueOperation]] = {
    **dict.fromkeys((ADD, HALF_ADD), _arithmetic("add", 2)),
    **dict.fromkeys((SUB, HALF_SUB), _arithmetic("sub", 2)),
    **dict.fromkeys((MUL, HALF_MUL), _arithmetic("mul", 2)),
    **dict.fromkeys((FMA, MAD, HALF_FMA), _arithmetic("fma", 3)),
    DIV: _arithmetic("div", 2),
    RCP: _arithmetic("rcp", 1),
    SQRT: _arithmetic("sqrt", 1),
}
"""How each instruction of this module is resolved."""
