"""Host side of merges in one launch: what they are launched with, and which are built ahead of time."""

from __future__ import annotations

import ast
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tiebreak.impl
from tiebreak.impl import fused
from tiebreak.impl.geometry import Geometry
from tiebreak.impl.kernel_binary import SHARED_LIMIT
from tiebreak.impl.kernel_recipes import list_recipes, list_representatives, standard_merges, standard_specializations
from tiebreak.impl.layout import BufferLayout
from tiebreak.impl.specialization import SelectorSpecialization

FORMATS = {"Int64": "q", "Int32": "i"}
MULTIPROCESSORS, STREAM = 4, 0x5000
WORLD_SIZE, RANK, LENGTH, K, WIDTH, MAX_POLLS = 4, 3, 6, 9, 50, 12_345


def read_parameters() -> dict[str, str]:
    """Return the kernel's parameters and their types by name, as its source has them: importing it needs CuTeDSL."""
    tree = ast.parse(Path(*tiebreak.impl.__path__, "cutedsl", "merge.py").read_text(encoding="utf-8"))
    assigned = {ast.unparse(node.target): node.value for node in tree.body if isinstance(node, ast.AnnAssign)}
    pairs = [pair.elts for pair in assigned["PARAMETERS"].elts]
    return {name.value: FORMATS[kind.id] for name, kind in pairs}


def make_workspace(rows: int, contract: Any) -> Any:
    layout = BufferLayout(WORLD_SIZE, rows, LENGTH, slots=2, returned_rows=0, packet_rows=rows, k=K)
    geometry = Geometry(max_rows=rows, local_candidates=LENGTH, k=K, interleave=5, preset="torch", contract=contract)
    fabric = SimpleNamespace(device=torch.device("cuda", 1), rank=RANK, world_size=WORLD_SIZE)
    buffer = SimpleNamespace(
        local=torch.empty(64, dtype=torch.uint8), peer_addresses=torch.empty(WORLD_SIZE, dtype=torch.int64)
    )
    state = torch.empty(8, dtype=torch.int64)
    return SimpleNamespace(
        fabric=fabric, geometry=geometry, layout=layout, buffer=buffer, state=state, max_polls=MAX_POLLS
    )


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """Launches on a GPU that keeps them instead."""
    kept: list[SimpleNamespace] = []

    def obtain(specialization: SelectorSpecialization, index: int) -> Any:
        def launch(grid: tuple[int, int, int], threads: int, arguments: tuple[int, ...], **options: Any) -> None:
            assert (index, threads, options["stream"]) == (1, specialization.threads, STREAM)
            kept.append(SimpleNamespace(specialization=specialization, grid=grid, arguments=arguments))

        return SimpleNamespace(launch=launch)

    monkeypatch.setattr(fused, "obtain_merge", obtain)
    monkeypatch.setattr(fused, "count_multiprocessors", lambda index: MULTIPROCESSORS)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=STREAM))
    return kept


@pytest.mark.parametrize("contract", ["order", "set"])
@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize("rows", [0, 1, MULTIPROCESSORS - 1, MULTIPROCESSORS])
def test_a_merge_is_launched_with_the_parameters_of_its_kernel(
    launches: list[SimpleNamespace], rows: int, starts: bool, contract: str
) -> None:
    workspace = make_workspace(max(rows, 1), contract)
    scores = torch.empty(rows, WIDTH + 3)[:, :WIDTH]
    indices = torch.empty(rows, LENGTH + 1, dtype=torch.int32)[:, :LENGTH]
    out = torch.empty(rows, K + 2, dtype=torch.int32)[:, :K]
    row_starts = torch.empty(rows, dtype=torch.int32) if starts else None
    fused.merge_fused(workspace, scores, indices, row_starts, out)
    (launch,) = launches
    layout = workspace.layout
    expected = {
        "scores": scores.data_ptr(),
        "local_indices": indices.data_ptr(),
        "row_starts": 0 if row_starts is None else row_starts.data_ptr(),
        "peers": workspace.buffer.peer_addresses.data_ptr(),
        "buffer": workspace.buffer.local.data_ptr(),
        "state": workspace.state.data_ptr(),
        "output": out.data_ptr(),
        "scores_stride": WIDTH + 3,
        "indices_stride": LENGTH + 1,
        "output_stride": K + 2,
        "slot_bytes": 8 * max(rows, 1) * WORLD_SIZE * LENGTH,
        "max_polls": MAX_POLLS,
        "packets": layout.packets,
        "uses": layout.uses,
        "arrived": layout.arrived,
        "arrived_rows": layout.arrived_rows,
        "rows": rows,
        "width": WIDTH,
        "local_candidates": LENGTH,
        "world_size": WORLD_SIZE,
        "rank": RANK,
        "interleave": 5,
        "k": K,
    }
    parameters = read_parameters()
    assert dict(zip(parameters, launch.arguments, strict=True)) == expected
    struct.pack("".join(parameters.values()), *launch.arguments)
    assert launch.grid == (rows + 1, 1, 1), "a CTA for each row, and one that meets the peers"
    chosen = launch.specialization
    assert chosen == fused.merge_specialization(workspace.geometry, WORLD_SIZE, rows + 1, MULTIPROCESSORS)
    assert chosen.capacity >= WORLD_SIZE * LENGTH
    assert (chosen.contract, chosen.paired, chosen.minimum_ctas > 1) == (contract, True, rows >= MULTIPROCESSORS)


def test_parameters_are_those_that_compiled_kernels_are_held_to() -> None:
    assert "".join(read_parameters().values()) == "q" * 16 + "i" * 7, "test_codegen holds compiled kernels to the same"


# -- kernels built ahead of time -------------------------------------------------------------------------------------


def merge(world_size: int, length: int, rows: int, **others: Any) -> SelectorSpecialization:
    geometry = Geometry(max_rows=rows, local_candidates=length, **{"k": length, **others})
    return fused.merge_specialization(geometry, world_size, rows, 132)


@pytest.mark.parametrize("contract", ["order", "set"])
@pytest.mark.parametrize("rows", [16, 132, 133, 256])
@pytest.mark.parametrize("length", [512, 1024, 2048])
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_usual_merges_need_no_compiler(world_size: int, length: int, rows: int, contract: str) -> None:
    assert merge(world_size, length, rows, contract=contract) in standard_merges()


def test_other_merges_are_compiled_at_their_first_use() -> None:
    for other in (merge(2, 2048, 16, preset="torch"), merge(2, 2047, 16), merge(2, 2048, 16, k=4096)):
        assert other not in standard_merges()


def test_standard_merges_are_few_distinct_and_fit_every_target() -> None:
    standard = standard_merges()
    assert len(standard) == len(set(standard)) <= 30
    assert not any(each.streamed for each in standard)
    assert max(each.shared_bytes for each in standard) <= SHARED_LIMIT
    names = [recipe.name for recipe in list_recipes("sm_90a")]
    assert len(names) == len(set(names)) == len(standard) + len(standard_specializations())
    assert {f"merge-{each.name}" for each in standard} <= set(names)


def test_two_merges_represent_them() -> None:
    found = [recipe for recipe in list_representatives("sm_121a") if recipe.name.startswith("merge-")]
    standard = {f"merge-{each.name}": each for each in standard_merges()}
    assert {standard[recipe.name].contract for recipe in found} == {"order", "set"}
    assert {standard[recipe.name].minimum_ctas > 1 for recipe in found} == {True, False}
    assert [recipe.dynamic_shared_bytes for recipe in found] == [standard[recipe.name].shared_bytes for recipe in found]
