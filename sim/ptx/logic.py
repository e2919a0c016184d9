"""Logic and shifts (PTX ISA, "Logic and Shift Instructions")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .form import VIEWS, Array, Entry, Form, ValueOperation, storage_of, stored

_BITS = ("pred", "b16", "b32", "b64")
_WIDE = ("u32", "s32", "u64", "s64")

AND = Entry("and", "and", "9.7.8.1", types=_BITS)
OR = Entry("or", "or", "9.7.8.2", types=_BITS)
XOR = Entry("xor", "xor", "9.7.8.3", types=_BITS)
NOT = Entry("not", "not", "9.7.8.4", types=_BITS)
CNOT = Entry("cnot", "cnot", "9.7.8.5", types=_BITS[1:])
LOP3 = Entry("lop3", "lop3", "9.7.8.6", types=("b32",))
SHF = Entry("shf", "shf", "9.7.8.7", types=("b32",))
SHL = Entry("shl", "shl", "9.7.8.8", types=_BITS[1:], note="amounts past the width give 0")
SHR = Entry("shr", "shr", "9.7.8.9", types=(*_BITS[1:], "u16", "s16", *_WIDE), note="amounts are clamped to the width")


def _logic(function: np.ufunc, count: int) -> Callable[[Form], ValueOperation]:
    def rule(form: Form) -> ValueOperation:
        storage = storage_of(form.take_type())
        return form.build(function, (storage,) * count, (storage,), ufunc=function, view=storage)

    return rule


def _is_zero(form: Form) -> ValueOperation:
    storage = storage_of(form.take_type())
    return form.build(lambda a: (a == 0).astype(storage), (storage,), (storage,))


_TWO: tuple[Callable[[Array, Array], Array], ...] = (
    lambda b, c: b & ~b,
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, c: ~b,
    lambda b, c: b & ~c,
    lambda b, c: ~c,
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda b, c: c,
    lambda b, c: ~b | c,
    lambda b, c: b,
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    lambda b, c: b | ~b,
)
"""Boolean functions of two operands by truth table: bit ``2 b + c`` of the place is the value at ``(b, c)``."""


def _lookup(form: Form) -> ValueOperation:
    """lop3: ``immLut`` is the function's value on 0xF0, 0xCC and 0xAA."""
    combine, kind = form.take("or", "and"), form.take_type()
    table = form.static(3)
    if not 0 <= table <= 255:
        form.reject("its table has 8 bits")
    without, with_a = _TWO[table & 15], _TWO[table >> 4]

    def evaluate(a: Array, b: Array, c: Array, _table: Array) -> Array:
        return (a & with_a(b, c)) | (~a & without(b, c))

    if not combine:
        return form.build(evaluate, (storage_of(kind),) * 4, (storage_of(kind),))
    join = np.logical_or if combine == "or" else np.logical_and

    def evaluate_both(a: Array, b: Array, c: Array, _table: Array, q: Array) -> tuple[Array, Array]:
        value = evaluate(a, b, c, _table)
        return value, join(value != 0, q)

    return form.build(evaluate_both, (*(storage_of(kind),) * 4, "bool"), (storage_of(kind), "bool"))


def shift_left(values: Array, amounts: Array) -> Array:
    """Left shift of unsigned values; 0 for amounts past the width."""
    width = 8 * values.dtype.itemsize
    within = (amounts < width).astype(values.dtype)
    return (values << (amounts & amounts.dtype.type(width - 1)).astype(values.dtype)) * within


def shift_right(values: Array, amounts: Array) -> Array:
    """Right shift; amounts past the width leave the sign, or 0 for unsigned values."""
    last = 8 * values.dtype.itemsize - 1
    shifted = values >> np.minimum(amounts, last).astype(values.dtype)
    return shifted if values.dtype.kind == "i" else np.where(amounts > last, 0, shifted).astype(values.dtype)


def _shift(form: Form) -> ValueOperation:
    kind = form.take_type()
    view, storage = VIEWS[kind], storage_of(kind)
    left = form.entry is SHL
    function = shift_left if left else shift_right
    return form.build(lambda a, b: stored(function(a, b)), (view, "uint32"), (storage,))


def _funnel_shift(form: Form) -> ValueOperation:
    direction, mode, _ = form.require("l", "r"), form.require("clamp", "wrap"), form.take_type()

    def evaluate(a: Array, b: Array, c: Array) -> Array:
        amount = (np.minimum(c, np.uint32(32)) if mode == "clamp" else c & np.uint32(31)).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
        shifted = (both << amount) >> np.uint64(32) if direction == "l" else both >> amount
        return shifted.astype(np.uint32)

    return form.build(evaluate, ("uint32",) * 3, ("uint32",))


RULES: dict[Entry, Callable[[Form], ValueOperation]] = {
    AND: _logic(np.bitwise_and, 2),
    OR: _logic(np.bitwise_or, 2),
    XOR: _logic(np.bitwise_xor, 2),
    NOT: _logic(np.invert, 1),
    CNOT: _is_zero,
    LOP3: _lookup,
    SHF: _funnel_shift,
    SHL: _shift,
    SHR: _shift,
}
"""How each instruction of this module is resolved."""
