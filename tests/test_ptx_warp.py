"""Warp instructions of PTX, lane by lane as the PTX ISA defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.sim.ptx.parser import parse
from tiebreak.sim.ptx.warp import WarpOperation, distribute_matrices, gather_matrices, resolve_warp

HEAD = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry warp() {
    .reg .b32 %r<9>;
    .reg .b64 %d<9>;
    .reg .pred %p<9>;
"""
FULL = np.ones((1, 32), bool)
ALL = 0xFFFFFFFF


def operation_of(line: str) -> WarpOperation:
    kernel = parse(f"{HEAD}    {line}\n    ret;\n}}\n").kernels["warp"]
    return resolve_warp(kernel.body[0], kernel)


def lanes(values: Any, dtype: str = "uint32") -> np.ndarray:
    return np.broadcast_to(np.asarray(values, dtype).reshape(1, -1), (1, 32))


def shuffle(mode: str, lane: int, distance: int, clamp: int) -> tuple[int, bool]:
    """Source lane and predicate: the pseudocode of shfl.sync."""
    operand, bound, segment = distance & 31, clamp & 31, clamp >> 8 & 31
    last, first = (lane & segment) | (bound & ~segment), lane & segment
    source = {"up": lane - operand, "down": lane + operand, "bfly": lane ^ operand,
              "idx": first | (operand & ~segment)}[mode]  # fmt: skip
    inside = source >= last if mode == "up" else source <= last
    return (source if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@given(distances=st.lists(st.integers(0, 63), min_size=32, max_size=32), clamp=st.integers(0, 0x1F1F))
def test_shuffles(mode: str, distances: list[int], clamp: int) -> None:
    operation = operation_of(f"shfl.sync.{mode}.b32 %r1|%p1, %r2, %r3, %r4, %r5;")
    values = lanes(np.arange(32) * 0x01234567 & ALL)
    got, inside = operation.evaluate(FULL, values, lanes(distances), lanes(clamp), lanes(ALL))
    expected = [shuffle(mode, lane, distances[lane], clamp) for lane in range(32)]
    assert got[0].tolist() == [int(values[0, source]) for source, _ in expected]
    assert inside[0].tolist() == [flag for _, flag in expected]
    assert operation.reads is not None
    assert operation.reads(values, lanes(distances), lanes(clamp), lanes(ALL))[0].tolist() == [
        lane for lane, _ in expected
    ]


MASKS = st.integers(1, ALL) | st.just(ALL)
TRUTHS = st.lists(st.booleans(), min_size=32, max_size=32) | st.just([True] * 32) | st.just([False] * 32)


@given(mask=MASKS, truth=TRUTHS)
def test_votes(mask: int, truth: list[bool]) -> None:
    active = np.array([[bool(mask >> lane & 1) for lane in range(32)]])
    said = [truth[lane] for lane in range(32) if mask >> lane & 1]
    expected = {"all": all(said), "any": any(said), "uni": len(set(said)) == 1}
    for mode, result in expected.items():
        operation = operation_of(f"vote.sync.{mode}.pred %p1, %p2, %r1;")
        got = operation.evaluate(active, lanes(truth, "bool"), lanes(mask))
        assert set(got[active].tolist()) == {result}, mode
    ballot = operation_of("vote.sync.ballot.b32 %r1, %p2, %r2;").evaluate(active, lanes(truth, "bool"), lanes(mask))
    assert set(ballot[active].tolist()) == {sum(1 << lane for lane in range(32) if truth[lane] and mask >> lane & 1)}


@given(mask=MASKS, values=st.lists(st.integers(0, 2), min_size=32, max_size=32))
def test_matches(mask: int, values: list[int]) -> None:
    members = [lane for lane in range(32) if mask >> lane & 1]
    active = np.array([[lane in members for lane in range(32)]])
    same = {lane: sum(1 << other for other in members if values[other] == values[lane]) for lane in members}
    got = operation_of("match.any.sync.b32 %r1, %r2, %r3;").evaluate(active, lanes(values), lanes(mask))
    assert got[active].tolist() == [same[lane] for lane in members]
    found, every = operation_of("match.all.sync.b64 %r1|%p1, %d2, %r3;").evaluate(
        active, lanes(values, "uint64"), lanes(mask)
    )
    agreed = len({values[lane] for lane in members}) == 1
    assert set(found[active].tolist()) == {mask if agreed else 0}
    assert set(every[active].tolist()) == {agreed}


@given(mask=MASKS, values=st.lists(st.integers(0, ALL), min_size=32, max_size=32))
def test_reductions(mask: int, values: list[int]) -> None:
    active = np.array([[bool(mask >> lane & 1) for lane in range(32)]])
    taken = [values[lane] for lane in range(32) if mask >> lane & 1]
    signed = [value - (value >> 31 << 32) for value in taken]
    folded = {"and": ALL, "or": 0, "xor": 0}
    for value in taken:
        folded = {"and": folded["and"] & value, "or": folded["or"] | value, "xor": folded["xor"] ^ value}
    expected = {
        "add.u32": sum(taken), "add.s32": sum(signed), "min.u32": min(taken), "max.u32": max(taken),
        "min.s32": min(signed), "max.s32": max(signed), **{f"{name}.b32": value for name, value in folded.items()},
    }  # fmt: skip
    for name, result in expected.items():
        operation = operation_of(f"redux.sync.{name} %r1, %r2, %r3;")
        got = operation.evaluate(active, lanes(values).view(operation.sources[0]), lanes(mask))
        assert set(got[active].tolist()) == {result & ALL}, name


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("min", [1.0, -2.0, float("nan")], -2.0),
        ("max", [1.0, -2.0, float("nan")], 1.0),
        ("max.abs", [1.0, -2.0, float("nan")], 2.0),
        ("min", [0.0, -0.0], -0.0),
        ("max", [0.0, -0.0], 0.0),
    ],
)
def test_float_reductions(name: str, values: list[float], expected: float) -> None:
    bits = np.resize(np.array(values, np.float32), 32).view(np.uint32)
    got = operation_of(f"redux.sync.{name}.f32 %r1, %r2, %r3;").evaluate(FULL, lanes(bits), lanes(ALL))
    assert set(got[0].tolist()) == {int(np.float32(expected).view(np.uint32))}


