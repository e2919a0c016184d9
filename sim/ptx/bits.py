"""Counts of bits, bit fields and bytes (PTX ISA, parts of "Integer Arithmetic Instructions", and "prmt")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .form import VIEWS, Array, Entry, Form, ValueOperation, storage_of, stored
from .logic import shift_left, shift_right
from .module import Immediate

_BITS = ("b32", "b64")
_WIDE = ("u32", "s32", "u64", "s64")

POPC = Entry("popc", "popc", "9.7.1.14", types=_BITS)
CLZ = Entry("clz", "clz", "9.7.1.15", types=_BITS)
BFIND = Entry("bfind", "bfind", "9.7.1.16", types=_WIDE)
FNS = Entry(
    "fns", "fns", "9.7.1.17", types=("b32",), note="a base past 31 is undefined in the ISA; here nothing is found"
)
BREV = Entry("brev", "brev", "9.7.1.18", types=_BITS)
_PLACES = "places past 255 are undefined in the ISA; here, as on the hardware, 64-bit forms take them as they are"
BFE = Entry("bfe", "bfe", "9.7.1.19", types=_WIDE, note=_PLACES)
BFI = Entry("bfi", "bfi", "9.7.1.20", types=_BITS, note=_PLACES)
SZEXT = Entry("szext", "szext", "9.7.1.21", types=("u32", "s32"))
BMSK = Entry("bmsk", "bmsk", "9.7.1.22", types=("b32",))
PRMT = Entry("prmt", "prmt", "9.7.9.7", types=("b32",))


def count_bits(values: Array) -> Array:
    """Number of set bits."""
    return np.bitwise_count(values).astype(np.uint32)


def smear(values: Array) -> Array:
    """Every bit below the highest set one, and that one."""
    for shift in (1, 2, 4, 8, 16, 32)[: 5 if values.dtype.itemsize == 4 else 6]:
        values = values | (values >> values.dtype.type(shift))
    return values


def count_leading_zeros(values: Array) -> Array:
    """Zeros above the highest set bit."""
    if values.dtype.itemsize == 4:
        # The exponent of a float64, which holds every such integer.
        return (32 - np.frexp(values.astype(np.float64))[1]).astype(np.uint32)
    return np.uint32(64) - count_bits(smear(values))


def _count(function: Callable[[Array], Array]) -> Callable[[Form], ValueOperation]:
    """Popc and clz: a 32-bit count of a wider or equal word."""
    return lambda form: form.build(function, (storage_of(form.take_type()),), ("uint32",))


def _find_highest(form: Form) -> ValueOperation:
    """bfind: highest bit that differs from the sign; all bits set if there is none."""
    shift, kind = form.take("shiftamt"), form.take_type()
    width = int(kind[1:])

    def evaluate(a: Array) -> Array:
        magnitude = stored(np.where(a < 0, ~a, a)) if kind[0] == "s" else a
        place = count_bits(smear(magnitude)) - np.uint32(1)
        return np.where((magnitude != 0) & bool(shift), np.uint32(width - 1) - place, place)

    return form.build(evaluate, (VIEWS[kind],), ("uint32",))


def _find_nth(form: Form) -> ValueOperation:
    form.take_type()

    def evaluate(mask: Array, base: Array, offset: Array) -> Array:
        mask, base, offset = np.broadcast_arrays(mask, base, offset)
        bits = (mask[..., None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1) != 0
        places = np.arange(32, dtype=np.int64)
        start, wanted = base.astype(np.int64)[..., None], offset.astype(np.int64)[..., None]
        ahead = np.where(wanted < 0, places <= start, np.where(wanted > 0, places >= start, places == start))
        bits = bits & ahead & (start < 32)
        up = np.cumsum(bits, axis=-1)
        down = up[..., -1:] - up + bits
        ordinal = np.where(wanted < 0, down, up)
        found = bits & (ordinal == np.maximum(np.abs(wanted), 1))
        return np.where(found.any(-1), found.argmax(-1), 0xFFFFFFFF).astype(np.uint32)

    return form.build(evaluate, ("uint32", "uint32", "int32"), ("uint32",))


def reverse_bits(values: Array) -> Array:
    """The bits in opposite order."""
    for shift in (1, 2, 4, 8, 16, 32)[: 5 if values.dtype.itemsize == 4 else 6]:
        ones = (1 << 8 * values.dtype.itemsize) - 1
        mask = values.dtype.type(ones // ((1 << shift) + 1))
        step = values.dtype.type(shift)
        values = ((values >> step) & mask) | ((values & mask) << step)
    return values


def _reverse(form: Form) -> ValueOperation:
    storage = storage_of(form.take_type())
    return form.build(reverse_bits, (storage,), (storage,))


def _field_mask(position: Array, length: Array, storage: str) -> Array:
    """Bits ``position .. position + length - 1``, as far as there are such bits."""
    one = np.dtype(storage).type(1)
    ones = shift_left(np.broadcast_to(one, length.shape), length) - one
    return shift_left(ones, position)


def _place(operand: Array, width: int) -> Array:
    """Position or length of a field: the lowest 8 bits of it, or all of them in 64-bit forms."""
    return (operand if width == 64 else operand & np.uint32(255)).astype(np.int64)


def _extract(form: Form) -> ValueOperation:
    """bfe: a field past the top ends in the sign bit."""
    kind = form.take_type()
    view, storage, top = VIEWS[kind], storage_of(kind), int(kind[1:]) - 1

    def evaluate(a: Array, b: Array, c: Array) -> Array:
        position, length = _place(b, top + 1), _place(c, top + 1)
        bits = stored(a)
        field = shift_right(bits, position) & _field_mask(length * 0, length, storage)
        if kind[0] == "u":
            return field
        sign_place = np.minimum(np.where(length > 0, position + length - 1, 0), top)
        negative = (length > 0) & (shift_right(bits, sign_place) & 1 != 0)
        above = np.minimum(length, np.maximum(top + 1 - position, 0))
        return np.where(negative, field | ~_field_mask(above * 0, above, storage), field)

    if all(isinstance(operand, Immediate) for operand in form.source_operands[1:]):
        constant = _extract_constant(form.static(1), form.static(2), top + 1)
        if constant is not None:
            evaluate = constant
    return form.build(evaluate, (view, "uint32", "uint32"), (storage,))


def _extract_constant(position: int, length: int, width: int) -> Callable[..., Array] | None:
    """The two shifts that bfe is for a field within the word, or None for another field."""
    if position < 0 or length < 1 or position + length > width:
        return None
    left, right = width - length - position, width - length
    return lambda a, _b, _c: stored((a << a.dtype.type(left)) >> a.dtype.type(right))


def _insert(form: Form) -> ValueOperation:
    storage = storage_of(form.take_type())
    width = 8 * np.dtype(storage).itemsize

    def evaluate(a: Array, b: Array, c: Array, d: Array) -> Array:
        position, length = _place(c, width), _place(d, width)
        mask = _field_mask(position, length, storage)
        return (shift_left(a, position) & mask) | (b & ~mask)

    return form.build(evaluate, (storage, storage, "uint32", "uint32"), (storage,))


def _extend(form: Form) -> ValueOperation:
    mode, kind = form.require("wrap", "clamp"), form.take_type()

    def evaluate(a: Array, b: Array) -> Array:
        count = b & np.uint32(31) if mode == "wrap" else np.minimum(b, np.uint32(32))
        mask = _field_mask(count * np.uint32(0), count, "uint32")
        negative = (count > 0) & (shift_right(a, count - np.uint32(1)) & np.uint32(1) != 0) & (kind == "s32")
        return np.where(negative, a | ~mask, a & mask)

    return form.build(evaluate, ("uint32", "uint32"), ("uint32",))


def _make_mask(form: Form) -> ValueOperation:
    mode, _ = form.require("wrap", "clamp"), form.take_type()

    def evaluate(a: Array, b: Array) -> Array:
        if mode == "wrap":
            a, b = a & np.uint32(31), b & np.uint32(31)
        return _field_mask(np.minimum(a, np.uint32(32)), np.minimum(b, np.uint32(32)), "uint32")

    return form.build(evaluate, ("uint32", "uint32"), ("uint32",))


_SELECTIONS: dict[str, tuple[tuple[int, ...], ...]] = {
    "f4e": tuple(tuple(base + byte for byte in range(4)) for base in range(4)),
    "b4e": tuple(tuple((base - byte) % 8 for byte in range(4)) for base in range(4)),
    "rc8": tuple((base,) * 4 for base in range(4)),
    "ecl": tuple(tuple(max(base, byte) for byte in range(4)) for base in range(4)),
    "ecr": tuple(tuple(min(base, byte) for byte in range(4)) for base in range(4)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3)) * 2,
}
"""Bytes that each special mode of prmt selects, lowest first, by the lowest two bits of the selector."""


def _permute(form: Form) -> ValueOperation:
    form.take_type()
    mode = form.take(*_SELECTIONS)
    selections = np.array(_SELECTIONS[mode], np.uint32) if mode else None
    if selections is None and isinstance(form.source_operands[2], Immediate):
        nibbles = tuple(form.static(2) >> (4 * byte) & 15 for byte in range(4))
        return form.build(_permute_constant(nibbles), ("uint32",) * 3, ("uint32",))

    def evaluate(a: Array, b: Array, c: Array) -> Array:
        both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
        result: Any = np.uint32(0)
        for byte in range(4):
            nibble = c >> np.uint32(4 * byte) if selections is None else selections[c & np.uint32(3), byte]
            value = (both >> ((nibble & np.uint32(7)) * np.uint32(8)).astype(np.uint64)).astype(np.uint32) & np.uint32(
                255
            )
            if selections is None:
                sign = (value >> np.uint32(7)) * np.uint32(255)
                value = np.where(nibble & np.uint32(8), sign, value)
            result = result | (value << np.uint32(8 * byte))
        return np.asarray(result, np.uint32)

    return form.build(evaluate, ("uint32",) * 3, ("uint32",))


def _permute_constant(nibbles: tuple[int, ...]) -> Callable[..., Array]:
    """Prmt whose selector is known."""

    def evaluate(a: Array, b: Array, _c: Array) -> Array:
        result: Any = np.uint32(0)
        for byte, nibble in enumerate(nibbles):
            value = ((b if nibble & 4 else a) >> np.uint32(8 * (nibble & 3))) & np.uint32(255)
            if nibble & 8:
                value = (value >> np.uint32(7)) * np.uint32(255)
            result = result | (value << np.uint32(8 * byte))
        return np.asarray(result, np.uint32)

    return evaluate


RULES: dict[Entry, Callable[[Form], ValueOperation]] = {
    POPC: _count(count_bits),
    CLZ: _count(count_leading_zeros),
    BFIND: _find_highest,
    FNS: _find_nth,
    BREV: _reverse,
    BFE: _extract,
    BFI: _insert,
    SZEXT: _extend,
    BMSK: _make_mask,
    PRMT: _permute,
}
"""How each instruction of this module is resolved."""
