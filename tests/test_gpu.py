"""Merges that take a real GPU: public sizes, many replays, ranks held back, graphs of several shapes in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tiebreak.backends import Backend
from tiebreak.verify.case import KINDS
from tiebreak.verify.command import require_clean
from tiebreak.verify.families import base_scenario

pytestmark = [pytest.mark.gpu, pytest.mark.transports("alternating", "acknowledged", "all-gather")]

PUBLIC = {"rows": 16, "k": 2048, "local": 2048, "length": 9000}
MERGES: list[dict[str, Any]] = [
    {**PUBLIC, "kind": "captured", "epochs": 2},
    {**PUBLIC, "kind": "random", "epochs": 3, "mode": "graph", "skew": 200},
    {"rows": 64, "k": 512, "local": 512, "length": 4096, "kind": "plateau", "epochs": 3, "interleave": 64},
    {"rows": 60, "k": 512, "local": 512, "length": 3000, "epochs": 4, "owner_rows": 59, "row_counts": 3, "skew": 100},
    {"rows": 3, "k": 16, "local": 16, "length": 8, "kind": "equal", "interleave": 2**24},
    {"rows": 5, "k": 7, "local": 7, "length": 40, "kind": "special", "epochs": 24, "skew": 300},
    {"rows": 5, "k": 7, "local": 7, "length": 40, "epochs": 64, "row_counts": 5, "skew": 300},
    {"rows": 5, "k": 7, "local": 7, "length": 40, "epochs": 65, "row_counts": 5, "mode": "graph", "skew": 300},
    {"rows": 3, "epochs": 300, "row_counts": 4, "mode": "graph"},
    {"rows": 2, "epochs": 301, "mode": "graph", "starts": True},
]

FUSED: list[dict[str, Any]] = [
    {**PUBLIC, "kind": "captured", "epochs": 2, "launches": "fused", "contract": "set"},
    {**PUBLIC, "kind": "plateau", "epochs": 3, "launches": "separate", "mode": "graph", "skew": 200},
    {"rows": 24, "k": 512, "local": 511, "length": 3000, "epochs": 3, "launches": "fused", "starts": True},
    {"rows": 5, "k": 7, "local": 7, "length": 40, "epochs": 64, "row_counts": 6, "launches": "fused", "skew": 300},
    {"rows": 3, "epochs": 300, "row_counts": 4, "launches": "fused", "mode": "graph", "epoch": 2**63 - 150},
    {"rows": 6, "epochs": 60, "row_counts": 7, "owner_rows": 4, "launches": "fused", "mode": "graph", "skew": 100},
    {"rows": 6, "epochs": 60, "row_counts": 7, "owner_rows": 4, "launches": "separate", "mode": "graph", "skew": 100},
]
"""Merges in one launch, alone and in turn with owner-sharded ones, and the same sizes in separate launches."""

ROOM: list[dict[str, Any]] = [
    {"rows": rows, "row_counts": rows // 5, "length": 24, "epochs": 8, "owner_rows": 0, "launches": "fused"}
    for rows in (1200, 2350)
]
"""Numbers of rows around those that 132 multiprocessors merge at once, for two ranks of a device and for one."""


@pytest.mark.parametrize("fields", MERGES, ids=lambda fields: "-".join(map(str, fields.values())))
def test_merges_of_public_sizes_and_many_epochs(backend: Backend, world_size: int, fields: dict[str, Any]) -> None:
    require_clean(backend, base_scenario(backend.name, ranks=world_size, **fields), "default")


@pytest.mark.transports("alternating")
@pytest.mark.parametrize("fields", FUSED + ROOM, ids=lambda fields: "-".join(map(str, fields.values())))
def test_merges_in_one_launch_and_in_several(backend: Backend, world_size: int, fields: dict[str, Any]) -> None:
    require_clean(backend, base_scenario(backend.name, ranks=world_size, transport="symmetric", **fields), "default")


@pytest.mark.transports("alternating")
@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("fault", ["fewer-rows", "dead", "one-fewer"])
@pytest.mark.parametrize("launches", ["fused", "separate"])
def test_merges_that_go_wrong_end_in_the_same_errors(backend: Backend, launches: str, fault: str, mode: str) -> None:
    scenario = base_scenario(backend.name, rows=3, epochs=3, launches=launches, fault=fault, mode=mode)
    require_clean(backend, scenario, "default")


@pytest.mark.parametrize("epoch", [0, 2**63 - 5000])
def test_ten_thousand_replays_with_fresh_data(backend: Backend, epoch: int) -> None:
    scenario = base_scenario(backend.name, mode="graph", epochs=10_000, rows=2, row_counts=2, epoch=epoch)
    require_clean(backend, scenario, "default")


@pytest.mark.transports("alternating")
@pytest.mark.parametrize("contract", ["order", "set"])
@pytest.mark.parametrize("kind", ["plateau", "equal", "special", "random"])
@pytest.mark.parametrize("count", [1024, 4096, 5001, 20_000])
def test_ids_of_a_row_do_not_depend_on_the_batch(backend: Backend, count: int, kind: str, contract: str) -> None:
    random = np.random.default_rng(7)
    scores = KINDS[kind](random, (300, count)).view(np.int32)
    identities = np.stack([random.permutation(count) for _ in scores]).astype(np.int32)
    gathered = np.stack([scores, identities], axis=2)
    whole = backend.select(gathered, 512, "ieee", "row-major", contract)
    for rows in (slice(0, 1), slice(299, 300), slice(7, 24), slice(100, 240)):
        assert np.array_equal(backend.select(gathered[rows], 512, "ieee", "row-major", contract), whole[rows])
