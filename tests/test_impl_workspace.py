"""Host code of the exchange: agreement, validation, errors and closing."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

from tiebreak.errors import (
    GeometryError,
    InputError,
    MissingBackendError,
    PeerTimeoutError,
    RowMismatchError,
    WorkspaceError,
)
from tiebreak.impl import launch, policy
from tiebreak.impl.geometry import Geometry
from tiebreak.impl.layout import ALIGNMENT, BufferLayout
from tiebreak.impl.merge import merge_topk
from tiebreak.impl.torch_fabric import TorchFabric
from tiebreak.impl.workspace import Workspace
from tiebreak.lockstep import World, create_workspaces, drain, held_language, merge_in_lockstep, on_all_ranks, queued
from tiebreak.spec.order import PRESETS

SIZES = {"max_rows": 3, "local_candidates": 2, "k": 2}
DISCIPLINES = ("alternating", "acknowledged")


@pytest.fixture(scope="module", autouse=True)
def held():
    with held_language():
        yield


def inputs(rows: int = 2, value: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and local indices of one rank."""
    return torch.full((rows, 4), value), torch.tensor([[0, 1]] * rows, dtype=torch.int32).reshape(rows, 2)


def create(fabric, geometry):
    return Workspace.create(fabric, geometry, max_polls=2)


# -- policy and layout ---------------------------------------------------------------------------------------------


def test_policies_are_those_of_the_spec():
    assert list(policy.POLICIES) == list(PRESETS)
    for name, known in policy.POLICIES.items():
        assert known.nan.name == PRESETS[name].nan.name
        assert known.zero.name == PRESETS[name].zero.name


@pytest.mark.parametrize("world_size", [1, 3, 32, 33])
def test_parts_of_the_buffer_are_aligned_and_do_not_overlap(world_size):
    layout = BufferLayout(world_size, max_rows=3, local_candidates=5, slots=2)
    parts = [
        (layout.published, 8 * world_size),
        (layout.published_rows, 16 * world_size),
        (layout.acknowledged, 8 * world_size),
        (layout.inbox, 2 * 3 * world_size * 5 * 2 * 4),
    ]
    for (start, size), (following, _) in zip(parts, [*parts[1:], (layout.byte_count, 0)], strict=True):
        assert start % ALIGNMENT == 0
        assert start + size <= following


# -- agreement on the geometry -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_rows", 4),
        ("local_candidates", 3),
        ("k", 1),
        ("interleave", 2),
        ("preset", "torch"),
        ("discipline", "acknowledged"),
        ("transport", "all-gather"),
        ("first_epoch", 7),
    ],
)
def test_a_difference_is_the_same_error_on_every_rank(name, value):
    results = on_all_ranks(
        World(3), lambda fabric: create(fabric, Geometry(**{**SIZES, **({name: value} if fabric.rank == 1 else {})}))
    )
    assert {type(result) for result in results} == {GeometryError}
    (message,) = {str(result) for result in results}
    assert f"{name} differs" in message
    assert f"{value!r} on ranks [1]" in message
    assert "on ranks [0, 2]" in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_rows", 0),
        ("k", 0),
        ("k", 2.0),
        ("local_candidates", True),
        ("local_candidates", 2**31),
        ("interleave", -1),
        ("interleave", 2**30),
        ("preset", "numpy"),
        ("preset", ["ieee"]),
        ("discipline", "none"),
        ("transport", "carrier pigeon"),
        ("dtype", "float16"),
        ("first_epoch", 2**63),
        ("version", 0),
    ],
)
def test_an_invalid_value_on_one_rank_is_an_error_on_every_rank(name, value):
    results = on_all_ranks(
        World(2), lambda fabric: create(fabric, Geometry(**{**SIZES, **({name: value} if fabric.rank == 1 else {})}))
    )
    assert {type(result) for result in results} == {GeometryError}
    (message,) = {str(result) for result in results}
    assert "rank 1" in message
    assert "rank 0" not in message


def test_more_candidates_than_the_largest_tile_are_refused():
    (result,) = on_all_ranks(
        World(1), lambda fabric: create(fabric, Geometry(max_rows=1, local_candidates=9000, k=8193))
    )
    assert isinstance(result, GeometryError)
    assert "8192" in str(result)


