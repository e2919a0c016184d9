"""One order of arrivals for all: only where nothing depends on who arrives last, and then nothing is lost."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import pytest
import torch

from tiebreak.errors import MissingBackendError, SimulationError
from tiebreak.explore.compiled import CompiledMerge, record_run
from tiebreak.explore.fused import fused_scenario
from tiebreak.impl.kernel_store import find_compiler
from tiebreak.sim.explorer.arrivals import Arrivals
from tiebreak.sim.explorer.cta_runs import CompiledLaunch
from tiebreak.sim.explorer.ctas import Ctas, Launches
from tiebreak.sim.explorer.execution import Execution
from tiebreak.sim.explorer.exploration import Exploration, Options
from tiebreak.sim.explorer.grouping import Grouping
from tiebreak.sim.explorer.judging import AtEnd
from tiebreak.sim.explorer.layout import DEPARTED, WRITE
from tiebreak.sim.explorer.operations import Await, Barrier, Load, Store, Update
from tiebreak.sim.memory import Memory
from tiebreak.sim.ptx.executor import execute
from tiebreak.sim.ptx.parser import parse
from tiebreak.sim.ptx.recording import Recorder

OPTIONS = Options("ptx", merge_awaits=True, races=True)
FUSED = "ranks=2", "epochs=2", "mode=graph"
"""A graph that is captured once and replayed with fresh data."""

SUM = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry sum(.param .u64 parts, .param .u64 count, .param .u64 total) {
    .reg .b64 %rd<6>; .reg .b32 %r<12>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [parts]; ld.param.u64 %rd2, [count]; ld.param.u64 %rd3, [total];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x;
    mul.wide.u32 %rd4, %r2, 4; add.u64 %rd5, %rd1, %rd4;
    add.u32 %r4, %r2, 1;
    setp.eq.u32 %p1, %r1, 7;
    @%p1 st.global.b32 [%rd5], %r4;
    bar.sync 0;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra done;
    atom.acq_rel.gpu.global.add.u32 %r5, [%rd2], 1;
    sub.u32 %r6, %r3, 1;
    setp.ne.u32 %p3, %r5, %r6;
    @%p3 bra done;
    ld.global.v2.b32 {%r7, %r8}, [%rd1];
    add.u32 %r9, %r7, %r8;
    st.global.b32 [%rd3], %r9;
    st.global.b32 [%rd2], 0;
done:
    ret;
}
"""
"""A thread of each CTA writes a part; the last CTA to arrive adds two parts up and resets the counter."""

ARRIVAL = "atom.acq_rel.gpu.global.add.u32 %r5, [%rd2], 1;"


@dataclass
class Explored:
    """An exploration of two launches, how many turns it began with, and its executions."""

    exploration: Exploration
    launches: Launches
    learned: int
    executions: list[Execution] = field(default_factory=list)

    @property
    def classes(self) -> int:
        """Complete classes."""
        return self.exploration.counts.complete

    @property
    def memories(self) -> set[Hashable]:
        """What memory held at the ends."""
        ends = [memory for execution in self.executions for memory in execution.memories]
        return {tuple(sorted(memory.items(), key=str)) for memory in ends}


def explore_sum(text: str, ctas: int, *, take_turns: bool = True) -> Explored:
    """Explore two launches of a kernel, one after the other on one rank."""
    memory = Memory()
    tensors = {name: torch.zeros(8, dtype=torch.int32) for name in ("parts", "count", "total")}
    for name, tensor in tensors.items():
        memory.register(tensor, name=name, rank=0)
    contents = {base: ctypes.string_at(base, 32) for base in memory.bases}
    grouping, recorder, module = Grouping(memory), Recorder(), parse(text, "sum")
    (kernel,) = module.kernels.values()
    execute(kernel, module, ctas, 32, list(tensors.values()), observer=recorder)
    for access in sorted(recorder.accesses, key=lambda access: access.kind == "read"):
        grouping.note(access)
    addresses = tuple(tensor.data_ptr() for tensor in tensors.values())
    launch = CompiledLaunch(kernel, module, (ctas, 1, 1), (32, 1, 1), addresses)
    program = Ctas(Launches(memory, [[launch, launch]], contents, grouping))
    arrivals = Arrivals(program)
    if take_turns:
        samples: list[Execution] = []
        Exploration(program.program, OPTIONS, visit=samples.append).sample(1)
        arrivals.learn(samples[-1])
    learned = len(program.launches.turns)
    executions: list[Execution] = []
    whole = replace(program.program, confirm=arrivals.confirm)
    exploration = Exploration(whole, OPTIONS, visit=executions.append)
    exploration.run()
    return Explored(exploration, program.launches, learned, executions[-exploration.counts.complete :])


