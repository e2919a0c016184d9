"""Host code of the exchange: validation of a merge, errors on the device and closing, on simulated ranks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from tiebreak.errors import InputError, MissingBackendError, PeerTimeoutError, RowMismatchError, WorkspaceError
from tiebreak.impl import launch
from tiebreak.impl.geometry import Geometry
from tiebreak.impl.merge import merge_topk
from tiebreak.impl.torch_fabric import TorchFabric
from tiebreak.impl.workspace import Workspace
from tiebreak.sim.device import Graph, Launch
from tiebreak.sim.fabric import SimulatedFabric, run_ranks
from tiebreak.sim.machine import Settings

SIZES = {"max_rows": 3, "local_candidates": 2, "k": 2}
DISCIPLINES = ("alternating", "acknowledged")
BOUNDED = Settings(tolerate_stalls=True)
"""Lets waits in vain run out, which are a deadlock otherwise."""


def create(fabric: SimulatedFabric, **geometry: Any) -> Workspace:
    """Create a workspace with small sizes."""
    return Workspace.create(fabric, Geometry(**{**SIZES, **geometry}), max_polls=4)


def inputs(rows: int = 2, value: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and local indices of one rank."""
    return torch.full((rows, 4), value), torch.tensor([[0, 1]] * rows, dtype=torch.int32).reshape(rows, 2)


def names(graph: Graph) -> list[str]:
    """What a graph launches."""
    return [work.kernel if isinstance(work, Launch) else work.name for work in graph.work]


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
    def host(fabric: SimulatedFabric) -> None:
        workspace = create(fabric)
        scores, indices = inputs()
        with fabric.capture() as graph, pytest.raises(InputError) as caught:
            merge_topk(workspace, **{"scores": scores, "local_indices": indices, **arguments})
        assert caught.value.what == what
        assert names(graph) == []

    run_ranks(host, 1)


@pytest.mark.parametrize(
    ("transport", "launched"), [("symmetric", ["publish", "wait", "complete"]), ("all-gather", ["all-gather"])]
)
def test_no_rows_still_take_part(transport, launched):
    def host(fabric: SimulatedFabric) -> None:
        workspace = create(fabric, transport=transport)
        with fabric.capture() as graph:
            output = merge_topk(workspace, *inputs(0))
        assert names(graph) == launched
        assert output.shape == (0, 2)
        fabric.replay(graph)
        workspace.check()

    run_ranks(host, 2)


# -- errors on the device ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discipline", DISCIPLINES)
@pytest.mark.parametrize(("first_epoch", "epoch"), [(0, 1), (2**63 - 1, -(2**63))])
def test_a_missing_peer_is_named(discipline, first_epoch, epoch):
    def host(fabric: SimulatedFabric) -> None:
        workspace = create(fabric, discipline=discipline, first_epoch=first_epoch)
        if fabric.rank != 1:
            output = merge_topk(workspace, *inputs())
            with pytest.raises(PeerTimeoutError) as caught:
                workspace.check()
            assert (caught.value.peer, caught.value.flag, caught.value.epoch) == (1, "published", epoch)
            assert (output == -1).all()
            with pytest.raises(WorkspaceError, match="failed"):
                merge_topk(workspace, *inputs())
        fabric.gather_objects(None)
        if fabric.rank == 1:
            workspace.check()

    run_ranks(host, 3, settings=BOUNDED)


def test_a_missing_acknowledgement_is_named():
    def host(fabric: SimulatedFabric) -> None:
        workspace = create(fabric, discipline="acknowledged")
        with fabric.capture() as graph:
            merge_topk(workspace, *inputs())
        if fabric.rank == 0:
            assert names(graph).index("complete") == len(graph.work) - 1
            graph.work.pop()
        fabric.replay(graph)
        workspace.check()
        if fabric.rank == 1:
            merge_topk(workspace, *inputs())
            with pytest.raises(PeerTimeoutError) as caught:
                workspace.check()
            assert (caught.value.peer, caught.value.flag, caught.value.epoch) == (0, "acknowledged", 1)

    run_ranks(host, 2, settings=BOUNDED)


@pytest.mark.parametrize("discipline", DISCIPLINES)
@pytest.mark.parametrize("rows", [(2, 1), (1, 2), (0, 3), (3, 0)])
def test_other_numbers_of_rows_are_an_error_on_every_rank(discipline, rows):
    def host(fabric: SimulatedFabric) -> None:
        workspace, peer = create(fabric, discipline=discipline), 1 - fabric.rank
        merge_topk(workspace, *inputs(3))
        output = merge_topk(workspace, *inputs(rows[fabric.rank]))
        with pytest.raises(RowMismatchError, match=f"{rows[peer]} rows in exchange 2") as caught:
            workspace.check()
        assert (caught.value.peer, caught.value.epoch, caught.value.flag) == (peer, 2, "published_rows")
        assert (output == -1).all()

    run_ranks(host, 2)


