"""The PTX machine as a backend: kernels as their compilers lower them, thread by thread, with a race detector."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tiebreak.ptx.direct import DirectRank
from tiebreak.ptx.ranks import Edit, keep_text, make_session
from tiebreak.sim.schedulers import Scheduler
from tiebreak.sim.schedulers.registry import make_scheduler

from . import Ids, Outcome, Packed
from .host import Implementation, launch_localisation, launch_selection
from .simulated import run_hosts

if TYPE_CHECKING:
    from tiebreak.verify.scenario import Scenario

MAX_POLLS = 64
"""Bound of a wait: threads that poll together go on polling until the last of their flags is there."""

LOCATED = ("race", "uninitialised-read", "out-of-bounds")
"""Violations that name instructions."""


class PtxBackend:
    """Runs an implementation's compiled kernels on the PTX machine.

    Args:
        name: ``ptx:<target>``, such as ``ptx:sm_100a``.
        package: Package that holds the implementation.
        edit: Changes the code of kernels of several ranks.
    """

    def __init__(self, name: str = "ptx:sm_100a", package: str = "tiebreak.impl", edit: Edit = keep_text) -> None:
        self.name = name
        self._edit = edit
        self.architecture = name.partition(":")[2]
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
        """Select with one launch; ``auto`` is the CuTeDSL selector, as on a GPU; see ``Backend.select``.

        Raises:
            SimulationError: The launch has findings, such as races.
            MissingBackendError: The selector is not compiled, and CuTeDSL is not there.
        """
        with self._open() as rank:
            out = launch_selection(
                self.implementation, rank, gathered, k, preset, arrangement, contract, implementation
            )
        ids: Ids = out.numpy().copy()
        return ids

    def localise(self, ids: Ids, rank: int, world_size: int, interleave: int) -> tuple[Ids, Ids]:
        """Localise with one launch; see ``Backend.localise``.

        Raises:
            SimulationError: The launch has findings, such as races.
        """
        with self._open() as device:
            local, counts = launch_localisation(self.implementation, device, ids, rank, world_size, interleave)
        return local.numpy().copy(), counts.numpy().copy()

    def run(self, scenario: Scenario, schedule: str) -> Outcome:
        """Run all merges of a scenario on simulated ranks, under one schedule; what is found names source positions."""
        outcome = self._run(scenario, schedule)
        located = any(name in LOCATED for name, _ in outcome.violations)
        if located and self._edit is keep_text:
            return self._run(scenario, f"replay:{outcome.schedule}", lines=True)
        return outcome

    def _run(self, scenario: Scenario, schedule: str, *, lines: bool = False) -> Outcome:
        scheduler = make_scheduler(schedule)
        scheduler.begin()
        return self.run_with(scenario, scheduler, lines=lines)

    def run_with(self, scenario: Scenario, scheduler: Scheduler, *, lines: bool = False) -> Outcome:
        """Run all merges of a scenario under a scheduler whose execution has begun.

        Args:
            scenario: The scenario.
            scheduler: Chooses every step.
            lines: Whether to compile CuTeDSL kernels together with their source positions, which takes longer.
        """
        session = make_session(self.implementation.package, self.architecture, self._edit, lines=lines)
        return run_hosts(self.implementation, scenario, scheduler, session, MAX_POLLS)

    def _open(self) -> AbstractContextManager[DirectRank]:
        return DirectRank(self.implementation.package, self.architecture).open()
