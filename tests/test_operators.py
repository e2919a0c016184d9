"""Operators of ``torch.ops.tiebreak``: schemas, fake implementations, and whole graphs, on the CPU."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from tiebreak.errors import InputError, WorkspaceError
from tiebreak.impl import localisation, merge, select
from tiebreak.impl.geometry import Geometry
from tiebreak.impl.merge_operators import WorkspaceHandle, find_workspace, register_workspace
from tiebreak.impl.workspace import Workspace
from tiebreak.mutants.catalogue import MUTANTS
from tiebreak.sim.fabric import SimulatedFabric, run_ranks
from tiebreak.spec import packing
from tiebreak.verify.checks import compare_selection, draw_gathered
from tiebreak.verify.mutation import mutated_backend

OPERATORS = torch.ops.tiebreak
LOCAL, K = 5, 3


class LoneFabric:
    """One rank on the CPU, without symmetric memory."""

    rank, world_size, device = 0, 1, torch.device("cpu")

    def gather_objects(self, value: Any) -> list[Any]:
        return [value]

    def synchronize(self) -> None:
        """Interpreted kernels have finished when their launch returns."""


@pytest.fixture(autouse=True)
def _fresh_graphs() -> None:
    torch._dynamo.reset()


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with Workspace.create(LoneFabric(), Geometry(max_rows=8, local_candidates=LOCAL, k=K)) as opened:
        yield opened


def gathered(rows: int, seed: int = 0) -> torch.Tensor:
    """Packed candidates of two ranks, [2, rows, LOCAL, 2]."""
    return torch.from_numpy(draw_gathered(np.random.default_rng(seed), "ties", 2, rows, LOCAL))


def local_choice(rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and local indices of one rank."""
    random = np.random.default_rng(seed)
    scores = random.integers(0, 3, (rows, 2 * LOCAL)).astype(np.float32)
    indices = np.argsort(random.random((rows, 2 * LOCAL)), axis=1)[:, :LOCAL]
    return torch.from_numpy(scores), torch.from_numpy(indices.astype(np.int32))


def global_ids(rows: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(rows).integers(-1, 40, (rows, 7)).astype(np.int32))


def block_table(rows: int) -> dict[str, Any]:
    """A table of 3 requests that hold every local position."""
    blocks = torch.arange(36, dtype=torch.int32).reshape(3, 12)
    return {"blocks": blocks, "block_size": 2, "block_stride": 4, "requests": torch.arange(rows, dtype=torch.int32) % 3}


def matrix(rows: int, columns: int) -> torch.Tensor:
    return torch.full((rows, columns), -7, dtype=torch.int32)


