"""Cases of integer arithmetic, logic, shifts, bit fields, moves and selections."""

from __future__ import annotations

from collections.abc import Iterator

from .case import Case

WORDS = ("u16", "s16", "u32", "s32", "u64", "s64")
PAIRS = ("u16x2", "s16x2")
CARRIES = ("u32", "s32", "u64", "s64")
_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def same(name: str, kind: str, arity: int, **options: object) -> Case:
    """A case whose sources and destination have one type."""
    operands = ", ".join("dabc"[: arity + 1])
    return Case(f"{name}.{kind} {operands};", (kind,) * arity, (kind,), **options)  # type: ignore[arg-type]


def make_integer_cases() -> Iterator[Case]:
    """Every case of this module."""
    yield from _arithmetic()
    yield from _products()
    yield from _carries()
    yield from _logic()
    yield from _fields()
    yield from _bytes()
    yield from _moves()
    yield from _selections()


def _arithmetic() -> Iterator[Case]:
    for name in ("add", "min", "max"):
        for kind in (*WORDS, *PAIRS):
            yield same(name, kind, 2)
    for name in ("sub", "div", "rem"):
        for kind in WORDS:
            yield same(name, kind, 2)
    for name in ("abs", "neg"):
        for kind in ("s16", "s32", "s64"):
            yield same(name, kind, 1)
    for name in ("add.sat", "sub.sat", "min.relu", "max.relu"):
        yield same(name, "s32", 2)
    for name in ("min.relu", "max.relu"):
        yield same(name, "s16x2", 2)
    for kind in WORDS:
        yield same("sad", kind, 3)


def _products() -> Iterator[Case]:
    for kind in WORDS:
        for part in ("lo", "hi"):
            yield same(f"mul.{part}", kind, 2)
            yield same(f"mad.{part}", kind, 3)
    for kind, wide in _WIDER.items():
        yield Case(f"mul.wide.{kind} d, a, b;", (kind, kind), (wide,))
        yield Case(f"mad.wide.{kind} d, a, b, c;", (kind, kind, wide), (wide,))
    yield same("mad.hi.sat", "s32", 3)
    for kind in ("u32", "s32"):
        for part in ("lo", "hi"):
            yield same(f"mul24.{part}", kind, 2)
            yield same(f"mad24.{part}", kind, 3)
    yield same("mad24.hi.sat", "s32", 3)
    for first in ("u32", "s32"):
        for second in ("u32", "s32"):
            total = "s32" if "s32" in (first, second) else "u32"
            for name in ("dp4a", "dp2a.lo", "dp2a.hi"):
                yield Case(f"{name}.{first}.{second} d, a, b, c;", (first, second, total), (total,))


def _carries() -> Iterator[Case]:
    """The carry goes from instruction to instruction, and last into a register."""
    for kind in CARRIES:
        out = f"addc.{kind} e, 0, 0;"
        yield Case(f"add.cc.{kind} d, a, b; {out}", (kind,) * 2, (kind,) * 2)
        yield Case(f"add.cc.{kind} d, a, b; addc.cc.{kind} f, b, c; {out}", (kind,) * 3, (kind,) * 3)
        out = f"subc.{kind} e, 0, 0;"
        yield Case(f"sub.cc.{kind} d, a, b; {out}", (kind,) * 2, (kind,) * 2)
        yield Case(f"sub.cc.{kind} d, a, b; subc.cc.{kind} f, b, c; {out}", (kind,) * 3, (kind,) * 3)
        for part in ("lo", "hi"):
            out = f"addc.{kind} e, 0, 0;"
            first = f"mad.{part}.cc.{kind} d, a, b, c;"
            yield Case(f"{first} {out}", (kind,) * 3, (kind,) * 2)
            yield Case(f"{first} madc.{part}.cc.{kind} f, b, c, a; {out}", (kind,) * 3, (kind,) * 3)
            yield Case(f"{first} madc.{part}.{kind} e, b, c, a;", (kind,) * 3, (kind,) * 2)


def _logic() -> Iterator[Case]:
    for kind in ("pred", "b16", "b32", "b64"):
        for name in ("and", "or", "xor"):
            yield same(name, kind, 2, count=64 if kind == "pred" else 256)
        yield same("not", kind, 1, count=64)
    for kind in ("b16", "b32", "b64"):
        yield same("cnot", kind, 1, count=64)
        yield Case(f"shl.{kind} d, a, b;", (kind, "u32"), (kind,), (kind, "amount"))
    for kind in ("b16", "b32", "b64", *WORDS):
        yield Case(f"shr.{kind} d, a, b;", (kind, "u32"), (kind,), (kind, "amount"))
    for table in (0x00, 0x01, 0x1B, 0x2D, 0x3C, 0x69, 0x80, 0x96, 0xB8, 0xC0, 0xCA, 0xD8, 0xE8, 0xF0, 0xFE, 0xFF):
        yield Case(f"lop3.b32 d, a, b, c, 0x{table:02X};", ("b32",) * 3, ("b32",), count=64)
    for join in ("or", "and"):
        yield Case(f"lop3.{join}.b32 d|e, a, b, c, 0x80, u;", ("b32",) * 3 + ("pred",), ("b32", "pred"))
    for direction in ("l", "r"):
        for mode in ("clamp", "wrap"):
            domains = ("b32", "b32", "amount")
            yield Case(f"shf.{direction}.{mode}.b32 d, a, b, c;", ("b32", "b32", "u32"), ("b32",), domains)


