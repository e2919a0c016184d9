"""``tiebreak audit``: each barrier and fence of small kernels is judged as it should be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tiebreak.cli import app
from tiebreak.errors import InputError
from tiebreak.impl.policy import NanPolicy
from tiebreak.impl.specialization import SelectorSpecialization
from tiebreak.ptx.audit import NEEDED, REDUNDANT, UNREACHED, Audit, Input, audit_kernel
from tiebreak.ptx.audit_command import seed_random
from tiebreak.ptx.code import KernelCode
from tiebreak.ptx.launch import prepare
from tiebreak.ptx.selector_audit import draw_inputs, parse_specialization
from tiebreak.sim.ptx.parser import parse
from tiebreak.sim.ptx.removal import remove_instruction
from tiebreak.zoo import SOUND_KERNELS, build_text

HEADER = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 output, .param .u32 flag)
.reqntid {threads}, 1, 1
{{
    .reg .pred %p<4>;
    .reg .b32 %r<10>;
    .reg .b64 %d<6>;
    .shared .align 4 .b32 words[64];
    .shared .align 4 .b32 others[64];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, words;
    mad.lo.u32 %r2, %r0, 4, %r1;
    xor.b32 %r3, %r0, 33;
    mad.lo.u32 %r4, %r3, 4, %r1;
    ld.param.u64 %d0, [output];
    ld.param.u32 %r5, [flag];
    mul.wide.u32 %d1, %r0, 4;
    add.s64 %d2, %d0, %d1;
    setp.ne.u32 %p0, %r5, 0;
"""
FOOTER = """
    st.global.u32 [%d2], %r6;
    ret;
}
"""

EXCHANGE = """
    st.shared.u32 [%r2], %r0;
    bar.sync 0; // stored
    ld.shared.u32 %r6, [%r4];
"""


def audit(body: str, flags: tuple[int, ...] = (0,), threads: int = 64, **options: object) -> Audit:
    """Audit a body that leaves a word per thread in ``%r6``."""
    code = KernelCode(HEADER.format(threads=threads) + body + FOOTER, "test.ptx")
    inputs = [Input(f"flag {flag}", prepare(code, (1,), (np.zeros(threads, np.uint32), flag), {})) for flag in flags]
    return audit_kernel(inputs, **options)


def statuses(report: Audit) -> list[str]:
    """Return the verdicts in order."""
    return [verdict.status for verdict in report.verdicts]


def test_a_barrier_between_a_store_and_the_load_of_another_warp_is_needed() -> None:
    report = audit(EXCHANGE)
    (verdict,) = report.verdicts
    assert verdict.status == NEEDED
    assert verdict.witness is not None
    line = verdict.edge.instruction.line
    assert verdict.witness.lines == (line - 1, line + 1)
    assert "no bar.sync" in verdict.argument
    assert not report.findings


def test_a_second_barrier_is_redundant_and_both_together_are_not() -> None:
    report = audit(EXCHANGE.replace("bar.sync 0; // stored", "bar.sync 0;\n    add.u32 %r7, %r0, 1;\n    bar.sync 0;"))
    assert statuses(report) == [REDUNDANT, REDUNDANT]
    assert report.together is not None
    assert all(verdict.proof for verdict in report.verdicts)


def test_a_barrier_that_one_input_needs_is_needed() -> None:
    body = EXCHANGE + "    bar.sync 0;\n    @%p0 st.shared.u32 [%r2], %r6;"
    assert statuses(audit(body, flags=(0,))) == [NEEDED, REDUNDANT]
    report = audit(body, flags=(0, 1))
    assert statuses(report) == [NEEDED, NEEDED]
    assert [verdict.shown_by for verdict in report.verdicts] == ["input 1", "input 2"]


def test_a_barrier_that_no_input_runs_is_not_called_redundant() -> None:
    body = (
        EXCHANGE
        + "    @!%p0 bra DONE;\n    st.shared.u32 [%r2], %r6;\n    bar.sync 0;\n    ld.shared.u32 %r6, [%r4];\n DONE:"
    )
    report = audit(body)
    assert statuses(report) == [NEEDED, UNREACHED]
    assert report.verdicts[1].argument == "no input tried ran it"


