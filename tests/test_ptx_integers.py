"""Integer and bit instructions of PTX, against their definitions in Python integers."""

from __future__ import annotations

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


INTEGERS = {
    "add": lambda a, b, _: a + b,
    "sub": lambda a, b, _: a - b,
    "mul.lo": lambda a, b, _: a * b,
    "mul.hi": lambda a, b, width: (a * b) >> width,
    "div": lambda a, b, _: oracle.quotient(a, b) if b else -1,
    "rem": lambda a, b, _: a - b * oracle.quotient(a, b) if b else -1,
    "min": lambda a, b, _: min(a, b),
    "max": lambda a, b, _: max(a, b),
}


@pytest.mark.parametrize("kind", WORDS)
@given(data=st.data())
def test_two_integers(kind: str, data: st.DataObject) -> None:
    width = int(kind[1:])
    a, b = data.draw(words(width)), data.draw(words(width))
    for name, define in INTEGERS.items():
        expected = define(oracle.typed(a, kind), oracle.typed(b, kind), width) & ((1 << width) - 1)
        assert compute(f"{name}.{kind} d, a, b;", (kind, kind), (kind,), a, b) == (expected,), name


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
@given(data=st.data())
def test_wide_products(kind: str, data: st.DataObject) -> None:
    width = int(kind[1:])
    wide = f"{kind[0]}{2 * width}"
    a, b, c = data.draw(words(width)), data.draw(words(width)), data.draw(words(2 * width))
    product = oracle.typed(a, kind) * oracle.typed(b, kind)
    mask = (1 << 2 * width) - 1
    assert compute(f"mul.wide.{kind} d, a, b;", (kind, kind), (wide,), a, b) == (product & mask,)
    expected = (product + oracle.typed(c, wide)) & mask
    assert compute(f"mad.wide.{kind} d, a, b, c;", (kind, kind, wide), (wide,), a, b, c) == (expected,)


@pytest.mark.parametrize("kind", WORDS)
@given(data=st.data())
def test_three_integers(kind: str, data: st.DataObject) -> None:
    width = int(kind[1:])
    a, b, c = (data.draw(words(width)) for _ in range(3))
    x, y, z = (oracle.typed(value, kind) for value in (a, b, c))
    wholes = {"mad.lo": x * y + z, "mad.hi": ((x * y) >> width) + z, "sad": abs(x - y) + z}
    for name, whole in wholes.items():
        got = compute(f"{name}.{kind} d, a, b, c;", (kind,) * 3, (kind,), a, b, c)
        assert got == (whole & ((1 << width) - 1),), name


@pytest.mark.parametrize("name", ["add.sat", "sub.sat"])
@given(a=words(32), b=words(32))
def test_saturation(name: str, a: int, b: int) -> None:
    x, y = oracle.signed(a, 32), oracle.signed(b, 32)
    clamped = max(-(2**31), min(2**31 - 1, x + y if name == "add.sat" else x - y)) & 0xFFFFFFFF
    assert compute(f"{name}.s32 d, a, b;", ("s32",) * 2, ("s32",), a, b) == (clamped,)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@given(data=st.data(), carry=st.booleans())
def test_carries(kind: str, data: st.DataObject, carry: bool) -> None:
    width = int(kind[1:])
    a, b = data.draw(words(width)), data.draw(words(width))
    mask = (1 << width) - 1
    for name, total in (("addc.cc", a + b + carry), ("subc.cc", a - b - carry)):
        got = compute(f"{name}.{kind} d, a, b;", (kind,) * 2, (kind,), a, b, int(carry))
        assert got == (total & mask, int(not 0 <= total <= mask))
    product = oracle.typed(a, kind) * oracle.typed(b, kind) & mask
    total = product + a + carry
    got = compute(f"madc.lo.cc.{kind} d, a, b, c;", (kind,) * 3, (kind,), a, b, a, int(carry))
    assert got == (total & mask, int(total > mask))


AMOUNTS = st.integers(0, 70) | st.sampled_from([127, 128, 255, 256, 2**31, 2**32 - 1])


@pytest.mark.parametrize("kind", ["b16", "b32", "b64", "s16", "s32", "s64"])
@given(data=st.data(), amount=AMOUNTS)
def test_shifts(kind: str, data: st.DataObject, amount: int) -> None:
    width = int(kind[1:])
    a = data.draw(words(width))
    right = (oracle.typed(a, kind) >> min(amount, width)) & ((1 << width) - 1)
    assert compute(f"shr.{kind} d, a, b;", (kind, "u32"), (kind,), a, amount) == (right,)
    if kind[0] == "b":
        left = (a << min(amount, width)) & ((1 << width) - 1)
        assert compute(f"shl.{kind} d, a, b;", (kind, "u32"), (kind,), a, amount) == (left,)


@given(a=words(32), b=words(32), amount=AMOUNTS)
def test_funnel_shifts(a: int, b: int, amount: int) -> None:
    both = b << 32 | a
    for mode, count in (("clamp", min(amount, 32)), ("wrap", amount & 31)):
        for direction, result in (("l", both << count >> 32), ("r", both >> count)):
            text = f"shf.{direction}.{mode}.b32 d, a, b, c;"
            got = compute(text, ("b32", "b32", "u32"), ("b32",), a, b, amount)
            assert got == (result & 0xFFFFFFFF,)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@given(data=st.data(), position=AMOUNTS, length=AMOUNTS)