def rename(execution: Execution, counters: set[Hashable]) -> Hashable:
    """The class of an execution, in which arrivals have no thread, nor what follows them in a launch."""
    names: dict[int, Hashable] = {}
    for thread in range(len(execution.states)):
        launch, blocks, arrived = 0, list[int](), False
        for event in sorted((each for each in execution.events if each.thread == thread), key=lambda each: each.key):
            _, block, lane, kind = event.key
            if isinstance(event.operation, Barrier):
                names[event.number] = ("boundary", launch, thread, kind)
                launch, blocks, arrived = launch + (kind == DEPARTED), [], False
            elif isinstance(event.operation, Update) and event.location in counters and not arrived:
                names[event.number] = ("arrival", launch, kind)
                arrived, blocks = kind == WRITE, []
            elif not (isinstance(event.operation, Await) and event.operation.name == "turn"):
                blocks = [*blocks, block] if block not in blocks else blocks
                owner = "continuation" if arrived else thread
                facts = type(event.operation), event.location, event.operation.order, event.operation.scope, event.value
                names[event.number] = (owner, launch, len(blocks), lane, kind, *facts)
    names[-1] = "initial"
    reads = {
        (names[event.number], names[event.source])
        for event in execution.events
        if event.source is not None and event.number in names and "arrival" not in str(names[event.number])
    }
    writes = {
        (names[event.number], tuple(sorted(str(names[number]) for number in event.earlier)))
        for event in execution.events
        if event.kind == WRITE and "arrival" not in str(names[event.number])
    }
    return frozenset(names.values()), frozenset(reads), frozenset(writes)


@pytest.mark.parametrize(("ctas", "orders"), [(2, 2), (3, 6)])
def test_one_order_stands_for_all(ctas: int, orders: int) -> None:
    whole = explore_sum(SUM, ctas, take_turns=False)
    assert str(whole.exploration.conclusion) == "PROVED"
    assert whole.classes == orders**2
    reduced = explore_sum(SUM, ctas)
    assert str(reduced.exploration.conclusion) == "PROVED"
    assert (reduced.classes, len(reduced.launches.turns)) == (1, 2 * ctas)
    assert reduced.memories == whole.memories
    assert len(whole.memories) == 1
    counters: set[Hashable] = {turn.location for turn in reduced.launches.turns.values()}
    classes = {execution.key for execution in whole.executions}
    renamed = {rename(execution, counters) for execution in whole.executions}
    assert (len(classes), len(renamed)) == (orders**2, 1)
    assert renamed == {rename(execution, counters) for execution in reduced.executions}