def test_a_warp_barrier_is_judged_within_its_warp() -> None:
    body = EXCHANGE.replace("bar.sync 0", "bar.warp.sync -1")
    (verdict,) = audit(body, threads=32).verdicts
    assert (verdict.edge.role, verdict.status) == ("warp barrier", REDUNDANT)
    (verdict,) = audit(body.replace("[%r4]", "[words+4]"), threads=32).verdicts
    assert verdict.status == NEEDED


def test_of_two_waits_for_one_copy_each_is_redundant_and_both_together_are_not() -> None:
    wait = "    cp.async.wait_group 0;\n"
    body = """
    mad.lo.u32 %r4, %r0, 4, %r1;
    cp.async.ca.shared.global [%r4], [%d2], 4;
    cp.async.commit_group;
    {waits}
    ld.shared.u32 %r6, [%r4];
"""
    report = audit(body.format(waits=wait))
    assert statuses(report) == [NEEDED]
    assert report.verdicts[0].edge.role == "wait"
    assert "not waited for" in report.verdicts[0].argument
    report = audit(body.format(waits=wait + wait))
    assert statuses(report) == [REDUNDANT, REDUNDANT]
    assert report.together is not None and "not waited for" in report.together.missing


def test_every_fence_and_wait_of_a_buffer_that_bulk_copies_refill_is_needed() -> None:
    kernel = SOUND_KERNELS["bulk-refill"]
    trial = next(iter(kernel.trials.values()))()
    code = KernelCode(build_text(kernel), kernel.name)
    report = audit_kernel([Input("random", prepare(code, (1,), list(trial.arguments.values()), {}))])
    found = {(verdict.edge.role, verdict.status) for verdict in report.verdicts}
    # The thread that expects bytes has published nothing itself.
    assert found == {
        ("proxy fence", NEEDED), ("barrier", NEEDED), ("wait", NEEDED), ("order", REDUNDANT),
    }  # fmt: skip
    assert not report.findings


def test_an_answer_stands_where_a_test_of_a_barrier_object_was() -> None:
    kernel = parse(build_text(SOUND_KERNELS["mbarrier"])).kernels["mbarrier"]
    place = next(instruction.index for instruction in kernel.body if "try_wait" in instruction.modifiers)
    other = remove_instruction(kernel, place)
    assert len(other.body) == len(kernel.body)
    assert other.body[place].name == "setp.eq.u32" and other.body[place].operands[0] == kernel.body[place].operands[0]


def test_a_kernel_that_races_as_it_is_says_so() -> None:
    report = audit(EXCHANGE.replace("bar.sync 0; // stored", "bar.warp.sync -1;"))
    assert [finding.kind for finding in report.findings] == ["race"]


def test_an_execution_that_cannot_go_on_is_a_finding() -> None:
    report = audit(EXCHANGE.replace("[%r4]", "[%r4+4096]"))
    assert [finding.kind for finding in report.findings] == ["out-of-bounds"]


def test_outputs_differ_without_a_barrier_under_an_order_of_warps_that_needs_it() -> None:
    report = audit(EXCHANGE, schedules=("lockstep", "ahead:1"), outputs=True)
    assert report.verdicts[0].wrong == ["input 1, ahead:1"]


def test_arrays_are_left_as_they_were() -> None:
    code = KernelCode(HEADER.format(threads=64) + EXCHANGE + FOOTER, "test.ptx")
    output = np.full(64, 7, np.uint32)
    audit_kernel([Input("one", prepare(code, (1,), (output, 0), {}))], ("lockstep", "ahead:0"), outputs=True)
    assert (output == 7).all()


@pytest.mark.parametrize(
    "name",
    [
        "flag", "ticket", "ticket-of-stores", "grid-histogram", "named-barriers", "cluster-sum", "async-pipeline",
        "mbarrier", "bulk-store",
    ],
)  # fmt: skip
def test_every_edge_of_a_correct_kernel_is_needed(name: str) -> None:
    kernel = SOUND_KERNELS[name]
    inputs = [
        Input(
            trial,
            prepare(
                KernelCode(build_text(kernel), name),
                (kernel.grid,),
                [make().arguments[parameter] for parameter in kernel.parameters],
                {},
                block=(kernel.threads,),
                cluster=kernel.cluster,
            ),
        )
        for trial, make in kernel.trials.items()
    ]
    report = audit_kernel(inputs)
    assert not report.findings
    assert len(report.verdicts) > 1
    assert {verdict.status for verdict in report.verdicts} == {NEEDED}