def test_a_rank_that_failed_before_tells_its_peers():
    failure = ValueError("no model on this rank")
    results = on_all_ranks(World(2), lambda fabric: create(fabric, failure if fabric.rank == 0 else Geometry(**SIZES)))
    assert {type(result) for result in results} == {GeometryError}
    assert all("rank 0 (ValueError: no model on this rank)" in str(result) for result in results)


# -- agreement on the transport ------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [{0}, {1, 2}, {0, 1, 2}])
def test_auto_falls_back_on_every_rank_or_on_none(failing):
    workspaces = create_workspaces(World(3, frozenset(failing)), **SIZES)
    assert [workspace.route for workspace in workspaces] == ["all-gather"] * 3
    outputs = merge_in_lockstep(workspaces, [inputs() for _ in range(3)])
    assert [output.tolist() for output in outputs] == [[[0, 1]] * 2] * 3


def test_symmetric_fails_on_every_rank_when_it_fails_on_one():
    results = on_all_ranks(
        World(3, frozenset({1})), lambda fabric: create(fabric, Geometry(**SIZES, transport="symmetric"))
    )
    assert {type(result) for result in results} == {WorkspaceError}
    assert all("rank 1 (RuntimeError: no peer access)" in str(result) for result in results)
    assert all("all-gather" in result.remedy for result in results)


@pytest.mark.parametrize(
    ("world_size", "transport", "route"),
    [(1, "auto", "local"), (1, "symmetric", "symmetric"), (2, "auto", "symmetric"), (2, "all-gather", "all-gather")],
)
def test_route(world_size, transport, route):
    world = World(world_size)
    workspaces = create_workspaces(world, **SIZES, transport=transport)
    assert {workspace.route for workspace in workspaces} == {route}
    assert len(world.buffers) == (world_size if route == "symmetric" else 0)


def test_a_failed_initialisation_is_an_error_on_every_rank():
    results = on_all_ranks(
        World(2), lambda fabric: Workspace.create(fabric, Geometry(**SIZES), max_polls=0 if fabric.rank == 0 else 5)
    )
    assert {type(result) for result in results} == {WorkspaceError}
    assert all("rank 0" in str(result) and "max_polls" in str(result) for result in results)


# -- arguments of a merge ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"scores": torch.zeros(2, 4, dtype=torch.float64)}, "dtype of scores"),
        ({"scores": torch.zeros(4)}, "shape of scores"),
        ({"scores": torch.zeros(2, 8)[:, ::2]}, "strides of scores"),
        ({"scores": torch.zeros(2, 4, device="meta")}, "device of scores"),
        ({"scores": torch.zeros(4, 4)}, "rows"),
        ({"local_indices": torch.zeros(2, 2, dtype=torch.int64)}, "dtype of local_indices"),
        ({"local_indices": torch.zeros(2, 3, dtype=torch.int32)}, "shape of local_indices"),
        ({"local_indices": torch.zeros(1, 2, dtype=torch.int32)}, "shape of local_indices"),
        ({"out": torch.zeros(3, 2, dtype=torch.int32)}, "shape of out"),
        ({"out": torch.zeros(2, 2)}, "dtype of out"),
        ({"row_starts": torch.zeros(3, dtype=torch.int32)}, "shape of row_starts"),
        ({"row_starts": torch.zeros(2, dtype=torch.int64)}, "dtype of row_starts"),
    ],
)
def test_a_wrong_argument_raises_before_any_launch(arguments, what):
    (workspace,) = create_workspaces(World(1), **SIZES)
    scores, indices = inputs()
    with mock.patch.object(InterpretedFunction, "run") as launched, pytest.raises(InputError) as caught:
        merge_topk(workspace, **{"scores": scores, "local_indices": indices, **arguments})
    assert caught.value.what == what
    launched.assert_not_called()


@pytest.mark.parametrize("transport", ["symmetric", "all-gather"])
def test_no_rows_still_take_part(transport):
    world = World(2)
    workspaces = create_workspaces(world, **SIZES, transport=transport)
    with queued(world):
        outputs = [merge_topk(workspace, *inputs(0)) for workspace in workspaces]
    launched = {name for name, _ in world.queue}
    assert launched == ({"publish", "wait", "complete"} if transport == "symmetric" else {"all_gather"})
    drain(world)
    assert [tuple(output.shape) for output in outputs] == [(0, 2)] * 2
    for workspace in workspaces:
        workspace.check()


