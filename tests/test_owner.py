"""Owner-sharded merges: each rank merges some rows and returns their ids, with the result of every other merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tiebreak.errors import PeerTimeoutError, RowMismatchError
from tiebreak.impl.geometry import Geometry
from tiebreak.impl.layout import rows_per_owner
from tiebreak.impl.merge import merge_topk
from tiebreak.impl.workspace import Workspace
from tiebreak.sim.device import Graph, Launch
from tiebreak.sim.fabric import SimulatedFabric, run_ranks
from tiebreak.sim.machine import Settings

DISCIPLINES = ("alternating", "acknowledged")
SCHEDULES = ("round-robin", "random:3", "pct:1:1:6")
BOUNDED = Settings(tolerate_stalls=True)
"""Lets waits in vain run out, which are a deadlock otherwise."""


def create(fabric: SimulatedFabric, **geometry: Any) -> Workspace:
    """Create a workspace whose merges are owner-sharded from 3 rows on."""
    sizes = {"max_rows": 5, "local_candidates": 2, "k": 3, "transport": "symmetric", "owner_rows": 3}
    return Workspace.create(fabric, Geometry(**{**sizes, **geometry}), max_polls=4)


def inputs(rank: int, rows: int, epoch: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores with ties, and local indices in any order."""
    random = torch.Generator().manual_seed(1000 * epoch + 10 * rows + rank)
    order = torch.argsort(torch.rand(rows, 6, generator=random), dim=1)
    return torch.randint(0, 3, (rows, 6), generator=random).float(), order[:, :2].int().contiguous()


def merge_all(fabric: SimulatedFabric, row_counts: Sequence[int], **geometry: Any) -> list[Any]:
    """Merge with each number of rows in turn, without waiting in between."""
    workspace = create(fabric, **geometry)
    results = [merge_topk(workspace, *inputs(fabric.rank, rows, epoch)) for epoch, rows in enumerate(row_counts)]
    workspace.check()
    merged = [result.tolist() for result in results]
    workspace.close()
    return merged


def names(graph: Graph) -> list[str]:
    """What a graph launches."""
    return [work.kernel if isinstance(work, Launch) else work.name for work in graph.work]


# -- results -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discipline", DISCIPLINES)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("world_size", [2, 3])
def test_a_sequence_of_merges_with_and_without_owners_gives_the_same_ids(world_size, schedule, discipline):
    rows = (4, 1, 3, 0, 3)
    fields = {"discipline": discipline, "preset": "torch"}
    sharded = run_ranks(lambda fabric: merge_all(fabric, rows, **fields), world_size, schedule)
    direct = run_ranks(lambda fabric: merge_all(fabric, rows, owner_rows=0, **fields), world_size)
    assert sharded == direct


@pytest.mark.parametrize("contract", ["order", "set"])
@pytest.mark.parametrize(("world_size", "rows"), [(4, 1), (4, 2), (4, 5), (3, 4), (2, 3)])
def test_rows_need_not_divide_among_the_ranks(world_size, rows, contract):
    fields = {"contract": contract, "max_rows": rows}
    sharded = run_ranks(lambda fabric: merge_all(fabric, [rows] * 2, owner_rows=1, **fields), world_size, "random:5")
    direct = run_ranks(lambda fabric: merge_all(fabric, [rows] * 2, owner_rows=0, **fields), world_size)
    assert sharded == direct


@pytest.mark.parametrize("owner_rows", [0, 1])
def test_other_transports_and_one_rank_have_no_owners(owner_rows):
    def host(fabric: SimulatedFabric) -> list[Any]:
        return merge_all(
            fabric, [4], owner_rows=owner_rows, transport="all-gather" if fabric.world_size > 1 else "auto"
        )

    for world_size in (1, 2):
        expected = run_ranks(lambda fabric: merge_all(fabric, [4], owner_rows=0), world_size)
        assert run_ranks(host, world_size) == expected


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_graphs_of_both_kinds_are_replayed_in_turn(discipline):
    order = (3, 1, 3, 3, 1, 3)

    def host(fabric: SimulatedFabric) -> list[Any]:
        workspace, graphs = create(fabric, discipline=discipline), {}
        for rows in (1, 3):
            given = [fabric.upload(part, f"input{rows}") for part in inputs(fabric.rank, rows)]
            with fabric.capture() as graph:
                graphs[rows] = given, merge_topk(workspace, *given), graph
        merged = []
        for epoch, rows in enumerate(order):
            given, output, graph = graphs[rows]
            for part, fresh in zip(given, inputs(fabric.rank, rows, epoch), strict=True):
                fabric.write(part, fresh)
            fabric.replay(graph)
            fabric.synchronize()
            merged.append(output.tolist())
        workspace.check()
        return merged

    expected = run_ranks(lambda fabric: merge_all(fabric, order, owner_rows=0), 2)
    assert run_ranks(host, 2, "random:2") == expected