def test_an_instruction_is_removed_with_its_label_in_place() -> None:
    kernel = parse(HEADER.format(threads=64) + EXCHANGE + " DONE:" + FOOTER).kernels["kernel"]
    place = next(instruction.index for instruction in kernel.body if instruction.opcode == "bar")
    shorter = remove_instruction(kernel, place)
    assert [instruction.index for instruction in shorter.body] == list(range(len(kernel.body) - 1))
    assert "bar" not in {instruction.opcode for instruction in shorter.body}
    assert shorter.body[shorter.labels["DONE"]].line == kernel.body[kernel.labels["DONE"]].line
    with pytest.raises(InputError, match="place"):
        remove_instruction(kernel, len(kernel.body))


def test_an_audit_needs_inputs_of_one_kernel() -> None:
    with pytest.raises(InputError, match="inputs"):
        audit_kernel([])


def test_draws_of_random_arrays_differ() -> None:
    first, second = (
        seed_random("random:int32:64 x=random:float32:4x4 random:int32:64:5 zeros:int32:4", n) for n in (0, 1)
    )
    assert first == "random:int32:64:0 x=random:float32:4x4:1 random:int32:64:5 zeros:int32:4"
    assert second == "random:int32:64:4 x=random:float32:4x4:5 random:int32:64:5 zeros:int32:4"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "kernel.ptx"
    path.write_text(HEADER.format(threads=64) + EXCHANGE + "    bar.sync 0;" + FOOTER)
    return str(path)


def test_the_command_prints_a_table_and_what_it_rests_on(file: str) -> None:
    result = CliRunner().invoke(app, ["audit", file, "--args", "zeros:int32:64 0", "--args", "zeros:int32:64 1"])
    assert result.exit_code == 0, result.output
    assert "1 needed, 1 redundant, 0 not reached" in result.output
    assert "input 2: zeros:int32:64 1" in result.output
    assert "Only a proof holds for others" in result.output


def test_the_command_prints_json_and_can_insist_that_nothing_is_redundant(file: str) -> None:
    result = CliRunner().invoke(app, ["audit", file, "--args", "zeros:int32:64 0", "--json", "--strict"])
    assert result.exit_code == 1
    report = json.loads(result.output)
    assert [verdict["status"] for verdict in report["verdicts"]] == [NEEDED, REDUNDANT]
    assert report["verdicts"][0]["witness"]["kind"] == "race"
    assert report["inputs"] == ["zeros:int32:64 0"]


def test_the_command_fails_for_a_kernel_that_races(file: str) -> None:
    Path(file).write_text(Path(file).read_text().replace("bar.sync 0; // stored", ""))
    result = CliRunner().invoke(app, ["audit", file, "--args", "zeros:int32:64 0"])
    assert result.exit_code == 1
    assert "findings in the kernel as it is: 1" in result.output


def test_a_selector_is_named_by_its_specialisation() -> None:
    specialization = parse_specialization("select-threads=256-vectors=2-contract=order-slots=1024-nan=1-streamed=1")
    assert specialization == SelectorSpecialization(
        threads=256, vectors=2, contract="order", slots=1024, nan=NanPolicy.FIRST, streamed=True
    )
    assert parse_specialization(specialization.name) == specialization


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("select-threads=128", "vectors"),
        ("select-threads=128-vectors=x", "vectors"),
        ("select-threads=128-vectors=1-nan=7", "nan"),
        ("select-warps=4", "warps"),
        ("select-threads=128-vectors=1-sources=peers", "sources"),
    ],
)
def test_a_selector_that_cannot_be_audited_is_refused(name: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        parse_specialization(name)


@pytest.mark.cutedsl
def test_barriers_of_a_selector_are_judged_on_its_rows() -> None:
    specialization = SelectorSpecialization(threads=128, vectors=1)
    rows = [each for each in draw_inputs(specialization, "sm_90a") if each.name in ("normal, best 128", "all equal")]
    report = audit_kernel(rows)
    assert not report.findings
    assert report.count(NEEDED) >= 10
    named = [verdict.edge.instruction.location for verdict in report.verdicts]
    assert all(location is not None and location.line for location in named)
