"""PTX text to modules, kernels, instructions and operands."""

from __future__ import annotations

import pytest

from tiebreak.errors import PtxSyntaxError
from tiebreak.sim.ptx.module import (
    Address,
    Coordinates,
    Guard,
    Immediate,
    Instruction,
    Kernel,
    Location,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)
from tiebreak.sim.ptx.parser import parse
from tiebreak.sim.ptx.program import find_program

HEADER = ".version 9.4\n.target sm_100a\n.address_size 64\n"
FIRST_LINE = 12
"""Line of the first statement that a test gives."""

REGISTERS = ".reg .pred %p<9>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .f32 %f<9>;\n"


def read_kernel(body: str, *, before: str = "", directives: str = "", after: str = "") -> Kernel:
    text = (
        f"{HEADER}{before}\n.visible .entry k(.param .u64 k_param_0)\n{directives}\n{{\n{REGISTERS}{body}\n}}\n{after}"
    )
    return parse(text).kernels["k"]


def read_one(statement: str) -> Instruction:
    (instruction,) = read_kernel(statement).body
    return instruction


OPERANDS: list[tuple[str, list[Operand]]] = [
    ("mov.u32 %r1, %tid.x;", [Register("%r1"), Register("%tid.x")]),
    ("mov.b32 %r1, -1;", [Register("%r1"), Immediate("-1", -1)]),
    ("mov.b32 %r1, 0x7FF;", [Register("%r1"), Immediate("0x7FF", 0x7FF)]),
    ("mov.b32 %r1, -0x80000000;", [Register("%r1"), Immediate("-0x80000000", -(2**31))]),
    ("mov.b32 %r1, 0b101;", [Register("%r1"), Immediate("0b101", 5)]),
    ("mov.b32 %r1, 017;", [Register("%r1"), Immediate("017", 15)]),
    ("mov.b32 %r1, 4294967295U;", [Register("%r1"), Immediate("4294967295U", 2**32 - 1)]),
    ("mov.f32 %f1, 0f7F800000;", [Register("%f1"), Immediate("0f7F800000", 0x7F800000, 32)]),
    ("mov.f32 %f1, 0dBFF0000000000000;", [Register("%f1"), Immediate("0dBFF0000000000000", 0xBFF << 52, 64)]),
    ("mov.f32 %f1, -1.0;", [Register("%f1"), Immediate("-1.0", 0xBFF << 52, 64)]),
    ("mov.f32 %f1, 2.5e-1;", [Register("%f1"), Immediate("2.5e-1", 0x3FD << 52, 64)]),
    ("mov.b32 %r1, WARP_SZ;", [Register("%r1"), Immediate("WARP_SZ", 32)]),
    ("mov.b64 {%r1, _}, %rd1;", [Vector((Register("%r1"), None)), Register("%rd1")]),
    ("mov.b64 %rd1, memory+16;", [Register("%rd1"), Address(Symbol("memory"), 16)]),
    ("ld.global.b32 { %r1 }, [ %rd4 + 0 ];", [Register("%r1"), Address(Register("%rd4"), 0)]),
    ("ld.global.b32 %r1, [%rd4+-8];", [Register("%r1"), Address(Register("%rd4"), -8)]),
    ("ld.shared.b32 %r1, [memory+0x10];", [Register("%r1"), Address(Symbol("memory"), 16)]),
    ("ld.shared.b32 %r1, [64];", [Register("%r1"), Address(Immediate("64", 64), 0)]),
    ("ld.param.u64 %rd1, [k_param_0];", [Register("%rd1"), Address(Symbol("k_param_0"), 0)]),
    (
        "st.shared.v4.b32 [%r2], {%r1, 0, -1, %r3};",
        [
            Address(Register("%r2"), 0),
            Vector((Register("%r1"), Immediate("0", 0), Immediate("-1", -1), Register("%r3"))),
        ],
    ),
    (
        "shfl.sync.up.b32 %r1|%p2, %r3, 1, 0, -1;",
        [
            Pair(Register("%r1"), Register("%p2")),
            Register("%r3"),
            Immediate("1", 1),
            Immediate("0", 0),
            Immediate("-1", -1),
        ],
    ),
    (
        "elect.sync _|%p1, -1;",
        [Pair(None, Register("%p1")), Immediate("-1", -1)],
    ),
    (
        "setp.lt.and.s32 %p1, %r1, %r2, !%p2;",
        [Register("%p1"), Register("%r1"), Register("%r2"), Register("!%p2")],
    ),
    ("atom.global.add.u32 _, [%rd1], 1;", [None, Address(Register("%rd1"), 0), Immediate("1", 1)]),
    (
        "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
        [
            Address(Register("%r1"), 0),
            Coordinates(Address(Register("%rd1"), 0), Vector((Register("%r2"), Register("%r3")))),
            Address(Register("%r4"), 0),
        ],
    ),
    ("ret;", []),
]


