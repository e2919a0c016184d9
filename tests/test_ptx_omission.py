"""What an execution lacks without an instruction: judged by intervals as by the whole execution."""

from itertools import pairwise

from tiebreak.ptx.code import KernelCode
from tiebreak.ptx.launch import prepare
from tiebreak.sim.ptx.omission import Omissions, list_edges
from tiebreak.zoo import SOUND_KERNELS, build_text

LONE = [name for name, kernel in SOUND_KERNELS.items() if kernel.grid == 1]


def judge(kernel, *, alone):
    """What is said of each edge, and of pairs of neighbours, and of the kernel as it is."""
    trial = next(iter(kernel.trials.values()))()
    given = [trial.arguments[parameter] for parameter in kernel.parameters]
    prepared = prepare(KernelCode(build_text(kernel), kernel.name), (1,), given, {})
    edges = [edge.instruction.index for edge in list_edges(prepared.code.kernel)]
    sets = [frozenset(each) for each in (*zip(edges), *pairwise(edges))]
    omissions = Omissions(sets, alone=alone)
    prepared.perform(prepared.place_arguments(), omissions)
    races = [each.race is not None for each in omissions.omissions]
    return races, [each.reached for each in omissions.omissions], omissions.whole.detector.findings


def test_intervals_say_of_every_correct_kernel_what_the_whole_execution_says():
    raced = 0
    for name in LONE:
        by_interval, by_execution = (judge(SOUND_KERNELS[name], alone=alone) for alone in (True, False))
        assert by_interval[0] == by_execution[0], name
        assert by_interval[2] == by_execution[2] == [], name
        for fewer, more, race in zip(by_interval[1], by_execution[1], by_interval[0], strict=True):
            assert fewer <= more and (race or fewer == more)
        raced += sum(by_interval[0])
    assert raced > len(LONE)
