"""From local candidates to local positions: merge, then localise on every rank, on every backend."""

from __future__ import annotations

import numpy as np
import pytest

from tiebreak.backends import Backend
from tiebreak.spec import packing
from tiebreak.spec.layout import Layout
from tiebreak.verify.case import draw_cases
from tiebreak.verify.checks import check_localise
from tiebreak.verify.families import Effort, base_scenario


@pytest.mark.parametrize("interleave", [1, 4])
def test_localised_merges_give_every_rank_its_own_tokens(backend: Backend, world_size: int, interleave: int) -> None:
    """The ranks' positions, put back, are the merged ids; each was in that rank's candidates."""
    scenario = base_scenario(backend.name, ranks=world_size, interleave=interleave, rows=3, length=23, epochs=1)
    (case,) = draw_cases(scenario)
    outcome = backend.run(scenario, "default")
    layout = Layout(world_size, interleave)
    together: list[set[int]] = [set() for _ in range(scenario.rows)]
    for rank in range(world_size):
        local, counts = backend.localise(outcome.outputs[rank][0], rank, world_size, interleave)
        for row in range(scenario.rows):
            own = local[row, : counts[row]]
            assert set(own.tolist()) <= set(case.local_indices[rank][row].tolist())
            assert (local[row, counts[row] :] == -1).all()
            together[row] |= set(np.asarray(layout.global_id(rank, own)).tolist())
    assert together == [set(row[row >= 0].tolist()) for row in case.expected]


def test_localisation_of_every_layout(backend: Backend) -> None:
    assert [trial.message for trial in check_localise(backend, Effort()) if trial.message] == []


def test_localisation_of_long_rows(backend: Backend) -> None:
    ids = np.random.default_rng(3).integers(-1, 2**31 - 1, (2, 2500)).astype(np.int32)
    local, counts = backend.localise(ids, 1, 3, 64)
    expected, expected_counts = packing.localise(ids, 1, Layout(3, 64))
    assert (local == expected).all()
    assert (counts == expected_counts).all()
