"""The zoo: correct kernels that nothing is reported of, and broken ones that are caught."""

import subprocess

import pytest
import triton

from tiebreak.errors import InputError
from tiebreak.zoo import BROKEN_KERNELS, SOUND_KERNELS, build_text
from tiebreak.zoo.kernel import VERSION, Edit, apply_edits, build_entry, find_line

KERNELS = [*SOUND_KERNELS.values(), *BROKEN_KERNELS.values()]


@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a", "sm_121a"])
def test_all_kernels_assemble(architecture, tmp_path):
    header = f".version {VERSION}\n.target {architecture}\n.address_size 64\n"
    path = tmp_path / "zoo.ptx"
    path.write_text("\n".join([header, *map(build_entry, KERNELS)]))
    command = [triton.knobs.nvidia.ptxas.path, f"-arch={architecture}", "-o", str(tmp_path / "zoo.cubin"), str(path)]
    outcome = subprocess.run(command, capture_output=True, text=True)
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_names_are_distinct_and_numbers_are_those_promised():
    assert not set(SOUND_KERNELS) & set(BROKEN_KERNELS)
    assert len(SOUND_KERNELS) >= 20 and len(BROKEN_KERNELS) >= 20


def test_every_broken_kernel_differs_from_its_original_and_names_lines_of_it():
    for kernel in BROKEN_KERNELS.values():
        assert kernel.original.name in SOUND_KERNELS
        assert kernel.body != kernel.original.body
        assert kernel.source.startswith("https://")
        assert kernel.places and all(find_line(build_text(kernel), place) for place in kernel.places)
        assert kernel.make_trial().expected


def test_every_correct_kernel_has_a_broken_twin_or_shows_a_pattern():
    broken = {kernel.original.name for kernel in BROKEN_KERNELS.values()}
    assert {name for name in SOUND_KERNELS if name not in broken} <= {"matched-lanes"}


def test_an_edit_that_no_longer_fits_is_an_error():
    with pytest.raises(InputError, match="must be 1"):
        apply_edits("bar.sync 0;", (Edit("bar.sync 1;"),), "a kernel")


def test_a_place_on_two_lines_is_an_error():
    with pytest.raises(InputError, match="must be 1"):
        find_line("a\na\n", "a")
