"""Cases of floating-point arithmetic, comparisons and conversions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .case import Case
from .integer_cases import WORDS, same

_ROUNDINGS = ("rn", "rz", "rm", "rp")
_INTEGRAL = ("rni", "rzi", "rmi", "rpi")
_HALVES = ("f16", "f16x2", "bf16", "bf16x2")
_INTEGERS = ("u8", "s8", *WORDS)


def make_floating_cases() -> Iterator[Case]:
    """Every case of this module."""
    yield from _single_and_double()
    yield from _without_rounding()
    yield from _nans()
    yield from _halves()
    yield from _extremes()
    yield from _signs()
    yield from _comparisons()
    yield from _half_comparisons()
    yield from _integer_conversions()
    yield from _to_integers()
    yield from _from_integers()
    yield from _between_floats()
    yield from _packed_conversions()
    yield from _approximations()


def _single_and_double() -> Iterator[Case]:
    for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("mad", 3)):
        for mode, ftz, sat in product(_ROUNDINGS, ("", ".ftz"), ("", ".sat")):
            yield same(f"{name}.{mode}{ftz}{sat}", "f32", count, count=256 if mode == "rn" or not sat else 64)
        for mode in _ROUNDINGS:
            yield same(f"{name}.{mode}", "f64", count, count=128)
    for name, count in (("div", 2), ("rcp", 1), ("sqrt", 1)):
        for mode in _ROUNDINGS:
            for ftz in ("", ".ftz"):
                yield same(f"{name}.{mode}{ftz}", "f32", count)
            yield same(f"{name}.{mode}", "f64", count, count=128)


def _without_rounding() -> Iterator[Case]:
    for name, count in (("add", 2), ("sub", 2), ("mul", 2)):
        for modifiers in ("", ".ftz", ".sat", ".ftz.sat"):
            yield same(f"{name}{modifiers}", "f32", count, count=64)
        yield same(name, "f64", count, count=64)
        for modifiers in ("", ".ftz", ".rn", ".rn.ftz"):
            yield same(f"{name}{modifiers}", "f32x2", count, target="sm_100a")
    for ftz in ("", ".ftz"):
        yield same(f"fma.rn{ftz}", "f32x2", 3, target="sm_100a")


def _nans() -> Iterator[Case]:
    """Which of several NaNs a result is."""
    for kind, mode in product(("f32", "f64", "f16", "bf16"), ("rn",)):
        names = (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("div", 2), ("rcp", 1), ("sqrt", 1))
        for name, count in names if kind in ("f32", "f64") else names[:4]:
            yield same(f"{name}.{mode}", kind, count, domains=(f"nan:{kind}",) * count, count=128)
        for name, count in (("min", 2), ("max", 2), ("abs", 1), ("neg", 1)):
            yield same(name, kind, count, domains=(f"nan:{kind}",) * count, count=128)
    for target, source in product(("f32", "f64", "f16", "bf16"), repeat=2):
        narrows = ("f64", "f32", "f16", "bf16").index(target) > ("f64", "f32", "f16", "bf16").index(source)
        if (target, source) not in (("bf16", "bf16"), ("f16", "bf16")):
            mode = ".rn" if narrows else ""
            yield Case(f"cvt{mode}.{target}.{source} d, a;", (source,), (target,), (f"nan:{source}",), count=64)


def _halves() -> Iterator[Case]:
    for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        for kind in ("f16", "f16x2"):
            for modifiers in (".rn", ".rn.ftz", ".rn.sat", ".rn.ftz.sat"):
                yield same(f"{name}{modifiers}", kind, count, count=256 if kind == "f16" else 64)
        for kind in ("bf16", "bf16x2"):
            yield same(f"{name}.rn", kind, count)
    for kind in _HALVES:
        yield same("fma.rn.relu", kind, 3, count=128)
    for kind in ("f16", "f16x2"):
        yield same("fma.rn.ftz.relu", kind, 3, count=128)
    for name in ("add", "sub", "mul"):
        for kind in _HALVES:
            yield same(name, kind, 2, count=64)


def _extremes() -> Iterator[Case]:
    for name in ("min", "max"):
        for ftz, nan, xorsign in product(("", ".ftz"), ("", ".NaN"), ("", ".xorsign.abs")):
            yield same(f"{name}{ftz}{nan}{xorsign}", "f32", 2)
            yield same(f"{name}{ftz}{nan}{xorsign}", "f16", 2, count=128)
            yield same(f"{name}{ftz}{nan}{xorsign}", "f16x2", 2, count=64)
        yield same(name, "f64", 2)
        for nan, xorsign in product(("", ".NaN"), ("", ".xorsign.abs")):
            yield same(f"{name}{nan}{xorsign}", "bf16", 2, count=128)
            yield same(f"{name}{nan}{xorsign}", "bf16x2", 2, count=64)
        for nan in ("", ".NaN"):
            yield same(f"{name}{nan}", "f32", 3, target="sm_100a")


def _signs() -> Iterator[Case]:
    for name in ("abs", "neg"):
        for kind in ("f32", "f64", *_HALVES):
            yield same(name, kind, 1, count=128)
        for kind in ("f32", "f16", "f16x2"):
            yield same(f"{name}.ftz", kind, 1, count=128)
    for kind in ("f32", "f64"):
        yield same("copysign", kind, 2, count=64)
        for name in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield Case(f"testp.{name}.{kind} d, a;", (kind,), ("pred",))


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def _comparisons() -> Iterator[Case]:
    for name in _COMPARISONS:
        for kind in ("f32", "f64"):
            yield Case(f"setp.{name}.{kind} d, a, b;", (kind, kind), ("pred",))
        yield Case(f"setp.{name}.ftz.f32 d, a, b;", ("f32", "f32"), ("pred",))
        yield Case(f"set.{name}.u32.f32 d, a, b;", ("f32", "f32"), ("u32",), count=64)
    for join in ("and", "or", "xor"):
        yield Case(f"setp.ltu.{join}.f32 d|e, a, b, c;", ("f32", "f32", "pred"), ("pred", "pred"))
        yield Case(f"setp.ge.{join}.ftz.f32 d, a, b, !c;", ("f32", "f32", "pred"), ("pred",))
        yield Case(f"set.le.{join}.s32.f64 d, a, b, c;", ("f64", "f64", "pred"), ("s32",), count=64)
    for result, kind in product(("s32", "f32"), ("f32", "f64")):
        yield Case(f"set.lt.{result}.{kind} d, a, b;", (kind, kind), (result,), count=64)
    yield Case("set.lt.ftz.f32.f32 d, a, b;", ("f32", "f32"), ("f32",), count=64)


def _half_comparisons() -> Iterator[Case]:
    for name in _COMPARISONS:
        for kind in ("f16", "bf16"):
            yield Case(f"setp.{name}.{kind} d, a, b;", (kind, kind), ("pred",))
            yield Case(f"setp.{name}.{kind}x2 d|e, a, b;", (f"{kind}x2",) * 2, ("pred", "pred"))
        yield Case(f"setp.{name}.ftz.f16 d, a, b;", ("f16", "f16"), ("pred",))
    for join in ("and", "or", "xor"):
        yield Case(f"setp.lt.{join}.f16 d, a, b, c;", ("f16", "f16", "pred"), ("pred",))
        yield Case(f"setp.lt.{join}.f16x2 d|e, a, b, c;", ("f16x2", "f16x2", "pred"), ("pred", "pred"))
    for result in ("f16", "u16", "s16", "u32", "s32"):
        yield Case(f"set.ge.{result}.f16 d, a, b;", ("f16", "f16"), (result,), count=64)
    for result in ("bf16", "u16", "s16", "u32", "s32"):
        yield Case(f"set.ge.{result}.bf16 d, a, b;", ("bf16", "bf16"), (result,), count=64)
    yield Case("set.ge.f16x2.f16x2 d, a, b;", ("f16x2", "f16x2"), ("f16x2",), count=64)
    yield Case("set.ge.bf16x2.bf16x2 d, a, b;", ("bf16x2", "bf16x2"), ("bf16x2",), count=64)


def _integer_conversions() -> Iterator[Case]:
    for target, source in product(_INTEGERS, _INTEGERS):
        for saturated in ("",) if _holds(target, source) else ("", ".sat"):
            yield Case(f"cvt{saturated}.{target}.{source} d, a;", (source,), (target,), count=64)


def _holds(target: str, source: str) -> bool:
    """Whether every value of one integer type is a value of another."""
    wider = int(target[1:]) - int(source[1:])
    return wider > 0 if source[0] == "u" and target[0] == "s" else wider >= 0 and target[0] == source[0]


def _to_integers() -> Iterator[Case]:
    for target, source, mode in product(_INTEGERS, ("f16", "f32", "f64"), _INTEGRAL):
        yield Case(f"cvt.{mode}.{target}.{source} d, a;", (source,), (target,), count=128)
    for target in ("u32", "s32", "u64", "s64"):
        yield Case(f"cvt.rpi.ftz.{target}.f32 d, a;", ("f32",), (target,), count=128)
        yield Case(f"cvt.rzi.sat.{target}.f32 d, a;", ("f32",), (target,), count=128)
    for target, mode in product(WORDS, _INTEGRAL):
        yield Case(f"cvt.{mode}.{target}.bf16 d, a;", ("bf16",), (target,), count=64)


def _from_integers() -> Iterator[Case]:
    for target, source, mode in product(("f16", "f32", "f64"), _INTEGERS, _ROUNDINGS):
        yield Case(f"cvt.{mode}.{target}.{source} d, a;", (source,), (target,), count=64)
    for source, mode in product(WORDS, _ROUNDINGS):
        yield Case(f"cvt.{mode}.bf16.{source} d, a;", (source,), ("bf16",), count=64)
    for source in ("u32", "s64"):
        yield Case(f"cvt.rn.sat.f32.{source} d, a;", (source,), ("f32",), count=64)


def _between_floats() -> Iterator[Case]:
    for mode in _ROUNDINGS:
        yield Case(f"cvt.{mode}.f32.f64 d, a;", ("f64",), ("f32",))
        yield Case(f"cvt.{mode}.ftz.f32.f64 d, a;", ("f64",), ("f32",))
        yield Case(f"cvt.{mode}.sat.f32.f64 d, a;", ("f64",), ("f32",), count=64)
        yield Case(f"cvt.{mode}.f16.f64 d, a;", ("f64",), ("f16",))
        yield Case(f"cvt.{mode}.f16.f32 d, a;", ("f32",), ("f16",))
        yield Case(f"cvt.{mode}.ftz.f16.f32 d, a;", ("f32",), ("f16",), count=64)
        yield Case(f"cvt.{mode}.sat.f16.f32 d, a;", ("f32",), ("f16",), count=64)
        yield Case(f"cvt.{mode}.bf16.f32 d, a;", ("f32",), ("bf16",))
        yield Case(f"cvt.{mode}.bf16.f64 d, a;", ("f64",), ("bf16",), count=128)
        yield Case(f"cvt.{mode}.bf16.f16 d, a;", ("f16",), ("bf16",), count=128)
        yield Case(f"cvt.{mode}.f16.bf16 d, a;", ("bf16",), ("f16",), count=128)
    for target, source in (("f64", "f32"), ("f64", "f16"), ("f32", "f16"), ("f32", "bf16"), ("f64", "bf16"),
                           ("f32", "f32"), ("f64", "f64"), ("f16", "f16")):  # fmt: skip
        yield Case(f"cvt.{target}.{source} d, a;", (source,), (target,), count=128)
    for target, source in (("f64", "f32"), ("f32", "f32"), ("f32", "f16")):
        yield Case(f"cvt.ftz.{target}.{source} d, a;", (source,), (target,), count=128)
        yield Case(f"cvt.sat.{target}.{source} d, a;", (source,), (target,), count=128)
    for kind, mode in product(("f16", "f32", "f64"), _INTEGRAL):
        yield Case(f"cvt.{mode}.{kind}.{kind} d, a;", (kind,), (kind,), count=128)
    yield Case("cvt.rni.ftz.f32.f32 d, a;", ("f32",), ("f32",), count=128)
    yield Case("cvt.rzi.sat.f32.f32 d, a;", ("f32",), ("f32",), count=128)
    for name in ("rna", "rn", "rz", "rn.relu", "rz.relu"):
        yield Case(f"cvt.{name}.tf32.f32 d, a;", ("f32",), ("b32",))
    for target, name in product(("f16", "bf16"), ("rn.relu", "rz.relu")):
        yield Case(f"cvt.{name}.{target}.f32 d, a;", ("f32",), (target,), count=128)


def _packed_conversions() -> Iterator[Case]:
    for target, name in product(("f16x2", "bf16x2"), ("rn", "rz", "rn.relu", "rz.relu")):
        yield Case(f"cvt.{name}.{target}.f32 d, a, b;", ("f32", "f32"), (target,))
    for target, name in product(("e4m3x2", "e5m2x2"), ("rn.satfinite", "rn.satfinite.relu")):
        yield Case(f"cvt.{name}.{target}.f32 d, a, b;", ("f32", "f32"), ("b16",))
        yield Case(f"cvt.{name}.{target}.f16x2 d, a;", ("f16x2",), ("b16",))
    for source, name in product(("e4m3x2", "e5m2x2"), ("rn", "rn.relu")):
        yield Case(f"cvt.{name}.f16x2.{source} d, a;", ("b16",), ("f16x2",))


def _approximations() -> Iterator[Case]:
    for name in ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2"):
        for ftz in ("", ".ftz"):
            yield same(f"{name}.approx{ftz}", "f32", 1, approximate=True)
    yield same("tanh.approx", "f32", 1, approximate=True)
    for name in ("div.approx", "div.approx.ftz", "div.full", "div.full.ftz"):
        yield same(name, "f32", 2, approximate=True)
    for name in ("rcp", "rsqrt"):
        yield same(f"{name}.approx.ftz", "f64", 1, approximate=True)
    for kind in _HALVES:
        yield same("tanh.approx", kind, 1, approximate=True, count=128)
    for name, kind in (
        ("ex2.approx", "f16"),
        ("ex2.approx", "f16x2"),
        ("ex2.approx.ftz", "bf16"),
        ("ex2.approx.ftz", "bf16x2"),
    ):
        yield same(name, kind, 1, approximate=True, count=128)