# -- errors on the device ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discipline", DISCIPLINES)
@pytest.mark.parametrize("first_epoch", [0, 2**63 - 1])
def test_a_missing_peer_is_named(discipline, first_epoch):
    workspaces = create_workspaces(World(3), **SIZES, discipline=discipline, first_epoch=first_epoch)
    outputs = merge_in_lockstep(workspaces, [inputs() for _ in range(3)], skipped=[1])
    assert all((output == -1).all() for output in outputs)
    for rank in (0, 2):
        with pytest.raises(PeerTimeoutError) as caught:
            workspaces[rank].check()
        assert (caught.value.peer, caught.value.flag) == (1, "published")
        assert caught.value.epoch == (1 if first_epoch == 0 else -(2**63))
        with pytest.raises(WorkspaceError, match="failed"):
            merge_topk(workspaces[rank], *inputs())
    workspaces[1].check()


def test_a_missing_acknowledgement_is_named():
    world = World(2)
    workspaces = create_workspaces(world, **SIZES, discipline="acknowledged")
    with queued(world):
        for rank in range(2):
            merge_topk(workspaces[rank], *inputs())
    world.queue[:] = [entry for entry in world.queue if entry[0] != "complete"] + world.queue[-1:]
    drain(world)  # Rank 1 completes the first exchange; rank 0 never acknowledges it.
    merge_in_lockstep(workspaces, [inputs(), inputs()], skipped=[0])
    with pytest.raises(PeerTimeoutError) as caught:
        workspaces[1].check()
    assert (caught.value.peer, caught.value.flag, caught.value.epoch) == (0, "acknowledged", 1)


@pytest.mark.parametrize("discipline", DISCIPLINES)
@pytest.mark.parametrize(("mine", "theirs"), [(2, 1), (1, 2), (0, 3), (3, 0)])
def test_other_numbers_of_rows_are_an_error_on_every_rank(discipline, mine, theirs):
    workspaces = create_workspaces(World(2), **SIZES, discipline=discipline)
    merge_in_lockstep(workspaces, [inputs(3), inputs(3)])
    outputs = merge_in_lockstep(workspaces, [inputs(mine), inputs(theirs)])
    assert all((output == -1).all() for output in outputs)
    for rank, peer_rows in ((0, theirs), (1, mine)):
        with pytest.raises(RowMismatchError, match=f"{peer_rows} rows in exchange 2") as caught:
            workspaces[rank].check()
        assert (caught.value.peer, caught.value.epoch, caught.value.flag) == (1 - rank, 2, "published_rows")


def test_after_an_error_nothing_is_written_to_a_peer_and_the_first_error_stays():
    world = World(2)
    workspaces = create_workspaces(world, **SIZES)
    merge_in_lockstep(workspaces, [inputs(), inputs()], skipped=[1])
    theirs = world.buffers[1].clone()
    record = workspaces[0].state.tolist()
    (output,) = merge_in_lockstep(workspaces, [inputs(value=9.0), inputs()], skipped=[1])
    assert (output == -1).all()
    assert torch.equal(world.buffers[1], theirs)
    assert workspaces[0].state.tolist() == record


@pytest.mark.parametrize(
    ("indices", "row_starts"), [([[0, 4]], None), ([[0, 3]], [1]), ([[-7, 3]], [-4]), ([[0, 2**31 - 1]], None)]
)
@pytest.mark.parametrize("transport", ["symmetric", "all-gather"])
def test_an_index_outside_the_shard_is_an_error(transport, indices, row_starts):
    workspaces = create_workspaces(World(2), **SIZES, transport=transport)
    starts = None if row_starts is None else torch.tensor(row_starts, dtype=torch.int32)
    wrong = (torch.ones(1, 4), torch.tensor(indices, dtype=torch.int32), None, starts)
    outputs = merge_in_lockstep(workspaces, [wrong, inputs(1)])
    assert (outputs[0] == -1).all()
    with pytest.raises(InputError, match="local index of row 0 in exchange 1 on rank 0"):
        workspaces[0].check()
    assert outputs[1].tolist() in ([[-1, -1]], [[1, 3]], [[0, 1]])
    if transport == "symmetric":
        with pytest.raises(PeerTimeoutError, match="rank 0"):
            workspaces[1].check()


