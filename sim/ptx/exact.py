"""Correctly rounded ``float64`` results that NumPy does not give, in integers of any length.

One value at a time and slow; for fused multiply-add and for the directed
rounding modes of ``float64`` only.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

import numpy as np

from .form import Array

_INFINITE = 0x7FF << 52
_NAN = 0xFFF8 << 48
_SIGN = 1 << 63
_LOWEST = -1074


def _split(bits: int) -> tuple[bool, int, int]:
    """Sign, significand and exponent of a finite number: ``significand * 2**exponent``."""
    field, fraction = bits >> 52 & 0x7FF, bits & ((1 << 52) - 1)
    return bool(bits & _SIGN), fraction | (bool(field) << 52), max(field, 1) + _LOWEST - 1


def _is_nan(bits: int) -> bool:
    return bits & ~_SIGN > _INFINITE


def _is_infinite(bits: int) -> bool:
    return bits & ~_SIGN == _INFINITE


def _round(negative: bool, significand: int, exponent: int, mode: str) -> int:
    """Bits nearest to a positive significand, as the mode wants them; the lowest bit may stand for all below it."""
    quantum = max(significand.bit_length() + exponent - 53, _LOWEST)
    # Two more bits below the quantum keep the halfway point apart from what is near to it.
    shift = quantum - exponent
    kept = significand >> shift if shift > 0 else significand << -shift
    cut = significand - (kept << shift) if shift > 0 else 0
    half = 1 << (shift - 1) if shift > 0 else 1
    if mode == "rn":
        kept += cut > half or (cut == half and kept & 1 == 1)
    else:
        kept += bool(cut) and mode != "rz" and negative == (mode == "rm")
    bits = ((quantum - _LOWEST) << 52) + kept
    if bits >= _INFINITE:
        to_largest = mode == "rz" or (mode != "rn" and negative != (mode == "rm"))
        bits = _INFINITE - to_largest
    return bits | (_SIGN if negative else 0)


def multiply_add(a: int, b: int, c: int, mode: str) -> int:
    """Bits of ``a * b + c``, rounded once."""
    negative = bool((a ^ b) & _SIGN)
    infinite = _is_infinite(a) or _is_infinite(b)
    if any(map(_is_nan, (a, b, c))) or (infinite and not (a & ~_SIGN and b & ~_SIGN)):
        return _NAN
    if infinite:
        return _NAN if _is_infinite(c) and bool(c & _SIGN) != negative else _INFINITE | (_SIGN if negative else 0)
    if _is_infinite(c):
        return c
    (_, left, left_exponent), (_, right, right_exponent), (c_negative, addend, exponent) = (
        _split(a),
        _split(b),
        _split(c),
    )
    low = min(left_exponent + right_exponent, exponent)
    product = (left * right) << (left_exponent + right_exponent - low)
    total = (-product if negative else product) + ((-addend if c_negative else addend) << (exponent - low))
    if total == 0:
        both = negative and c_negative
        return _SIGN if both or (mode == "rm" and (negative or c_negative)) else 0
    return _round(total < 0, abs(total), low, mode)


def add(a: int, b: int, mode: str) -> int:
    """Bits of ``a + b``."""
    return multiply_add(a, 0x3FF << 52, b, mode)


def multiply(a: int, b: int, mode: str) -> int:
    """Bits of ``a * b``."""
    sign = (a ^ b) & _SIGN
    # An addend of the product's sign leaves a product of zero its sign.
    return multiply_add(a, b, sign, mode)


def divide(a: int, b: int, mode: str) -> int:
    """Bits of ``a / b``."""
    sign = (a ^ b) & _SIGN
    zero, infinite = (not a & ~_SIGN, not b & ~_SIGN), (_is_infinite(a), _is_infinite(b))
    if _is_nan(a) or _is_nan(b) or all(zero) or all(infinite):
        return _NAN
    if zero[0] or infinite[1]:
        return sign
    if zero[1] or infinite[0]:
        return sign | _INFINITE
    (_, left, left_exponent), (_, right, right_exponent) = _split(a), _split(b)
    quotient, rest = divmod(left << 120, right)
    return _round(bool(sign), quotient | bool(rest), left_exponent - right_exponent - 120, mode)


def root(a: int, mode: str) -> int:
    """Bits of the square root of ``a``."""
    if not a & ~_SIGN or a == _INFINITE:
        return a
    if _is_nan(a) or a & _SIGN:
        return _NAN
    _, significand, exponent = _split(a)
    shift = 128 + exponent % 2
    result = isqrt(significand << shift)
    return _round(False, result | (result * result != significand << shift), (exponent - shift) // 2, mode)


def apply(function: Callable[..., int], mode: str, *operands: Array) -> Array:
    """Apply a function of this module to arrays of bits."""
    arrays = np.broadcast_arrays(*operands)
    values = [function(*map(int, row), mode) for row in zip(*(array.ravel() for array in arrays), strict=True)]
    return np.array(values, np.uint64).reshape(arrays[0].shape)


def apply_to_integers(values: Array, mode: str) -> Array:
    """Bits of integers as ``float64``."""
    bits = [_round(value < 0, abs(value), 0, mode) if value else 0 for value in map(int, values.ravel())]
    return np.array(bits, np.uint64).reshape(values.shape)
