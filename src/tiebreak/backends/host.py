"""What one rank's host does in a scenario, on simulated ranks and on GPUs alike."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from . import Ids, Packed

if TYPE_CHECKING:
    from tiebreak.verify.case import MergeCase
    from tiebreak.verify.scenario import Scenario

POISON = -0x21524111
"""What outputs hold before a merge, 0xDEADBEEF: neither an id nor the padding -1."""

TOLERANT_FAULTS = ("dead", "one-fewer")
"""Faults after which nobody can move until the bounded waits run out."""

SIMULATED_FAULTS = ("skips", "dies", "late", "stalled")
"""Faults that need simulated ranks: they count steps, or leave hosts that wait for one that ended."""


class RankDevice(Protocol):
    """A rank's device, as far as launches without peers need it."""

    device: torch.device

    def synchronize(self) -> None:
        """Wait for the device."""

    def upload(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Return a copy in this rank's device memory."""


class RankFabric(RankDevice, Protocol):
    """A fabric of the implementation, and what a host program needs besides."""

    rank: int

    def write(self, target: torch.Tensor, values: torch.Tensor) -> None:
        """Overwrite device memory."""

    def name_regions(self, tensor: torch.Tensor, regions: dict[int, str]) -> None:
        """Name parts of a buffer for reports."""

    def warm_up(self, state: torch.Tensor, launch: Callable[[], Any]) -> None:
        """Launch once without effect on peers, where kernels are compiled at their first launch."""

    def line_up(self) -> None:
        """Wait until every rank is ready to launch, where a late one would be waited for in vain."""

    def delay(self, microseconds: int) -> None:
        """Hold this rank's stream back, where no scheduler does it."""

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


@dataclass(frozen=True)
class _Graph:
    """A captured merge and the buffers it works on."""

    recording: Any
    scores: torch.Tensor
    indices: torch.Tensor
    starts: torch.Tensor | None
    out: torch.Tensor


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
            contract=scenario.contract,
            implementation=scenario.implementation,
            launches=scenario.launches,
            owner_rows=scenario.owner_rows,
        )
        workspace = self._implementation.module("workspace").Workspace.create(
            fabric, geometry, max_polls=self._max_polls
        )
        fabric.name_regions(workspace.state, {0: "epoch", 8: "error_record"})
        if workspace.buffer is not None:
            flags = ("published", "published_rows", "acknowledged", "returned", "arrived_rows", "arrived")
            names = (*flags, "inbox", "returned_ids", "uses", "packets")
            regions = {getattr(workspace.layout, name): name for name in names}
            fabric.name_regions(workspace.buffer.local, regions)
        cases = self._cases
        if faulty and scenario.fault in TOLERANT_FAULTS:
            cases = cases[:-1]
        if scenario.fault == "skips" and fabric.rank == scenario.fault_rank:
            cases = [*cases[: scenario.fault_step], *cases[scenario.fault_step + 1 :]]
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
        given = [self._upload(fabric, case, epoch) for epoch, case in enumerate(cases)]

        def launch(epoch: int, out: torch.Tensor | None) -> None:
            scores, indices, starts = given[epoch]
            merge(workspace, scores, indices, out=out, row_starts=starts)

        def launch_all() -> None:
            for epoch in range(len(cases)):
                launch(epoch, None)

        fabric.warm_up(workspace.state, launch_all)
        results = [self._poison(fabric, scores.shape[0], epoch) for epoch, (scores, _, _) in enumerate(given)]
        fabric.line_up()
        for epoch, out in enumerate(results):
            self._delay(fabric, epoch)
            launch(epoch, out)
        fabric.synchronize()
        self._outputs.extend(result.cpu().numpy().copy() for result in results)

    def _replay(self, fabric: RankFabric, workspace: Any, cases: list[MergeCase]) -> None:
        """Capture a merge per number of rows, then replay one of them with fresh data every epoch."""
        graphs: dict[int, _Graph] = {}
        for epoch, case in enumerate(cases):
            rows = self._count_rows(fabric, case, epoch)
            if rows not in graphs:
                graphs[rows] = self._capture(fabric, workspace, case, epoch)
        fabric.line_up()
        for epoch, case in enumerate(cases):
            rows = self._count_rows(fabric, case, epoch)
            graph = graphs[rows]
            fabric.write(graph.scores, torch.from_numpy(case.scores[fabric.rank][:rows]))
            fabric.write(graph.indices, torch.from_numpy(case.local_indices[fabric.rank][:rows]))
            if graph.starts is not None and case.row_starts is not None:
                fabric.write(graph.starts, torch.from_numpy(case.row_starts[fabric.rank][:rows]))
            fabric.write(graph.out, torch.full_like(graph.out, POISON, device="cpu"))
            self._delay(fabric, epoch)
            fabric.replay(graph.recording)
            fabric.synchronize()
            self._outputs.append(graph.out.cpu().numpy().copy())

    def _capture(self, fabric: RankFabric, workspace: Any, case: MergeCase, epoch: int) -> _Graph:
        """Capture a merge of one epoch's shape."""
        scores, indices, starts = self._upload(fabric, case, epoch)
        out = self._poison(fabric, scores.shape[0], epoch)

        def launch() -> None:
            self._merge()(workspace, scores, indices, out=out, row_starts=starts)

        fabric.warm_up(workspace.state, launch)
        with fabric.capture() as recording:
            launch()
        return _Graph(recording, scores, indices, starts, out)

    def _poison(self, fabric: RankFabric, rows: int, epoch: int) -> torch.Tensor:
        """Return an output that shows every slot that nothing wrote."""
        return fabric.upload(torch.full((rows, self._scenario.k), POISON, dtype=torch.int32), f"out{epoch}")

    def _delay(self, fabric: RankFabric, epoch: int) -> None:
        """Hold this rank back by a time that is drawn anew for every rank and epoch."""
        if self._scenario.skew > 0:
            random = np.random.default_rng([self._scenario.seed, epoch, fabric.rank])
            fabric.delay(int(random.integers(0, self._scenario.skew + 1)))

    def _count_rows(self, fabric: RankFabric, case: MergeCase, epoch: int) -> int:
        """Return how many rows this rank merges."""
        fewer = self._scenario.fault == "fewer-rows" and fabric.rank == self._scenario.ranks - 1
        return len(case.expected) - (fewer and epoch == self._scenario.epochs - 1)

    def _upload(self, fabric: RankFabric, case: MergeCase, epoch: int) -> tuple[Any, Any, Any]:
        rank, rows = fabric.rank, self._count_rows(fabric, case, epoch)
        scores = fabric.upload(torch.from_numpy(case.scores[rank][:rows]), f"scores{epoch}")
        indices = fabric.upload(torch.from_numpy(case.local_indices[rank][:rows]), f"indices{epoch}")
        starts = None
        if case.row_starts is not None:
            starts = fabric.upload(torch.from_numpy(case.row_starts[rank][:rows]), f"starts{epoch}")
        return scores, indices, starts


