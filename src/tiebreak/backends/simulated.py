"""Simulated ranks as a backend: the kernels and host code of an implementation, unmodified."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

import torch

from tiebreak.sim.fabric import Session, SimulatedFabric, run_ranks, simulate
from tiebreak.sim.faults import Fault, FaultKind
from tiebreak.sim.interpreter import open_session
from tiebreak.sim.machine import Execution, Settings
from tiebreak.sim.schedulers import Scheduler
from tiebreak.sim.schedulers.registry import make_scheduler

from . import Ids, Outcome, Packed
from .host import TOLERANT_FAULTS, HostProgram, Implementation, launch_localisation, launch_selection

if TYPE_CHECKING:
    from tiebreak.verify.scenario import Scenario

MAX_POLLS = 8
"""Bound of a wait on simulated ranks: a poll that cannot succeed is never scheduled, so few are needed."""


class SimulatedBackend:
    """Runs an implementation on simulated ranks.

    Args:
        name: Backend name; ``sim:<discipline>`` or ``sim:all-gather``.
        package: Package that holds the implementation.
        session: Decides how kernels run; the default interprets them.
    """

    def __init__(
        self, name: str = "sim:alternating", package: str = "tiebreak.impl", session: Session = open_session
    ) -> None:
        self.name = name
        self._session = session
        self.implementation = Implementation(package)

    def select(
        self,
        gathered: Packed,
        k: int,
        preset: str,
        arrangement: str,
        contract: str = "order",
        implementation: str = "auto",
    ) -> Ids:
        """Select with the portable selector on one simulated device; see ``Backend.select``.

        Raises:
            SimulationError: The launch raised, raced, read memory that nothing wrote or left its bounds.
        """

        def launch(fabric: SimulatedFabric) -> list[torch.Tensor]:
            selection = (gathered, k, preset, arrangement, contract, implementation)
            return [launch_selection(self.implementation, fabric, *selection)]

        (ids,) = _run_alone(launch)
        return ids

    def localise(self, ids: Ids, rank: int, world_size: int, interleave: int) -> tuple[Ids, Ids]:
        """Localise with the kernel on one simulated device; see ``Backend.localise``.

        Raises:
            SimulationError: The launch raised, raced, read memory that nothing wrote or left its bounds.
        """

        def launch(fabric: SimulatedFabric) -> list[torch.Tensor]:
            return launch_localisation(self.implementation, fabric, ids, rank, world_size, interleave)

        local, counts = _run_alone(launch)
        return local, counts

    def run(self, scenario: Scenario, schedule: str) -> Outcome:
        """Run all merges of a scenario under one schedule."""
        scheduler = make_scheduler(schedule)
        scheduler.begin()
        return self.run_with(scenario, scheduler)

    def run_with(self, scenario: Scenario, scheduler: Scheduler) -> Outcome:
        """Run all merges of a scenario under a scheduler whose execution has begun."""
        return run_hosts(self.implementation, scenario, scheduler, self._session)


def run_hosts(
    implementation: Implementation,
    scenario: Scenario,
    scheduler: Scheduler,
    session: Session = open_session,
    max_polls: int = MAX_POLLS,
) -> Outcome:
    """Run all merges of a scenario on simulated ranks.

    Args:
        implementation: The implementation under test.
        scenario: What to run.
        scheduler: Chooses every step; its execution has begun.
        session: Decides how kernels run; the default interprets them.
        max_polls: Bound of the implementation's waits.
    """
    from tiebreak.verify.case import draw_cases

    cases = draw_cases(scenario)
    outputs: list[list[Ids]] = [[] for _ in range(scenario.ranks)]
    hosts = [HostProgram(implementation, scenario, cases, own, max_polls) for own in outputs]
    settings = Settings(
        lowering=scenario.lowering,
        residency=scenario.residency,
        data_points=scenario.data_points,
        tolerate_stalls=scenario.fault in (*TOLERANT_FAULTS, "skips", "dies", "stalled"),
        fault=_fault_of(scenario),
    )
    failing = [scenario.ranks - 1] if scenario.fault == "rendezvous" else []
    execution = simulate(hosts, scheduler, settings, failing_rendezvous=failing, session=session)
    return _outcome(execution, outputs, scenario.ranks)


def _fault_of(scenario: Scenario) -> Fault | None:
    """The fault of a scenario that strikes at a step, or None."""
    kinds: dict[str, FaultKind] = {kind: kind for kind in get_args(FaultKind)}
    if scenario.fault not in kinds:
        return None
    return Fault(kinds[scenario.fault], scenario.fault_rank, scenario.fault_step)


def _run_alone(launch: Callable[[SimulatedFabric], list[torch.Tensor]]) -> list[Ids]:
    """Run launches of one rank, and return the tensors they leave."""

    def host(fabric: SimulatedFabric) -> list[Ids]:
        outputs = launch(fabric)
        fabric.synchronize()
        return [output.numpy().copy() for output in outputs]

    (results,) = run_ranks(host, 1)
    return list(results)


def _outcome(execution: Execution, outputs: list[list[Ids]], ranks: int) -> Outcome:
    return Outcome(
        outputs,
        execution.errors,
        [(violation.property, violation.message) for violation in execution.violations],
        execution.schedule,
        execution.trace.table(ranks) if execution.violations else "",
        execution.steps,
        execution.rank_steps,
        execution.struck,
    )