def test_float_reductions_with_nan() -> None:
    bits = np.resize(np.array([1.0, float("nan")], np.float32), 32).view(np.uint32)
    got = operation_of("redux.sync.min.NaN.f32 %r1, %r2, %r3;").evaluate(FULL, lanes(bits), lanes(ALL))
    assert set(got[0].tolist()) == {0x7FFFFFFF}


def test_active_lanes_and_election() -> None:
    active = np.array([[lane % 3 == 1 for lane in range(32)]])
    mask = sum(1 << lane for lane in range(32) if lane % 3 == 1)
    assert set(operation_of("activemask.b32 %r1;").evaluate(active)[0].tolist()) == {mask}
    leader, elected = operation_of("elect.sync %r1|%p1, %r2;").evaluate(active, lanes(mask))
    assert set(leader[active].tolist()) == {1}
    assert np.flatnonzero(elected & active).tolist() == [1]


def test_problems_name_lanes() -> None:
    operation = operation_of("shfl.sync.down.b32 %r1, %r2, %r3, 31, %r4;")
    lower = np.array([[lane < 16 for lane in range(32)]])
    values, one, bound = lanes(0), lanes(1), lanes(31)
    assert operation.problems(FULL, values, one, bound, lanes(ALL)) == []
    # Lane 15 reads lane 16, which takes no part.
    ((found, why),) = operation.problems(lower, values, one, bound, lanes(0xFFFF))
    assert np.flatnonzero(found).tolist() == [15]
    assert "reads" in why
    # A full mask while only half of the lanes are there.
    whys = [why for _, why in operation.problems(lower, values, lanes(0), bound, lanes(ALL))]
    assert whys == ["the membermask names a lane that does not perform the instruction"]
    # A mask that leaves out the lane that uses it.
    problems = operation.problems(FULL, values, lanes(0), bound, lanes(ALL - 1))
    assert [(np.flatnonzero(found).tolist(), why) for found, why in problems] == [
        ([0], "the membermask does not name the lane itself")
    ]
    # Two masks at once.
    masks = lanes([ALL] * 31 + [1 << 31])
    whys = [why for _, why in operation.problems(FULL, values, lanes(0), bound, masks)]
    assert whys == ["lanes that perform it together give different membermasks"]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_matrices(matrices: int, transposed: bool) -> None:
    rows = np.arange(3 * matrices * 64, dtype=np.uint16).reshape(3, matrices, 8, 8)
    registers = distribute_matrices(rows, transposed)
    assert len(registers) == matrices
    for matrix, register in enumerate(registers):
        for lane in range(32):
            # A lane holds two neighbours of row lane / 4, or of a column if transposed.
            row, column = lane // 4, 2 * (lane % 4)
            one = rows[:, matrix].swapaxes(1, 2) if transposed else rows[:, matrix]
            low, high = one[:, row, column].astype(np.uint32), one[:, row, column + 1].astype(np.uint32)
            assert register[:, lane].tolist() == (low | high << np.uint32(16)).tolist()
    assert (gather_matrices(registers, transposed) == rows).all()


def test_transposed_matrix() -> None:
    halves = np.arange(64, dtype=np.uint16).reshape(8, 8)
    got = operation_of("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;").evaluate(
        FULL, halves.view(np.uint32).reshape(1, 32)
    )
    for lane in range(32):
        row, column = lane // 4, 2 * (lane % 4)
        assert int(got[0, lane]) == int(halves[column, row]) | int(halves[column + 1, row]) << 16
