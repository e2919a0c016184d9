"""The explorer on compiled kernels: CTAs of the PTX machine as threads, whose own threads are told apart."""

from __future__ import annotations

import ctypes
import re

import pytest
import torch

from tiebreak.explore.compiled import explore_compiled
from tiebreak.explore.fused import FUSED_MUTANTS, fused_scenario
from tiebreak.ptx.ranks import Edit, keep_text
from tiebreak.sim.explorer.cta_runs import CompiledLaunch
from tiebreak.sim.explorer.ctas import Ctas, Launches
from tiebreak.sim.explorer.exploration import Exploration, Options
from tiebreak.sim.explorer.grouping import Grouping
from tiebreak.sim.explorer.host_writes import HostWrite
from tiebreak.sim.explorer.operations import ALL_STRANDS, Await, Update
from tiebreak.sim.memory import Memory
from tiebreak.sim.ptx.executor import execute
from tiebreak.sim.ptx.parser import parse
from tiebreak.sim.ptx.recording import Recorder

OPTIONS = Options("ptx", merge_awaits=True, races=True)

MESSAGE = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry send(.param .u64 data, .param .u64 flag) {
    .reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [flag]; mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 33;
    @!%p1 st.global.v2.b32 [%rd1], {7, 8};
    bar.sync 0;
    setp.eq.u32 %p2, %r1, 0;
    @%p2 st.release.sys.global.b32 [%rd2], 1;
    ret;
}
.visible .entry receive(.param .u64 data, .param .u64 flag, .param .u64 out) {
    .reg .b64 %rd<4>; .reg .b32 %r<5>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [flag]; ld.param.u64 %rd3, [out]; mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra meet;
again:
    ld.acquire.sys.global.b32 %r2, [%rd2];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra again;
meet:
    bar.sync 1;
    ld.global.v2.b32 {%r3, %r4}, [%rd1];
    setp.eq.u32 %p3, %r1, 40;
    @%p3 st.global.v2.b32 [%rd3], {%r3, %r4};
    ret;
}
"""
"""One thread of a CTA stores, another one releases; one thread of the other rank acquires, and all of them read."""


def explore_message(text: str) -> tuple[Exploration, dict[object, object]]:
    """Explore the two kernels on a rank each; returns what memory held at the end of the last class, too."""
    memory, tensors = Memory(), {name: torch.zeros(4, dtype=torch.int32) for name in ("data", "flag", "out")}
    for name, tensor in tensors.items():
        memory.register(tensor, name=name, rank=0, shared=True)
    contents = {base: ctypes.string_at(base, 16) for base in memory.bases}
    grouping, recorder = Grouping(memory), Recorder()
    for rank, kernel in enumerate(parse(MESSAGE, "message").kernels.values()):
        given = [tensors[parameter.name] for parameter in kernel.parameters]
        execute(kernel, parse(MESSAGE, "message"), 1, 64, given, observer=recorder, rank=rank)
    for access in sorted(recorder.accesses, key=lambda access: access.kind == "read"):
        grouping.note(access)
    module, launches = parse(text, "message"), []
    for kernel in module.kernels.values():
        addresses = tuple(tensors[parameter.name].data_ptr() for parameter in kernel.parameters)
        launches.append([CompiledLaunch(kernel, module, (1, 1, 1), (64, 1, 1), addresses)])
    ends: list[dict[object, object]] = []
    ctas = Ctas(Launches(memory, launches, contents, grouping))
    exploration = Exploration(ctas.program, OPTIONS, visit=lambda execution: ends.extend(execution.memories))
    exploration.run()
    return exploration, ends[-1] if ends else {}


def test_message_that_barriers_and_a_flag_hand_on_is_proved() -> None:
    exploration, memory = explore_message(MESSAGE)
    assert str(exploration.conclusion) == "PROVED"
    assert exploration.counts.complete == 1
    pair = 7 + (8 << 32)
    assert memory == {"data+0": pair, "flag+0": 1, "out+0": pair}
    awaits = [operation for operation in exploration.histories.operations if isinstance(operation, Await)]
    assert {operation.location for operation in awaits} == {"flag+0"}
    assert len({operation.strands for operation in exploration.histories.operations} - {ALL_STRANDS}) >= 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    bar.sync 0;\n", ""),
        ("    bar.sync 1;\n", ""),
        ("    bar.sync 1;\n", "    bar.warp.sync -1;\n"),
        ("st.release.sys", "st.relaxed.sys"),
        ("st.release.sys", "st.release.gpu"),
        ("ld.acquire.sys", "ld.relaxed.sys"),
        ("ld.acquire.sys", "ld.acquire.gpu"),
        ("ld.acquire.sys.global", "ld.global"),
    ],
)
def test_message_without_one_of_its_edges_races(old: str, new: str) -> None:
    assert MESSAGE.count(old) == 1
    exploration, _ = explore_message(MESSAGE.replace(old, new))
    assert str(exploration.conclusion) == "FAILED(race)"
    assert re.search(r"strand \d.* by thread 0 and .* strand \d.* by thread 1 race", exploration.failures[0].message)


def test_wait_for_what_never_comes_is_no_progress() -> None:
    exploration, _ = explore_message(MESSAGE.replace("setp.eq.u32 %p2, %r2, 0", "setp.ne.u32 %p2, %r2, 2"))
    assert str(exploration.conclusion) == "FAILED(progress)"


def test_value_that_ended_a_wait_is_given_where_it_matters() -> None:
    twice = MESSAGE.replace(
        "    ret;\n}\n.visible", "    @%p2 st.relaxed.sys.global.b32 [%rd2], 2;\n    ret;\n}\n.visible"
    )
    kept = twice.replace("@%p3 st.global.v2.b32 [%rd3], {%r3, %r4};", "@!%p1 st.global.b32 [%rd3+8], %r2;")
    exploration, _ = explore_message(twice)
    assert (str(exploration.conclusion), exploration.counts.complete) == ("PROVED", 1)
    exploration, _ = explore_message(kept)
    assert (str(exploration.conclusion), exploration.counts.complete) == ("PROVED", 2)


SWAP = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry swap(.param .u64 own, .param .u64 peer) {
    .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [own]; ld.param.u64 %rd2, [peer]; mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 2;
    @%p1 bra send;
    setp.gt.u32 %p2, %r1, 2;
    @%p2 bra meet;
    mad.wide.u32 %rd3, %r1, 4, %rd1;
again:
    ld.acquire.sys.global.b32 %r2, [%rd3];
    setp.eq.u32 %p3, %r2, 0;
    @%p3 bra again;
    bra meet;
send:
    st.release.sys.global.b32 [%rd2], 1;
    st.release.sys.global.b32 [%rd2+4], 1;
meet:
    bar.warp.sync -1;
    ret;
}
"""
"""Two threads wait for the peer, and a third one tells it, in code that comes later."""


