"""The instruction table: entries, refusals, what memory instructions touch, updates, and the fidelity summary."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.sim.ptx.access import resolve_access
from tiebreak.sim.ptx.atomic import resolve_update
from tiebreak.sim.ptx.executor import execute
from tiebreak.sim.ptx.fidelity import summarise_kernel, summarise_runs
from tiebreak.sim.ptx.module import Instruction, Kernel
from tiebreak.sim.ptx.parser import parse
from tiebreak.sim.ptx.table import ENTRIES, UnknownInstructionError, find_entry, resolve_value, split_operands
from tiebreak.sim.ptx.warp import resolve_warp

HEAD = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry table() {
    .reg .b16 %h<9>;
    .reg .b32 %r<9>;
    .reg .b64 %d<9>;
    .reg .pred %p<9>;
"""


def kernel_of(*lines: str) -> Kernel:
    return parse(HEAD + "".join(f"    {line}\n" for line in lines) + "    ret;\n}\n").kernels["table"]


def instruction_of(line: str) -> tuple[Instruction, Kernel]:
    kernel = kernel_of(line)
    return kernel.body[0], kernel


def test_every_entry_cites_a_section() -> None:
    for entry in ENTRIES:
        assert re.fullmatch(r"9\.7\.\d+(\.\d+)+", entry.section), entry
        assert entry.title.startswith(entry.opcode)
        assert entry.exactness == "exact" or entry.note, f"{entry.title} does not say what is approximate"


def test_no_instruction_has_two_entries() -> None:
    for first, second in combinations(ENTRIES, 2):
        if first.opcode == second.opcode and first.marks == second.marks:
            assert first.types and second.types
            assert not set(first.types) & set(second.types), (first, second)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("frobnicate.b32 %r1, %r2;", "not in the instruction table"),
        ("add.f16x3 %r1, %r2, %r3;", "not in the instruction table"),
        ("add.cc.u16 %h1, %h2, %h3;", "no .cc"),
        ("add.wrap.s32 %r1, %r2, %r3;", "no .wrap"),
        ("add.sat.u32 %r1, %r2, %r3;", ".sat needs .s32"),
        ("add.s32 %r1, %r2;", "1 destinations and 2 sources"),
        ("add.s64 %d1, %d2, %r3;", "width of int64"),
        ("fma.f32 %r1, %r2, %r3, %r4;", "rounding modifier"),
        ("cvt.s32.f32 %r1, %r2;", "rounding modifier"),
        ("cvt.f16.f32 %h1, %r2;", "rounding modifier"),
        ("lop3.b32 %r1, %r2, %r3, %r4, 256;", "8 bits"),
        ("lop3.b32 %r1, %r2, %r3, %r4, %r5;", "integer constant"),
        ("setp.lo.s32.f32 %p1, %r1, %r2;", "needs one type"),
        ("mov.b64 %d1, {%r1, %r2, %r3};", "vector of 3"),
        ("ld.global.b32 %r1, [%d1];", "kind memory"),
    ],
)
def test_unknown_instructions_are_named(line: str, reason: str) -> None:
    instruction, kernel = instruction_of(line)
    with pytest.raises(UnknownInstructionError) as caught:
        resolve_value(instruction, kernel)
    text = str(caught.value)
    assert instruction.name in text and reason in text
    assert f"line {instruction.line} of kernel table" in text


def test_unknown_warp_instructions_are_named() -> None:
    for line in (
        "redux.sync.add.b32 %r1, %r2, -1;",
        "shfl.sync.left.b32 %r1, %r2, 1, 31, -1;",
        "add.s32 %r1, %r2, %r3;",
    ):
        instruction, kernel = instruction_of(line)
        with pytest.raises(UnknownInstructionError, match=re.escape(instruction.name)):
            resolve_warp(instruction, kernel)


def test_operands_are_taken_apart() -> None:
    instruction, _ = instruction_of("setp.lt.and.s32 %p1|%p2, %r1, %r2, %p3;")
    destinations, sources = split_operands(instruction)
    assert [one.name for one in destinations if one] == ["%p1", "%p2"]
    assert len(sources) == 3
    instruction, _ = instruction_of("addc.cc.u32 %r1, %r2, %r3;")
    destinations, sources = split_operands(instruction)
    assert len(destinations) == 2 and len(sources) == 3 and destinations[1] == sources[2]