SAME = {
    "a wider scope": (ARRIVAL, ARRIVAL.replace(".gpu", ".sys")),
    "reset by an exchange": ("st.global.b32 [%rd2], 0;", "atom.relaxed.gpu.global.exch.b32 %r10, [%rd2], 0;"),
}
DIFFERENT = {
    "each counts another number": (ARRIVAL, ARRIVAL.replace(", 1;", ", %r4;")),
    "the last one says who it is": ("st.global.b32 [%rd3], %r9;", "st.global.b32 [%rd3], %r2;"),
    "the first one does something": ("    @%p3 bra done;", "    setp.eq.u32 %p1, %r5, 0;\n"
                                     "    @%p1 st.global.b32 [%rd3+4], 1;\n    @%p3 bra done;"),
    "another order for each": ("st.global.b32 [%rd3], %r9;", "setp.eq.u32 %p1, %r2, 0;\n"
                               "    @%p1 st.global.b32 [%rd3], %r9;\n    @!%p1 st.relaxed.gpu.global.b32 [%rd3], %r9;"),
    "a strong store that reaches its CTA": ("st.global.b32 [%rd3], %r9;", "st.relaxed.cta.global.b32 [%rd3], %r9;"),
    "another thread goes on": ("ld.global.v2.b32 {%r7, %r8}, [%rd1];", "fence.acq_rel.gpu;\n"
                               "    ld.global.v2.b32 {%r7, %r8}, [%rd1];"),
}  # fmt: skip
WRONG = {
    "relaxed": (ARRIVAL, ARRIVAL.replace("acq_rel", "relaxed")),
    "releases only": (ARRIVAL, ARRIVAL.replace("acq_rel", "release")),
    "acquires only": (ARRIVAL, ARRIVAL.replace("acq_rel", "acquire")),
    "of the CTA": (ARRIVAL, ARRIVAL.replace("gpu", "cta")),
    "no barrier before it": ("    bar.sync 0;\n", ""),
    "another thread of the first CTA goes on": (
        f"    @%p2 bra done;\n    {ARRIVAL}",
        f"    @!%p2 {ARRIVAL}\n    shfl.sync.idx.b32 %r5, %r5, 0, 31, -1;\n"
        "    setp.eq.u32 %p1, %r2, 0;\n    selp.b32 %r11, 1, 0, %p1;\n    setp.ne.u32 %p2, %r1, %r11;\n"
        "    @%p2 bra done;",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_what_is_the_same_for_all_takes_turns(name: str) -> None:
    old, new = SAME[name]
    assert SUM.count(old) == 1
    explored = explore_sum(SUM.replace(old, new), 2)
    assert str(explored.exploration.conclusion) == "PROVED"
    assert (explored.classes, len(explored.launches.turns)) == (1, 4)


@pytest.mark.parametrize("name", DIFFERENT)
def test_orders_are_told_apart_where_they_may_matter(name: str) -> None:
    old, new = DIFFERENT[name]
    assert SUM.count(old) == 1
    reduced, whole = (explore_sum(SUM.replace(old, new), 2, take_turns=turns) for turns in (True, False))
    assert reduced.learned and not reduced.launches.turns
    assert str(reduced.exploration.conclusion) == str(whole.exploration.conclusion)
    assert (reduced.classes, reduced.memories) == (whole.classes, whole.memories)


@pytest.mark.parametrize("name", WRONG)
def test_arrivals_that_order_too_little_fail(name: str) -> None:
    old, new = WRONG[name]
    assert SUM.count(old) == 1
    explored = explore_sum(SUM.replace(old, new), 2)
    assert str(explored.exploration.conclusion) == "FAILED(race)"
    assert not explored.launches.turns


def test_one_order_of_a_replayed_fused_merge_stands_for_all() -> None:
    try:
        recording = record_run(fused_scenario(FUSED))
    except (MissingBackendError, SimulationError) as error:
        if find_compiler() is not None or "CuTeDSL is not" not in str(error):
            raise
        return
    renamed: list[set[Hashable]] = []
    for take_turns in (False, True):
        merge, executions = CompiledMerge(fused_scenario(FUSED), recording), list[Execution]()
        merge.learn(take_turns)
        exploration = Exploration(merge.program, OPTIONS, AtEnd(merge.check, results=False), executions.append)
        assert str(exploration.run()) == "PROVED"
        assert len({execution.key for execution in executions}) == len(executions) == (1 if take_turns else 16)
        counters: set[Hashable] = {f"r{rank}.error_record+48" for rank in range(2)}
        assert {turn.location for turn in merge.launches.turns.values()} == (counters if take_turns else set())
        renamed.append({rename(execution, counters) for execution in executions})
        stores = {event.location for event in executions[-1].events if isinstance(event.operation, Store)}
        loads = {event.location for event in executions[-1].events if isinstance(event.operation, Load)}
        # What the host writes between replays, kernels read; and what they wrote, the host reads.
        assert {"r0.scores0+0", "r0.indices0+0", "r0.out0+0"} <= stores & loads
    assert renamed[0] == renamed[1]
    assert len(renamed[0]) == 1
