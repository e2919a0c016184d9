"""Floating-point formats, and results that are correctly rounded in each of them.

A result of 16- or 32-bit operands is first computed in ``float64`` **rounded to
odd**: truncated, with the last bit set if anything was cut off.  Rounding that
once more, to a format with at least two bits less, gives what rounding the
exact result would have given, in every mode (S. Boldo, G. Melquiond, "Emulation
of FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding to Odd",
IEEE Transactions on Computers 57(4), 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .form import Array, storage_of


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        width: Bits in all.
        precision: Bits of the significand, the hidden one included.
        nan: Bits of the NaN that arithmetic returns.
        infinite: Bits of positive infinity; one more than those of the largest value where there is no infinity.
    """

    width: int
    precision: int
    nan: int
    infinite: int

    @property
    def storage(self) -> str:
        """NumPy type of the bits."""
        return {8: "uint8", 16: "uint16", 64: "uint64"}.get(self.width, "uint32")

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return int((1 << (self.width - self.precision - 1)) - 1)

    @property
    def sign(self) -> int:
        """Bit of the sign."""
        return 1 << (self.width - 1)


FORMATS = {
    "f16": Format(16, 11, 0x7FFF, 0x7C00),
    "bf16": Format(16, 8, 0x7FFF, 0x7F80),
    "f32": Format(32, 24, 0x7FFFFFFF, 0x7F800000),
    "f64": Format(64, 53, 0xFFF8000000000000, 0x7FF0000000000000),
    "tf32": Format(19, 11, 0x3FFFF, 0x3FC00),
    "e4m3": Format(8, 4, 0x7F, 0x7F),
    "e5m2": Format(8, 3, 0x7F, 0x7C),
}
"""Formats by PTX type."""

_NATIVE = {"f32": "float32", "f64": "float64"}

ROUNDINGS = ("rn", "rz", "rm", "rp")
"""To nearest even, toward zero, toward minus infinity, toward plus infinity."""