@pytest.mark.parametrize(
    ("line", "kind", "space", "order", "scope", "width"),
    [
        ("ld.global.b32 %r1, [%d1];", "read", "global", "weak", None, 4),
        ("ld.global.sys.acquire.b64 %d2, [%d1];", "read", "global", "acquire", "sys", 8),
        ("ld.acquire.sys.global.b64 %d2, [%d1];", "read", "global", "acquire", "sys", 8),
        ("ld.global.L1::no_allocate.v4.b32 {%r1, %r2, %r3, %r4}, [%d1];", "read", "global", "weak", None, 16),
        ("ld.global.nc.v2.b16 {%h1, %h2}, [%d1];", "read", "global", "weak", None, 4),
        ("ld.volatile.shared.u8 %h1, [%r1];", "read", "shared", "volatile", "sys", 1),
        ("st.shared::cta.b32 [%r1], %r2;", "write", "shared", "weak", None, 4),
        ("st.release.gpu.b32 [%d1], %r2;", "write", "generic", "release", "gpu", 4),
        ("st.shared::cluster.v2.b64 [%r1], {%d1, %d2};", "write", "cluster", "weak", None, 16),
        ("atom.global.add.u32 %r1, [%d1], %r2;", "update", "global", "relaxed", "gpu", 4),
        ("atom.acq_rel.gpu.global.add.u64 %d2, [%d1], %d3;", "update", "global", "acq_rel", "gpu", 8),
        ("red.release.sys.shared.or.b32 [%r1], %r2;", "update", "shared", "release", "sys", 4),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];", "read", "shared", "weak", None, 16),
        ("cp.async.cg.shared.global [%r1], [%d1], 16;", "copy", "shared", "weak", None, 1),
        ("cp.async.bulk.prefetch.L2.global [%d1], %r1;", "none", "global", "weak", None, 1),
        ("prefetch.global.L2 [%d1];", "none", "global", "weak", None, 1),
    ],
)
def test_accesses(line: str, kind: str, space: str, order: str, scope: str | None, width: int) -> None:
    form = resolve_access(instruction_of(line)[0])
    assert (form.kind, form.space, form.order, form.scope, form.width) == (kind, space, order, scope, width)


@pytest.mark.parametrize(
    "line", ["ld.global.fast.b32 %r1, [%d1];", "st.async.b32 [%r1], %r2;", "add.s32 %r1, %r2, %r3;"]
)
def test_unknown_accesses_are_named(line: str) -> None:
    instruction, kernel = instruction_of(line)
    with pytest.raises(UnknownInstructionError, match="line 9 of kernel table"):
        resolve_access(instruction, kernel.name)


CACHE_HINTS = (
    HEAD.replace("table()", "table(.param .u64 cell)")
    + """
    createpolicy.fractional.L2::evict_last.b64 %d4;
    ld.param.b64 %d1, [cell];
    ld.global.L2::cache_hint.b32 %r1, [%d1], %d4;
    add.u32 %r1, %r1, 1;
    st.global.L2::cache_hint.v2.b32 [%d1], {%r1, %r1}, %d4;
    red.global.add.L2::cache_hint.u32 [%d1], 5, %d4;
    ret;
}
"""
)


def test_cache_hints_are_no_values() -> None:
    module, cell = parse(CACHE_HINTS), np.array([7, 0], np.uint32)
    execute(module.kernels["table"], module, 1, 1, (cell,))
    assert cell.tolist() == [13, 8]


def test_unknown_updates_are_named() -> None:
    for name in ("atom.global.add.s64", "atom.global.inc.s32", "red.shared.min.f32"):
        instruction, _ = instruction_of(f"{name} %d1, [%d2], %d3;")
        with pytest.raises(UnknownInstructionError, match=name):
            resolve_update(instruction)