@pytest.mark.parametrize(("index", "fits"), [(3, True), (7, False)])
def test_a_global_id_beyond_int32_is_an_error(index, fits):
    """With 2^29 ranks local index 3 is id 2^30 + 1, and local index 7 would be 3 * 2^30 + 1."""
    (workspace,) = create_workspaces(World(1), **{**SIZES, "interleave": 2}, transport="all-gather")
    world = workspace.fabric.world
    with mock.patch.object(type(workspace.fabric), "world_size", 2**29), queued(world):
        merge_topk(workspace, torch.ones(1, 8), torch.tensor([[0, index]], dtype=torch.int32))
    world.queue[:] = [entry for entry in world.queue if entry[0] == "pack"]
    drain(world)
    if fits:
        workspace.check()
    else:
        with pytest.raises(InputError, match="local index of row 0"):
            workspace.check()


# -- closing -------------------------------------------------------------------------------------------------------


def test_close_is_collective_and_idempotent():
    world = World(2)
    workspaces = create_workspaces(world, **SIZES)

    def close(fabric):
        workspaces[fabric.rank].close()
        workspaces[fabric.rank].close()

    assert on_all_ranks(world, close) == [None, None]
    assert sorted(world.freed) == [0, 1]
    for use in (workspaces[0].check, lambda: merge_topk(workspaces[0], *inputs())):
        with pytest.raises(WorkspaceError, match="closed"):
            use()


def test_memory_is_kept_on_every_rank_when_the_exchange_failed_on_one():
    world = World(2)
    workspaces = create_workspaces(world, **SIZES)
    merge_in_lockstep(workspaces, [inputs(), inputs()], skipped=[1])
    assert on_all_ranks(world, lambda fabric: workspaces[fabric.rank].close()) == [None, None]
    assert world.freed == []


def test_a_with_block_closes_and_does_not_wait_for_peers_after_an_exception():
    world = World(2)

    def host(fabric):
        with create(fabric, Geometry(**SIZES)) as workspace:
            assert workspace.route == "symmetric"
        return workspace

    workspaces = on_all_ranks(world, host)
    assert sorted(world.freed) == [0, 1]
    workspaces = create_workspaces(world, **SIZES)
    with pytest.raises(KeyError), workspaces[0]:
        raise KeyError
    with pytest.raises(WorkspaceError, match="closed"):
        workspaces[0].check()
    assert sorted(world.freed) == [0, 1]


# -- missing hardware ----------------------------------------------------------------------------------------------


def test_compiled_kernels_refuse_cpu_tensors():
    with (
        mock.patch.object(launch, "JITFunction", type(launch.select)),
        pytest.raises(MissingBackendError, match="TRITON_INTERPRET"),
    ):
        launch.device_guard(torch.device("cpu"))


def test_the_torch_fabric_says_what_it_lacks():
    with mock.patch("torch.cuda.is_available", return_value=False), pytest.raises(MissingBackendError, match="CUDA"):
        TorchFabric()
    with mock.patch("torch.cuda.is_available", return_value=True), pytest.raises(MissingBackendError, match="process"):
        TorchFabric()


def test_the_torch_fabric_adds_each_peer_s_offset_to_the_base_of_its_block():
    fabric = TorchFabric.__new__(TorchFabric)
    fabric.rank, fabric.world_size, fabric.device = 1, 2, torch.device("cpu")
    fabric._group, fabric._buffers = None, []
    local = torch.zeros(64, dtype=torch.uint8)
    handle = SimpleNamespace(buffer_ptrs=[5000, local.data_ptr() - 32])
    symmetric_memory = "torch.distributed._symmetric_memory"
    with (
        mock.patch.object(fabric, "gather_objects", side_effect=lambda value: [256, value] if value else [None, None]),
        mock.patch(f"{symmetric_memory}.empty", return_value=local),
        mock.patch(f"{symmetric_memory}.rendezvous", return_value=handle),
        mock.patch("torch.cuda.device"),
    ):
        buffer = fabric.rendezvous(64)
    assert buffer.peer_addresses.tolist() == [5256, local.data_ptr()]
    fabric.free(buffer)
    with pytest.raises(WorkspaceError):
        fabric.free(buffer)
