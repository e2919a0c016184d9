"""Merges that take a real GPU: public sizes, many replays, ranks held back, graphs of several shapes in turn."""

from __future__ import annotations

from typing import Any

import pytest

from tiebreak.backends import Backend
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


@pytest.mark.parametrize("fields", MERGES, ids=lambda fields: "-".join(map(str, fields.values())))
def test_merges_of_public_sizes_and_many_epochs(backend: Backend, world_size: int, fields: dict[str, Any]) -> None:
    require_clean(backend, base_scenario(backend.name, ranks=world_size, **fields), "default")


@pytest.mark.parametrize("epoch", [0, 2**63 - 5000])
def test_ten_thousand_replays_with_fresh_data(backend: Backend, epoch: int) -> None:
    scenario = base_scenario(backend.name, mode="graph", epochs=10_000, rows=2, row_counts=2, epoch=epoch)
    require_clean(backend, scenario, "default")
