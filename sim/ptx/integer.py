"""Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic").

Arithmetic wraps, as on the hardware.  Where the ISA leaves a result open
(division by zero), it is what the hardware gives, see ``Entry.note``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .form import VIEWS, Array, Entry, Form, ValueOperation, storage_of, stored

_WORDS = ("u16", "s16", "u32", "s32", "u64", "s64")
_PAIRS = ("u16x2", "s16x2")
_SIGNED = ("s16", "s32", "s64")
_DIVISION = "division by zero is unspecified in the ISA; here, as on the hardware, all bits of the result are set"

ADD = Entry("add", "add", "9.7.1.1", types=(*_WORDS, *_PAIRS))
SUB = Entry("sub", "sub", "9.7.1.2", types=_WORDS)
MUL = Entry("mul", "mul", "9.7.1.3", types=_WORDS)
MAD = Entry("mad", "mad", "9.7.1.4", types=_WORDS)
MUL24 = Entry("mul24", "mul24", "9.7.1.5", types=("u32", "s32"))
MAD24 = Entry("mad24", "mad24", "9.7.1.6", types=("u32", "s32"))
SAD = Entry("sad", "sad", "9.7.1.7", types=_WORDS)
DIV = Entry("div", "div", "9.7.1.8", types=_WORDS, note=_DIVISION)
REM = Entry("rem", "rem", "9.7.1.9", types=_WORDS, note=_DIVISION)
ABS = Entry("abs", "abs", "9.7.1.10", types=_SIGNED)
NEG = Entry("neg", "neg", "9.7.1.11", types=_SIGNED)
MIN = Entry("min", "min", "9.7.1.12", types=(*_WORDS, *_PAIRS))
MAX = Entry("max", "max", "9.7.1.13", types=(*_WORDS, *_PAIRS))
DP4A = Entry("dp4a", "dp4a", "9.7.1.23", types=("u32", "s32"))
DP2A = Entry("dp2a", "dp2a", "9.7.1.24", types=("u32", "s32"))
ADD_CC = Entry("add", "add.cc", "9.7.2.1", types=("u32", "s32", "u64", "s64"), marks=("cc",))
ADDC = Entry("addc", "addc", "9.7.2.2", types=("u32", "s32", "u64", "s64"))
SUB_CC = Entry("sub", "sub.cc", "9.7.2.3", types=("u32", "s32", "u64", "s64"), marks=("cc",))
SUBC = Entry("subc", "subc", "9.7.2.4", types=("u32", "s32", "u64", "s64"))
MAD_CC = Entry("mad", "mad.cc", "9.7.2.5", types=("u32", "s32", "u64", "s64"), marks=("cc",))
MADC = Entry("madc", "madc", "9.7.2.6", types=("u32", "s32", "u64", "s64"))


def divide(a: Array, b: Array) -> Array:
    """Quotient, rounded toward zero; all bits set where ``b`` is zero."""
    if a.dtype.kind == "u":
        return np.where(b == 0, ~np.zeros_like(a), a // np.where(b == 0, np.ones_like(b), b))
    negative = (a < 0) != (b < 0)
    quotient = divide(_magnitude(a), _magnitude(b)).view(a.dtype)
    return np.where((b != 0) & negative, -quotient, quotient)


def remainder(a: Array, b: Array) -> Array:
    """What ``divide`` leaves, with the sign of ``a``; all bits set where ``b`` is zero."""
    return np.where(b == 0, ~np.zeros_like(a), a - b * divide(a, b))


def _magnitude(values: Array) -> Array:
    """Absolute values of signed integers, as unsigned ones."""
    return np.where(values < 0, -values, values).view(values.dtype.str.replace("i", "u"))


def multiply_high(a: Array, b: Array) -> Array:
    """Upper half of the full product."""
    width = 8 * a.dtype.itemsize
    if width < 64:
        wide = f"{'int' if a.dtype.kind == 'i' else 'uint'}{2 * width}"
        return ((a.astype(wide) * b.astype(wide)) >> width).astype(a.dtype)
    high = _multiply_high_unsigned(stored(a), stored(b))
    if a.dtype.kind == "u":
        return high
    # A negative factor was taken for 2**64 more than it is.
    return high.view(np.int64) - np.where(a < 0, b, 0) - np.where(b < 0, a, 0)


def _multiply_high_unsigned(a: Array, b: Array) -> Array:
    """Upper 64 bits of a 128-bit product, from four 32-bit ones."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    middle = (a >> half) * (b & low) + (((a & low) * (b & low)) >> half)
    crossed = (a & low) * (b >> half) + (middle & low)
    return (a >> half) * (b >> half) + (middle >> half) + (crossed >> half)


