"""The kernels of a merge as a program of the explorer: what the hosts launch is recorded once, then explored."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tiebreak.backends.host import Implementation
from tiebreak.backends.simulated import run_hosts
from tiebreak.errors import SimulationError, UnsupportedOperationError
from tiebreak.sim import agent
from tiebreak.sim.device import Launch, Work
from tiebreak.sim.explorer.execution import Execution
from tiebreak.sim.explorer.exploration import Exploration, Options, explore
from tiebreak.sim.explorer.host_writes import HostWrite
from tiebreak.sim.explorer.interpreted import Kernels, Launches
from tiebreak.sim.explorer.judging import AtEnd, Check
from tiebreak.sim.explorer.operations import Location, Value
from tiebreak.sim.explorer.program import Program
from tiebreak.sim.interpreter import open_session
from tiebreak.sim.machine import Machine
from tiebreak.sim.memory import Allocation
from tiebreak.sim.observer import Touch
from tiebreak.sim.schedulers.registry import make_scheduler

from .host_writes import record_writes

if TYPE_CHECKING:
    from tiebreak.verify.scenario import Scenario


SETUP = ("initialise", "clear")
"""Kernels that every host has seen done on every rank before it launches anything else."""


def record_launches(scenario: Scenario, package: str = "tiebreak.impl") -> tuple[Launches, dict[int, bytes]]:
    """Run a scenario once under the default schedule.

    Returns:
        What the ranks launched, and what each allocation held at the end.

    Raises:
        SimulationError: The run broke a property.
        UnsupportedOperationError: Something else than kernels and hosts writes what kernels read.
    """
    if scenario.transport == "all-gather":
        raise UnsupportedOperationError("all-gather")
    recorded: list[Launches] = []

    @contextlib.contextmanager
    def session(machine: Machine) -> Iterator[None]:
        # Races are the explorer's to judge.
        machine.settings = replace(machine.settings, stop_at_first=False)
        launches = Launches(machine.memory, [[] for _ in range(machine.ranks)], {})
        recorded.append(launches)

        def note(rank: int, allocation: Allocation, write: HostWrite) -> None:
            launches.launches[rank].append(write)
            launches.written.add(allocation.base)

        machine.watch_launch = _recording(launches)
        record_writes(machine, lambda allocation: allocation.base in launches.written, note)
        for name in ("store", "atomic"):
            setattr(machine.observer, name, _noting(getattr(machine.observer, name), launches))
        with open_session(machine):
            yield

    scheduler = make_scheduler("default")
    scheduler.begin()
    outcome = run_hosts(Implementation(package), scenario, scheduler, session)
    found = [message for kind, message in outcome.violations if kind != "race"]
    if found:
        raise SimulationError(scenario.text(), value=found[0])
    launches = recorded[0]
    final = {base: _read(launches, base) for base in launches.contents}
    if any(held != final[base] for base, held in launches.contents.items() if base not in launches.written):
        raise UnsupportedOperationError("memory that kernels read and neither kernels nor write() changed")
    return launches, final


def _recording(launches: Launches) -> Callable[[int, Work], None]:
    """Note launches, and what allocations hold when a launch first knows them."""

    def record(rank: int, work: Work) -> None:
        if not isinstance(work, Launch) or work.kernel in SETUP:
            return
        launches.launches[rank].append(work)
        for base in launches.memory.bases:
            if base not in launches.contents:
                launches.contents[base] = _read(launches, base)

    return record


def _noting(account: Callable[..., None], launches: Launches) -> Callable[..., None]:
    """Note which allocations an operation of a kernel writes."""

    def note(program: agent.Program, touch: Touch, *arguments: object, **details: object) -> None:
        launches.written.update(allocation.base for allocation, _ in touch.groups)
        account(program, touch, *arguments, **details)

    return note


def _read(launches: Launches, base: int) -> bytes:
    """Content of an allocation."""
    allocation = launches.memory.find(base)
    assert allocation is not None
    return ctypes.string_at(base, allocation.size)


@contextlib.contextmanager
def open_merge(scenario: Scenario, package: str = "tiebreak.impl") -> Iterator[tuple[Program, Check]]:
    """The kernels of a scenario as a program, to be explored while the context is open, and what must hold.

    Every execution must leave in memory what the recorded one left, which is
    compared with the specification where the scenario is verified.

    Raises:
        SimulationError: The recorded run broke a property.
    """
    launches, final = record_launches(scenario, package)
    kernels = Kernels(launches, f"merge {scenario.text()}")

    def check(execution: Execution) -> str | None:
        for memory in execution.memories:
            for location, value in memory.items():
                if value != _expected(launches, final, location):
                    return f"{location} ends as {value}, in the recorded run as {_expected(launches, final, location)}"
        return None

    with kernels.open():
        yield kernels.program, AtEnd(check)


def explore_merge(scenario: Scenario, options: Options, package: str = "tiebreak.impl") -> Exploration:
    """Explore the kernels of a scenario to the end or the first failure; see ``open_merge``."""
    with open_merge(scenario, package) as (program, check):
        return explore(program, options, check)


def _expected(launches: Launches, final: dict[int, bytes], location: Location) -> Value:
    """What the recorded run left at a location."""
    address, size = launches.addresses[location]
    allocation = launches.memory.find(address)
    assert allocation is not None
    return int.from_bytes(final[allocation.base][address - allocation.base :][:size], "little")
