"""Kernels and merge against the spec, on simulated ranks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tiebreak.errors import InputError
from tiebreak.impl.geometry import Geometry
from tiebreak.impl.localisation import BlockTable, localise
from tiebreak.impl.merge import merge_topk
from tiebreak.impl.select import select_candidates, select_peer_candidates
from tiebreak.impl.workspace import Workspace
from tiebreak.sim.fabric import SimulatedFabric, run_ranks
from tiebreak.sim.machine import Settings
from tiebreak.spec import packing
from tiebreak.spec.layout import Layout
from tiebreak.spec.merge import local_topk, merge
from tiebreak.spec.order import PRESETS, resolve_preset
from tiebreak.spec.selection import select

SPECIAL_BITS = (
    0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000,
    0x7F800001, 0xFFFFFFFF, 0x7FFFFFFF, 0x00000001, 0x80000001, 0x7F7FFFFF, 0xFF7FFFFF,
)  # fmt: skip
SPECIAL_IDS = (-1, -(2**31), 0, 1, 2, 2**24, 2**24 + 1, 2**30, 2**31 - 2, 2**31 - 1)


def launch(launches: Callable[[SimulatedFabric], Any]) -> Any:
    """Return what launches on one device leave behind."""

    def host(fabric: SimulatedFabric) -> Any:
        outputs = launches(fabric)
        fabric.synchronize()
        return outputs

    return run_ranks(host, 1)[0]


def packed(shape: tuple[int, ...], drawn: list[tuple[int, int]]) -> torch.Tensor:
    """Candidates of ``shape`` [..., 2] from pairs of score bits and id."""
    flat = np.array([[np.uint32(bits).astype(np.int32), identity] for bits, identity in drawn], dtype=np.int32)
    return torch.from_numpy(flat.reshape(shape))


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_special_scores_with_special_ids_are_selected_as_the_spec_selects_them(preset):
    """Every pair that the preset's public kernel can carry, 3 ranks with 2 rows each."""
    identities = [identity for identity in SPECIAL_IDS if identity <= resolve_preset(preset).id_limit]
    pairs = [(bits, identity) for bits in SPECIAL_BITS for identity in identities] * 2
    shuffled = [pairs[place] for place in np.random.default_rng(5).permutation(len(pairs))]
    candidates = packed((3, 2, len(pairs) // 6, 2), shuffled)
    rows = torch.from_numpy(packing.rank_major_to_row_major(candidates.numpy()))
    k = rows.shape[1] - 2

    def host(fabric: SimulatedFabric) -> list[torch.Tensor]:
        parts = [fabric.upload(part, f"peer{source}") for source, part in enumerate(candidates)]
        addresses = torch.tensor([part.data_ptr() for part in parts])
        return [
            select_candidates(rows, k, preset),
            select_candidates(candidates, k, preset, layout="rank-major"),
            select_peer_candidates(addresses, *candidates.shape[1:3], k, preset),
        ]

    scores, ids = packing.unpack(rows.numpy())
    want = select(scores, ids, k, preset).tolist()
    assert [output.tolist() for output in launch(host)] == [want] * 3


@pytest.mark.parametrize(("count", "k"), [(512, 512), (700, 300), (4096, 2048), (100, 1), (16, 4000)])
def test_selection_of_public_sizes_with_heavy_ties(count, k):
    random = np.random.default_rng(count)
    scores = random.integers(0, 4, (2, count)).astype(np.float32)
    ids = np.stack([random.permutation(count) for _ in range(2)]).astype(np.int32)
    candidates = torch.from_numpy(np.stack([scores.view(np.int32), ids], axis=-1))
    assert launch(lambda _: select_candidates(candidates, k)).tolist() == select(scores, ids, k).tolist()


def test_selection_writes_into_rows_that_lie_apart():
    candidates = packed((2, 2, 2), [(0, 7), (0, 3), (0, 1), (0, -1)])
    wide = torch.full((2, 5), 99, dtype=torch.int32)
    output = launch(lambda _: select_candidates(candidates, 2, out=wide[:, 1:3]))
    assert output.data_ptr() == wide[:, 1:].data_ptr()
    assert wide.tolist() == [[99, 3, 7, 99, 99], [99, 1, -1, 99, 99]]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"candidates": torch.zeros(1, 2, 3, dtype=torch.int32)}, "shape of candidates"),
        ({"candidates": torch.zeros(2, 2, dtype=torch.int32)}, "shape of candidates"),
        ({"candidates": torch.zeros(1, 2, 2)}, "dtype of candidates"),
        ({"candidates": torch.zeros(1, 4, 2, dtype=torch.int32)[:, ::2]}, "candidates"),
        ({"k": 0}, "k"),
        ({"k": True}, "k"),
        ({"preset": "numpy"}, "preset"),
        ({"layout": "column-major"}, "layout"),
        ({"layout": "rank-major"}, "shape of candidates"),
        ({"out": torch.zeros(1, 3, dtype=torch.int32)}, "shape of out"),
        ({"out": torch.zeros(1, 2, dtype=torch.int64)}, "dtype of out"),
        ({"out": torch.zeros(1, 4, dtype=torch.int32)[:, ::2]}, "strides of out"),
        ({"candidates": torch.zeros(1, 8193, 2, dtype=torch.int32), "k": 8193}, "min(k, candidates)"),
    ],
)
def test_selection_refuses(arguments, what):
    valid = {"candidates": torch.zeros(1, 2, 2, dtype=torch.int32), "k": 2}
    with pytest.raises(InputError) as caught:
        select_candidates(**{**valid, **arguments})
    assert caught.value.what == what