def test_threads_that_wait_do_not_keep_others_of_their_warp_from_sending() -> None:
    memory, module = Memory(), parse(SWAP, "swap")
    flags = [torch.zeros(2, dtype=torch.int32) for _ in range(2)]
    for rank, tensor in enumerate(flags):
        memory.register(tensor, name=f"flags{rank}", rank=rank, shared=True)
    contents, grouping = {base: bytes(8) for base in memory.bases}, Grouping(memory)
    for start in (base + offset for base in memory.bases for offset in (0, 4)):
        grouping.note_write(start, start + 4)
    launches: list[list[CompiledLaunch | HostWrite]] = []
    for rank in range(2):
        arguments = flags[rank].data_ptr(), flags[1 - rank].data_ptr()
        launches.append([CompiledLaunch(module.kernels["swap"], module, (1, 1, 1), (32, 1, 1), arguments)])
    exploration = Exploration(Ctas(Launches(memory, launches, contents, grouping)).program, OPTIONS)
    assert str(exploration.run()) == "PROVED"
    awaits = [each for each in exploration.histories.operations if isinstance(each, Await)]
    assert {each.location for each in awaits} == {"flags0+0", "flags0+4", "flags1+0", "flags1+4"}


def explore_fused(ranks: int, epochs: int, edit: Edit = keep_text, *, mode: str = "eager") -> Exploration:
    """Explore the fused merge."""
    scenario = fused_scenario((f"ranks={ranks}", f"epochs={epochs}", f"mode={mode}"))
    return explore_compiled(scenario, OPTIONS, edit=edit)


@pytest.mark.cutedsl
def test_fused_merge_is_proved() -> None:
    exploration = explore_fused(2, 2)
    assert str(exploration.conclusion) == "PROVED"
    assert (exploration.counts.stuck, exploration.counts.cut, exploration.counts.blocked) == (0, 0, 0)
    # Which of the CTAs of a rank finishes last does not matter.
    assert exploration.counts.complete == 1
    operations = exploration.histories.operations
    assert any(isinstance(operation, Await) for operation in operations)
    assert any(isinstance(operation, Update) for operation in operations)


def drop_wait(poll: str) -> Edit:
    """Take the branch away by which the first loop with an instruction goes round again."""

    def edit(kernel: str, text: str) -> str:
        start = text.index(poll) if kernel == "merge" else len(text)
        for branch in re.finditer(r"@%p\d+ bra\s+(\$\w+);", text[start:]):
            if f"\n{branch[1]}:" in text[: start + branch.start()]:
                return text[: start + branch.start()] + text[start + branch.end() :]
        return text

    return edit


@pytest.mark.cutedsl
@pytest.mark.parametrize("poll", ["ld.acquire.sys.global", "ld.relaxed.sys.global"])
def test_fused_merge_that_does_not_wait_for_its_peers_fails(poll: str) -> None:
    exploration = explore_fused(2, 1, drop_wait(poll))
    # An error is recorded where there is none, and what ends other waits depends on it.
    assert str(exploration.conclusion) in ("FAILED(check)", "FAILED(progress)")


@pytest.mark.cutedsl
def test_fused_merge_whose_epoch_is_frozen_at_capture_fails_when_replayed() -> None:
    edit = FUSED_MUTANTS["fused-epoch-frozen"].edit
    once, twice = (explore_fused(2, epochs, edit, mode="graph") for epochs in (1, 2))
    assert str(once.conclusion) == "PROVED"
    assert str(twice.conclusion) == "FAILED(race)"


@pytest.mark.cutedsl
def test_fused_merge_whose_completion_is_relaxed_fails() -> None:
    exploration = explore_fused(2, 2, FUSED_MUTANTS["fused-completion-relaxed"].edit)
    assert str(exploration.conclusion) == "FAILED(race)"
