"""The PTX of a conformance case: one kernel that loads the operands, runs the snippet, and stores what came out.

Parameters: the address of the operands, one plane of 64-bit words per source
(and, after them, what a load case reads); the address of the results, one plane
of 64-bit words per destination (32 bytes per thread for a store case).
"""

from __future__ import annotations

import re

from .case import DESTINATION_NAMES, SOURCE_NAMES, Case, register_type, width_of

VERSION = "8.8"
"""PTX ISA version of the kernels: the first one with all instructions of sm_90 and sm_100a among the cases."""

MASKS = ("mask", "all", "half")
"""Domains of membermasks."""

WORD = 8
CHUNK = 32
"""Bytes per thread of a load or store case."""

SHARED_CHUNK = 16
"""Bytes of shared memory per thread."""

_NAME = re.compile(r"(?<![\w.%])([a-z])(?![\w.])")


def make_kernel(case: Case) -> str:
    """PTX of a case."""
    body = _make_sequence(case) if case.kind == "sequence" else _make_threads(case)
    target = case.target
    lines = [f".version {VERSION}", f".target {target}", ".address_size 64", "", f".visible .entry {ENTRY}("]
    lines += [
        "    .param .u64 operands,",
        "    .param .u64 results",
        ")",
        "{",
        *(f"    {line}" for line in body),
        "}",
        "",
    ]
    return "\n".join(lines)


ENTRY = "conformance"
"""Name of the kernel."""


def uses_shared(case: Case) -> bool:
    """Whether the snippet names the shared memory of its thread."""
    return "[s]" in case.text


def input_bytes(case: Case) -> int:
    """Size of the operands."""
    return case.count * (WORD * len(case.sources) + (CHUNK if case.kind == "load" else 0)) + WORD


def output_bytes(case: Case) -> int:
    """Size of the results."""
    return case.count * (CHUNK if case.kind == "store" else WORD * len(case.destinations))


def _declare(case: Case) -> list[str]:
    """Registers of the snippet and of the frame around it."""
    pairs = [*zip(SOURCE_NAMES, case.sources, strict=False), *zip(DESTINATION_NAMES, case.destinations, strict=False)]
    declared = [f".reg .{register_type(kind)} %{name};" for name, kind in pairs]
    if uses_shared(case):
        declared += [f".shared .align 16 .b8 chunks[{SHARED_CHUNK * case.count}];", ".reg .b32 %s;"]
    return [
        *declared,
        ".reg .b64 %p, %in, %out, %cell, %word;",
        ".reg .b32 %index, %flag, %lane;",
        ".reg .pred %m, %go;",
    ]


def _rename(text: str) -> list[str]:
    """Instructions of the snippet, with registers for names."""
    renamed = _NAME.sub(
        lambda found: f"%{found[1]}" if found[1] in SOURCE_NAMES + DESTINATION_NAMES + "ps" else found[0], text
    )
    return [f"{part.strip()};" for part in renamed.split(";") if part.strip()]


def _load_sources(case: Case) -> list[str]:
    lines = []
    for place, (name, kind) in enumerate(zip(SOURCE_NAMES, case.sources, strict=False)):
        address = f"[%in + {place * case.count * WORD}]"
        if kind == "pred":
            lines += [f"ld.global.b32 %flag, {address};", f"setp.ne.b32 %{name}, %flag, 0;"]
        else:
            lines.append(f"ld.global.{register_type(kind)} %{name}, {address};")
    return lines


def _store_destinations(case: Case) -> list[str]:
    lines = []
    for place, (name, kind) in enumerate(zip(DESTINATION_NAMES, case.destinations, strict=False)):
        address = f"[%out + {place * case.count * WORD}]"
        if kind == "pred":
            lines += [f"selp.b32 %flag, 1, 0, %{name};", f"st.global.b32 {address}, %flag;"]
        else:
            lines.append(f"st.global.b{8 * max(width_of(kind), 2)} {address}, %{name};")
    return lines


def _addresses() -> list[str]:
    return ["ld.param.b64 %in, [operands];", "ld.param.b64 %out, [results];"]


def _make_threads(case: Case) -> list[str]:
    """Body of a case that each thread runs once."""
    lines = [*_declare(case), *_addresses(), "mov.u32 %index, %tid.x;"]
    if case.kind in ("load", "store"):
        lines += [f"mul.wide.u32 %word, %index, {CHUNK};"]
        base = f"%in, {len(case.sources) * case.count * WORD}" if case.kind == "load" else "%out, 0"
        lines += [f"add.u64 %p, {base};", "add.u64 %p, %p, %word;"]
    lines += [f"mul.wide.u32 %word, %index, {WORD};", "add.u64 %in, %in, %word;", "add.u64 %out, %out, %word;"]
    if uses_shared(case):
        lines += ["mov.u32 %s, chunks;", f"mad.lo.u32 %s, %index, {SHARED_CHUNK}, %s;"]
    lines += _load_sources(case)
    snippet = _rename(case.text)
    if case.kind == "warp":
        # Only lanes that the membermask names take part; the others keep zeros.
        mask = SOURCE_NAMES[next(place for place, domain in enumerate(case.drawn_from) if domain in MASKS)]
        lines += ["mov.u32 %lane, %laneid;", f"shr.u32 %flag, %{mask}, %lane;", "and.b32 %flag, %flag, 1;"]
        lines += ["setp.ne.b32 %m, %flag, 0;", *_clear(case)]
        snippet = [f"@%m {line}" for line in snippet]
    return [*lines, *snippet, *_store_destinations(case), "ret;"]


def _clear(case: Case) -> list[str]:
    """Zeros for the destinations."""
    named = zip(DESTINATION_NAMES, case.destinations, strict=False)
    return [
        "setp.ne.b32 %e, 0, 0;".replace("%e", f"%{name}")
        if kind == "pred"
        else f"mov.{register_type(kind)} %{name}, 0;"
        for name, kind in named
    ]


def _make_sequence(case: Case) -> list[str]:
    """Body of a case that one thread runs again and again."""
    cell = "global" if case.space == "global" else "shared"
    lines = [*_declare(case), *([".shared .align 8 .b64 box;"] if cell == "shared" else []), *_addresses()]
    # The first value of the cell is the word after the operands; in global memory that word is the cell.
    lines += [f"add.u64 %cell, %in, {len(case.sources) * case.count * WORD};", "ld.global.b64 %word, [%cell];"]
    lines += ["mov.b64 %p, box;", "st.shared.b64 [%p], %word;"] if cell == "shared" else ["mov.b64 %p, %cell;"]
    lines += ["mov.b32 %index, 0;", "REPEAT:", *_load_sources(case), *_rename(case.text), *_store_destinations(case)]
    lines += [f"add.u64 %in, %in, {WORD};", f"add.u64 %out, %out, {WORD};", "add.u32 %index, %index, 1;"]
    return [*lines, f"setp.lt.u32 %go, %index, {case.count};", "@%go bra REPEAT;", "ret;"]