def test_after_an_error_nothing_is_written_to_a_peer_and_the_first_error_stays():
    def host(fabric: SimulatedFabric) -> None:
        workspace = create(fabric)
        seen = []
        for value in (1.0, 9.0):
            if fabric.rank == 0:
                output = merge_topk(workspace, *inputs(value=value))
                fabric.synchronize()
                assert (output == -1).all()
            fabric.gather_objects(None)
            seen.append(workspace.buffer.local.tolist() if fabric.rank == 1 else workspace.state.tolist())
            fabric.gather_objects(None)
        assert seen[0] == seen[1]

    run_ranks(host, 2, settings=BOUNDED)


@pytest.mark.parametrize(
    ("indices", "row_starts"), [([[0, 4]], None), ([[0, 3]], [1]), ([[-7, 3]], [-4]), ([[0, 2**31 - 1]], None)]
)
@pytest.mark.parametrize("transport", ["symmetric", "all-gather"])
def test_an_index_outside_the_shard_is_an_error(transport, indices, row_starts):
    starts = None if row_starts is None else torch.tensor(row_starts, dtype=torch.int32)

    def host(fabric: SimulatedFabric) -> list[list[int]]:
        workspace = create(fabric, transport=transport)
        if fabric.rank == 0:
            output = merge_topk(
                workspace, torch.ones(1, 4), torch.tensor(indices, dtype=torch.int32), row_starts=starts
            )
            with pytest.raises(InputError, match="local index of row 0 in exchange 1 on rank 0"):
                workspace.check()
        else:
            output = merge_topk(workspace, *inputs(1))
            fabric.synchronize()
            if transport == "symmetric":
                with pytest.raises(PeerTimeoutError, match="rank 0"):
                    workspace.check()
        return output.tolist()

    mine, theirs = run_ranks(host, 2, settings=BOUNDED)
    assert mine == [[-1, -1]]
    assert theirs in ([[-1, -1]], [[1, 3]], [[0, 1]])


@pytest.mark.parametrize(("index", "fits"), [(2**30 - 1, True), (2**30, False)])
def test_a_global_id_beyond_int32_is_an_error(index, fits):
    """Two ranks that own every other id: local index 2^30 - 1 of rank 1 is id 2^31 - 1, the largest."""

    def host(fabric: SimulatedFabric) -> None:
        workspace = create(fabric, transport="all-gather", local_candidates=1)
        indices = torch.tensor([[index if fabric.rank else -1]], dtype=torch.int32)
        output = merge_topk(workspace, torch.ones(1, 1), indices, row_starts=torch.tensor([-index], dtype=torch.int32))
        if fits or fabric.rank == 0:
            workspace.check()
        else:
            with pytest.raises(InputError, match="local index of row 0"):
                workspace.check()
        assert output.tolist() == ([[2**31 - 1, -1]] if fits else [[-1, -1]])

    run_ranks(host, 2)


# -- closing -------------------------------------------------------------------------------------------------------


def freed(host: Callable[[SimulatedFabric], Any], settings: Settings | None = None) -> list[int]:
    """Run two ranks and return those that gave their symmetric memory back."""
    original = SimulatedFabric.free
    with mock.patch.object(SimulatedFabric, "free", autospec=True, side_effect=original) as free:
        run_ranks(host, 2, settings=settings)
    return sorted(call.args[0].rank for call in free.call_args_list)


def assert_closed(workspace: Workspace) -> None:
    """Require every use of the workspace to be refused."""
    for use in (workspace.check, lambda: merge_topk(workspace, *inputs())):
        with pytest.raises(WorkspaceError, match="closed"):
            use()


def test_close_is_collective_and_idempotent():
    def host(fabric: SimulatedFabric) -> None:
        workspace = create(fabric)
        workspace.close()
        workspace.close()
        assert_closed(workspace)

    assert freed(host) == [0, 1]


def test_memory_is_kept_on_every_rank_when_the_exchange_failed_on_one():
    def host(fabric: SimulatedFabric) -> None:
        workspace = create(fabric)
        if fabric.rank == 0:
            merge_topk(workspace, *inputs())
        workspace.close()

    assert freed(host, BOUNDED) == []


def test_a_with_block_closes():
    def host(fabric: SimulatedFabric) -> None:
        with create(fabric) as workspace:
            assert workspace.route == "symmetric"
        assert_closed(workspace)

    assert freed(host) == [0, 1]


def test_a_with_block_does_not_wait_for_peers_after_an_exception():
    def host(fabric: SimulatedFabric) -> None:
        workspace = create(fabric)
        if fabric.rank == 0:
            with pytest.raises(KeyError), workspace:
                raise KeyError
            assert_closed(workspace)

    assert freed(host) == []


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
