"""What ranks agree on before they exchange anything: policies, the buffer's layout, geometry and transport."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from tiebreak.errors import GeometryError, WorkspaceError
from tiebreak.impl import policy
from tiebreak.impl.geometry import Geometry
from tiebreak.impl.layout import ALIGNMENT, BufferLayout
from tiebreak.impl.merge import merge_topk
from tiebreak.impl.workspace import Workspace
from tiebreak.sim.fabric import SimulatedFabric, run_ranks
from tiebreak.spec.order import PRESETS

SIZES = {"max_rows": 3, "local_candidates": 2, "k": 2}


def create(fabric: SimulatedFabric, **geometry: Any) -> Workspace:
    """Create a workspace with small sizes."""
    return Workspace.create(fabric, Geometry(**{**SIZES, **geometry}), max_polls=4)


def refusals(ranks: int, name: str, value: object) -> set[str]:
    """Messages with which the ranks refuse a geometry in which rank 1 has another value."""

    def host(fabric: SimulatedFabric) -> str:
        with pytest.raises(GeometryError) as caught:
            create(fabric, **({name: value} if fabric.rank == 1 else {}))
        return str(caught.value)

    return set(run_ranks(host, ranks))


# -- policy and layout ---------------------------------------------------------------------------------------------


def test_policies_are_those_of_the_spec():
    assert list(policy.POLICIES) == list(PRESETS)
    for name, known in policy.POLICIES.items():
        assert known.nan.name == PRESETS[name].nan.name
        assert known.zero.name == PRESETS[name].zero.name


@pytest.mark.parametrize("world_size", [1, 3, 32, 33])
def test_parts_of_the_buffer_are_aligned_and_do_not_overlap(world_size):
    layout = BufferLayout(world_size, inbox_rows=3, local_candidates=5, slots=2, returned_rows=7, packet_rows=4, k=6)
    parts = [
        (layout.published, 8 * world_size),
        (layout.published_rows, 16 * world_size),
        (layout.acknowledged, 8 * world_size),
        (layout.returned, 8 * world_size),
        (layout.arrived_rows, 16 * world_size),
        (layout.arrived, 8 * world_size),
        (layout.inbox, 2 * 3 * world_size * 5 * 2 * 4),
        (layout.returned_ids, 7 * 6 * 4),
        (layout.uses, 4 * 2 * 4),
        (layout.packets, 2 * layout.packet_slot_bytes),
    ]
    assert layout.packet_slot_bytes == 4 * world_size * 5 * 8
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
        ("owner_rows", 2),
        ("contract", "set"),
        ("implementation", "triton"),
        ("launches", "separate"),
    ],
)
def test_a_difference_is_the_same_error_on_every_rank(name, value):
    (message,) = refusals(3, name, value)
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
        ("owner_rows", -1),
        ("contract", "values"),
        ("implementation", "cuda"),
        ("launches", "both"),
        ("version", 0),
    ],
)
def test_an_invalid_value_on_one_rank_is_an_error_on_every_rank(name, value):
    (message,) = refusals(2, name, value)
    assert "rank 1" in message
    assert "rank 0" not in message


def test_more_candidates_than_the_largest_tile_are_refused():
    def host(fabric: SimulatedFabric) -> None:
        with pytest.raises(GeometryError, match="8192"):
            create(fabric, max_rows=1, local_candidates=9000, k=8193)

    run_ranks(host, 1)


def test_a_rank_that_failed_before_tells_its_peers():
    failure = ValueError("no model on this rank")

    def host(fabric: SimulatedFabric) -> None:
        with pytest.raises(GeometryError, match=r"rank 0 \(ValueError: no model on this rank\)"):
            Workspace.create(fabric, failure if fabric.rank == 0 else Geometry(**SIZES))

    run_ranks(host, 2)


# -- agreement on the transport ------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [[0], [1, 2], [0, 1, 2]])
def test_auto_falls_back_on_every_rank_or_on_none(failing):
    def host(fabric: SimulatedFabric) -> tuple[str, list[list[int]]]:
        workspace = create(fabric)
        output = merge_topk(workspace, torch.ones(2, 4), torch.tensor([[0, 1]] * 2, dtype=torch.int32))
        workspace.check()
        return workspace.route, output.tolist()

    assert run_ranks(host, 3, failing_rendezvous=failing) == [("all-gather", [[0, 1]] * 2)] * 3


def test_symmetric_fails_on_every_rank_when_it_fails_on_one():
    def host(fabric: SimulatedFabric) -> None:
        with pytest.raises(WorkspaceError, match=r"failed on rank 1 \(WorkspaceError: rendezvous of rank 1") as caught:
            create(fabric, transport="symmetric")
        assert "all-gather" in caught.value.remedy

    run_ranks(host, 3, failing_rendezvous=[1])


@pytest.mark.parametrize(
    ("world_size", "transport", "route"),
    [(1, "auto", "local"), (1, "symmetric", "symmetric"), (2, "auto", "symmetric"), (2, "all-gather", "all-gather")],
)
def test_route(world_size, transport, route):
    original = SimulatedFabric.rendezvous
    with mock.patch.object(SimulatedFabric, "rendezvous", autospec=True, side_effect=original) as rendezvous:
        assert run_ranks(lambda fabric: create(fabric, transport=transport).route, world_size) == [route] * world_size
    assert rendezvous.call_count == (world_size if route == "symmetric" else 0)


def test_a_failed_initialisation_is_an_error_on_every_rank():
    def host(fabric: SimulatedFabric) -> None:
        with pytest.raises(WorkspaceError, match=r"rank 0 .*max_polls"):
            Workspace.create(fabric, Geometry(**SIZES), max_polls=fabric.rank)

    run_ranks(host, 2)