def _multiply_wide(a: Array, b: Array) -> Array:
    wide = f"{'int' if a.dtype.kind == 'i' else 'uint'}{16 * a.dtype.itemsize}"
    return a.astype(wide) * b.astype(wide)


def _saturate(wide: Array) -> Array:
    """64-bit results clamped to s32."""
    return np.clip(wide, -(2**31), 2**31 - 1).astype(np.int32)


def _halves(function: Callable[..., Array], view: str) -> Callable[..., Array]:
    """Apply a function to each 16-bit half of packed operands."""

    def evaluate(*operands: Array) -> Array:
        parts = [np.ascontiguousarray(operand).view(view) for operand in np.broadcast_arrays(*operands)]
        return np.ascontiguousarray(function(*parts)).view(np.uint32)

    return evaluate


def _build(form: Form, kind: str, function: Callable[..., Array], count: int, ufunc: np.ufunc | None) -> ValueOperation:
    """An operation whose sources and destination have one type."""
    storage = storage_of(kind)
    if kind in _PAIRS:
        return form.build(
            _halves(function, kind.replace("s", "int").replace("u", "uint")[:-2]), (storage,) * count, (storage,)
        )
    view = VIEWS[kind]
    return form.build(lambda *sources: stored(function(*sources)), (view,) * count, (storage,), ufunc=ufunc, view=view)


def _add_or_subtract(function: np.ufunc) -> Callable[[Form], ValueOperation]:
    def rule(form: Form) -> ValueOperation:
        saturated, kind = form.take("sat"), form.take_type()
        if not saturated:
            return _build(form, kind, function, 2, function)
        if kind != "s32":
            form.reject(".sat needs .s32")
        return _build(form, kind, lambda a, b: _saturate(function(a.astype(np.int64), b.astype(np.int64))), 2, None)

    return rule


def _multiply(form: Form) -> ValueOperation:
    part, kind = form.require("lo", "hi", "wide"), form.take_type()
    if part == "wide":
        view = VIEWS[kind]
        wide = f"uint{16 * np.dtype(view).itemsize}"
        return form.build(lambda a, b: stored(_multiply_wide(a, b)), (view, view), (wide,))
    return _build(form, kind, *((np.multiply, 2, np.multiply) if part == "lo" else (multiply_high, 2, None)))


def _multiply_add(form: Form) -> ValueOperation:
    part, saturated, kind = form.require("lo", "hi", "wide"), form.take("sat"), form.take_type()
    if part == "wide":
        view, wide = VIEWS[kind], VIEWS[kind].replace(str(8 * np.dtype(VIEWS[kind]).itemsize), "")
        wide = f"{wide}{16 * np.dtype(view).itemsize}"
        return form.build(lambda a, b, c: stored(_multiply_wide(a, b) + c), (view, view, wide), (stored_name(wide),))
    if saturated:
        if (part, kind) != ("hi", "s32"):
            form.reject(".sat needs .hi and .s32")
        return _build(form, kind, lambda a, b, c: _saturate(multiply_high(a, b).astype(np.int64) + c), 3, None)
    product = np.multiply if part == "lo" else multiply_high
    return _build(form, kind, lambda a, b, c: product(a, b) + c, 3, None)


def stored_name(view: str) -> str:
    """Storage of values of a NumPy integer type."""
    return view if view.startswith("u") else f"u{view}"


def _multiply24(form: Form) -> ValueOperation:
    part, saturated, kind = form.require("lo", "hi"), form.take("sat"), form.take_type()
    shift = np.int64(16 if part == "hi" else 0)

    def product(a: Array, b: Array) -> Array:
        return (_extend24(a) * _extend24(b)) >> shift

    if form.entry is MUL24:
        return _build(form, kind, lambda a, b: product(a, b).astype(a.dtype), 2, None)
    if not saturated:
        return _build(form, kind, lambda a, b, c: product(a, b).astype(a.dtype) + c, 3, None)
    if (part, kind) != ("hi", "s32"):
        form.reject(".sat needs .hi and .s32")
    return _build(form, kind, lambda a, b, c: _saturate(product(a, b).astype(np.int32).astype(np.int64) + c), 3, None)


def _extend24(values: Array) -> Array:
    """Lower 24 bits, extended to 64 as the type says."""
    if values.dtype.kind == "u":
        return (values & np.uint32(0xFFFFFF)).astype(np.int64)
    return ((values << np.int32(8)) >> np.int32(8)).astype(np.int64)


