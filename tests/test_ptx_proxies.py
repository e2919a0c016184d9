"""Proxy fences: on any path from an access to a bulk copy, and about what their thread knows only."""

from dataclasses import replace

import pytest

from tiebreak.zoo import SOUND_KERNELS
from tiebreak.zoo.examination import examine
from tiebreak.zoo.kernel import Edit, apply_edits
from tiebreak.zoo.specimen import describe_sound

FENCE, BARRIER = "    fence.proxy.async.shared::cta; // published\n", "    bar.sync 0; // written\n"
FIRST = "    setp.eq.u32 %p_first, %r_thread, 0;\n    @%p_first fence.proxy.async.shared::cta;\n"


def find_races(edits, name="bulk-store"):
    """What is missing in the kernel with some edits."""
    kernel = SOUND_KERNELS[name]
    specimen = describe_sound(replace(kernel, body=apply_edits(kernel.body, edits, name)))
    examination = examine(specimen, next(iter(specimen.trials.values())))
    assert examination.ended
    return [finding.missing for finding in examination.findings]


def test_the_issuer_may_publish_what_a_barrier_told_it():
    assert find_races((Edit(FENCE), Edit(BARRIER, BARRIER + FIRST))) == []


@pytest.mark.parametrize("publisher", [0, 33])
def test_one_thread_does_not_publish_for_others_what_it_does_not_know(publisher):
    (missing,) = find_races((Edit(FENCE, FIRST.replace("%r_thread, 0", f"%r_thread, {publisher}")),))
    assert missing.startswith("no fence.proxy.async between line")


def test_another_thread_may_publish_between_two_barriers():
    other = FIRST.replace("%r_thread, 0", "%r_thread, 33")
    assert find_races((Edit(FENCE), Edit(BARRIER, BARRIER + other + "    bar.sync 0;\n"))) == []


def test_a_fence_of_another_kind_publishes_nothing():
    assert find_races((Edit(FENCE, "    fence.acq_rel.cta;\n"),))


def test_program_order_needs_a_fence_too():
    alone = Edit("    st.shared.u32 [%r_slot]", "    @!%p_mine bra COPY;\n    st.shared.u32 [%r_slot]")
    mine = Edit("    mov.u32 %r_slot, tile;", "    setp.lt.u32 %p_mine, %r_thread, 1;\n    mov.u32 %r_slot, tile;")
    (missing, *_) = find_races((alone, mine, Edit(FENCE, "COPY:\n")))
    assert missing.startswith("no fence.proxy.async")


def test_a_load_that_precedes_a_copy_from_the_same_bytes_needs_none():
    look = "    ld.shared.u32 %r_value, [%r_slot];\n    bar.sync 0;\n"
    assert find_races((Edit(BARRIER, BARRIER + look),)) == []