def peers(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The buffers of two ranks, which the caller keeps, and their addresses."""
    parts = gathered(rows)
    return parts, torch.tensor([part.data_ptr() for part in parts])


def samples(rows: int) -> dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    """Arguments of every operator of a stateless function."""
    ranks = gathered(rows)
    ordered, table = torch.from_numpy(packing.gather_row_major(list(ranks.numpy()))), block_table(rows)
    return {
        "select_candidates": [
            ((ordered, K), {}),
            ((ranks, 2 * LOCAL + 1, "torch", "rank-major", "set", "triton"), {}),
        ],
        "select_candidates_out": [
            ((ordered, matrix(rows, K)), {}),
            ((ranks, matrix(rows, K), "vllm-cutedsl"), {"layout": "rank-major"}),
        ],
        "localise": [((global_ids(rows), 1, 2), {}), ((global_ids(rows), 0, 2, 4), table)],
        "localise_out": [
            ((global_ids(rows), matrix(rows, 7), 1, 2), {}),
            ((global_ids(rows), matrix(rows, 7), 0, 2, 4), table),
        ],
    }


def check(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any] | None = None) -> None:
    torch.library.opcheck(getattr(OPERATORS, name).default, arguments, keywords or {})


# -- schemas and fake implementations ------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 4])
@pytest.mark.parametrize("name", samples(0))
def test_operator_passes_opcheck(name: str, rows: int) -> None:
    for arguments, keywords in samples(rows)[name]:
        check(name, arguments, keywords)


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_peer_operators_pass_opcheck(rows: int) -> None:
    parts, addresses = peers(rows)
    check("select_peer_candidates", (addresses, rows, LOCAL, K))
    check("select_peer_candidates_out", (addresses, LOCAL, matrix(rows, K), "torch", "set", "triton"))
    assert parts.shape[1] == rows


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_merge_operators_pass_opcheck(workspace: Workspace, rows: int) -> None:
    handle = register_workspace(workspace, "opcheck")
    starts = torch.zeros(rows, dtype=torch.int32)
    check("merge_topk", (handle.token, *local_choice(rows), None, handle.name))
    check("merge_topk_out", (handle.token, *local_choice(rows), starts, matrix(rows, K), handle.name))


def refused(name: str, *arguments: Any, **keywords: Any) -> str:
    """Require the same InputError from an operator and from its fake implementation."""
    operator = getattr(OPERATORS, name)
    with pytest.raises(InputError) as caught:
        operator(*arguments, **keywords)
    with FakeTensorMode() as mode:
        faked, named = tree_map_only(torch.Tensor, mode.from_tensor, (arguments, keywords))
        with pytest.raises(InputError) as traced:
            operator(*faked, **named)
    assert (traced.value.what, traced.value.limit) == (caught.value.what, caught.value.limit)
    return caught.value.what


def test_misuse_is_refused_when_traced_as_when_run(workspace: Workspace) -> None:
    pairs, ids, handle = gathered(2), global_ids(2), register_workspace(workspace, "misuse")
    assert refused("select_candidates", pairs[0].float(), K) == "dtype of candidates"
    assert refused("select_candidates", pairs, K) == "shape of candidates"
    assert refused("select_candidates", pairs[:, :1], K, layout="rank-major") == "candidates"
    assert refused("select_candidates", pairs[0], 0) == "k"
    assert refused("select_candidates", pairs[0], K, "best") == "preset"
    assert refused("select_candidates", pairs[0], K, layout="column-major") == "layout"
    assert refused("select_candidates", pairs[0], K, contract="bag") == "contract"
    assert refused("select_candidates", pairs[0], K, implementation="cub") == "implementation"
    assert refused("select_candidates_out", pairs[0], matrix(2, K), implementation="cub") == "implementation"
    assert refused("select_candidates_out", pairs[0], matrix(3, K)) == "shape of out"
    assert refused("select_candidates_out", pairs[0], matrix(1, K)[0]) == "shape of out"
    assert refused("select_peer_candidates", ids, 2, LOCAL, K) == "dtype of addresses"
    assert refused("select_peer_candidates", torch.zeros(2, dtype=torch.int64), -1, LOCAL, K) == "rows"
    assert refused(
        "select_peer_candidates", torch.zeros(2, dtype=torch.int64), 2, LOCAL, K, "ieee", "order", "cub"
    ) == ("implementation")
    assert refused("select_peer_candidates_out", torch.zeros(2, dtype=torch.int64), LOCAL, ids.long()) == "dtype of out"
    assert refused("localise", ids, 2, 2) == "rank"
    assert refused("localise", ids, 0, 2, blocks=ids) == "block table"
    assert refused("localise", ids, 0, 2, block_stride=4) == "block table"
    assert refused("localise", ids, 0, 2, blocks=ids, block_size=4, block_stride=2) == "block_stride"
    assert refused("localise_out", ids, matrix(2, 6), 0, 2) == "shape of out"
    scores, indices = local_choice(2)
    assert refused("merge_topk", handle.token, scores.double(), indices, None, handle.name) == "dtype of scores"
    assert refused("merge_topk", handle.token, scores, indices[:, 1:], None, handle.name) == "shape of local_indices"
    assert refused("merge_topk", handle.token, *local_choice(9), None, handle.name) == "rows"
    out = matrix(2, K + 1)
    assert refused("merge_topk_out", handle.token, scores, indices, None, out, handle.name) == "shape of out"


# -- whole graphs --------------------------------------------------------------------------------------------------


def pipeline(handle: WorkspaceHandle, scores: torch.Tensor, indices: torch.Tensor, table: torch.Tensor) -> Any:
    """Merge, keep the ids of rank 0 of 2, and select from the packed scores besides."""
    ids = OPERATORS.merge_topk(handle.token, scores * 2, indices, None, handle.name)
    slots, counts = OPERATORS.localise(ids, 0, 2, 1, table, 4)
    pairs = torch.stack([(scores + 1).view(torch.int32), torch.ones_like(scores, dtype=torch.int32)], dim=-1)
    return ids, slots, counts + 1, OPERATORS.select_candidates(pairs, K)


def pipeline_eagerly(workspace: Workspace, scores: torch.Tensor, indices: torch.Tensor, table: torch.Tensor) -> Any:
    """The same with the public functions."""
    ids = merge.merge_topk(workspace, scores * 2, indices)
    slots, counts = localisation.localise(ids, 0, 2, table=localisation.BlockTable(table, 4))
    pairs = torch.stack([(scores + 1).view(torch.int32), torch.ones_like(scores, dtype=torch.int32)], dim=-1)
    return ids, slots, counts + 1, select.select_candidates(pairs, K)


def test_a_whole_graph_equals_the_eager_functions_at_every_number_of_rows(workspace: Workspace) -> None:
    handle, counter = register_workspace(workspace, "pipeline"), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(pipeline, backend=counter, fullgraph=True, dynamic=True)
    for rows in (4, 2, 8, 3, 6):
        scores, indices = local_choice(rows, seed=rows)
        table = torch.arange(rows * 3, dtype=torch.int32).reshape(rows, 3)
        results = compiled(handle, scores, indices, table)
        for result, expected in zip(results, pipeline_eagerly(workspace, scores, indices, table), strict=True):
            assert torch.equal(result, expected)
    assert counter.frame_count == 1
    workspace.check()


def test_no_rows_pass_through_a_whole_graph(workspace: Workspace) -> None:
    handle = register_workspace(workspace, "no rows")
    compiled = torch.compile(pipeline, backend="aot_eager", fullgraph=True)
    ids, slots, counts, best = compiled(handle, *local_choice(0), matrix(0, 3))
    assert (ids.shape, slots.shape, counts.shape, best.shape) == ((0, K), (0, K), (0,), (0, K))


@pytest.mark.parametrize("layout", ["row-major", "rank-major", "peers"])
def test_a_compiled_selection_equals_the_specification(layout: str) -> None:
    def choose(candidates: torch.Tensor, out: torch.Tensor, addresses: torch.Tensor) -> torch.Tensor:
        if layout == "peers":
            OPERATORS.select_peer_candidates_out(addresses, LOCAL, out)
            return OPERATORS.select_peer_candidates(addresses, out.shape[0], LOCAL, K)
        OPERATORS.select_candidates_out(candidates, out, "ieee", layout)
        return OPERATORS.select_candidates(candidates, K, "ieee", layout)

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(choose, backend=counter, fullgraph=True, dynamic=True)
    for rows in (3, 5, 2):
        parts, addresses = peers(rows)
        ordered = torch.from_numpy(packing.gather_row_major(list(parts.numpy())))
        out = matrix(rows, 2 * LOCAL)
        result = compiled(ordered if layout == "row-major" else parts, out, addresses)
        assert compare_selection(parts.numpy(), K, "ieee", result.numpy()) == ""
        assert compare_selection(parts.numpy(), 2 * LOCAL, "ieee", out.numpy()) == ""
    assert counter.frame_count == 1


@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_no_merge_is_dropped_joined_or_moved(workspace: Workspace, compiler: str) -> None:
    """Equal merges, one of whose results nobody uses, all run, and an output buffer is written.

    Inductor needs no C++ compiler for a graph of operators alone.
    """
    handle = register_workspace(workspace, "ordered")

    def merge_thrice(scores: torch.Tensor, indices: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        OPERATORS.merge_topk(handle.token, scores, indices, None, handle.name)
        OPERATORS.merge_topk_out(handle.token, scores, indices, None, out, handle.name)
        return OPERATORS.merge_topk(handle.token, scores, indices, None, handle.name)

    seen: list[str] = []
    launched = merge.merge_topk

    def record(*arguments: Any, **keywords: Any) -> torch.Tensor:
        seen.append("new" if keywords.get("out") is None else "out")
        return launched(*arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "merge_topk", record)
        scores, indices = local_choice(2)
        out, expected = matrix(2, K), launched(workspace, *local_choice(2))
        result = torch.compile(merge_thrice, backend=compiler, fullgraph=True)(scores, indices, out)
    assert seen == ["new", "out", "new"]
    assert torch.equal(result, expected) and torch.equal(out, expected)


def test_simulated_ranks_merge_through_operators() -> None:
    def host(fabric: SimulatedFabric) -> tuple[list[Any], list[Any]]:
        workspace = Workspace.create(fabric, Geometry(max_rows=2, local_candidates=2, k=2))
        handle = register_workspace(workspace, f"rank {fabric.rank}")
        scores, indices = torch.full((2, 4), float(fabric.rank)), torch.tensor([[0, 1]] * 2, dtype=torch.int32)
        merged = OPERATORS.merge_topk(handle.token, scores, indices, None, handle.name)
        expected = merge.merge_topk(workspace, scores, indices)
        workspace.check()
        workspace.close()
        return merged.tolist(), expected.tolist()

    assert run_ranks(host, 2, "random:1") == [([[1, 3]] * 2, [[1, 3]] * 2)] * 2


# -- names of workspaces -------------------------------------------------------------------------------------------


def run_by_name(name: str) -> None:
    OPERATORS.merge_topk(torch.zeros(1, dtype=torch.int32), *local_choice(2), None, name)


def assert_named(call: Callable[[], Any], name: str, state: str) -> None:
    with pytest.raises(WorkspaceError, match=name) as caught:
        call()
    assert caught.value.value == state


def test_an_unknown_closed_failed_or_dropped_workspace_is_named() -> None:
    assert_named(lambda: run_by_name("nobody"), "nobody", "unknown")
    workspace = Workspace.create(LoneFabric(), Geometry(max_rows=8, local_candidates=LOCAL, k=K))
    register_workspace(workspace, "brief")
    run_by_name("brief")
    scores, indices = local_choice(1)
    merge.merge_topk(workspace, scores, indices + 99)
    with pytest.raises(InputError):
        workspace.check()
    assert_named(lambda: run_by_name("brief"), "brief", "failed")
    workspace.close()
    assert_named(lambda: run_by_name("brief"), "brief", "closed")
    with pytest.raises(WorkspaceError, match="closed"):
        register_workspace(workspace, "again")
    del workspace
    gc.collect()
    assert_named(lambda: run_by_name("brief"), "brief", "unknown")


def test_a_name_belongs_to_one_open_workspace(workspace: Workspace) -> None:
    register_workspace(workspace, "taken")
    register_workspace(workspace, "taken")
    other = Workspace.create(LoneFabric(), Geometry(max_rows=8, local_candidates=LOCAL, k=K))
    assert_named(lambda: register_workspace(other, "taken"), "taken", "open")
    workspace.close()
    register_workspace(other, "taken")
    assert find_workspace("taken") is other


def test_a_copy_of_the_package_leaves_these_operators_alone() -> None:
    before = OPERATORS.select_candidates.default
    mutated_backend(MUTANTS["tie-to-highest-id"])
    parts = gathered(2)
    ids = OPERATORS.select_candidates(parts, K, "ieee", "rank-major")
    assert OPERATORS.select_candidates.default is before
    assert compare_selection(parts.numpy(), K, "ieee", ids.numpy()) == ""
