"""Proofs that a barrier orders nothing: what they find, and that they claim nothing about barriers that are needed."""

import pytest

from tiebreak.ptx.code import KernelCode
from tiebreak.sim.ptx.redundancy import prove_redundant
from tiebreak.sim.ptx.removal import remove_instruction
from tiebreak.zoo import BROKEN_KERNELS, SOUND_KERNELS, build_text
from tiebreak.zoo.examination import examine
from tiebreak.zoo.kernel import SoundKernel, Trial
from tiebreak.zoo.specimen import describe_sound


def prove(body, parameters=None, threads=64):
    """Arguments by line of the body, from 1."""
    kernel = SoundKernel(
        name="proof", summary="", parameters=parameters or {"output": "u64"}, body=body, trials={}, threads=threads
    )
    text = build_text(kernel)
    first = text.splitlines().index(body.strip("\n").splitlines()[0].rstrip()) + 1
    code = KernelCode(text, "proof")
    return {code.kernel.body[place].line - first + 1: why for place, why in prove_redundant(code.kernel).items()}


SHARED = ".shared .align 16 .b32 first[64];\n    .shared .align 16 .b32 second[64];\n"
OWN = "    mov.u32 %r_base, first;\n    mad.lo.u32 %r_own, %r_thread, 4, %r_base;\n"


def test_a_barrier_after_another_is_redundant():
    body = (
        SHARED
        + OWN
        + "    st.shared.u32 [%r_own], 0;\n    bar.sync 0;\n    bar.sync 0;\n    ld.shared.u32 %r_a, [first];"
    )
    assert prove(body) == {
        6: "no access lies between it and the barriers after it",
        7: "no access lies between it and the barriers before it",
    }


def test_a_barrier_between_reads_is_redundant():
    body = SHARED + "    ld.shared.u32 %r_a, [first];\n    bar.sync 0;\n    ld.shared.u32 %r_b, [first];"
    assert prove(body) == {4: "only reads lie between it and the barriers around it"}


def test_bounds_of_the_thread_tell_addresses_apart():
    store = SHARED + OWN + "    st.shared.u32 [%r_own], 0;\n    bar.sync 0;\n    ld.shared.u32 %r_a, [first+{}];"
    # 64 threads store up to byte 256.
    assert list(prove(store.format(256))) == [6]
    assert prove(store.format(252)) == {}
    assert prove(store.format(256), threads=128) == {}


def test_a_mask_bounds_what_is_not_known():
    body = (
        SHARED
        + "    ld.global.u32 %r_any, [%d_output];\n    and.b32 %r_any2, %r_any, {};\n    mov.u32 %r_base, first;\n"
        + "    add.u32 %r_at, %r_any2, %r_base;\n    st.shared.u8 [%r_at], 0;\n    bar.sync 0;\n"
        + "    ld.shared.u8 %h_a, [first+128];"
    )
    body = body.replace("st.shared.u8 [%r_at], 0;", "mov.b16 %h_zero, 0; st.shared.u8 [%r_at], %h_zero;")
    assert list(prove(body.format(127))) == [8]
    assert prove(body.format(128)) == {}


def test_atomics_on_both_sides_need_no_barrier():
    body = SHARED + "    red.shared.add.u32 [first], 1;\n    bar.sync 0;\n    red.shared.add.u32 [first], 1;"
    assert list(prove(body)) == [4]
    assert prove(body.replace("red.shared.add.u32 [first], 1;\n    bar", "st.shared.u32 [first], 1;\n    bar")) == {}


def test_a_loop_leads_back_to_what_comes_before():
    body = (
        SHARED
        + "    mov.u32 %r_turn, 0;\nAGAIN:\n    ld.shared.u32 %r_a, [first];\n    bar.sync 0;\n"
        + "    red.shared.add.u32 [second], 1;\n{}    add.u32 %r_turn, %r_turn, 1;\n"
        + "    setp.lt.u32 %p_again, %r_turn, 2;\n    @%p_again bra AGAIN;"
    )
    # Variables may lie anywhere: only places in one variable are told apart.
    assert prove(body.format("")) == {}
    near = body.replace("[second]", "[first+4]")
    assert list(prove(near.format(""))) == [6]
    assert prove(near.format("    st.shared.u32 [first], 2;\n")) == {}


def test_barriers_of_some_threads_and_guarded_ones_are_not_judged():
    body = SHARED + "    bar.sync 1, 32;\n    setp.eq.u32 %p_some, %r_thread, 0;\n    @%p_some bar.sync 0;"
    assert prove(body) == {}


@pytest.mark.parametrize("name", SOUND_KERNELS)
def test_what_is_proven_redundant_in_the_zoo_can_be_left_out(name):
    specimen = describe_sound(SOUND_KERNELS[name])
    for place in prove_redundant(specimen.code.kernel):
        kernel = remove_instruction(specimen.code.kernel, place)
        for trial in specimen.trials.values():
            assert _examine_without(specimen, kernel, trial).passed


def _examine_without(specimen, kernel, trial: Trial):
    """The examination of a specimen with another kernel of the same parameters."""
    specimen.code.__dict__["kernel"] = kernel
    return examine(specimen, trial)


@pytest.mark.parametrize("name", [name for name, kernel in BROKEN_KERNELS.items() if "bar.sync" in kernel.edits[0].old])
def test_no_barrier_is_proven_redundant_whose_lack_the_zoo_shows(name):
    kernel = BROKEN_KERNELS[name]
    code = KernelCode(build_text(kernel.original), name)
    marks = [edit.old.strip() for edit in kernel.edits if not edit.new]
    lines = {number for number, line in enumerate(code.text.splitlines(), 1) if line.strip() in marks}
    proven = {code.kernel.body[place].line for place in prove_redundant(code.kernel)}
    assert not lines & proven