def test_an_output_may_be_the_local_indices_with_any_distance_between_rows():
    def host(fabric: SimulatedFabric) -> list[Any]:
        workspace = create(fabric, k=2)
        scores, indices = inputs(fabric.rank, 4)
        wide = torch.full((4, 8), -9, dtype=torch.int32)
        wide[:, :2] = indices
        merge_topk(workspace, scores, wide[:, :2], out=wide[:, :2])
        workspace.check()
        assert (wide[:, 2:] == -9).all()
        return [wide[:, :2].tolist()]

    assert run_ranks(host, 2) == run_ranks(lambda fabric: merge_all(fabric, [4], k=2, owner_rows=0), 2)


# -- what is launched, and where it goes ---------------------------------------------------------------------------


def test_the_number_of_rows_decides_what_is_launched():
    def host(fabric: SimulatedFabric) -> list[list[str]]:
        workspace, launched = create(fabric), []
        for rows in (2, 3):
            with fabric.capture() as graph:
                merge_topk(workspace, *inputs(fabric.rank, rows))
            launched.append(names(graph))
        return launched

    direct = ["pack", "push", "publish", "wait", "select", "complete"]
    start, end = (
        ["pack", "push_to_owners", "publish", "wait"],
        ["publish_returned", "wait_returned", "collect", "complete"],
    )
    owning, idle = [*start, "select", "return_ids", *end], [*start, *end]
    assert run_ranks(host, 2) == [[direct, owning]] * 2
    assert run_ranks(host, 4) == [[direct, owning]] * 3 + [[direct, idle]]


def test_the_inbox_has_room_for_a_share_of_many_rows_only():
    assert [rows_per_owner(rows, 4) for rows in (0, 1, 4, 5, 8, 9)] == [0, 1, 1, 2, 2, 3]

    def host(fabric: SimulatedFabric) -> list[tuple[int, int]]:
        layouts = [create(fabric, max_rows=64, owner_rows=rows).layout for rows in (0, 1, 40, 64, 65)]
        return [(layout.inbox_rows, layout.returned_rows) for layout in layouts]

    assert run_ranks(host, 4) == [[(64, 0), (16, 64), (39, 64), (63, 64), (64, 0)]] * 4


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discipline", DISCIPLINES)
@pytest.mark.parametrize("lost", ["publish_returned", "publish"])
def test_an_owner_that_stops_half_way_is_named_and_no_id_is_returned(lost, discipline):
    flag = {"publish_returned": "returned", "publish": "published"}[lost]

    def host(fabric: SimulatedFabric) -> None:
        workspace = create(fabric, discipline=discipline)
        merge_topk(workspace, *inputs(fabric.rank, 4))
        with fabric.capture() as graph:
            output = merge_topk(workspace, *inputs(fabric.rank, 4))
        if fabric.rank == 1:
            del graph.work[names(graph).index(lost) :]
        fabric.replay(graph)
        if fabric.rank == 1:
            workspace.check()
            return
        with pytest.raises(PeerTimeoutError, match=f"'{flag}'") as caught:
            workspace.check()
        assert (caught.value.peer, caught.value.epoch, caught.value.flag) == (1, 2, flag)
        assert (output == -1).all()

    run_ranks(host, 3, settings=BOUNDED)


def test_a_rank_that_waited_in_vain_returns_nothing_to_its_peers():
    """Rank 2 leaves out the merge; the others give up at ``published``, return no ids and stay as they are."""

    def host(fabric: SimulatedFabric) -> None:
        workspace = create(fabric)
        before = workspace.layout.returned_words(workspace.buffer.local).clone()
        if fabric.rank < 2:
            output = merge_topk(workspace, *inputs(fabric.rank, 5))
            with pytest.raises(PeerTimeoutError, match="rank 2"):
                workspace.check()
            assert (output == -1).all()
        fabric.gather_objects(None)
        foreign = [row for row in range(5) if row // 2 != fabric.rank]
        after = workspace.layout.returned_words(workspace.buffer.local)
        assert torch.equal(after.view(5, 3)[foreign], before.view(5, 3)[foreign])
        returned = workspace.layout.array(workspace.buffer.local, workspace.layout.returned)
        assert returned[: fabric.world_size].tolist() == [0, 0, 0]

    run_ranks(host, 3, settings=BOUNDED)


@pytest.mark.parametrize("discipline", DISCIPLINES)
@pytest.mark.parametrize("rows", [(2, 3), (5, 1), (3, 5), (0, 4)])
def test_other_numbers_of_rows_are_an_error_also_across_the_threshold(rows, discipline):
    def host(fabric: SimulatedFabric) -> None:
        workspace, peer = create(fabric, discipline=discipline), 1 - fabric.rank
        merge_topk(workspace, *inputs(fabric.rank, 5))
        output = merge_topk(workspace, *inputs(fabric.rank, rows[fabric.rank]))
        with pytest.raises(RowMismatchError, match=f"{rows[peer]} rows in exchange 2"):
            workspace.check()
        assert (output == -1).all()

    run_ranks(host, 2, "random:1")
