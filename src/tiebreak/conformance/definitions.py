"""Instructions by definition, one value at a time: Python integers and fractions, nothing shared with the PTX machine.

Where the PTX ISA gives pseudocode (bfe, bfi, fns, prmt), it is followed step by step.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

FORMATS = {"f16": (11, 15), "bf16": (8, 127), "f32": (24, 127), "f64": (53, 1023)}
"""Bits of the significand, and the largest exponent."""

WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def signed(value: int, width: int) -> int:
    """The signed integer that bits stand for."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def typed(value: int, kind: str) -> int:
    """The integer that bits of a type stand for."""
    width = int(kind[1:])
    return signed(value, width) if kind[0] == "s" else value & ((1 << width) - 1)


def quotient(a: int, b: int) -> int:
    """Quotient rounded toward zero."""
    size = abs(a) // abs(b)
    return size if (a < 0) == (b < 0) else -size


def field(value: int, position: int, length: int, kind: str) -> int:
    """Bfe, bit by bit, as the PTX ISA defines it."""
    top = int(kind[1:]) - 1
    if top < 32:
        position, length = position & 255, length & 255
    sign = 0 if kind[0] == "u" or length == 0 else value >> min(position + length - 1, top) & 1
    return sum(
        (value >> (position + bit) & 1 if bit < length and position + bit <= top else sign) << bit
        for bit in range(top + 1)
    )


def insert(value: int, base: int, position: int, length: int, width: int) -> int:
    """Bfi, bit by bit."""
    if width == 32:
        position, length = position & 255, length & 255
    for bit in range(min(length, max(0, width - position))):
        base = base & ~(1 << (position + bit)) | (value >> bit & 1) << (position + bit)
    return base


def nth_set(mask: int, base: int, offset: int) -> int:
    """Fns, step by step."""
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    left, step, place = abs(offset) - 1, 1 if offset > 0 else -1, base
    while 0 <= place < 32:
        if mask >> place & 1:
            if left == 0:
                return place
            left -= 1
        place += step
    return 0xFFFFFFFF


def permute(a: int, b: int, selector: int) -> int:
    """Prmt, byte by byte."""
    source, result = (b << 32) | a, 0
    for byte in range(4):
        nibble = selector >> (4 * byte) & 15
        value = source >> (8 * (nibble & 7)) & 255
        result |= ((255 if value >> 7 else 0) if nibble & 8 else value) << (8 * byte)
    return result


def value_of(bits: int, kind: str) -> Fraction:
    """Exact value of the bits of a finite number."""
    precision, bias = FORMATS[kind]
    width = WIDTHS[kind]
    exponent = bits >> (precision - 1) & ((1 << (width - precision)) - 1)
    significand = bits & ((1 << (precision - 1)) - 1)
    significand |= (1 << (precision - 1)) if exponent else 0
    size = Fraction(significand) * Fraction(2) ** (max(exponent, 1) - bias - (precision - 1))
    return -size if bits >> (width - 1) else size


def is_finite(bits: int, kind: str) -> bool:
    """Whether bits are no infinity and no NaN."""
    precision, bias = FORMATS[kind]
    return bits >> (precision - 1) & (2 * bias + 1) != 2 * bias + 1


def floor_log2(value: Fraction) -> int:
    """Exponent of the largest power of two that is not above a positive number."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


def round_bits(value: Fraction, kind: str, mode: str) -> int:
    """Bits of the nearest number as a mode has it; the value is not zero."""
    precision, bias = FORMATS[kind]
    negative, size = value < 0, abs(value)
    quantum = Fraction(2) ** (max(floor_log2(size), 1 - bias) - (precision - 1))
    steps = size / quantum
    down = steps.numerator // steps.denominator
    rest = steps - down
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2 == 1)
    else:
        up = rest != 0 and ((mode == "rp" and not negative) or (mode == "rm" and negative))
    rounded = (down + up) * quantum
    sign = (1 << (WIDTHS[kind] - 1)) if negative else 0
    infinite = (2 * bias + 1) << (precision - 1)
    if rounded >= Fraction(2) ** (bias + 1):
        largest = mode == "rz" or (mode == "rp" and negative) or (mode == "rm" and not negative)
        return sign | (infinite - largest)
    if rounded == 0:
        return sign
    exponent = max(floor_log2(rounded), 1 - bias)
    significand = int(rounded / Fraction(2) ** (exponent - (precision - 1)))
    biased = exponent + bias if significand >> (precision - 1) else 0
    return sign | biased << (precision - 1) | significand & ((1 << (precision - 1)) - 1)


def round_root(value: Fraction, kind: str, mode: str) -> int:
    """Bits of the square root of a positive number; what is below 200 bits is one sticky bit."""
    scale = Fraction(4) ** (200 - floor_log2(value) // 2)
    scaled = value * scale
    whole = scaled.numerator // scaled.denominator
    root = isqrt(whole)
    exact = root * root == scaled
    step = Fraction(1) if exact else Fraction(2 * root + 1, 2 * root)
    return round_bits(root * step / Fraction(2) ** (200 - floor_log2(value) // 2), kind, mode)