def test_fields(kind: str, data: st.DataObject, position: int, length: int) -> None:
    width = int(kind[1:])
    a, b = data.draw(words(width)), data.draw(words(width))
    got = compute(f"bfe.{kind} d, a, b, c;", (kind, "u32", "u32"), (kind,), a, position, length)
    assert got == (oracle.field(a, position, length, kind),)
    if kind[0] == "u":
        text, sources = f"bfi.b{width} d, a, b, c, u;", (f"b{width}", f"b{width}", "u32", "u32")
        got = compute(text, sources, (f"b{width}",), a, b, position, length)
        assert got == (oracle.insert(a, b, position, length, width),)


@pytest.mark.parametrize("width", [32, 64])
@given(data=st.data())
def test_counts(width: int, data: st.DataObject) -> None:
    a = data.draw(words(width))
    digits = f"{a:0{width}b}"
    kind = f"b{width}"
    assert compute(f"popc.{kind} d, a;", (kind,), ("u32",), a) == (digits.count("1"),)
    assert compute(f"clz.{kind} d, a;", (kind,), ("u32",), a) == (width - a.bit_length(),)
    assert compute(f"brev.{kind} d, a;", (kind,), (kind,), a) == (int(digits[::-1], 2),)
    for sign, value in (("u", a), ("s", ~a & ((1 << width) - 1) if a >> (width - 1) else a)):
        expected = value.bit_length() - 1 if value else 0xFFFFFFFF
        shift = width - value.bit_length() if value else 0xFFFFFFFF
        assert compute(f"bfind.{sign}{width} d, a;", (f"{sign}{width}",), ("u32",), a) == (expected,)
        assert compute(f"bfind.shiftamt.{sign}{width} d, a;", (f"{sign}{width}",), ("u32",), a) == (shift,)


@given(mask=words(32), base=st.integers(0, 31), offset=st.integers(-33, 33))
def test_nth_set_bit(mask: int, base: int, offset: int) -> None:
    got = compute("fns.b32 d, a, b, c;", ("b32", "b32", "s32"), ("b32",), mask, base, offset)
    assert got == (oracle.nth_set(mask, base, offset),)


@given(a=words(32), b=words(32), selector=words(32))
def test_bytes(a: int, b: int, selector: int) -> None:
    sources = ("b32",) * 3
    assert compute("prmt.b32 d, a, b, c;", sources, ("b32",), a, b, selector) == (oracle.permute(a, b, selector),)
    modes = {
        "f4e": 0x3210 + 0x1111 * (selector & 3), "rc8": 0x1111 * (selector & 3),
        "rc16": 0x3232 if selector & 1 else 0x1010,
        "b4e": sum(((selector & 3) - byte) % 8 << 4 * byte for byte in range(4)),
        "ecl": sum(max(selector & 3, byte) << 4 * byte for byte in range(4)),
        "ecr": sum(min(selector & 3, byte) << 4 * byte for byte in range(4)),
    }  # fmt: skip
    for mode, plain in modes.items():
        got = compute(f"prmt.b32.{mode} d, a, b, c;", sources, ("b32",), a, b, selector)
        assert got == (oracle.permute(a, b, plain),), mode


def test_lookup_tables() -> None:
    for table in range(256):
        got = compute(f"lop3.b32 d, a, b, c, {table};", ("b32",) * 3, ("b32",), 0xF0, 0xCC, 0xAA, table)
        assert got[0] & 0xFF == table


@pytest.mark.parametrize(("first", "second"), [("u32", "u32"), ("u32", "s32"), ("s32", "u32"), ("s32", "s32")])
@given(a=words(32), b=words(32), c=words(32))
def test_dot_products(first: str, second: str, a: int, b: int, c: int) -> None:
    def part(value: int, place: int, width: int, kind: str) -> int:
        return oracle.typed(value >> (width * place), f"{kind[0]}{width}")

    text, sources = f"dp4a.{first}.{second} d, a, b, c;", (first, second, first)
    total = sum(part(a, i, 8, first) * part(b, i, 8, second) for i in range(4)) + c
    assert compute(text, sources, (first,), a, b, c) == (total & 0xFFFFFFFF,)
    for half, start in (("lo", 0), ("hi", 2)):
        total = sum(part(a, i, 16, first) * part(b, start + i, 8, second) for i in range(2)) + c
        text = f"dp2a.{half}.{first}.{second} d, a, b, c;"
        assert compute(text, sources, (first,), a, b, c) == (total & 0xFFFFFFFF,)


@given(a=words(32), b=words(32), c=words(32))
def test_packing(a: int, b: int, c: int) -> None:
    def clamp(bits: int, kind: str) -> int:
        width = int(kind[1:])
        low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
        return max(low, min(high, oracle.signed(bits, 32))) & ((1 << width) - 1)

    for kind in ("u16", "s16"):
        got = compute(f"cvt.pack.sat.{kind}.s32 d, a, b;", ("s32",) * 2, ("b32",), a, b)
        assert got == (clamp(a, kind) << 16 | clamp(b, kind),)
    for kind in ("u8", "s8"):
        got = compute(f"cvt.pack.sat.{kind}.s32.b32 d, a, b, c;", ("s32", "s32", "b32"), ("b32",), a, b, c)
        assert got == ((c << 16 & 0xFFFFFFFF) | clamp(a, kind) << 8 | clamp(b, kind),)