@st.composite
def merges(draw):
    """A world, a geometry and the inputs of three merges."""
    world_size, interleave = draw(st.sampled_from([1, 2, 3, 4])), draw(st.sampled_from([1, 2, 64]))
    local, k, rows = draw(st.integers(1, 5)), draw(st.integers(1, 12)), draw(st.integers(0, 3))
    geometry = {
        "max_rows": 4, "local_candidates": local, "k": k, "interleave": interleave,
        "preset": draw(st.sampled_from(sorted(PRESETS))),
        "discipline": draw(st.sampled_from(["alternating", "acknowledged"])),
        "transport": draw(st.sampled_from(["auto", "symmetric", "all-gather"])),
        "first_epoch": draw(st.sampled_from([0, 1, -1, -2, -(2**63), 2**63 - 1, 2**63 - 2, 2**63 - 3])),
    }  # fmt: skip
    return world_size, geometry, [[draw(shards(rows, local)) for _ in range(world_size)] for _ in range(3)]


@st.composite
def shards(draw, rows, local):
    """Scores, local indices and row starts of one rank: any choice of columns, also none."""
    width = draw(st.sampled_from([0, 1, 9]))
    bits = draw(st.lists(st.sampled_from(SPECIAL_BITS), min_size=rows * width, max_size=rows * width))
    scores = np.array(bits, dtype=np.uint32).view(np.float32).reshape(rows, width)
    starts = draw(st.none() | st.lists(st.integers(0, width), min_size=rows, max_size=rows))
    indices = np.full((rows, local), -1, dtype=np.int32)
    for row in range(rows):
        room = width - (starts[row] if starts else 0)
        for place in range(local):
            indices[row, place] = draw(st.integers(-1, room - 1))
    return scores, indices, None if starts is None else np.array(starts, dtype=np.int32)


@settings(max_examples=25)
@given(merges(), st.sampled_from(["default", "random:1", "pct:1"]))
def test_merges_of_any_candidates_are_the_spec_s(drawn, schedule):
    world_size, geometry, epochs = drawn
    layout = Layout(world_size, geometry["interleave"])

    def host(fabric: SimulatedFabric) -> list[list[list[int]]]:
        with Workspace.create(fabric, Geometry(**geometry), max_polls=8) as workspace:
            outputs = []
            for shards in epochs:
                scores, indices, starts = (None if a is None else torch.from_numpy(a) for a in shards[fabric.rank])
                outputs.append(merge_topk(workspace, scores, indices, row_starts=starts))
            workspace.check()
            return [output.tolist() for output in outputs]

    want = [
        merge(scores, indices, layout, geometry["k"], geometry["preset"], starts).tolist()
        for scores, indices, starts in (zip(*shards, strict=True) for shards in epochs)
    ]
    assert run_ranks(host, world_size, schedule) == [want] * world_size


@pytest.mark.parametrize("transport", ["symmetric", "all-gather"])
@pytest.mark.parametrize(("world_size", "interleave", "k"), [(2, 64, 512), (8, 1, 300), (3, 4, 1030)])
def test_merge_of_public_sizes_in_place(transport, world_size, interleave, k):
    length, layout = 5000, Layout(world_size, interleave)
    random = np.random.default_rng(k)
    rows = random.integers(-3, 3, (2, length)).astype(np.float32)
    shards = [rows[:, layout.owner(np.arange(length)) == rank] for rank in range(world_size)]
    lengths = [np.full(2, shard.shape[1], dtype=np.int32) for shard in shards]
    indices = [local_topk(shard, size, k) for shard, size in zip(shards, lengths, strict=True)]
    whole = select(rows, np.tile(np.arange(length, dtype=np.int32), (2, 1)), k)
    geometry = Geometry(max_rows=2, local_candidates=k, k=k, interleave=interleave, transport=transport)

    def host(fabric: SimulatedFabric) -> list[list[int]]:
        with Workspace.create(fabric, geometry, max_polls=8) as workspace:
            buffer = torch.from_numpy(indices[fabric.rank].copy())
            scores = torch.from_numpy(np.ascontiguousarray(shards[fabric.rank]))
            assert merge_topk(workspace, scores, buffer, out=buffer) is buffer
            workspace.check()
            return buffer.tolist()

    assert run_ranks(host, world_size, settings=Settings(data_points=False)) == [whole.tolist()] * world_size


