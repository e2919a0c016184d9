"""The spec as a backend: slow, sequential, without flags or schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tiebreak.spec import merge, packing, selection
from tiebreak.spec.layout import Layout

from . import Ids, Outcome, Packed

if TYPE_CHECKING:
    from tiebreak.verify.scenario import Scenario


class SpecBackend:
    """Runs ``tiebreak.spec``."""

    name = "spec"

    def select(
        self,
        gathered: Packed,
        k: int,
        preset: str,
        arrangement: str,
        contract: str = "order",
        implementation: str = "auto",
    ) -> Ids:
        """Select with ``spec.selection``; see ``Backend.select``."""
        if arrangement != "row-major":
            gathered = packing.gather_row_major(list(gathered))
        scores, ids = packing.unpack(gathered)
        if contract == "order":
            return selection.select(scores, ids, k, preset)
        return selection.select_in_place(scores, ids, k, preset)

    def localise(self, ids: Ids, rank: int, world_size: int, interleave: int) -> tuple[Ids, Ids]:
        """Localise with ``spec.packing``; see ``Backend.localise``."""
        return packing.localise(ids, rank, Layout(world_size, interleave))

    def run(self, scenario: Scenario, schedule: str) -> Outcome:
        """Merge with ``spec.merge``; every rank returns the same array by construction."""
        from tiebreak.verify.case import draw_cases

        layout = Layout(scenario.ranks, scenario.interleave)
        merge_all = merge.merge if scenario.contract == "order" else merge.merge_in_place
        outputs = [
            merge_all(case.scores, case.local_indices, layout, scenario.k, scenario.preset, case.row_starts)
            for case in draw_cases(scenario)
        ]
        return Outcome(
            [[np.array(output) for output in outputs] for _ in range(scenario.ranks)], [None] * scenario.ranks
        )