def widen(bits: Array, kind: str) -> Array:
    """Exact values of the bits of a format, in ``float64``."""
    if kind == "f64":
        return bits.view(np.float64)
    if kind == "f32":
        return bits.view(np.float32).astype(np.float64)
    if kind == "f16":
        return bits.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if kind == "e5m2":
        return (bits.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(np.float64)
    magnitude = (bits & np.uint8(0x7F)).astype(np.uint16) << np.uint16(7)
    # The bias of binary16 is 8 more than that of e4m3.
    values = np.where(magnitude == 0x7F << 7, np.nan, magnitude.view(np.float16).astype(np.float64) * 256.0)
    return np.copysign(values, np.where(bits & np.uint8(0x80), -1.0, 1.0))


def is_nan(bits: Array, kind: str) -> Array:
    """Where bits of a format with infinities are a NaN."""
    if kind in _NATIVE:
        return np.isnan(bits.view(_NATIVE[kind]))
    form = FORMATS[kind]
    return (bits & bits.dtype.type(form.sign - 1)) > bits.dtype.type(form.infinite)


def flush(bits: Array, kind: str) -> Array:
    """Bits with subnormal values replaced by zero of their sign."""
    form = FORMATS[kind]
    exponent = bits & bits.dtype.type(form.infinite)
    return np.where(exponent == 0, bits & bits.dtype.type(form.sign), bits)


def canonical(bits: Array, kind: str) -> Array:
    """Bits with every NaN replaced by the one that arithmetic returns."""
    wrong = is_nan(bits, kind)
    return np.where(wrong, bits.dtype.type(FORMATS[kind].nan), bits) if wrong.any() else bits


def quiet(bits: Array) -> Array:
    """``float64`` bits with every NaN made quiet; its other bits stay."""
    return np.where(is_nan(bits, "f64"), bits | np.uint64(1 << 51), bits)


def propagate(result: Array, operands: tuple[Array, ...], priority: tuple[int, ...]) -> Array:
    """``float64`` results as the hardware gives them where an operand is a NaN: the first by priority, made quiet."""
    result = canonical(result, "f64")
    for place in reversed(priority):
        result = np.where(is_nan(operands[place], "f64"), quiet(operands[place]), result)
    return result


def convert_nan(bits: Array, source: str, target: str) -> Array:
    """Bits of a NaN in another format: the sign and the upper bits of the fraction stay, and it becomes quiet."""
    old, new = FORMATS[source], FORMATS[target]
    shift = np.uint64(64 - old.precision)
    fraction = (bits.astype(np.uint64) & np.uint64((1 << (old.precision - 1)) - 1)) << shift
    kept = (fraction >> np.uint64(64 - new.precision)) | np.uint64(1 << (new.precision - 2))
    sign = np.where(bits & bits.dtype.type(old.sign), np.uint64(new.sign), np.uint64(0))
    return (sign | np.uint64(new.infinite) | kept).astype(new.storage)


def order_key(bits: Array, kind: str) -> Array:
    """Integers that sort as the numbers do, with minus zero before plus zero."""
    signed = bits.view(f"int{FORMATS[kind].width}")
    return signed ^ ((signed >> (FORMATS[kind].width - 1)) & (FORMATS[kind].sign - 1))


def make_odd(rounded: Array, error: Array) -> Array:
    """A sum rounded to nearest, made round-to-odd; ``error`` is what rounding cut off, exactly."""
    bits = np.ascontiguousarray(rounded).view(np.int64)
    # Toward zero when the exact value is nearer to zero, then the last bit is set.
    outward = (error > 0) == (rounded > 0)
    inexact = (error != 0) & np.isfinite(rounded)
    truncated = np.where(outward, bits, bits - 1)
    return np.where(inexact, truncated | 1, bits).view(np.float64)


def add_to_odd(a: Array, b: Array) -> Array:
    """Sum of two ``float64`` far from overflow, rounded to odd."""
    total = a + b
    part = total - a
    return make_odd(total, (a - (total - part)) + (b - part))


def divide_to_odd(a: Array, b: Array) -> Array:
    """Quotient of two ``float64`` with at most 24 bits of significand, rounded to odd at 39 bits or more."""
    quotient = a / b
    usual = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    (left, left_exponent), (right, right_exponent) = (
        np.frexp(np.where(usual, a, 1.0)),
        np.frexp(np.where(usual, b, 1.0)),
    )
    dividend = (np.abs(left) * 2.0**24).astype(np.uint64) << np.uint64(39)
    divisor = (np.abs(right) * 2.0**24).astype(np.uint64)
    whole = dividend // divisor
    whole = whole | (whole * divisor != dividend).astype(np.uint64)
    exact = np.ldexp(whole.astype(np.float64), left_exponent - right_exponent - 39)
    return np.where(usual, np.copysign(exact, quotient), quotient)


def root_to_odd(a: Array) -> Array:
    """Square root of a ``float64`` with at most 24 bits of significand, rounded to odd at 27 bits."""
    root = np.sqrt(a)
    usual = np.isfinite(root) & (root > 0)
    bits = np.ascontiguousarray(np.where(usual, root, 1.0)).view(np.int64)
    step = np.int64(1 << 26)
    short = bits & ~(step - np.int64(1))
    square = short.view(np.float64) ** 2
    short = np.where(square > np.where(usual, a, 1.0), short - step, short)
    inexact = short.view(np.float64) ** 2 != np.where(usual, a, 1.0)
    return np.where(usual, np.where(inexact, short | step, short).view(np.float64), root)


def round_to(values: Array, kind: str, mode: str = "rn", *, finite: bool = False) -> Array:
    """Bits of ``float64`` values, exact or rounded to odd, in a narrower format.

    Args:
        values: The values.
        kind: Format, but not ``f64``.
        mode: One of ``ROUNDINGS``, or ``rna`` (to nearest, ties away from zero).
        finite: Whether values past the largest finite one become that one (``.satfinite``).
    """
    form = FORMATS[kind]
    if mode == "rn" and not finite and kind in ("f16", "f32"):
        # NumPy's own conversion rounds to nearest even, once.
        narrow = np.ascontiguousarray(values).astype(f"float{form.width}")
        return canonical(narrow.view(form.storage), kind)
    bits = np.ascontiguousarray(values).view(np.uint64)
    negative = (bits >> np.uint64(63)).astype(np.bool_)
    field = ((bits >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64)
    fraction = bits & np.uint64((1 << 52) - 1)
    significand = np.where(field > 0, fraction | np.uint64(1 << 52), fraction)
    exponent = np.maximum(field, 1) - 1023 - 52
    lowest = 1 - form.bias - (form.precision - 1)
    quantum = np.maximum(exponent + 52 - (form.precision - 1), lowest)
    shift = np.clip(quantum - exponent, 1, 63).astype(np.uint64)
    kept = significand >> shift
    cut = significand - (kept << shift)
    kept = kept + _rounds_up(kept, cut, np.uint64(1) << (shift - np.uint64(1)), negative, mode)
    encoded = ((quantum - lowest).astype(np.uint64) << np.uint64(form.precision - 1)) + kept
    encoded = _clamp(encoded, negative, form, mode, finite)
    result = np.where(np.isinf(values), form.infinite - finite, encoded)
    result = np.where(negative, result | np.uint64(form.sign), result)
    return np.where(np.isnan(values), np.uint64(form.nan), result).astype(form.storage)


def _rounds_up(kept: Array, cut: Array, half: Array, negative: Array, mode: str) -> Array:
    """1 where the magnitude grows when ``cut`` is dropped."""
    if mode == "rn":
        up = (cut > half) | ((cut == half) & (kept & np.uint64(1) == 1))
    elif mode == "rna":
        up = cut >= half
    else:
        up = (cut != 0) & (mode != "rz") & (negative == (mode == "rm"))
    return up.astype(np.uint64)


def _clamp(encoded: Array, negative: Array, form: Format, mode: str, finite: bool) -> Array:
    """Encoded magnitudes past the largest finite one, as the rounding mode wants them."""
    to_largest = np.broadcast_to(finite or mode == "rz", negative.shape) | (
        negative if mode == "rp" else ~negative if mode == "rm" else np.zeros_like(negative)
    )
    limit = np.where(to_largest, np.uint64(form.infinite - 1), np.uint64(form.infinite))
    return np.minimum(encoded, limit)


def each_part(function: Callable[..., Array], kind: str) -> Callable[..., Array]:
    """Apply a function of one format to each part of packed operands."""
    part = storage_of(kind.removesuffix("x2"))

    def evaluate(*operands: Array) -> Array:
        parts = [np.ascontiguousarray(operand).view(part) for operand in np.broadcast_arrays(*operands)]
        return np.ascontiguousarray(function(*parts)).view(storage_of(kind))

    return evaluate