@pytest.mark.parametrize(("statement", "operands"), OPERANDS, ids=[statement for statement, _ in OPERANDS])
def test_operands(statement: str, operands: list[Operand]) -> None:
    assert list(read_one(statement).operands) == operands


def test_names_of_instructions_keep_their_parts_in_order() -> None:
    instruction = read_one("st.release.sys.shared::cluster.L2::128B.b32 [%r1], %r2;")
    assert (instruction.opcode, instruction.modifiers) == (
        "st",
        ("release", "sys", "shared::cluster", "L2::128B", "b32"),
    )
    assert instruction.name == "st.release.sys.shared::cluster.L2::128B.b32"


@pytest.mark.parametrize(("text", "guard"), [("@%p1 ", Guard("%p1")), ("@!%p1 ", Guard("%p1", True)), ("", None)])
def test_guards(text: str, guard: Guard | None) -> None:
    assert read_one(f"{text}bar.sync 0;").guard == guard


def test_statements_may_share_a_line_or_take_several() -> None:
    kernel = read_kernel("add.s32 %r1,\n  %r2, // the second\n  1; /* and\n then */ ret;")
    assert [(instruction.name, instruction.line) for instruction in kernel.body] == [
        ("add.s32", FIRST_LINE),
        ("ret", FIRST_LINE + 3),
    ]


def test_registers_of_inner_blocks_are_distinct() -> None:
    block = "{ .reg .pred inside; .reg .b32 %r1, x; setp.ne.b32 inside, %r1, %r2; @inside mov.b32 x, 1; }"
    kernel = read_kernel(f"mov.b32 %r1, 0;\n{block}\n{block}\n@%p1 bra DONE;\nDONE: ret;")
    first, second = kernel.body[1].operands[0], kernel.body[3].operands[0]
    assert isinstance(first, Register) and isinstance(second, Register) and first != second
    assert kernel.registers[first.name] == "pred" == kernel.registers[second.name]
    assert kernel.body[1].operands[1] != Register("%r1"), "the block's own register hides the kernel's"
    assert kernel.body[1].operands[2] == Register("%r2")
    guard = kernel.body[2].guard
    assert guard is not None and guard.register == first.name


def test_labels_of_inner_blocks_are_distinct_and_may_be_used_before_they_stand() -> None:
    block = "{ .reg .pred p; WAIT: mbarrier.test_wait.b64 p, [%r1], %rd1; @p bra DONE; bra WAIT; DONE: }"
    kernel = read_kernel(f"{block}\n{block}\nbra DONE;\nDONE:\nret;")
    targets = [instruction.operands[0] for instruction in kernel.body if instruction.opcode == "bra"]
    places = [kernel.labels[target.name] for target in targets if isinstance(target, Symbol)]
    assert places == [3, 0, 6, 3, 7]