def test_row_offsets_are_64_bit(tmp_path):
    """Rows 2^30 elements apart, in a sparse file: row 2 starts at element 2^31.

    Not simulated, as an access history of 8 GiB would be larger still; one rank needs no peers.
    """
    stride = 2**30
    storage = torch.from_file(str(tmp_path / "scores"), shared=True, size=2 * stride + 2)
    scores = storage.as_strided((3, 2), (stride, 1))
    scores.copy_(torch.tensor([[0.0, 1.0], [3.0, 2.0], [4.0, 5.0]]))
    alone = SimpleNamespace(
        rank=0, world_size=1, device=scores.device, gather_objects=lambda value: [value], synchronize=lambda: None
    )
    workspace = Workspace.create(alone, Geometry(max_rows=3, local_candidates=2, k=1))
    output = merge_topk(workspace, scores, torch.tensor([[0, 1]] * 3, dtype=torch.int32))
    assert output.tolist() == [[1], [0], [1]]


@settings(max_examples=40)
@given(st.data(), st.integers(1, 4), st.sampled_from([1, 2, 64]), st.integers(0, 3), st.integers(1, 20))
def test_localisation_is_the_spec_s(data, world_size, interleave, rows, k):
    ids = st.lists(st.integers(-1, 300) | st.sampled_from(SPECIAL_IDS), min_size=rows * k, max_size=rows * k)
    global_ids = np.array(data.draw(ids), dtype=np.int32).reshape(rows, k)
    for rank in range(world_size):
        local, counts = launch(lambda _, r=rank: localise(torch.from_numpy(global_ids), r, world_size, interleave))
        want, want_counts = packing.localise(global_ids, rank, Layout(world_size, interleave))
        assert local.tolist() == want.tolist()
        assert counts.tolist() == want_counts.tolist()


@pytest.mark.parametrize("with_requests", [False, True])
def test_localisation_through_a_block_table_is_the_spec_s(with_requests):
    random = np.random.default_rng(7)
    global_ids = random.integers(-1, 200, (3, 1500)).astype(np.int32)
    blocks = random.integers(0, 1000, (3, 13)).astype(np.int32)
    requests = np.array([2, 0, 2], dtype=np.int32) if with_requests else None
    table = BlockTable(torch.from_numpy(blocks), 8, 11, None if requests is None else torch.from_numpy(requests))
    local, counts = launch(lambda _: localise(torch.from_numpy(global_ids), 1, 2, 4, table=table))
    want, want_counts = packing.localise(global_ids, 1, Layout(2, 4), blocks, 8, 11, requests)
    assert local.tolist() == want.tolist()
    assert counts.tolist() == want_counts.tolist()


@pytest.mark.parametrize(
    ("blocks", "requests"), [([[3], [4]], [0, 2]), ([[3], [4]], [0, -1]), ([[3], [-1]], None), ([[3], [2**30]], None)]
)
def test_a_position_outside_the_block_table_empties_its_row(blocks, requests):
    owners = None if requests is None else torch.tensor(requests, dtype=torch.int32)
    table = BlockTable(torch.tensor(blocks, dtype=torch.int32), 4, requests=owners)
    ids = torch.tensor([[1, 2], [3, 0]], dtype=torch.int32)
    local, counts = launch(lambda _: localise(ids, 0, 1, table=table))
    assert local.tolist() == [[13, 14], [-1, -1]]
    assert counts.tolist() == [2, -1]
    assert launch(lambda _: localise(ids * 4, 0, 1, table=table))[1].tolist() == [-1, -1]


def test_localisation_refuses_what_it_cannot_do():
    ids = torch.zeros(2, 3, dtype=torch.int32)
    blocks = torch.zeros(2, 1, dtype=torch.int32)
    for arguments in (
        {"rank": 2, "world_size": 2},
        {"rank": 0, "world_size": 0},
        {"rank": 0, "world_size": 1, "interleave": 0},
        {"rank": 0, "world_size": 1, "out": ids},
        {"rank": 0, "world_size": 1, "table": BlockTable(blocks, 0)},
        {"rank": 0, "world_size": 1, "table": BlockTable(blocks, 4, 3)},
        {"rank": 0, "world_size": 1, "table": BlockTable(blocks[:1], 4)},
        {"rank": 0, "world_size": 1, "table": BlockTable(blocks, 4, requests=torch.zeros(3, dtype=torch.int32))},
    ):
        with pytest.raises(InputError):
            localise(ids, **arguments)
