"""Floating-point instructions of PTX, against their definitions in fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.conformance import definitions as oracle
from tiebreak.conformance.single import compute

WORDS = ("u16", "s16", "u32", "s32", "u64", "s64")
ALL = (1 << 64) - 1


def words(width: int) -> st.SearchStrategy[int]:
    """Bits: edges of either sign, and values of every magnitude."""
    edges = st.sampled_from(
        [0, 1, 2, 3, ALL, ALL - 1, 1 << (width - 1), (1 << (width - 1)) - 1, (1 << (width - 1)) + 1]
    )
    sized = st.integers(0, width).flatmap(lambda bits: st.integers(0, (1 << bits) - 1))
    return (edges | sized | sized.map(lambda value: ~value & ALL)).map(lambda value: value & ((1 << width) - 1))


def floats(kind: str) -> st.SearchStrategy[int]:
    """Bits of finite numbers: any, near one, near the smallest and the largest."""
    precision, bias = oracle.FORMATS[kind]
    step, sign = 1 << (precision - 1), 1 << (oracle.WIDTHS[kind] - 1)
    one = bias * step
    near = st.integers(one - 3 * step, one + 3 * step)
    small, large = st.integers(0, 3 * step), st.integers((2 * bias + 1) * step - 2 * step, (2 * bias + 1) * step - 1)
    edges = st.sampled_from([0, 1, step - 1, step, step + 1, one, one + 1, one - 1, (2 * bias + 1) * step - 1])
    size = near | small | large | edges | st.integers(0, (2 * bias + 1) * step - 1)
    return st.builds(lambda bits, negative: bits | (sign if negative else 0), size, st.booleans())


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
@given(data=st.data())
def test_arithmetic_rounds_once(kind: str, data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from(["rn", "rz", "rm", "rp"] if kind in ("f32", "f64") else ["rn"]))
    a, b, c = (data.draw(floats(kind)) for _ in range(3))
    if data.draw(st.booleans()):
        # A sum that nearly cancels the product.
        product = oracle.value_of(a, kind) * oracle.value_of(b, kind)
        nearly = oracle.round_bits(-product, kind, "rz") if product else c
        c = nearly if oracle.is_finite(nearly, kind) else c
    x, y, z = (oracle.value_of(bits, kind) for bits in (a, b, c))
    results = {"add": x + y, "sub": x - y, "mul": x * y, "fma": x * y + z}
    if kind in ("f32", "f64"):
        results |= {"div": x / y if y else Fraction(0), "rcp": 1 / x if x else Fraction(0)}
    for name, exact in results.items():
        count = {"fma": 3, "rcp": 1}.get(name, 2)
        text = f"{name}.{mode}.{kind} {', '.join('dabc'[: count + 1])};"
        if exact:
            got = compute(text, (kind,) * count, (kind,), *(a, b, c)[:count])
            assert got == (oracle.round_bits(exact, kind, mode),), text


@pytest.mark.parametrize("kind", ["f32", "f64"])
@given(data=st.data(), mode=st.sampled_from(["rn", "rz", "rm", "rp"]))
def test_square_roots_round_once(mode: str, kind: str, data: st.DataObject) -> None:
    a = data.draw(floats(kind)) & ~(1 << (oracle.WIDTHS[kind] - 1))
    if a:
        expected = oracle.round_root(oracle.value_of(a, kind), kind, mode)
        assert compute(f"sqrt.{mode}.{kind} d, a;", (kind,), (kind,), a) == (expected,)


@pytest.mark.parametrize(
    ("target", "source"), [("f32", "f64"), ("f16", "f32"), ("bf16", "f32"), ("f16", "f64"), ("bf16", "f16")]
)
@given(data=st.data(), mode=st.sampled_from(["rn", "rz", "rm", "rp"]))
def test_narrowing_rounds_once(mode: str, target: str, source: str, data: st.DataObject) -> None:
    a = data.draw(floats(source))
    value = oracle.value_of(a, source)
    if value:
        expected = oracle.round_bits(value, target, mode)
        assert compute(f"cvt.{mode}.{target}.{source} d, a;", (source,), (target,), a) == (expected,)


@pytest.mark.parametrize("source", WORDS)
@given(data=st.data(), mode=st.sampled_from(["rn", "rz", "rm", "rp"]))
def test_integers_to_floats(source: str, mode: str, data: st.DataObject) -> None:
    a = data.draw(words(int(source[1:])))
    value = oracle.typed(a, source)
    for target in ("f16", "bf16", "f32", "f64"):
        expected = oracle.round_bits(Fraction(value), target, mode) if value else 0
        assert compute(f"cvt.{mode}.{target}.{source} d, a;", (source,), (target,), a) == (expected,), target


@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
@given(data=st.data(), mode=st.sampled_from(["rni", "rzi", "rmi", "rpi"]))
def test_floats_to_integers(source: str, mode: str, data: st.DataObject) -> None:
    a = data.draw(floats(source))
    value = oracle.value_of(a, source)
    down = value.numerator // value.denominator
    whole = {"rni": round(value), "rmi": down, "rpi": -(-value.numerator // value.denominator), "rzi": int(value)}[mode]
    for target in WORDS:
        width = int(target[1:])
        low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if target[0] == "s" else (0, (1 << width) - 1)
        expected = max(low, min(high, whole)) & ((1 << width) - 1)
        assert compute(f"cvt.{mode}.{target}.{source} d, a;", (source,), (target,), a) == (expected,), target


COMPARISONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a < b or a > b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "equ": lambda a, b: not (a < b or a > b),
    "neu": lambda a, b: a != b, "ltu": lambda a, b: not a >= b, "leu": lambda a, b: not a > b,
    "gtu": lambda a, b: not a <= b, "geu": lambda a, b: not a < b, "num": lambda a, b: a == a and b == b,
    "nan": lambda a, b: a != a or b != b,
}  # fmt: skip
SPECIAL = (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-45, 3.4e38)


@pytest.mark.parametrize("name", COMPARISONS)
def test_float_comparisons(name: str) -> None:
    for a in SPECIAL:
        for b in SPECIAL:
            bits = [int(np.float32(value).view(np.uint32)) for value in (a, b)]
            got = compute(f"setp.{name}.f32 d, a, b;", ("f32",) * 2, ("pred",), *bits)
            x, y = float(np.float32(a)), float(np.float32(b))
            assert got == (int(COMPARISONS[name](x, y)),), (a, b)