def test_lists_of_branch_targets() -> None:
    kernel = read_kernel("LIST: .branchtargets A, B;\nbrx.idx %r1, LIST;\nA: mov.b32 %r1, 0;\nB: ret;")
    assert kernel.targets == {"LIST": ("A", "B")}
    assert find_program(kernel).blocks[0].successors == (1, 2)


def test_parameters_lie_where_their_alignment_puts_them() -> None:
    text = (
        f"{HEADER}.visible .entry k(\n.param .u32 a,\n.param .u64 .ptr .global .align 16 b,\n.param .u8 c,\n"
        ".param .align 64 .b8 d[128],\n.param .f32 e\n)\n.reqntid 512, 1, 1\n.minnctapersm 2\n"
        ".reqnctapercluster 2, 1, 1 .explicitcluster\n{ ret; }"
    )
    kernel = parse(text).kernels["k"]
    described = [(each.name, each.kind, each.size, each.alignment, each.offset) for each in kernel.parameters]
    # The alignment after .ptr is that of what is pointed to.
    assert described == [
        ("a", "u32", 4, 4, 0),
        ("b", "u64", 8, 8, 8),
        ("c", "u8", 1, 1, 16),
        ("d", "b8", 128, 64, 64),
        ("e", "f32", 4, 4, 192),
    ]
    assert kernel.directives == {
        "reqntid": (512, 1, 1),
        "minnctapersm": (2,),
        "reqnctapercluster": (2, 1, 1),
        "explicitcluster": (),
    }


def test_variables() -> None:
    before = (
        ".extern .shared .align 16 .b8 dynamic[];\n.global .align 4 .u16 numbers[2][2] = {1, 2, 0xFFFF};\n"
        ".const .f32 half = 0.5;\n.visible .global .v2 .b32 pair;\n"
    )
    text = f"{HEADER}{before}.entry k() {{ .shared .align 8 .b8 inside[24]; .local .b64 depot, other[2]; ret; }}"
    module = parse(text)
    described = [(each.name, each.space, each.size, each.alignment, each.initial) for each in module.variables]
    assert described == [
        ("dynamic", "shared", 0, 16, b""),
        ("numbers", "global", 8, 4, b"\x01\x00\x02\x00\xff\xff\x00\x00"),
        ("half", "const", 4, 4, b"\x00\x00\x00\x3f"),
        ("pair", "global", 8, 8, b""),
    ]
    inner = [(each.name, each.space, each.size) for each in module.kernels["k"].variables]
    assert inner == [("inside", "shared", 24), ("depot", "local", 8), ("other", "local", 16)]


def test_positions_know_the_calls_that_they_were_inlined_at() -> None:
    body = (
        ".loc 1 10 2\nmov.b32 %r1, 0;\n.loc 2 20 3, function_name $L__info0, inlined_at 1 10 2 // a comment\n"
        "mov.b32 %r1, 1;\n.loc 2 30 4, function_name $L__info1, inlined_at 2 20 3\nmov.b32 %r1, 2;\n.loc 1 0 0\nret;"
    )
    after = '.file 1 "/src/one.py"\n.file 2 "two//three.py"\n.section .debug_str\n{\n$L__info0:\n.b8 99\n.b8 0\n}\n'
    kernel = read_kernel(body, after=after)
    outer = Location("/src/one.py", 10, 2)
    middle = Location("two//three.py", 20, 3, outer)
    assert [instruction.location for instruction in kernel.body] == [
        outer,
        middle,
        Location("two//three.py", 30, 4, middle),
        Location("/src/one.py", 0, 0),
    ]


def test_what_a_machine_does_not_need_is_passed_over() -> None:
    before = '.file 1 "x.py"\n.func (.param .b32 out) helper(.param .b32 given)\n{\n{ ret; }\n}\n.extern .func far();\n'
    kernel = read_kernel('.pragma "nounroll";\nret;', before=before, after=".section .debug_macinfo { }\n")
    assert [instruction.name for instruction in kernel.body] == ["ret"]