UPDATES = {
    "add.u32": lambda old, new: old + new,
    "inc.u32": lambda old, new: 0 if old >= new else old + 1,
    "dec.u32": lambda old, new: new if old == 0 or old > new else old - 1,
    "min.u32": min,
    "max.u32": max,
    "min.s32": lambda old, new: min(old, new, key=lambda bits: bits ^ 1 << 31),
    "max.s32": lambda old, new: max(old, new, key=lambda bits: bits ^ 1 << 31),
    "and.b32": lambda old, new: old & new,
    "or.b32": lambda old, new: old | new,
    "xor.b32": lambda old, new: old ^ new,
    "exch.b32": lambda _old, new: new,
}
WORD = st.integers(0, 2**32 - 1) | st.integers(0, 4) | st.integers(2**31 - 2, 2**31 + 2) | st.just(2**32 - 1)


@given(old=WORD, new=WORD, other=WORD)
def test_updates(old: int, new: int, other: int) -> None:
    def update(name: str, *operands: int) -> int:
        instruction, _ = instruction_of(f"atom.shared.{name} %r1, [%r2], {', '.join('%r3' for _ in operands[1:])};")
        operation = resolve_update(instruction, "shared")
        assert operation.operands == len(operands) - 1
        (result,) = operation.evaluate(*(np.array([operand], np.uint32) for operand in operands))
        return int(result)

    for name, define in UPDATES.items():
        assert update(name, old, new) == define(old, new) & 0xFFFFFFFF, name
    assert update("cas.b32", old, new, other) == (other if old == new else old)
    assert update("cas.b32", old, old, other) == other


def test_sums_flush_subnormals_in_global_memory_only() -> None:
    instruction, _ = instruction_of("red.add.f32 [%d1], %r1;")
    tiny, zero = np.array([1], np.uint32), np.array([0], np.uint32)
    assert resolve_update(instruction, "global").evaluate(zero, tiny)[0] == 0
    assert resolve_update(instruction, "shared").evaluate(zero, tiny)[0] == 1


def test_fidelity_tells_exact_from_approximate() -> None:
    exact = summarise_kernel(kernel_of("add.s32 %r1, %r2, %r3;", "add.s32 %r2, %r3, %r1;", "mul.rn.f32 %r1, %r2, %r3;"))
    assert exact.inexact == ()
    assert [(entry.title, count) for entry, count in exact.runs] == [("add", 2), ("mul", 1), ("ret", 1)]
    assert exact.describe().splitlines()[-1] == "no inexact instruction"
    approximate = summarise_kernel(kernel_of("rcp.approx.ftz.f32 %r1, %r2;", "rcp.rn.f32 %r3, %r2;"))
    assert [entry.note for entry in approximate.inexact] == ["1 ulp"]
    assert approximate.describe().splitlines()[-1] == "inexact: rcp"
    entry = find_entry(instruction_of("ex2.approx.f32 %r1, %r2;")[0])
    assert summarise_runs({entry: 7}).inexact == (entry,)


def test_fidelity_names_sums_that_may_be_fused() -> None:
    fused = kernel_of("mul.f32 %r1, %r2, %r3;", "sub.f32 %r4, %r2, %r1;", "add.f32 %r5, %r2, %r3;")
    assert summarise_kernel(fused).contractions == (10,)
    assert "PTX lines 10" in summarise_runs({}, fused).describe()
    for lines in (
        ("mul.rn.f32 %r1, %r2, %r3;", "add.f32 %r4, %r1, %r2;"),
        ("mul.f32 %r1, %r2, %r3;", "add.rn.f32 %r4, %r1, %r2;"),
        ("mul.lo.s32 %r1, %r2, %r3;", "add.s32 %r4, %r1, %r2;"),
    ):
        assert summarise_kernel(kernel_of(*lines)).contractions == ()


def test_fidelity_names_what_is_not_in_the_table() -> None:
    with pytest.raises(UnknownInstructionError, match=r"line 10 of kernel table is 'wgmma\.fence"):
        summarise_kernel(kernel_of("add.s32 %r1, %r2, %r3;", "wgmma.fence.sync.aligned;"))
