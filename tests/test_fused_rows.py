"""Which merges are one launch: what one rank's device can, what all ranks agree on, and where a merge goes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tiebreak.errors import InputError, MissingBackendError, WorkspaceError
from tiebreak.impl import fused, merge
from tiebreak.impl.geometry import LARGEST_FUSED_ROWS, Geometry
from tiebreak.impl.specialization import SelectorSpecialization
from tiebreak.impl.workspace import Workspace
from tiebreak.sim.fabric import SimulatedFabric, run_ranks

MULTIPROCESSORS = 6
MEETING = 1
"""CTAs of a merge that have no row."""

THREADS = 2048
"""Threads that a multiprocessor holds at once; a small row takes 128."""


class Gpus:
    """Stand in for the devices of all ranks, whose host programs run on the CPU.

    Attributes:
        names: What tells the device of each rank apart.
        room: CTAs of a kernel that a multiprocessor of an index holds.
        kernels: What was obtained.
    """

    def __init__(self) -> None:
        self.names = "abcdef"
        self.room: Callable[[SelectorSpecialization, int], int] = lambda shape, index: THREADS // shape.threads
        self.kernels: list[SelectorSpecialization] = []

    def obtain(self, specialization: SelectorSpecialization, index: int) -> SelectorSpecialization:
        self.kernels.append(specialization)
        return specialization

    def count_ctas(self, kernel: SelectorSpecialization, threads: int, index: int) -> int:
        assert threads == kernel.threads
        return self.room(kernel, index) * MULTIPROCESSORS


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    gpus = Gpus()
    monkeypatch.setattr(fused, "obtain_merge", gpus.obtain)
    monkeypatch.setattr(fused, "count_resident_ctas", gpus.count_ctas)
    monkeypatch.setattr(fused, "count_multiprocessors", lambda index: MULTIPROCESSORS)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=gpus.names[device.index])
    )
    return gpus


def geometry(**fields: Any) -> Geometry:
    return Geometry(**{"max_rows": 300, "local_candidates": 8, "k": 8, **fields})


def count(symmetric: bool = True, world_size: int = 2, **fields: Any) -> int:
    fabric: Any = SimpleNamespace(device=torch.device("cuda", 0), world_size=world_size)
    return fused.count_own_ctas(fabric, geometry(**fields), symmetric=symmetric)


# -- one rank --------------------------------------------------------------------------------------------------------


def test_few_and_many_rows_have_kernels_of_their_own(gpus: Gpus) -> None:
    assert count(local_candidates=2048, k=2048) == MULTIPROCESSORS * THREADS // gpus.kernels[1].threads
    few, many = gpus.kernels
    assert (few.minimum_ctas, few.capacity >= 4096) == (1, True)
    assert (many.minimum_ctas > 1, many.capacity >= 4096) == (True, True)
    assert many.threads < few.threads


@pytest.mark.parametrize(
    ("few", "many", "ctas"),
    [
        (1, 4, 4 * MULTIPROCESSORS),
        (2, 1, MULTIPROCESSORS),
        (0, 4, 0),
    ],
)
def test_room_is_that_of_the_kernel_that_a_merge_takes(gpus: Gpus, few: int, many: int, ctas: int) -> None:
    """Where even as many CTAs as multiprocessors do not fit, more never do."""
    gpus.room = lambda shape, index: many if shape.minimum_ctas > 1 else few
    assert count() == ctas


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"discipline": "acknowledged"}, "discipline"),
    ({"implementation": "triton"}, "Triton"),
    ({"local_candidates": 8193}, "streamed"),
    ({"symmetric": False}, "no symmetric memory"),
    ({"world_size": 129, "local_candidates": 1, "k": 1}, "a CTA of 128 threads"),
]


@pytest.mark.parametrize("fields", [fields for fields, _ in IMPOSSIBLE], ids=[name for _, name in IMPOSSIBLE])
def test_what_cannot_be_fused_is_separate_unless_it_must_be_fused(gpus: Gpus, fields: dict[str, Any]) -> None:
    assert count(**fields) == 0
    assert count(**fields, launches="separate") == 0
    with pytest.raises(InputError, match=r"launches is 'fused'.*choose 'auto' or 'separate'"):
        count(**fields, launches="fused")
    assert gpus.kernels == []


def test_separate_launches_need_no_kernel(gpus: Gpus) -> None:
    assert count(launches="separate") == 0
    assert gpus.kernels == []


def test_largest_row_that_registers_hold_is_fused(gpus: Gpus) -> None:
    assert count(local_candidates=8192, k=2048) > 0
    assert count(world_size=128, local_candidates=1, k=1) > 0


# -- all ranks -------------------------------------------------------------------------------------------------------


def agree(ranks: int, **fields: Any) -> list[int | str]:
    """What every rank agrees on, or the error that it raises."""

    def host(fabric: SimulatedFabric) -> int | str:
        fabric.device = torch.device("cuda", fabric.rank)
        try:
            return fused.agree_fused_rows(fabric, geometry(**fields), symmetric=True)
        except WorkspaceError as error:
            return str(error)

    return run_ranks(host, ranks)


def test_the_smallest_device_decides(gpus: Gpus) -> None:
    gpus.room = lambda shape, index: (9, 4, 7)[index]
    assert agree(3) == [4 * MULTIPROCESSORS - MEETING] * 3


@pytest.mark.parametrize(
    ("names", "ctas"),
    [("aaa", 16 * MULTIPROCESSORS // 3), ("aab", 16 * MULTIPROCESSORS // 2), ("abc", 16 * MULTIPROCESSORS)],
)
def test_ranks_of_one_device_share_its_room(gpus: Gpus, names: str, ctas: int) -> None:
    gpus.names = names
    assert agree(3) == [ctas - MEETING] * 3


def test_there_are_no_more_rows_than_packets(gpus: Gpus) -> None:
    assert agree(3, max_rows=20) == [20] * 3
    assert agree(3, owner_rows=9) == [8] * 3
    gpus.room = lambda shape, index: 1000
    assert agree(3, max_rows=4000) == [511] * 3
    assert agree(3, max_rows=4000, owner_rows=0) == [LARGEST_FUSED_ROWS] * 3


def test_room_for_the_meeting_alone_is_none_for_rows(gpus: Gpus) -> None:
    gpus.names, gpus.room = "aaaaaa", lambda shape, index: 1
    assert MULTIPROCESSORS // 3 > MEETING
    assert agree(3) == [MULTIPROCESSORS // 3 - MEETING] * 3
    assert agree(6) == [0] * 6


def test_a_crowded_device_decides_before_a_smaller_one_that_is_not(gpus: Gpus) -> None:
    gpus.names, gpus.room = "aab", lambda shape, index: (8, 8, 5)[index]
    assert agree(3) == [4 * MULTIPROCESSORS - MEETING] * 3


def test_a_rank_without_room_leaves_every_merge_separate(gpus: Gpus) -> None:
    gpus.room = lambda shape, index: 0 if index == 1 else 16
    assert agree(3) == [0] * 3
    errors = agree(3, launches="fused")
    assert len(set(errors)) == 1
    assert "rows merged in one launch is 0" in str(errors[0])


def test_a_rank_without_its_kernel_is_the_same_error_on_every_rank(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def obtain(specialization: SelectorSpecialization, index: int) -> SelectorSpecialization:
        if index == 2:
            raise MissingBackendError("kernel", limit="is not compiled", remedy="tiebreak build")
        return specialization

    monkeypatch.setattr(fused, "obtain_merge", obtain)
    errors = agree(3)
    assert len(set(errors)) == 1
    for part in ("fused launches failed on rank 2", "is not compiled", "choose launches 'separate' on every rank"):
        assert part in str(errors[0])
    assert agree(3, launches="separate") == [0] * 3


@pytest.mark.parametrize("fields", [{}, {"transport": "all-gather"}, {"discipline": "acknowledged"}])
def test_fused_launches_on_the_cpu_are_the_same_error_on_every_rank(fields: dict[str, Any]) -> None:
    def host(fabric: SimulatedFabric) -> str:
        with pytest.raises(WorkspaceError) as caught:
            Workspace.create(fabric, geometry(launches="fused", **fields))
        return str(caught.value)

    (message,) = set(run_ranks(host, 3))
    assert all(f"rank {rank} (InputError: launches is 'fused'" in message for rank in range(3))
    assert "choose launches 'separate' on every rank" in message


@pytest.mark.parametrize("launches", ["auto", "separate"])
def test_other_launches_on_the_cpu_are_separate(launches: str) -> None:
    def host(fabric: SimulatedFabric) -> int:
        with Workspace.create(fabric, geometry(launches=launches)) as workspace:
            return workspace.fused_rows

    assert run_ranks(host, 2) == [0, 0]


# -- one merge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fused_rows", "owner_rows", "ways"),
    [
        (2, 0, ["fused", "fused", "fused", "separate", "separate"]),
        (2, 4, ["fused", "fused", "fused", "separate", "by owner"]),
        (2, 1, ["fused", "by owner", "by owner", "by owner", "by owner"]),
        (9, 0, ["fused"] * 5),
        (0, 0, ["separate"] * 5),
    ],
)
def test_number_of_rows_says_where_a_merge_goes(
    monkeypatch: pytest.MonkeyPatch, fused_rows: int, owner_rows: int, ways: list[str]
) -> None:
    taken: list[str] = []
    for name, way in (("merge_fused", "fused"), ("exchange", "separate"), ("exchange_by_owner", "by owner")):
        monkeypatch.setattr(merge, name, lambda *_, way=way: taken.append(way))

    def host(fabric: SimulatedFabric) -> list[str]:
        with Workspace.create(fabric, geometry(max_rows=4, owner_rows=owner_rows)) as workspace:
            workspace.fused_rows = fused_rows
            taken.clear()
            for rows in range(5):
                indices = torch.zeros(rows, 8, dtype=torch.int32)
                out = merge.merge_topk(workspace, torch.zeros(rows, 20), indices)
                assert out.shape == (rows, 8)
            return list(taken)

    # No launch and no gather lies between the merges of a rank, so ranks do not mix.
    assert run_ranks(host, 2) == [ways] * 2


def test_other_routes_are_never_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    def host(fabric: SimulatedFabric) -> list[int]:
        with Workspace.create(fabric, geometry(transport="all-gather")) as workspace:
            workspace.fused_rows = 300
            scores = torch.arange(20.0).reshape(1, 20)
            return merge.merge_topk(workspace, scores, torch.arange(8, dtype=torch.int32).reshape(1, 8))[0].tolist()

    monkeypatch.setattr(merge, "merge_fused", None)
    assert len(set(map(tuple, run_ranks(host, 2)))) == 1
