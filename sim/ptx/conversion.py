"""Conversions (PTX ISA, "Data Movement and Conversion Instructions: cvt")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import exact
from .floating import saturate
from .floats import FORMATS, ROUNDINGS, canonical, convert_nan, flush, is_nan, round_to, widen
from .form import VIEWS, Array, Entry, Form, ValueOperation, storage_of, stored

_INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_FLOATS = ("f16", "bf16", "f32", "f64")
_SMALL = ("e4m3x2", "e5m2x2")
_INTEGRAL: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}

CVT = Entry(
    "cvt", "cvt", "9.7.9.21", types=(*_INTEGERS, *_FLOATS, "f16x2", *_SMALL),
    note="a NaN becomes 0, or the highest bit alone where either side has 64 bits",
)  # fmt: skip


def _convert(form: Form) -> ValueOperation:
    integral, mode = form.take(*_INTEGRAL), form.take(*ROUNDINGS, "rna")
    kinds = form.take_types()
    if len(kinds) != 2:
        form.reject("it needs two types")
    target, source = kinds
    if target.endswith("x2") or source in _SMALL:
        return _convert_packed(form, target, source, mode)
    function = _conversion(form, target, source, integral, mode)
    read = form.storage(form.source_operands[0]) or _register(source)
    wrote = form.storage(form.destination_operands[0]) or _register(target)

    def evaluate(a: Array) -> Array:
        return _extend(function(a.astype(storage_of(source), copy=False).view(VIEWS[source])), target, wrote)

    return form.build(evaluate, (read,), (wrote,), any_width=True)


def _register(kind: str) -> str:
    """Storage of the narrowest register for a type."""
    return "uint16" if kind in ("u8", "s8") else storage_of(kind)


def _extend(values: Array, kind: str, storage: str) -> Array:
    """Results in a register that may be wider than they are: by the sign, or by zeros."""
    if kind[0] == "s":
        return stored(values.astype(storage.replace("u", ""), copy=False))
    return stored(values).astype(storage, copy=False)


def _conversion(form: Form, target: str, source: str, integral: str, mode: str) -> Callable[[Array], Array]:
    """The function from values of one type to values, or bits, of the other."""
    if source in _FLOATS and target in _FLOATS:
        return _float_conversion(form, target, source, integral, mode)
    ftz, saturated = form.take("ftz"), form.take("sat")
    if ftz and "f32" not in (target, source):
        form.reject(".ftz needs .f32")
    if target in _INTEGERS and source in _INTEGERS:
        return lambda a: _clamp(a, target) if saturated else a.astype(VIEWS[target])
    if not (integral if target in _INTEGERS else mode):
        form.reject("it needs a rounding modifier")
    if target in _INTEGERS:
        return lambda a: _to_integer(_flushed(stored(a), source, bool(ftz)), source, target, integral)
    return lambda a: _saturated(_from_integer(a, target, mode), target, bool(saturated))


def _float_conversion(form: Form, target: str, source: str, integral: str, mode: str) -> Callable[[Array], Array]:
    """The function from bits of one floating-point format to bits of another."""
    ftz, saturated = form.take("ftz"), form.take("sat")
    rectified, finite = form.take("relu"), form.take("satfinite")
    if ftz and "f32" not in (target, source):
        form.reject(".ftz needs .f32")
    if FORMATS[target].precision < FORMATS[source].precision and not mode:
        form.reject("it needs a rounding modifier")
    if _is_copy(source, target, integral or ftz or saturated):
        storage = storage_of(target)
        shift = np.dtype(storage).type(16 if source == "bf16" else 0)
        return lambda a: stored(a).astype(storage) << shift

    def evaluate(a: Array) -> Array:
        bits = stored(a)
        if ftz and source == "f32" and target != "f16":
            # On the way to f16 the hardware keeps subnormal operands, whatever the modifier.
            bits = flush(canonical(bits, "f32"), "f32")
        bits = _between(bits, source, target, integral, mode, bool(finite))
        bits = _saturated(_flushed(bits, target, bool(ftz)), target, bool(saturated))
        return _rectified(bits, target) if rectified else bits

    return evaluate


def _is_copy(source: str, target: str, changed: str) -> bool:
    """Whether a conversion copies bits, so that a NaN stays as it is; bf16 is the upper half of f32."""
    return not changed and (source, target) in (("f32", "f32"), ("f64", "f64"), ("bf16", "f32"))


def _flushed(bits: Array, kind: str, ftz: bool) -> Array:
    return flush(bits, kind) if ftz and kind == "f32" else bits


def _saturated(bits: Array, kind: str, saturated: bool) -> Array:
    return saturate(bits, kind) if saturated else bits


def _rectified(bits: Array, kind: str) -> Array:
    """Negative values become plus zero; a NaN stays."""
    return np.where(is_nan(bits, kind) | (bits & bits.dtype.type(FORMATS[kind].sign) == 0), bits, 0).astype(bits.dtype)


def _clamp(values: Array, kind: str) -> Array:
    """Integers clamped to the range of another integer type."""
    bounds, own = np.iinfo(VIEWS[kind]), np.iinfo(values.dtype)
    low, high = max(int(bounds.min), int(own.min)), min(int(bounds.max), int(own.max))
    return np.clip(values, values.dtype.type(low), values.dtype.type(high)).astype(VIEWS[kind])


def _from_integer(values: Array, kind: str, mode: str) -> Array:
    """Bits of integers in a floating-point format."""
    if kind == "f64":
        if mode == "rn" or values.dtype.itemsize < 8:
            return values.astype(np.float64).view(np.uint64)
        return exact.apply_to_integers(values, mode)
    if kind == "f32" and mode == "rn":
        return values.astype(np.float32).view(np.uint32)
    if values.dtype.itemsize < 8:
        return round_to(values.astype(np.float64), kind, mode)
    # Odd rounding to 53 bits: what is below them becomes one set bit.
    low = values & values.dtype.type(0x7FF)
    rounded = np.where(low != 0, (values - low) | values.dtype.type(0x800), values)
    small = np.abs(values.astype(np.float64)) < 2.0**52
    return round_to(np.where(small, values, rounded).astype(np.float64), kind, mode)


def _to_integer(bits: Array, source: str, kind: str, integral: str) -> Array:
    """Integers of floating-point values, clamped to the range of their type."""
    bounds = np.iinfo(VIEWS[kind])
    values = _INTEGRAL[integral](widen(bits, source))
    # The upper bound of 64-bit types is no float64; the comparison is with the next number, which is.
    above, below = values >= float(bounds.max) + (kind not in ("u64", "s64")), values <= float(bounds.min)
    inside = np.where(above | below | np.isnan(values), 0.0, values).astype(VIEWS[kind])
    undefined = bounds.min if kind[0] == "s" else 1 << (bounds.bits - 1)
    nan = undefined if source == "f64" or kind in ("u64", "s64") else 0
    result = np.where(above, bounds.max, np.where(below, bounds.min, inside))
    return np.where(np.isnan(values), np.dtype(VIEWS[kind]).type(nan), result).astype(VIEWS[kind])


def _between(bits: Array, source: str, target: str, integral: str, mode: str, finite: bool) -> Array:
    """Bits in one floating-point format of bits in another."""
    if (source, target, mode, finite) == ("f32", "bf16", "rn", False):
        return _cut_to_brain_float(bits)
    values = widen(bits, source)
    if integral:
        values = np.copysign(_INTEGRAL[integral](values), values)
    result = values.view(np.uint64) if target == "f64" else round_to(values, target, mode or "rn", finite=finite)
    # Conversions of f64 keep what they can of a NaN; all others give the one that arithmetic returns.
    if "f64" in (source, target):
        return np.where(is_nan(bits, source), convert_nan(bits, source, target), result)
    return result


def _cut_to_brain_float(bits: Array) -> Array:
    """The upper half of f32, rounded to nearest even."""
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + (odd + np.uint32(0x7FFF))) >> np.uint32(16)).astype(np.uint16)
    return np.where(is_nan(bits, "f32"), np.uint16(FORMATS["bf16"].nan), rounded)


def _convert_packed(form: Form, target: str, source: str, mode: str) -> ValueOperation:
    """Two values at once: the first source, or upper half, becomes the upper half of the result."""
    rectified, finite = form.take("relu"), form.take("satfinite")
    part, storage = target.removesuffix("x2"), storage_of(target)
    if mode not in ("rn", "rz") or (mode == "rz" and source != "f32") or (target in _SMALL and not finite):
        form.reject("it needs a rounding modifier, and .satfinite for 8-bit results")
    width = FORMATS[part].width

    def narrow(bits: Array, kind: str) -> Array:
        if (kind, part, mode, finite) == ("f32", "bf16", "rn", ""):
            result = _cut_to_brain_float(bits)
        else:
            result = round_to(widen(bits, kind), part, mode, finite=bool(finite))
        return (_rectified(result, part) if rectified else result).astype(storage)

    def join(upper: Array, lower: Array) -> Array:
        return (upper << np.dtype(storage).type(width)) | lower

    if source == "f32":
        return form.build(lambda a, b: join(narrow(a, "f32"), narrow(b, "f32")), ("uint32", "uint32"), (storage,))
    if not (source == "f16x2" and target in _SMALL) and not (source in _SMALL and target == "f16x2"):
        form.reject("the table has no such packed conversion")
    single, read = source.removesuffix("x2"), storage_of(source)
    half, bits = f"uint{FORMATS[single].width}", FORMATS[single].width

    def evaluate(a: Array) -> Array:
        upper = (a >> np.dtype(read).type(bits)).astype(half)
        return join(narrow(upper, single), narrow(a.astype(half), single))

    return form.build(evaluate, (read,), (storage,))


def _convert_to_tf32(form: Form) -> ValueOperation:
    """Cvt to tf32: 10 bits of fraction in the upper 19 bits of a 32-bit register."""
    mode, rectified = form.require("rna", "rn", "rz"), form.take("relu")
    finite = form.take("satfinite")
    if form.take_types() != ("tf32", "f32") or (rectified and mode == "rna") or (finite and mode != "rna"):
        form.reject("the table has no such conversion to .tf32")

    low = np.uint32((1 << 13) - 1)

    def evaluate(a: Array) -> Array:
        bits = round_to(widen(a, "f32"), "tf32", mode, finite=bool(finite)) << np.uint32(13)
        # .rna cuts a NaN off like any number, which may make it an infinity; the others return one NaN.
        nan = a & ~low if mode == "rna" else ~low & np.uint32(FORMATS["f32"].nan)
        bits = np.where(is_nan(a, "f32"), nan, bits)
        return _rectified(bits, "f32") if rectified else bits

    return form.build(evaluate, ("uint32",), ("uint32",))


def _pack(form: Form) -> ValueOperation:
    """cvt.pack: two integers clamped to 16 or 8 bits; the latter go below the lower half of a third operand."""
    form.require("pack")
    form.require("sat")
    target, *sources = form.take_types()
    wide = target in ("u16", "s16")
    if sources != (["s32"] if wide else ["s32", "b32"]) or target not in ("u16", "s16", "u8", "s8"):
        form.reject("the table packs .s32 to .u16 or .s16, or to .u8 or .s8 with .b32")
    width = np.uint32(16 if wide else 8)

    def evaluate(a: Array, b: Array, *above: Array) -> Array:
        upper, lower = (stored(_clamp(operand, target)).astype(np.uint32) for operand in (a, b))
        packed = (upper << width) | lower
        return packed | (above[0] << np.uint32(16)) if above else packed

    return form.build(evaluate, ("int32", "int32", *(() if wide else ("uint32",))), ("uint32",))


PACK = Entry("cvt", "cvt.pack", "9.7.9.22", types=("s32", "b32"), marks=("pack",))
TF32 = Entry("cvt", "cvt", "9.7.9.21", types=("f32",), marks=("tf32",))

RULES: dict[Entry, Callable[[Form], ValueOperation]] = {PACK: _pack, TF32: _convert_to_tf32, CVT: _convert}
"""How each instruction of this module is resolved."""
