"""Simulated ranks as a backend: the kernels and host code of an implementation, unmodified."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tiebreak.errors import SimulationError
from tiebreak.sim.fabric import SimulatedFabric, simulate
from tiebreak.sim.machine import Execution, Settings
from tiebreak.sim.schedulers import Scheduler
from tiebreak.sim.schedulers.registry import make_scheduler

from . import Ids, Outcome, Packed

if TYPE_CHECKING:
    from tiebreak.verify.case import MergeCase
    from tiebreak.verify.scenario import Scenario

MAX_POLLS = 8
"""Bound of a wait on simulated ranks: a poll that cannot succeed is never scheduled, so few are needed."""

TOLERANT_FAULTS = ("dead", "one-fewer")
"""Faults after which nobody can move until the bounded waits run out."""


@dataclass(frozen=True)
class Implementation:
    """An implementation of the merge: ``tiebreak.impl`` or a mutated copy of it."""

    package: str = "tiebreak.impl"

    def module(self, name: str) -> Any:
        """Return one module of the implementation."""
        return importlib.import_module(f"{self.package}.{name}")


class SimulatedBackend:
    """Runs an implementation on simulated ranks.

    Args:
        name: Backend name; ``sim:<discipline>`` or ``sim:all-gather``.
        package: Package that holds the implementation.
    """

    def __init__(self, name: str = "sim", package: str = "tiebreak.impl") -> None:
        self.name = name
        self.implementation = Implementation(package)

    def select(self, gathered: Packed, k: int, preset: str, arrangement: str) -> Ids:
        """Select with the portable selector on one simulated device; see ``Backend.select``.

        Raises:
            SimulationError: The launch raised, raced, read memory that nothing wrote or left its bounds.
        """
        select = self.implementation.module("select")

        def launch(fabric: SimulatedFabric) -> list[torch.Tensor]:
            if arrangement == "peers":
                parts = [fabric.upload(torch.from_numpy(part.copy()), f"peer{i}") for i, part in enumerate(gathered)]
                addresses = torch.tensor([part.data_ptr() for part in parts], dtype=torch.int64)
                return [select.select_peer_candidates(addresses, *gathered.shape[1:3], k, preset)]
            candidates = fabric.upload(torch.from_numpy(gathered.copy()), "gathered")
            return [select.select_candidates(candidates, k, preset, layout=arrangement)]

        (ids,) = _run_alone(launch)
        return ids

    def localise(self, ids: Ids, rank: int, world_size: int, interleave: int) -> tuple[Ids, Ids]:
        """Localise with the kernel on one simulated device; see ``Backend.localise``.

        Raises:
            SimulationError: The launch raised, raced, read memory that nothing wrote or left its bounds.
        """
        localise = self.implementation.module("localisation").localise

        def launch(fabric: SimulatedFabric) -> list[torch.Tensor]:
            return list(localise(fabric.upload(torch.from_numpy(ids.copy()), "ids"), rank, world_size, interleave))

        local, counts = _run_alone(launch)
        return local, counts

    def run(self, scenario: Scenario, schedule: str) -> Outcome:
        """Run all merges of a scenario under one schedule."""
        return self.run_with(scenario, _begun(make_scheduler(schedule)))

    def run_with(self, scenario: Scenario, scheduler: Scheduler) -> Outcome:
        """Run all merges of a scenario under a scheduler whose execution has begun."""
        from tiebreak.verify.case import draw_cases

        cases = draw_cases(scenario)
        outputs: list[list[Ids]] = [[] for _ in range(scenario.ranks)]
        hosts = [_HostProgram(self.implementation, scenario, cases, outputs[rank]) for rank in range(scenario.ranks)]
        settings = Settings(
            lowering=scenario.lowering,
            residency=scenario.residency,
            data_points=scenario.data_points,
            tolerate_stalls=scenario.fault in TOLERANT_FAULTS,
        )
        failing = [scenario.ranks - 1] if scenario.fault == "rendezvous" else []
        execution = simulate(hosts, scheduler, settings, failing_rendezvous=failing)
        return _outcome(execution, outputs, scenario.ranks)


def _run_alone(launch: Callable[[SimulatedFabric], list[torch.Tensor]]) -> list[Ids]:
    """Run launches of one rank, and return the tensors they leave."""

    def host(fabric: SimulatedFabric) -> list[Ids]:
        outputs = launch(fabric)
        fabric.synchronize()
        return [output.numpy().copy() for output in outputs]

    execution = simulate([host], _begun(make_scheduler("default")))
    if execution.violations:
        found = execution.violations[0]
        raise SimulationError(f"{found.property}: {found.message}")
    results: list[Ids] = execution.results[0]
    return results


def _begun(scheduler: Scheduler) -> Scheduler:
    scheduler.begin()
    return scheduler


def _outcome(execution: Execution, outputs: list[list[Ids]], ranks: int) -> Outcome:
    return Outcome(
        outputs,
        execution.errors,
        [(violation.property, violation.message) for violation in execution.violations],
        execution.schedule,
        execution.trace.table(ranks) if execution.violations else "",
        execution.steps,
    )


class _HostProgram:
    """What one rank's host does: create the workspace, merge every epoch, close."""

    def __init__(
        self, implementation: Implementation, scenario: Scenario, cases: list[MergeCase], outputs: list[Ids]
    ) -> None:
        self._implementation = implementation
        self._scenario = scenario
        self._cases = cases
        self._outputs = outputs

    def __call__(self, fabric: SimulatedFabric) -> None:
        scenario = self._scenario
        faulty = fabric.rank == scenario.ranks - 1
        geometry = self._implementation.module("geometry").Geometry(
            max_rows=max(scenario.rows, 1),
            local_candidates=scenario.local,
            k=scenario.k + (scenario.fault == "geometry" and faulty),
            interleave=scenario.interleave,
            preset=scenario.preset,
            discipline=scenario.discipline,
            transport="all-gather" if scenario.transport == "all-gather" else "auto",
            first_epoch=scenario.epoch,
        )
        workspace = self._implementation.module("workspace").Workspace.create(fabric, geometry, max_polls=MAX_POLLS)
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

    def _launch(self, fabric: SimulatedFabric, workspace: Any, cases: list[MergeCase]) -> None:
        """Launch every epoch on its own inputs, without waiting in between."""
        merge = self._merge()
        results = []
        for epoch, case in enumerate(cases):
            scores, indices, starts = self._upload(fabric, case, epoch)
            results.append(merge(workspace, scores, indices, row_starts=starts))
        fabric.synchronize()
        self._outputs.extend(result.numpy().copy() for result in results)

    def _replay(self, fabric: SimulatedFabric, workspace: Any, cases: list[MergeCase]) -> None:
        """Capture one merge, then replay it with fresh data in the same buffers every epoch."""
        scores, indices, starts = self._upload(fabric, cases[0], 0)
        out = torch.empty((scores.shape[0], self._scenario.k), dtype=torch.int32, device=fabric.device)
        with fabric.capture() as graph:
            self._merge()(workspace, scores, indices, out=out, row_starts=starts)
        for case in cases:
            fabric.write(scores, torch.from_numpy(case.scores[fabric.rank]))
            fabric.write(indices, torch.from_numpy(case.local_indices[fabric.rank]))
            fabric.replay(graph)
            fabric.synchronize()
            self._outputs.append(out.numpy().copy())

    def _upload(self, fabric: SimulatedFabric, case: MergeCase, epoch: int) -> tuple[Any, Any, Any]:
        rank = fabric.rank
        fewer = self._scenario.fault == "fewer-rows" and rank == self._scenario.ranks - 1
        rows = self._scenario.rows - (fewer and epoch == self._scenario.epochs - 1)
        scores = fabric.upload(torch.from_numpy(case.scores[rank][:rows]), f"scores{epoch}")
        indices = fabric.upload(torch.from_numpy(case.local_indices[rank][:rows]), f"indices{epoch}")
        starts = None
        if case.row_starts is not None:
            starts = fabric.upload(torch.from_numpy(case.row_starts[rank][:rows]), f"starts{epoch}")
        return scores, indices, starts