def test_the_module_says_what_it_is_for() -> None:
    module = parse(f"{HEADER}.visible .entry a() {{ ret; }}\n.visible .entry b() {{ ret; }}")
    assert (module.version, module.target, list(module.kernels)) == ("9.4", "sm_100a", ["a", "b"])


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("add.s32 %r1, %r2 3;", 0),
        ("ret;\nadd.s32 %r1, , 3;", 1),
        ("ret;\n\n\nADD %r1;", 3),
        ("mov.b32 {%r1, %r2, %rd1;", 0),
        ("ld.b32 %r1, [%rd1*4];", 0),
        ("setp.eq.and.b32 %p1, %r1, 0, !5;", 0),
        ("@nobody ret;", 0),
        (".reg .b32;", 0),
        (".shared .b8;", 0),
        (".maxntid 5;", 0),
        (".loc x;", 0),
        ("shfl.sync.up.b32 nobody|%p1, %r1, 1, 0, -1;", 0),
    ],
)
def test_errors_name_the_line(body: str, line: int) -> None:
    with pytest.raises(PtxSyntaxError, match=rf"<ptx>:{FIRST_LINE + line} is"):
        read_kernel(body)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".version 9.4\n",
        "hello",
        f"{HEADER}.entry k() {{ ret;",
        f"{HEADER}.global .b32 x = y;",
        f"{HEADER}.global .u x;",
    ],
)
def test_text_that_is_no_module(text: str) -> None:
    with pytest.raises(PtxSyntaxError):
        parse(text)


DIAMOND = """
    setp.eq.b32 %p1, %r1, 0;
    @%p1 bra ELSE;
    mov.b32 %r2, 1;
$L__debug:
    bra JOIN;
ELSE:
    mov.b32 %r2, 2;
    @%p2 ret;
JOIN:
    bar.sync 0;
LOOP:
    @%p3 bra LOOP;
    ret;
"""


def test_blocks_begin_where_branches_lead() -> None:
    program = find_program(read_kernel(DIAMOND))
    leave = program.exit
    spans = [(block.start, block.stop, block.successors) for block in program.blocks]
    assert spans == [
        (0, 2, (2, 1)),
        (2, 4, (3,)),
        (4, 6, (leave, 3)),
        (6, 7, (4,)),
        (7, 8, (4, 5)),
        (8, 9, (leave,)),
    ]


def test_threads_meet_again_at_the_immediate_post_dominator() -> None:
    program = find_program(read_kernel(DIAMOND))
    leave = program.exit
    # A thread that returns in the second branch never reaches the join.
    assert [block.reconvergence for block in program.blocks] == [leave, 3, leave, 4, 5, leave]


def test_a_loop_without_an_end_meets_at_the_exit() -> None:
    program = find_program(read_kernel("LOOP: bra LOOP;"))
    assert [block.reconvergence for block in program.blocks] == [program.exit]


@pytest.mark.parametrize("body", ["bra NOWHERE;", "brx.idx %r1, NOWHERE;", "add.s32 %r1, %r1, 1;", "@%p1 ret;"])
def test_text_that_leads_nowhere(body: str) -> None:
    with pytest.raises(PtxSyntaxError):
        find_program(read_kernel(body))


def test_inline_assembly_keeps_the_position_before_it():
    text = """.version 9.4
.target sm_90
.address_size 64
.visible .entry f(.param .u64 p)
{
    .reg .b64 %rd<3>;
    .loc 1 16 30
    // begin inline asm
    mov.b64 %rd1, 0;
    .loc 1 17 30
    ld.global.b64 %rd1, [%rd2];
    // end inline asm
    .loc 1 20 1
    ret;
}
.file 1 "a.py"
"""
    body = parse(text).kernels["f"].body
    assert [(each.location.line, each.line) for each in body] == [(16, 9), (16, 11), (20, 14)]