def _fields() -> Iterator[Case]:
    for kind in ("b32", "b64"):
        yield Case(f"popc.{kind} d, a;", (kind,), ("u32",), count=128)
        yield Case(f"clz.{kind} d, a;", (kind,), ("u32",), count=128)
        yield Case(f"brev.{kind} d, a;", (kind,), (kind,), count=128)
        yield Case(f"bfi.{kind} d, a, b, c, u;", (kind, kind, "u32", "u32"), (kind,), (kind, kind, "field", "field"))
    for kind in CARRIES:
        yield Case(f"bfind.{kind} d, a;", (kind,), ("u32",), count=128)
        yield Case(f"bfind.shiftamt.{kind} d, a;", (kind,), ("u32",), count=128)
        yield Case(f"bfe.{kind} d, a, b, c;", (kind, "u32", "u32"), (kind,), (kind, "field", "field"))
    yield Case("fns.b32 d, a, b, c;", ("b32", "b32", "s32"), ("b32",), ("b32", "base", "offset"))
    for mode in ("clamp", "wrap"):
        for kind in ("u32", "s32"):
            yield Case(f"szext.{mode}.{kind} d, a, b;", (kind, "u32"), (kind,), (kind, "amount"))
        yield Case(f"bmsk.{mode}.b32 d, a, b;", ("b32", "b32"), ("b32",), ("amount", "amount"))


def _bytes() -> Iterator[Case]:
    for target in ("u16", "s16"):
        yield Case(f"cvt.pack.sat.{target}.s32 d, a, b;", ("s32",) * 2, ("b32",))
    for target in ("u8", "s8"):
        yield Case(f"cvt.pack.sat.{target}.s32.b32 d, a, b, c;", ("s32", "s32", "b32"), ("b32",))
    yield Case("prmt.b32 d, a, b, c;", ("b32",) * 3, ("b32",), ("b32", "b32", "selector"))
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield Case(f"prmt.b32.{mode} d, a, b, c;", ("b32",) * 3, ("b32",), ("b32", "b32", "selector"), count=64)


def _moves() -> Iterator[Case]:
    for kind in ("pred", "b16", "b32", "b64", *WORDS, "f32", "f64"):
        yield same("mov", kind, 1, count=64)
    yield Case("mov.b32 d, {a, b};", ("b16", "b16"), ("b32",), count=64)
    yield Case("mov.b64 d, {a, b};", ("b32", "b32"), ("b64",), count=64)
    yield Case("mov.b64 d, {a, b, c, u};", ("b16",) * 4, ("b64",), count=64)
    yield Case("mov.b32 {d, e}, a;", ("b32",), ("b16", "b16"), count=64)
    yield Case("mov.b64 {d, e}, a;", ("b64",), ("b32", "b32"), count=64)
    yield Case("mov.b64 {d, e, f, g}, a;", ("b64",), ("b16",) * 4, count=64)
    for name in ("tid.x", "ntid.x", "ctaid.x", "nctaid.x", "laneid", "lanemask_eq", "lanemask_le", "lanemask_lt",
                 "lanemask_ge", "lanemask_gt", "tid.y", "ntid.z"):  # fmt: skip
        yield Case(f"mov.u32 d, %{name};", (), ("u32",), count=64)


def _selections() -> Iterator[Case]:
    ordered = ("eq", "ne", "lt", "le", "gt", "ge")
    for kind in ("b16", "b32", "b64", *WORDS):
        names = ordered[:2] if kind[0] == "b" else ordered if kind[0] == "s" else (*ordered, "lo", "ls", "hi", "hs")
        for name in names:
            yield Case(f"setp.{name}.{kind} d, a, b;", (kind, kind), ("pred",))
    for join in ("and", "or", "xor"):
        sources, domains = ("s32", "s32", "pred"), ("s32", "s32", "pred")
        yield Case(f"setp.lt.{join}.s32 d, a, b, c;", sources, ("pred",), domains)
        yield Case(f"setp.le.{join}.s32 d|e, a, b, c;", sources, ("pred", "pred"), domains)
        yield Case(f"setp.gt.{join}.u64 d|e, a, b, !c;", ("u64", "u64", "pred"), ("pred", "pred"))
        yield Case(f"set.ge.{join}.u32.s64 d, a, b, c;", ("s64", "s64", "pred"), ("u32",), count=64)
    yield Case("setp.lt.u32 d|e, a, b;", ("u32", "u32"), ("pred", "pred"))
    for result in ("u32", "s32", "f32"):
        for kind in ("b16", "b32", "b64", *WORDS):
            yield Case(f"set.eq.{result}.{kind} d, a, b;", (kind, kind), (result,), count=64)
    for kind in ("b16", "b32", "b64", *WORDS, "f32", "f64"):
        yield Case(f"selp.{kind} d, a, b, c;", (kind, kind, "pred"), (kind,), count=64)
        for tested in ("s32", "f32"):
            yield Case(f"slct.{kind}.{tested} d, a, b, c;", (kind, kind, tested), (kind,), count=64)
        yield Case(f"slct.ftz.{kind}.f32 d, a, b, c;", (kind, kind, "f32"), (kind,), count=64)
