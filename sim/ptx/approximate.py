"""Instructions whose result the PTX ISA bounds but does not fix (``.approx``, ``.full``).

Each result here is the correctly rounded one, which the hardware's may differ
from by the error that the ISA allows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from .floating import arithmetic
from .floats import each_part, flush, is_nan, round_to, widen
from .form import Array, Entry, Form, ValueOperation, storage_of


def _entry(opcode: str, section: str, types: tuple[str, ...], marks: tuple[str, ...], note: str) -> Entry:
    return Entry(opcode, opcode, section, types=types, marks=marks, exactness="approximate", note=note)


_APPROX = ("approx",)
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")

DIV = _entry("div", "9.7.3.8", ("f32",), ("approx", "full"), "2 ulp in the range that the ISA states")
RCP = _entry("rcp", "9.7.3.13", ("f32",), _APPROX, "1 ulp")
LONG_RCP = _entry("rcp", "9.7.3.14", ("f64",), _APPROX, "the upper 32 bits are within 2**-20")
SQRT = _entry("sqrt", "9.7.3.15", ("f32",), _APPROX, "relative error 2**-23")
RSQRT = _entry("rsqrt", "9.7.3.16", ("f32",), _APPROX, "relative error 2**-22.9")
LONG_RSQRT = _entry("rsqrt", "9.7.3.17", ("f64",), _APPROX, "the upper 32 bits are approximate")
SIN = _entry("sin", "9.7.3.18", ("f32",), _APPROX, "absolute error 2**-20.5 in -pi .. pi")
COS = _entry("cos", "9.7.3.19", ("f32",), _APPROX, "absolute error 2**-20.5 in -pi .. pi")
LG2 = _entry("lg2", "9.7.3.20", ("f32",), _APPROX, "absolute error 2**-22 near 1, relative error 2**-22 elsewhere")
EX2 = _entry("ex2", "9.7.3.21", ("f32",), _APPROX, "2 ulp")
TANH = _entry("tanh", "9.7.3.22", ("f32",), _APPROX, "relative error 2**-11")
HALF_TANH = _entry("tanh", "9.7.4.9", _HALVES, _APPROX, "absolute error 2**-10.987, 2**-8 for .bf16")
HALF_EX2 = _entry("ex2", "9.7.4.10", _HALVES, _APPROX, "relative error 2**-9.9, 2**-7 for .bf16")

_INVERSE_CIRCLE = np.uint32(0x3E22F983)
"""1 / (2 pi) in f32, by which the hardware multiplies the operand of sin and cos first."""

_LARGE = 2.0**126
"""Divisor past which div.approx multiplies by zero, for its reciprocal is subnormal."""


def _turns(angles: Array) -> Array:
    """Angles as fractions of a circle, after the one rounding that the hardware makes; then in radians."""
    bits = round_to(angles, "f32")
    factor = np.full_like(bits, _INVERSE_CIRCLE)
    turns = widen(_multiply(bits, factor), "f32")
    parts = turns - np.rint(turns)
    return np.where(parts == 0, np.copysign(0.0, angles), parts) * (2 * np.pi)


_multiply = arithmetic("mul", "f32", "rz")


def _divide(a: Array, b: Array) -> Array:
    """Quotients of div.approx."""
    return np.where(np.abs(b) > _LARGE, a * np.copysign(0.0, b), a / b)


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: np.reciprocal(np.sqrt(a)),
    "sin": lambda a: np.sin(_turns(a)),
    "cos": lambda a: np.cos(_turns(a)),
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


def _evaluate(compute: Callable[..., Array], kind: str, ftz: bool, *operands: Array) -> Array:
    """The correctly rounded result, in bits."""
    if ftz:
        operands = tuple(flush(operand, kind) for operand in operands)
    result = round_to(compute(*(widen(operand, kind) for operand in operands)), kind)
    return flush(result, kind) if ftz else result


def _resolve(form: Form) -> ValueOperation:
    quality = form.require("approx", "full")
    ftz, kind = form.take("ftz"), form.take_type()
    single, storage = kind.removesuffix("x2"), storage_of(kind)
    compute = _divide if (form.entry, quality) == (DIV, "approx") else _FUNCTIONS[form.instruction.opcode]
    function = partial(_evaluate, compute, single, bool(ftz))
    count = 2 if form.entry is DIV else 1
    return form.build(each_part(function, kind) if kind.endswith("x2") else function, (storage,) * count, (storage,))


_LONG_NAN = np.uint64(0x7FFFFFFF << 32)
"""The NaN that reciprocals of f64 return."""


def _resolve_long(form: Form) -> ValueOperation:
    """Reciprocals of f64: the lower 32 bits of the operand are not read, those of the result are zero."""
    form.require("approx")
    form.require("ftz")
    form.take_type()
    opcode = form.instruction.opcode

    def evaluate(a: Array) -> Array:
        upper = np.uint64(0xFFFFFFFF00000000)
        values = flush(a & upper, "f64").view(np.float64)
        result = flush(_FUNCTIONS[opcode](values).view(np.uint64) & upper, "f64")
        return np.where(np.isnan(values) | is_nan(result, "f64"), _LONG_NAN, result)

    return form.build(evaluate, ("uint64",), ("uint64",))


RULES: dict[Entry, Callable[[Form], ValueOperation]] = {
    **dict.fromkeys((DIV, RCP, SQRT, RSQRT, SIN, COS, LG2, EX2, TANH, HALF_TANH, HALF_EX2), _resolve),
    LONG_RCP: _resolve_long,
    LONG_RSQRT: _resolve_long,
}
"""How each instruction of this module is resolved."""