def _sum_of_difference(form: Form) -> ValueOperation:
    return _build(form, form.take_type(), lambda a, b, c: c + (np.maximum(a, b) - np.minimum(a, b)), 3, None)


def _plain(function: Callable[..., Array], count: int, ufunc: np.ufunc | None) -> Callable[[Form], ValueOperation]:
    return lambda form: _build(form, form.take_type(), function, count, ufunc)


def _extreme(function: np.ufunc) -> Callable[[Form], ValueOperation]:
    def rule(form: Form) -> ValueOperation:
        relu, kind = form.take("relu"), form.take_type()
        if not relu:
            return _build(form, kind, function, 2, function)
        if kind not in ("s32", "s16x2"):
            form.reject(".relu needs .s32 or .s16x2")
        return _build(form, kind, lambda a, b: np.maximum(function(a, b), 0), 2, None)

    return rule


def _dot_product(form: Form) -> ValueOperation:
    """dp4a and dp2a: products of bytes, or of half-words and bytes, added to ``c``."""
    half = form.require("lo", "hi") if form.entry is DP2A else ""
    kinds = form.take_types()
    if len(kinds) != 2 or not set(kinds) <= {"u32", "s32"}:
        form.reject("it needs two types")
    wide = np.int32 if "s32" in kinds else np.uint32
    first, second = (kind[0].replace("s", "int").replace("u", "uint") for kind in kinds)

    def evaluate(a: Array, b: Array, c: Array) -> Array:
        a, b, c = (np.ascontiguousarray(operand) for operand in np.broadcast_arrays(a, b, c))
        left = a[..., None].view(f"{first}{16 if half else 8}").astype(wide)
        right = b[..., None].view(f"{second}8").astype(wide)
        if half:
            right = right[..., :2] if half == "lo" else right[..., 2:]
        return stored((left * right).sum(axis=-1, dtype=wide) + c.view(wide))

    return form.build(evaluate, ("uint32",) * 3, ("uint32",))


def _with_carry(form: Form) -> ValueOperation:
    """add.cc, addc, sub.cc, subc: the carry is the last source and the last destination; a borrow is a carry."""
    form.take("cc")
    kind = form.take_type()
    subtract = form.instruction.opcode.startswith("sub")
    view, reads = storage_of(kind), form.entry in (ADDC, SUBC)
    writes = len(form.destination_operands) == 2

    def evaluate(a: Array, b: Array, *carry: Array) -> Array | tuple[Array, Array]:
        extra = carry[0].astype(view) if carry else np.zeros_like(a)
        first = a - b if subtract else a + b
        result = first - extra if subtract else first + extra
        carried = ((a < b) | (first < extra)) if subtract else ((first < a) | (result < first))
        return (result, carried) if writes else result

    return form.build(evaluate, (view, view, *(("bool",) if reads else ())), (view, *(("bool",) if writes else ())))


def _multiply_with_carry(form: Form) -> ValueOperation:
    """mad.cc and madc."""
    form.take("cc")
    part, kind = form.require("lo", "hi"), form.take_type()
    view, storage, reads = VIEWS[kind], storage_of(kind), form.entry is MADC
    writes = len(form.destination_operands) == 2
    product = np.multiply if part == "lo" else multiply_high

    def evaluate(a: Array, b: Array, c: Array, *carry: Array) -> Array | tuple[Array, Array]:
        first = stored(product(a, b))
        second = first + stored(c)
        result = second + (carry[0].astype(storage) if carry else np.zeros_like(second))
        return (result, (second < first) | (result < second)) if writes else result

    return form.build(evaluate, (view,) * 3 + (("bool",) if reads else ()), (storage, *(("bool",) if writes else ())))


RULES: dict[Entry, Callable[[Form], ValueOperation]] = {
    ADD_CC: _with_carry,
    SUB_CC: _with_carry,
    MAD_CC: _multiply_with_carry,
    ADDC: _with_carry,
    SUBC: _with_carry,
    MADC: _multiply_with_carry,
    ADD: _add_or_subtract(np.add),
    SUB: _add_or_subtract(np.subtract),
    MUL: _multiply,
    MAD: _multiply_add,
    MUL24: _multiply24,
    MAD24: _multiply24,
    SAD: _sum_of_difference,
    DIV: _plain(divide, 2, None),
    REM: _plain(remainder, 2, None),
    ABS: _plain(np.abs, 1, np.absolute),
    NEG: _plain(np.negative, 1, np.negative),
    MIN: _extreme(np.minimum),
    MAX: _extreme(np.maximum),
    DP4A: _dot_product,
    DP2A: _dot_product,
}
"""How each instruction of this module is resolved; more demanding entries first."""
