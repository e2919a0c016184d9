"""Memory of the PTX machine: state spaces, bounds, alignment, and values that nothing wrote."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from tiebreak.errors import InputError
from tiebreak.sim.ptx.findings import FindingError
from tiebreak.sim.ptx.fragments import run_fragment as run
from tiebreak.sim.ptx.memory import POISON, Region, make_region
from tiebreak.sim.ptx.memory_global import GlobalMemory
from tiebreak.sim.ptx.recording import Recorder

PLACE = "ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;"
SHARED = """.shared .align 16 .b8 words[512]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.b32 %r3, words;
    add.s32 %r4, %r3, %r2;"""


def test_values_of_every_width_and_sign() -> None:
    data = np.array([-1, -2, 3, 200], np.int16)
    out = np.zeros(4, np.int64)
    run(
        """ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1];
        ld.global.s16 %rd3, [%rd1]; st.global.b64 [%rd2], %rd3;
        ld.global.u8 %r1, [%rd1+6]; cvt.u64.u32 %rd4, %r1; st.global.b64 [%rd2+8], %rd4;
        ld.global.s8 %r2, [%rd1+6]; st.global.b32 [%rd2+16], %r2; st.global.u8 [%rd2+24], %rd3;
        ld.global.v2.b16 {%h1, %h2}, [%rd1]; st.global.v2.b16 [%rd2+28], {%h2, %h1}; ret;""",
        [data, out],
        block=1,
    )
    assert out[:2].tolist() == [-1, 200]
    assert out.view(np.int32)[4] == np.array(200, np.uint8).view(np.int8)
    assert out.view(np.uint8)[24:26].tolist() == [255, 0]
    assert out.view(np.int16)[14:].tolist() == [-2, -1]


def test_vectors_keep_their_order() -> None:
    data, out = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    run(
        """ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 16;
        add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
        ld.global.v4.b32 {%r2, %r3, %r4, _}, [%rd4]; st.global.v4.b32 [%rd5], {%r4, %r3, %r2, 9}; ret;""",
        [data, out],
    )
    rows = data.reshape(-1, 4)
    assert (out.reshape(-1, 4) == np.stack([rows[:, 2], rows[:, 1], rows[:, 0], np.full(32, 9)], 1)).all()


def test_of_threads_that_store_to_one_address_the_last_is_seen() -> None:
    out = np.zeros(1, np.int32)
    run("ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x; st.global.b32 [%rd1], %r1; ret;", [out])
    assert out[0] == 31


def test_a_table_of_addresses_reaches_other_arrays() -> None:
    rows = [torch.full((4,), 10 * number, dtype=torch.int32) for number in range(3)]
    table = torch.tensor([row.data_ptr() for row in rows])
    out, memory = torch.zeros(3, dtype=torch.int32), GlobalMemory()
    for number, row in enumerate(rows):
        memory.register(row, name=f"row {number}")
    run(
        """ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 8;
        add.s64 %rd4, %rd1, %rd3; ld.global.b64 %rd5, [%rd4]; ld.global.b32 %r2, [%rd5+8];
        mul.wide.u32 %rd6, %r1, 4; add.s64 %rd7, %rd2, %rd6; st.global.b32 [%rd7], %r2; ret;""",
        [table, out],
        block=3,
        kinds=["u64", "u64"],
        memory=memory,
    )
    assert out.tolist() == [0, 10, 20]


def test_parameters_of_every_kind() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("first", ctypes.c_int32), ("second", ctypes.c_int32))

    out = np.zeros(8, np.int32)
    run(
        """ld.param.b64 %rd1, [p0]; ld.param.b32 %r1, [p1]; ld.param.b32 %r2, [p2]; ld.param.b32 %r3, [p3];
        ld.param.v2.b32 {%r4, %r5}, [p4]; ld.param.s16 %r6, [p5]; mov.b64 %rd2, p4; ld.param.b32 %r7, [%rd2+4];
        st.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r4}; st.global.v2.b32 [%rd1+16], {%r5, %r6};
        st.global.b32 [%rd1+24], %r7; ret;""",
        [out, -5, 1.5, np.float32(2.5), Pair(7, 8), np.int16(-3)],
        block=1,
        kinds=["u64", "s32", "f32", "f32", "b64", "s16"],
    )
    assert out[0] == -5
    assert out.view(np.float32)[1:3].tolist() == [1.5, 2.5]
    assert out[3:7].tolist() == [7, 8, -3, 8]


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="an integer of 4 bytes"):
        run("ret;", [1 << 32])
    with pytest.raises(InputError, match="it holds 4 bytes"):
        run("ret;", [np.int64(3)], kinds=["u32"])


@pytest.mark.parametrize(("offset", "place"), [(0, "p0+128"), (-4, "p0-4")])
def test_reads_beyond_an_array_name_the_nearest(offset: int, place: str) -> None:
    with pytest.raises(FindingError) as raised:
        run(f"{PLACE} ld.global.b32 %r5, [%rd3+{offset}]; ret;", [np.zeros(32, np.int32)], block=64)
    finding = raised.value.finding
    assert finding.kind == "out-of-bounds"
    assert place in finding.place
    assert "of 128 bytes" in finding.place
    assert finding.actors[0].thread == (32 if offset == 0 else 0)


def test_a_vector_that_ends_beyond_an_array() -> None:
    data = np.zeros(6, np.int32)
    with pytest.raises(FindingError) as raised:
        run("ld.param.b64 %rd1, [p0]; ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1+16]; ret;", [data])
    assert raised.value.finding.kind == "out-of-bounds"


@pytest.mark.parametrize("access", ["st.shared.b32 [%r4+512], %r1;", "st.shared.b32 [%r4+-4], %r1;"])
def test_stores_beyond_shared_memory(access: str) -> None:
    with pytest.raises(FindingError) as raised:
        run(f"{SHARED} {access} ret;")
    assert raised.value.finding.kind == "out-of-bounds"
    assert "of 512 bytes" in raised.value.finding.place


@pytest.mark.parametrize("access", ["ld.shared.b64 %rd5, [%r4];", "ld.shared.b32 %r5, [%r4+2];"])
def test_misaligned_accesses(access: str) -> None:
    with pytest.raises(FindingError) as raised:
        run(f"{SHARED} st.shared.b32 [%r4], %r1; {access} ret;")
    assert raised.value.finding.kind == "misaligned"


def test_memory_that_must_not_be_written() -> None:
    data = np.zeros(32, np.int32)
    data.flags.writeable = False
    with pytest.raises(FindingError, match="read-only"):
        run(f"{PLACE} st.global.b32 [%rd3], %r1; ret;", [data])


def test_static_memory_comes_before_dynamic_memory() -> None:
    out, recorder = np.zeros(1, np.int32), Recorder()
    run(
        """ld.param.b64 %rd1, [p0]; .shared .align 4 .b8 first[4]; mov.b32 %r1, first; mov.b32 %r2, rest;
        st.shared.b32 [%r2+8], 5; ld.shared.b32 %r3, [rest+8]; sub.s32 %r4, %r2, %r1; add.s32 %r4, %r4, %r3;
        st.global.b32 [%rd1], %r4; ret;""",
        [out],
        block=1,
        module=".extern .shared .align 16 .b8 rest[];",
        shared_bytes=16,
        observer=recorder,
    )
    assert out[0] == 16 + 5
    assert recorder.accesses[0].addresses.tolist() == [24]


def test_module_variables_and_constants() -> None:
    out = np.zeros(2, np.int32)
    run(
        """ld.param.b64 %rd1, [p0]; mov.b64 %rd2, table; ld.global.b32 %r1, [%rd2+4]; ld.const.b32 %r2, [fixed];
        st.global.v2.b32 [%rd1], {%r1, %r2}; ret;""",
        [out],
        block=1,
        module=".global .align 4 .b32 table[2] = {11, 22};\n.const .align 4 .b32 fixed[1] = {33};",
    )
    assert out.tolist() == [22, 33]


def test_local_memory_belongs_to_each_thread() -> None:
    out = np.zeros(32, np.int32)
    run(
        f"""{PLACE} .local .align 8 .b8 frame[16]; mov.b64 %rd5, frame; st.local.b32 [%rd5+8], %r1;
        cvta.local.u64 %rd6, %rd5; ld.b32 %r2, [%rd6+8]; ld.local.b32 %r3, [frame+8]; add.s32 %r2, %r2, %r3;
        st.global.b32 [%rd3], %r2; ret;""",
        [out],
    )
    assert (out == 2 * np.arange(32)).all()


def test_generic_addresses_reach_all_spaces() -> None:
    out, recorder = np.zeros(32, np.int32), Recorder()
    run(
        f"""{PLACE} .shared .align 4 .b8 words[128]; mov.b64 %rd5, words; cvta.shared.u64 %rd6, %rd5;
        add.s64 %rd6, %rd6, %rd2; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; selp.b64 %rd7, %rd6, %rd3, %p1;
        st.b32 [%rd7], %r1; isspacep.shared %p2, %rd7; ld.b32 %r3, [%rd7]; selp.b32 %r4, 100, 200, %p2;
        add.s32 %r3, %r3, %r4; st.global.b32 [%rd3], %r3; ret;""",
        [out],
        observer=recorder,
    )
    threads = np.arange(32)
    assert (out == threads + np.where(threads % 2, 200, 100)).all()
    assert [access.space for access in recorder.accesses[:2]] == ["shared", "global"]
    assert recorder.accesses[0].threads.tolist() == list(range(0, 32, 2))


def test_a_value_that_nothing_wrote_may_be_dropped() -> None:
    out, recorder = np.zeros(32, np.int32), Recorder()
    run(
        f"""ld.param.b64 %rd1, [p0]; {SHARED} mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
        setp.lt.u32 %p1, %r1, 16; @%p1 st.shared.b32 [%r4], 1; bar.warp.sync -1;
        ld.shared.b32 %r5, [%r4]; selp.b32 %r5, %r5, 0, %p1; redux.sync.add.u32 %r6, %r5, -1;
        st.global.b32 [%rd3], %r6; ret;""",
        [out],
        observer=recorder,
    )
    assert (out == 16).all()
    assert recorder.findings == []


@pytest.mark.parametrize(
    ("use", "action"),
    [
        ("setp.eq.u32 %p2, %r5, 3; @%p2 bra DONE; mov.b32 %r7, 0;", "is decided by it"),
        ("setp.eq.u32 %p2, %r5, 3; @%p2 mov.b32 %r7, 0;", "is decided by it"),
        ("st.global.b32 [%rd3], %r5;", "stores it"),
        ("shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1; st.global.b32 [%rd3], %r6;", "stores it"),
        ("st.shared.b32 [%r4+128], %r5; ld.shared.b32 %r6, [%r4+128]; st.global.b32 [%rd3], %r6;", "stores it"),
        ("and.b32 %r6, %r5, 4; add.s32 %r6, %r3, %r6; ld.shared.b32 %r7, [%r6];", "uses it as address"),
        ("red.shared.add.u32 [%r3], %r5;", "gives it to memory"),
    ],
)
def test_a_value_that_nothing_wrote_is_reported_where_it_matters(use: str, action: str) -> None:
    recorder = Recorder()
    run(
        f"""ld.param.b64 %rd1, [p0]; {SHARED} mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
        setp.ne.u32 %p1, %r1, 7; @%p1 st.shared.b32 [%r4], 0; bar.warp.sync -1;
        ld.shared.b32 %r5, [%r4]; {use} DONE: ret;""",
        [np.zeros(32, np.int32)],
        observer=recorder,
    )
    found = [finding for finding in recorder.findings if action in finding.actors[1].action]
    assert found
    assert found[0].kind == "uninitialised"
    assert found[0].actors[0].instruction.name == "ld.shared.b32"
    assert found[0].actors[0].thread == (6 if "shfl" in use else 7)


def test_without_an_observer_such_a_value_ends_the_execution() -> None:
    with pytest.raises(FindingError, match="uninitialised"):
        run(f"{PLACE} .shared .b32 word; ld.shared.b32 %r5, [word]; st.global.b32 [%rd3], %r5; ret;",
            [np.zeros(32, np.int32)])  # fmt: skip


def test_output_that_nothing_wrote() -> None:
    data, memory, recorder = np.zeros(32, np.int32), GlobalMemory(), Recorder()
    region = memory.register(data, name="out", initialised=False)
    run(
        f"{PLACE} setp.lt.u32 %p1, %r1, 20; @%p1 st.global.b32 [%rd3], %r1; ret;",
        [data],
        memory=memory,
        observer=recorder,
    )
    assert region.missing is not None
    assert np.count_nonzero(region.missing) == 12 * 4
    assert recorder.findings == []


def test_fresh_memory_is_poison() -> None:
    assert (make_region("shared", 8).view(np.uint8) == np.tile(POISON, 2)).all()


def test_views_share_the_memory_of_their_array() -> None:
    memory, whole = GlobalMemory(), np.zeros(100, np.int32)
    region = memory.register(whole[10:20], name="view")
    assert region.size == 400
    assert memory.register(whole, name="whole") is region
    other = torch.zeros(8, dtype=torch.int64)
    assert memory.register(other[2:4], name="tensor").size == 64


def test_a_view_can_have_bounds_of_its_own() -> None:
    memory, whole = GlobalMemory(), np.zeros(100, np.int32)
    region = memory.register(whole[10:20], name="view", exact=True)
    assert region.size == 40
    with pytest.raises(InputError, match="overlaps"):
        memory.register(whole, name="whole")
    with pytest.raises(FindingError):
        run(f"{PLACE} ld.global.b32 %r5, [%rd3]; ret;", [whole[10:20]], memory=memory)


def test_tensors_of_other_devices_are_refused() -> None:
    with pytest.raises(InputError, match="CPU"):
        GlobalMemory().register(torch.empty(1, device="meta"), name="meta")


def test_memory_can_be_found_on_demand() -> None:
    data, asked = np.zeros(32, np.int32), []
    known = GlobalMemory()
    region = known.register(data, name="elsewhere")

    def find(address: int) -> Region | None:
        asked.append(address)
        return region if region.base <= address < region.end else None

    run(f"{PLACE} st.global.b32 [%rd3], %r1; ret;", [data.ctypes.data], kinds=["u64"], memory=GlobalMemory(find))
    assert (data == np.arange(32)).all()
    assert asked
