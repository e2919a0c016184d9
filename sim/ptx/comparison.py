"""Comparison and selection (PTX ISA, "Comparison and Selection Instructions" and their half-precision forms)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .floats import FORMATS, each_part, flush, is_nan, widen
from .form import VIEWS, Array, Entry, Form, ValueOperation, storage_of, stored

_WORDS = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64")
_FLOATS = ("f32", "f64")
_HALVES = ("f16", "bf16")
_PACKED = ("f16x2", "bf16x2")

SET = Entry("set", "set", "9.7.6.1", types=(*_WORDS, *_FLOATS))
SETP = Entry("setp", "setp", "9.7.6.2", types=(*_WORDS, *_FLOATS))
SELP = Entry("selp", "selp", "9.7.6.3", types=(*_WORDS, *_FLOATS))
SLCT = Entry("slct", "slct", "9.7.6.4", types=("s32", "f32"))
HALF_SET = Entry("set", "set", "9.7.7.1", types=(*_HALVES, *_PACKED))
HALF_SETP = Entry("setp", "setp", "9.7.7.2", types=(*_HALVES, *_PACKED))
TESTP = Entry("testp", "testp", "9.7.3.1", types=_FLOATS)

_COMPARISONS: dict[str, np.ufunc] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_UNSIGNED: dict[str, np.ufunc] = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
_NEGATED: dict[str, np.ufunc] = {
    "ltu": np.greater_equal, "leu": np.greater, "gtu": np.less_equal, "geu": np.less,
}  # fmt: skip
"""Ordered comparison that is false exactly where the unordered one is true."""

_JOINS: dict[str, np.ufunc] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _is_less_or_greater(a: Array, b: Array) -> Array:
    return np.asarray((a < b) | (a > b))


def _comparison(form: Form, floating: bool) -> tuple[Callable[[Array, Array], Array], np.ufunc | None]:
    """The comparison, and the ufunc that does all of it if one does."""
    if not floating:
        name = form.require(*_COMPARISONS, *_UNSIGNED)
        ufunc = {**_COMPARISONS, **_UNSIGNED}[name]
        return ufunc, ufunc
    name = form.require(*_COMPARISONS, "equ", "neu", *_NEGATED, "num", "nan")
    if name in ("num", "nan"):
        return (lambda a, b: (np.isnan(a) | np.isnan(b)) == (name == "nan")), None
    if name in _NEGATED:
        return (lambda a, b: ~_NEGATED[name](a, b)), None
    if name == "ne":
        return _is_less_or_greater, None
    if name == "equ":
        return (lambda a, b: ~_is_less_or_greater(a, b)), None
    # NumPy's not_equal is true for NaN.
    ufunc = np.not_equal if name == "neu" else _COMPARISONS[name]
    return ufunc, ufunc


def _compare(form: Form, kind: str) -> tuple[str, Callable[[Array, Array], Array], np.ufunc | None]:
    """NumPy type of the sources, the comparison of such sources, and its ufunc if it is one."""
    floating = kind in (*_FLOATS, *_HALVES)
    compare, ufunc = _comparison(form, floating)
    ftz = form.take("ftz")
    if kind == "bf16":
        return "uint16", lambda a, b: compare(widen(a, "bf16"), widen(b, "bf16")), None
    view = VIEWS[kind]
    if not ftz:
        return view, compare, ufunc
    if not floating or kind == "f64":
        form.reject(".ftz needs .f32 or .f16")
    return view, lambda a, b: compare(flush(stored(a), kind).view(view), flush(stored(b), kind).view(view)), None


def _set_predicate(form: Form) -> ValueOperation:
    """setp: a second destination gets the complement, joined with the third source as the first one is."""
    join, kind = form.take(*_JOINS), form.take_type()
    if kind in _PACKED:
        return _set_packed_predicates(form, join, kind)
    view, compare, ufunc = _compare(form, kind)
    destinations = ("bool",) * len(form.destination_operands)
    two = len(destinations) == 2
    if not join:
        return form.build(
            (lambda a, b: _with_complement(compare(a, b))) if two else compare,
            (view, view), destinations, ufunc=None if two else ufunc, view="" if two else view,
        )  # fmt: skip

    def evaluate(a: Array, b: Array, c: Array) -> Array | tuple[Array, Array]:
        truth = compare(a, b)
        first = _JOINS[join](truth, c)
        return (first, _JOINS[join](~truth, c)) if two else first

    return form.build(evaluate, (view, view, "bool"), destinations)


def _with_complement(truth: Array) -> tuple[Array, Array]:
    return truth, ~truth


def _set_packed_predicates(form: Form, join: str, kind: str) -> ValueOperation:
    """Setp of two packed halves: one destination for each, the lower one first."""
    view, compare, _ = _compare(form, kind.removesuffix("x2"))

    def evaluate(a: Array, b: Array, *joined: Array) -> tuple[Array, Array]:
        halves = [
            compare(
                (a >> np.uint32(shift)).astype(np.uint16).view(view),
                (b >> np.uint32(shift)).astype(np.uint16).view(view),
            )
            for shift in (0, 16)
        ]
        first, second = (_JOINS[join](half, joined[0]) if join else half for half in halves)
        return first, second

    return form.build(evaluate, ("uint32", "uint32", *(("bool",) if join else ())), ("bool", "bool"))


_TRUE = {
    "u32": 0xFFFFFFFF,
    "s32": 0xFFFFFFFF,
    "u16": 0xFFFF,
    "s16": 0xFFFF,
    "f32": 0x3F800000,
    "f16": 0x3C00,
    "bf16": 0x3F80,
}
"""Bits that stand for true in each type of the result of set."""


def _set(form: Form) -> ValueOperation:
    """set: true as all ones, or as 1.0."""
    join = form.take(*_JOINS)
    kinds = form.take_types()
    if len(kinds) != 2 or kinds[0].removesuffix("x2") not in _TRUE or (kinds[1] in _PACKED and kinds[0] != kinds[1]):
        form.reject("it needs a type of the result and one of the sources")
    result, source = (kind.removesuffix("x2") for kind in kinds)
    view, compare, _ = _compare(form, source)
    storage = storage_of(result)
    true, false = (np.dtype(storage).type(bits) for bits in (_TRUE[result], 0))

    def evaluate(a: Array, b: Array, *joined: Array) -> Array:
        truth = compare(a, b)
        return np.where(_JOINS[join](truth, joined[0]) if join else truth, true, false)

    if kinds[1] in _PACKED:
        if join:
            form.reject("packed halves are not joined with a predicate")
        packed = storage_of(kinds[1])
        return form.build(
            each_part(lambda a, b: evaluate(a.view(view), b.view(view)), kinds[1]), (packed,) * 2, (packed,)
        )
    return form.build(evaluate, (view, view, *(("bool",) if join else ())), (storage,))


def _select(form: Form) -> ValueOperation:
    storage = storage_of(form.take_type())
    return form.build(lambda a, b, p: np.where(p, a, b), (storage, storage, "bool"), (storage,))


def _select_by_sign(form: Form) -> ValueOperation:
    """slct: ``a`` where ``c`` is at least zero (minus zero is), ``b`` elsewhere and where it is a NaN."""
    ftz = form.take("ftz")
    kinds = form.take_types()
    if len(kinds) != 2 or (ftz and kinds[1] != "f32"):
        form.reject("it needs two types, and .f32 last for .ftz")
    storage, view = storage_of(kinds[0]), VIEWS[kinds[1]]

    def evaluate(a: Array, b: Array, c: Array) -> Array:
        tested = flush(stored(c), "f32").view(np.float32) if ftz else c
        return np.where(tested >= 0, a, b)

    return form.build(evaluate, (storage, storage, view), (storage,))


def _test(form: Form) -> ValueOperation:
    """testp: a zero is normal here, as the ISA says."""
    name = form.require("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    kind = form.take_type()
    number, storage = FORMATS[kind], storage_of(kind)

    def evaluate(a: Array) -> Array:
        exponent = a & a.dtype.type(number.infinite)
        magnitude = a & a.dtype.type(number.sign - 1)
        finite = exponent != number.infinite
        subnormal = (exponent == 0) & (magnitude != 0)
        nan = is_nan(a, kind)
        return {
            "finite": finite, "infinite": magnitude == number.infinite, "number": ~nan, "notanumber": nan,
            "normal": finite & ~subnormal, "subnormal": subnormal,
        }[name]  # fmt: skip

    return form.build(evaluate, (storage,), ("bool",))


RULES: dict[Entry, Callable[[Form], ValueOperation]] = {
    SET: _set,
    SETP: _set_predicate,
    SELP: _select,
    SLCT: _select_by_sign,
    HALF_SET: _set,
    HALF_SETP: _set_predicate,
    TESTP: _test,
}
"""How each instruction of this module is resolved."""
