"""What one rank's host does in a scenario, on simulated ranks and on GPUs alike."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from . import Ids

if TYPE_CHECKING:
    from tiebreak.verify.case import MergeCase
    from tiebreak.verify.scenario import Scenario

TOLERANT_FAULTS = ("dead", "one-fewer")
"""Faults after which nobody can move until the bounded waits run out."""


class RankFabric(Protocol):
    """A fabric of the implementation, and what a host program needs besides."""

    rank: int
    device: torch.device

    def synchronize(self) -> None:
        """Wait for the device."""

    def upload(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Return a copy in this rank's device memory."""

    def write(self, target: torch.Tensor, values: torch.Tensor) -> None:
        """Overwrite device memory."""

    def name_regions(self, tensor: torch.Tensor, regions: dict[int, str]) -> None:
        """Name parts of a buffer for reports."""

    def warm_up(self, launch: Callable[[], Any]) -> None:
        """Launch once before capture, where kernels are compiled at their first launch."""

    def capture(self) -> AbstractContextManager[Any]:
        """Record launches into a graph."""

    def replay(self, graph: Any) -> None:
        """Launch a graph."""


@dataclass(frozen=True)
class Implementation:
    """An implementation of the merge: ``tiebreak.impl`` or a mutated copy of it."""

    package: str = "tiebreak.impl"

    def module(self, name: str) -> Any:
        """Return one module of the implementation."""
        return importlib.import_module(f"{self.package}.{name}")


class HostProgram:
    """Creates the workspace, merges every epoch, and closes.

    Args:
        implementation: The implementation under test.
        scenario: What to run, and what goes wrong.
        cases: The merges of the scenario.
        outputs: Takes this rank's result of each epoch.
        max_polls: Bound of the implementation's waits.
    """

    def __init__(
        self,
        implementation: Implementation,
        scenario: Scenario,
        cases: list[MergeCase],
        outputs: list[Ids],
        max_polls: int,
    ) -> None:
        self._implementation = implementation
        self._scenario = scenario
        self._cases = cases
        self._outputs = outputs
        self._max_polls = max_polls

    def __call__(self, fabric: RankFabric) -> None:
        """Run on the rank of ``fabric``; raises what the implementation raises."""
        scenario = self._scenario
        faulty = fabric.rank == scenario.ranks - 1
        geometry = self._implementation.module("geometry").Geometry(
            max_rows=scenario.rows + 1,
            local_candidates=scenario.local,
            k=scenario.k + (scenario.fault == "geometry" and faulty),
            interleave=scenario.interleave,
            preset=scenario.preset,
            discipline=scenario.discipline,
            transport=scenario.transport,
            first_epoch=scenario.epoch,
        )
        workspace = self._implementation.module("workspace").Workspace.create(
            fabric, geometry, max_polls=self._max_polls
        )
        fabric.name_regions(workspace.state, {0: "epoch", 8: "error_record"})
        if workspace.buffer is not None:
            names = ("published", "published_rows", "acknowledged", "inbox")
            regions = {getattr(workspace.layout, name): name for name in names}
            fabric.name_regions(workspace.buffer.local, regions)
        cases = self._cases
        if faulty and scenario.fault in TOLERANT_FAULTS:
            cases = cases[:-1]
        run = self._replay if scenario.mode == "graph" else self._launch
        run(fabric, workspace, cases)
        if faulty and scenario.fault in TOLERANT_FAULTS:
            return
        workspace.check()
        workspace.close()

    def _merge(self) -> Callable[..., torch.Tensor]:
        merge: Callable[..., torch.Tensor] = self._implementation.module("merge").merge_topk
        return merge

    def _launch(self, fabric: RankFabric, workspace: Any, cases: list[MergeCase]) -> None:
        """Launch every epoch on its own inputs, without waiting in between."""
        merge = self._merge()
        results = []
        for epoch, case in enumerate(cases):
            scores, indices, starts = self._upload(fabric, case, epoch)
            results.append(merge(workspace, scores, indices, row_starts=starts))
        fabric.synchronize()
        self._outputs.extend(result.cpu().numpy().copy() for result in results)

    def _replay(self, fabric: RankFabric, workspace: Any, cases: list[MergeCase]) -> None:
        """Capture one merge, then replay it with fresh data in the same buffers every epoch."""
        scores, indices, starts = self._upload(fabric, cases[0], 0)
        out = torch.empty((scores.shape[0], self._scenario.k), dtype=torch.int32, device=fabric.device)
        fabric.warm_up(lambda: self._merge()(workspace, scores, indices, out=out, row_starts=starts))
        with fabric.capture() as graph:
            self._merge()(workspace, scores, indices, out=out, row_starts=starts)
        for case in cases:
            fabric.write(scores, torch.from_numpy(case.scores[fabric.rank]))
            fabric.write(indices, torch.from_numpy(case.local_indices[fabric.rank]))
            fabric.replay(graph)
            fabric.synchronize()
            self._outputs.append(out.cpu().numpy().copy())

    def _upload(self, fabric: RankFabric, case: MergeCase, epoch: int) -> tuple[Any, Any, Any]:
        rank = fabric.rank
        fewer = self._scenario.fault == "fewer-rows" and rank == self._scenario.ranks - 1
        rows = self._scenario.rows - (fewer and epoch == self._scenario.epochs - 1)
        scores = fabric.upload(torch.from_numpy(case.scores[rank][:rows]), f"scores{epoch}")
        indices = fabric.upload(torch.from_numpy(case.local_indices[rank][:rows]), f"indices{epoch}")
        starts = None
        if case.row_starts is not None:
            starts = fabric.upload(torch.from_numpy(case.row_starts[rank][:rows]), f"starts{epoch}")
        return scores, indices, starts
