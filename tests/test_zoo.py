"""The zoo: correct kernels that nothing is reported of, and broken ones that are caught."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import triton

from tiebreak.errors import InputError
from tiebreak.impl.kernel_binary import KernelRecipe
from tiebreak.impl.selector import list_sources
from tiebreak.ptx.cutedsl import obtain_recipe_code
from tiebreak.zoo import BROKEN_KERNELS, SOUND_KERNELS, build_text, catalogue
from tiebreak.zoo.examination import examine
from tiebreak.zoo.kernel import VERSION, Edit, Trial, apply_edits, build_entry, find_line
from tiebreak.zoo.specimen import Expectation, Specimen, describe_broken, describe_sound, describe_twins
from tiebreak.zoo.triton_twins import TRITON_TWINS

KERNELS = [*SOUND_KERNELS.values(), *BROKEN_KERNELS.values()]
SCHEDULES = ("lockstep", "ahead:0", "behind:0", "random:1")


def examine_first(specimen, schedule="lockstep"):
    """The examination with the first arguments; each call makes new ones."""
    return examine(specimen, next(iter(specimen.trials.values())), schedule)


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


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", SOUND_KERNELS)
def test_nothing_is_reported_of_correct_kernels(name, schedule):
    specimen = describe_sound(SOUND_KERNELS[name])
    for trial in specimen.trials.values():
        examination = examine(specimen, trial, schedule)
        assert (examination.findings, examination.differences) == ((), ())


@pytest.mark.parametrize("name", BROKEN_KERNELS)
def test_broken_kernels_are_caught_where_they_are_wrong(name):
    examination = examine_first(describe_broken(BROKEN_KERNELS[name]))
    assert examination.expected, "\n".join(map(str, examination.findings)) or "no finding"


@pytest.mark.parametrize("name", [name for name, kernel in BROKEN_KERNELS.items() if kernel.schedule])
def test_an_order_of_warps_shows_the_mistake_in_the_output(name):
    kernel = BROKEN_KERNELS[name]
    assert examine_first(describe_broken(kernel), kernel.schedule).differences


@pytest.mark.parametrize("twins", TRITON_TWINS, ids=[twins.name for twins in TRITON_TWINS])
def test_kernels_in_triton_are_judged_by_their_source_lines(twins):
    sound, broken = (examine_first(describe_twins(twins, broken=broken)) for broken in (False, True))
    assert (sound.findings, sound.differences) == ((), ())
    assert broken.expected, "\n".join(map(str, broken.findings)) or "no finding"


REVERSAL = Path(__file__).parent / "kernels" / "reversal.py"


def describe_reversal(broken):
    """A kernel written in CuTeDSL; the file is imported where it is compiled."""

    def build(options):
        found = importlib.util.spec_from_file_location("reversal", REVERSAL)
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        found.loader.exec_module(module)
        return module.compile_reversal(broken, options)

    sources = (REVERSAL, *list_sources())
    recipe = KernelRecipe(f"reversal-broken={int(broken)}", "sm_100a", sources, build, 4 * 128)
    values = np.arange(1, 129, dtype=np.int32)
    trial = Trial({"values": values, "output": np.zeros(128, np.int32)}, {"output": values[::-1]})
    lines = frozenset(find_line(REVERSAL.read_text(), place) for place in ("    store_shared(", "word = load_shared("))
    expectation = Expectation(
        rule="a barrier lies between store and load",
        source="https://github.com/NVIDIA/TensorRT-LLM/pull/14602",
        findings=("race",),
        lines=lines,
        file=REVERSAL.name,
    )
    return Specimen(
        name=recipe.name,
        language="CuTeDSL",
        code=obtain_recipe_code(recipe).explain(),
        trials={"default": trial},
        threads=128,
        grid=1,
        expectation=expectation if broken else None,
    )


@pytest.mark.cutedsl
@pytest.mark.parametrize("broken", [False, True])
def test_a_kernel_in_cutedsl_is_judged_by_its_source_lines(broken):
    examination = examine_first(describe_reversal(broken))
    assert examination.passed, "\n".join(map(str, examination.findings)) or "no finding"


def test_the_two_phase_selector_drops_the_ties_of_all_warps_but_one():
    kernel = BROKEN_KERNELS["prefix-reset-before-read"]
    in_lockstep, ahead = (examine_first(describe_broken(kernel), order) for order in ("lockstep", "ahead:0"))
    assert in_lockstep.expected and not in_lockstep.differences
    output = next(iter(ahead.specimen.trials.values())).arguments["output"]
    assert ahead.ended and sorted(output[output >= 0]) == list(range(32))


def test_the_two_phase_selector_is_right_and_silent_on_scores_that_do_not_tie():
    specimen = describe_broken(BROKEN_KERNELS["prefix-reset-before-read"])
    examination = examine(specimen, SOUND_KERNELS["two-phases"].trials["random"]())
    assert (examination.findings, examination.differences) == ((), ())


def test_a_wrong_output_of_a_correct_kernel_would_be_seen():
    specimen = describe_sound(SOUND_KERNELS["block-sum"])
    trial = specimen.trials["random"]
    trial.expected["output"][5] += np.uint32(1)
    assert not examine(specimen, trial).passed


def test_the_catalogue_is_what_the_kernels_say():
    written = Path(catalogue.__file__).with_name("KERNELS.md").read_text(encoding="utf-8")
    assert written == catalogue.render_catalogue(), "python -m tiebreak.zoo.catalogue > src/tiebreak/zoo/KERNELS.md"
