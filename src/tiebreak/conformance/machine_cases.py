"""Cases of warp instructions, atomics, loads and stores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .case import Case

_LOADED = ("u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64", "f32", "f64")


def make_machine_cases() -> Iterator[Case]:
    """Every case of this module."""
    yield from _shuffles()
    yield from _votes()
    yield from _reductions()
    yield from _updates()
    yield from _loads()
    yield from _stores()


def _warp(
    text: str, sources: tuple[str, ...], destinations: tuple[str, ...], domains: tuple[str, ...], **options: object
) -> Case:
    return Case(text, sources, destinations, domains, kind="warp", **options)  # type: ignore[arg-type]


def _shuffles() -> Iterator[Case]:
    """Full warps with any bound; half warps that read among themselves, for a lane that takes no part has no value."""
    for mode in ("up", "down", "bfly", "idx"):
        text = f"shfl.sync.{mode}.b32 d|e, a, b, c, u;"
        yield _warp(text, ("b32",) * 4, ("b32", "pred"), ("b32", "lane", "clamp", "all"))
        text = f"shfl.sync.{mode}.b32 d, a, b, 0x101f, c;"
        yield _warp(text, ("b32",) * 3, ("b32",), ("b32", "near", "half"))


def _votes() -> Iterator[Case]:
    for mode in ("all", "any", "uni"):
        yield _warp(f"vote.sync.{mode}.pred d, a, b;", ("pred", "b32"), ("pred",), ("alike", "mask"))
        yield _warp(f"vote.sync.{mode}.pred d, !a, b;", ("pred", "b32"), ("pred",), ("alike", "mask"))
    yield _warp("vote.sync.ballot.b32 d, a, b;", ("pred", "b32"), ("b32",), ("pred", "mask"))
    for kind in ("b32", "b64"):
        yield _warp(f"match.any.sync.{kind} d, a, b;", (kind, "b32"), ("b32",), ("few", "mask"))
        yield _warp(f"match.all.sync.{kind} d|e, a, b;", (kind, "b32"), ("b32", "pred"), ("same", "mask"))
        yield _warp(f"match.all.sync.{kind} d, a, b;", (kind, "b32"), ("b32",), ("same", "mask"))
    yield _warp("activemask.b32 d;", ("b32",), ("b32",), ("mask",))
    yield Case("movmatrix.sync.aligned.m8n8.trans.b16 d, a;", ("b32",), ("b32",), count=64)
    yield _warp("elect.sync d|e, a;", ("b32",), ("b32", "pred"), ("mask",))


def _reductions() -> Iterator[Case]:
    for name, kind in (*product(("add", "min", "max"), ("u32", "s32")), *product(("and", "or", "xor"), ("b32",))):
        yield _warp(f"redux.sync.{name}.{kind} d, a, b;", (kind, "b32"), (kind,), (kind, "mask"))
    for name, modifiers in product(("min", "max"), ("", ".abs", ".NaN", ".abs.NaN")):
        text = f"redux.sync.{name}{modifiers}.f32 d, a, b;"
        yield _warp(text, ("f32", "b32"), ("f32",), ("f32", "mask"), target="sm_100a")


_UPDATES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("add", ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.f16x2", "noftz.bf16", "noftz.bf16x2")),
    ("inc", ("u32",)),
    ("dec", ("u32",)),
    ("min", ("u32", "s32", "u64", "s64")),
    ("max", ("u32", "s32", "u64", "s64")),
    ("and", ("b32", "b64")),
    ("or", ("b32", "b64")),
    ("xor", ("b32", "b64")),
    ("exch", ("b32", "b64")),
)


def _updates() -> Iterator[Case]:
    """Each operation again and again on one cell: what it returned, and what it left."""
    for space, (name, kinds) in product(("global", "shared"), _UPDATES):
        for kind, domain in product(kinds, ("", "tiny:")):
            bare = kind.removeprefix("noftz.")
            floating = "f" in bare
            if domain and not floating:
                continue
            # A small range makes a counter wrap; a sum stays a number.
            drawn = "narrow" if name in ("inc", "dec") else f"{domain or 'number:'}{bare}" if floating else bare
            yield _update(f"atom.{space}.{name}.{kind} d, [p], a;", bare, (drawn,), space)
            if name != "exch":
                text = f"red.{space}.{name}.{kind} [p], a; ld.volatile.{space}.b{_bits(bare)} d, [p];"
                yield _update(text, bare, (drawn,), space)
    for space, kind in product(("global", "shared"), ("b16", "b32", "b64")):
        yield _update(f"atom.{space}.cas.{kind} d, [p], a, b;", kind, ("few", "few"), space)


def _update(text: str, kind: str, domains: tuple[str, ...], space: str) -> Case:
    return Case(text, (kind,) * len(domains), (kind,), domains, "sequence", 64, space=space)


def _bits(kind: str) -> int:
    return 32 if kind.endswith("x2") else int(kind.lstrip("abcdefghijklmnopqrstuvwxyz"))


def _loads() -> Iterator[Case]:
    for kind in _LOADED:
        yield Case(f"ld.global.{kind} d, [p];", (), (_register(kind),), kind="load", count=64)
        yield Case(f"ld.global.v2.{kind} {{d, e}}, [p];", (), (_register(kind),) * 2, kind="load", count=64)
        if kind not in ("u64", "s64", "b64", "f64"):
            yield Case(f"ld.global.v4.{kind} {{d, e, f, g}}, [p];", (), (_register(kind),) * 4, kind="load", count=64)
    for kind, register in product(("u8", "s8", "u16", "s16", "u32", "s32", "b8", "b16", "b32"), ("b32", "b64")):
        if _bits(kind) < _bits(register):
            # A register may be wider than what is loaded: signs are extended, the rest is filled with zeros.
            yield Case(f"ld.global.{kind} d, [p + {_bits(register) // 8}];", (), (register,), kind="load", count=64)
    for order in ("volatile", "relaxed.gpu", "acquire.sys", "relaxed.cta", "weak"):
        yield Case(f"ld.{order}.global.b32 d, [p];", (), ("b32",), kind="load", count=64)


def _register(kind: str) -> str:
    """Type of the narrowest register for a loaded value."""
    return f"{kind[0]}16" if kind.endswith("8") else kind


def _stores() -> Iterator[Case]:
    for kind in ("b8", "b16", "b32", "b64", "u8", "s16", "u32", "f32", "f64"):
        register = _register(kind)
        yield Case(f"st.global.{kind} [p], a;", (register,), (), kind="store", count=64)
        yield Case(f"st.global.v2.{kind} [p], {{a, b}};", (register,) * 2, (), kind="store", count=64)
        if _bits(kind) < 64:
            yield Case(f"st.global.v4.{kind} [p], {{a, b, c, u}};", (register,) * 4, (), kind="store", count=64)
    for kind, register in (("b8", "b32"), ("b16", "b32"), ("u8", "b64"), ("b32", "b64")):
        yield Case(f"st.global.{kind} [p + 8], a;", (register,), (), kind="store", count=64)
    for order in ("volatile", "relaxed.gpu", "release.sys", "weak"):
        yield Case(f"st.{order}.global.b32 [p], a;", ("b32",), (), kind="store", count=64)
