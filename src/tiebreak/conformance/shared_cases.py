"""Cases of shared memory: loads and stores, matrices, asynchronous copies, and barriers that reduce."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .case import Case

_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
_CLEAR = "st.shared.v4.b32 [s], {0, 0, 0, 0};"


def make_shared_cases() -> Iterator[Case]:
    """Every case of this module."""
    yield from _loads()
    yield from _matrices()
    yield from _copies()
    yield from _barriers()


def _loads() -> Iterator[Case]:
    for kind in ("u8", "s8", "u16", "s16", "b32", "b64"):
        register = f"{kind[0]}16" if kind.endswith("8") else kind
        text = f"st.shared.v2.b64 [s], {{a, b}}; ld.shared.{kind} d, [s]; ld.shared::cta.v2.{kind} {{e, f}}, [s];"
        yield Case(text, ("b64", "b64"), (register,) * 3, count=64)
    for kind in ("b8", "b16", "b32", "b64"):
        register = "b16" if kind == "b8" else kind
        text = f"{_CLEAR} st.shared.v2.{kind} [s], {{a, b}}; ld.shared.v2.b64 {{d, e}}, [s];"
        yield Case(text, (register, register), ("b64", "b64"), count=64)


def _matrices() -> Iterator[Case]:
    """A lane's 16 bytes are a row of a matrix; lanes past the rows that are needed have theirs ignored."""
    for (size, count), transposed in product(_COUNTS.items(), ("", ".trans")):
        given, taken = ", ".join("abcu"[:count]), ", ".join("defg"[:count])
        vector = (f"{{{given}}}", f"{{{taken}}}")
        load = f"ldmatrix.sync.aligned.m8n8.{size}{transposed}.shared.b16 {vector[1]}, [s];"
        text = f"st.shared.v4.b32 [s], {{a, b, c, u}}; bar.warp.sync -1; {load}"
        yield Case(text, ("b32",) * 4, ("b32",) * count, count=64)
        store = f"stmatrix.sync.aligned.m8n8.{size}{transposed}.shared.b16 [s], {vector[0]};"
        text = f"{_CLEAR} bar.warp.sync -1; {store} bar.warp.sync -1; ld.shared.v4.b32 {{d, e, f, g}}, [s];"
        yield Case(text, ("b32",) * count, ("b32",) * 4, count=64)


def _copies() -> Iterator[Case]:
    """Bytes past the size of the source become zero."""
    read = "ld.shared.v4.b32 {d, e, f, g}, [s];"
    for size, of_source in ((4, ""), (8, ""), (16, ""), (16, ", 8"), (16, ", 0"), (8, ", 4"), (4, ", 3")):
        for done in ("cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;"):
            text = f"{_CLEAR} cp.async.ca.shared.global [s], [p], {size}{of_source}; {done} {read}"
            yield Case(text, (), ("b32",) * 4, kind="load", count=64)
    text = f"{_CLEAR} cp.async.cg.shared.global [s], [p], 16; cp.async.wait_all; {read}"
    yield Case(text, (), ("b32",) * 4, kind="load", count=64)


def _barriers() -> Iterator[Case]:
    """All threads of the CTA take part."""
    for negated in ("", "!"):
        yield Case(f"bar.red.popc.u32 d, 0, {negated}a;", ("pred",), ("u32",))
        for name in ("and", "or"):
            for domain in ("pred", "alike"):
                text = f"barrier.cta.red.{name}.pred d, 0, {negated}a;"
                text = text if domain == "pred" else f"bar.red.{name}.pred d, 1, {negated}a;"
                yield Case(text, ("pred",), ("pred",), (domain,))