def launch_selection(
    implementation: Implementation,
    fabric: RankDevice,
    gathered: Packed,
    k: int,
    preset: str,
    arrangement: str,
    contract: str,
    kernel: str,
) -> torch.Tensor:
    """Launch a selection into a poisoned output; see ``Backend.select``."""
    select = implementation.module("select")
    rows = gathered.shape[1 if arrangement != "row-major" else 0]
    out = fabric.upload(torch.full((rows, k), POISON, dtype=torch.int32), "out")
    chosen: torch.Tensor
    if arrangement == "peers":
        parts = [fabric.upload(torch.from_numpy(part.copy()), f"peer{i}") for i, part in enumerate(gathered)]
        addresses = fabric.upload(torch.tensor([part.data_ptr() for part in parts], dtype=torch.int64), "addresses")
        chosen = select.select_peer_candidates(
            addresses, *gathered.shape[1:3], k, preset, contract=contract, implementation=kernel, out=out
        )
        # The launch knows the parts by address only.
        fabric.synchronize()
    else:
        candidates = fabric.upload(torch.from_numpy(gathered.copy()), "gathered")
        chosen = select.select_candidates(
            candidates, k, preset, layout=arrangement, contract=contract, implementation=kernel, out=out
        )
    return chosen


def launch_localisation(
    implementation: Implementation, fabric: RankDevice, ids: Ids, rank: int, world_size: int, interleave: int
) -> list[torch.Tensor]:
    """Launch a localisation into a poisoned output; see ``Backend.localise``."""
    localise = implementation.module("localisation").localise
    out = fabric.upload(torch.full(ids.shape, POISON, dtype=torch.int32), "out")
    return list(localise(fabric.upload(torch.from_numpy(ids.copy()), "ids"), rank, world_size, interleave, out=out))
