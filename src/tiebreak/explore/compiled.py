"""Compiled kernels of a merge as a program of the explorer: what the hosts launch is recorded once, then explored.

Nothing here depends on the kernels: they may be the fused merge, compiled by
CuTeDSL, or the kernels of an exchange, compiled by Triton.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from tiebreak.backends.host import Implementation
from tiebreak.backends.simulated import run_hosts
from tiebreak.errors import SimulationError
from tiebreak.ptx.ranks import Edit, keep_text, make_session
from tiebreak.sim.explorer.arrivals import Arrivals
from tiebreak.sim.explorer.cta_runs import CompiledLaunch
from tiebreak.sim.explorer.ctas import Ctas, Launches
from tiebreak.sim.explorer.execution import Execution
from tiebreak.sim.explorer.exploration import Exploration, Options, explore
from tiebreak.sim.explorer.grouping import Grouping
from tiebreak.sim.explorer.host_writes import HostWrite
from tiebreak.sim.explorer.judging import AtEnd, Check
from tiebreak.sim.explorer.operations import Location, Value
from tiebreak.sim.explorer.program import Program
from tiebreak.sim.machine import Machine
from tiebreak.sim.memory import Allocation
from tiebreak.sim.ptx.module import Kernel, Module
from tiebreak.sim.ptx.observation import Access
from tiebreak.sim.ptx.parser import parse
from tiebreak.sim.ptx.races import RaceDetector
from tiebreak.sim.ptx.ranks import RankDevices
from tiebreak.sim.schedulers.registry import make_scheduler
from tiebreak.verify.judgement import judge

from .host_writes import record_writes
from .merges import SETUP

if TYPE_CHECKING:
    from tiebreak.verify.scenario import Scenario

ARCHITECTURE = "sm_100a"
"""Target whose code is explored unless another one is named."""

MAX_POLLS = 2**20
"""Bound of a wait: far more than the loads from which a loop counts as one that waits."""


@dataclass
class Recording:
    """One run of the hosts under the default schedule.

    Attributes:
        memory: The allocations.
        steps: Of each rank, what its host launches, and what it writes in between.
        launched: Ranks, and numbers on their devices, of the launches.
        contents, final: What each allocation held before any kernel knew it, and at the end.
        accesses: All of global memory.
    """

    machine: Machine
    steps: list[list[CompiledLaunch | HostWrite]]
    launched: set[tuple[int, int]] = field(default_factory=set)
    contents: dict[int, bytes] = field(default_factory=dict)
    final: dict[int, bytes] = field(default_factory=dict)
    accesses: list[Access] = field(default_factory=list)

    def look(self) -> None:
        """Note what allocations hold that were not there before."""
        for base in self.machine.memory.bases:
            if base not in self.contents:
                self.contents[base] = self._read(base)

    def is_result(self, allocation: Allocation) -> bool:
        """Whether kernels wrote to an allocation, so that a host reads it before it writes it."""
        self.look()
        stop = allocation.base + allocation.size
        written = (access.addresses for access in self.accesses if access.kind != "read")
        return any(((addresses >= allocation.base) & (addresses < stop)).any() for addresses in written)

    def note(self, rank: int, allocation: Allocation, write: HostWrite) -> None:
        """Note what a host wrote."""
        self.steps[rank].append(write)

    def end(self) -> None:
        """Note what all hold at the end."""
        self.final = {base: self._read(base) for base in self.contents}

    def _read(self, base: int) -> bytes:
        allocation = self.machine.memory.find(base)
        assert allocation is not None
        return ctypes.string_at(base, allocation.size)


class _Devices(RankDevices):
    """Devices that note what runs on them.

    Args:
        machine: The machine.
        recording: Takes the notes.
        edit: Changes the code that is noted, not the code that runs.
    """

    def __init__(self, machine: Machine, recording: Recording, edit: Edit) -> None:
        super().__init__(machine)
        self._recording, self._edit = recording, edit
        self._modules: dict[str, Module] = {}
        self._detector = _Listener(recording, machine.ranks)
        machine.agree = self._detector.settle
        record_writes(machine, recording.is_result, recording.note)

    def run(
        self,
        kernel: Kernel,
        module: Module,
        block: tuple[int, int, int],
        arguments: Sequence[int],
        *,
        shared_bytes: int = 0,
    ) -> None:
        """Run a CTA."""
        program = self._machine.program
        assert program is not None
        if program.kernel not in SETUP:
            self._recording.look()
            key = program.agent.rank, program.launch
            if key not in self._recording.launched:
                self._recording.launched.add(key)
                noted = self._change(program.kernel, module)
                own = noted.kernels[kernel.name]
                launch = CompiledLaunch(own, noted, program.grid, block, tuple(arguments), shared_bytes)
                self._recording.steps[key[0]].append(launch)
        super().run(kernel, module, block, arguments, shared_bytes=shared_bytes)

    def _change(self, kernel: str, module: Module) -> Module:
        """A module with the code that is to be explored."""
        text = self._edit(kernel, module.text)
        return module if text == module.text else self._modules.setdefault(text, parse(text, kernel))


class _Listener(RaceDetector):
    """Keeps the accesses of global memory; races are the explorer's to judge."""

    def __init__(self, recording: Recording, ranks: int) -> None:
        super().__init__(ranks)
        self._recording = recording

    def access(self, access: Access) -> None:
        """Some threads access memory."""
        if access.space == "global" and (access.position.rank, access.position.launch) in self._recording.launched:
            self._recording.accesses.append(replace(access, addresses=access.addresses.copy(), values=()))


def record_run(
    scenario: Scenario, package: str = "tiebreak.impl", architecture: str = ARCHITECTURE, edit: Edit = keep_text
) -> Recording:
    """Run a scenario once under the default schedule, with compiled kernels; races are not looked at.

    What runs is the code as it was compiled, so that it is known what is right;
    what is noted of launches is the changed code.

    Raises:
        SimulationError: The run broke a property, as the specification has it.
    """
    recordings: list[Recording] = []

    @contextlib.contextmanager
    def session(machine: Machine) -> Iterator[None]:
        machine.settings = replace(machine.settings, stop_at_first=False)
        recordings.append(Recording(machine, [[] for _ in range(machine.ranks)]))
        devices = partial(_Devices, recording=recordings[0], edit=edit)
        with make_session(package, architecture, make_devices=devices)(machine):
            yield

    scheduler = make_scheduler("default")
    scheduler.begin()
    outcome = run_hosts(Implementation(package), scenario, scheduler, session, MAX_POLLS)
    outcome.violations[:] = [violation for violation in outcome.violations if violation[0] != "race"]
    found = judge(scenario, outcome)
    if found:
        raise SimulationError(scenario.text(), value=found[0].message)
    recordings[0].end()
    return recordings[0]


class CompiledMerge:
    """The compiled kernels of a scenario, to be explored.

    Args:
        scenario: What the hosts do.
        recording: What they launched.

    Every execution must leave in memory what the recorded one left, whose
    outputs are those of the specification.
    """

    def __init__(self, scenario: Scenario, recording: Recording) -> None:
        self._title = f"fused {scenario.text()}" if scenario.launches == "fused" else f"compiled {scenario.text()}"
        self._recording = recording
        grouping = Grouping(recording.machine.memory)
        # What is written must be known before what reads it is looked at.
        for write in (step for steps in recording.steps for step in steps if isinstance(step, HostWrite)):
            grouping.note_write(write.address, write.address + len(write.after))
        for access in sorted(recording.accesses, key=lambda access: access.kind == "read"):
            grouping.note(access)
        self.launches = Launches(recording.machine.memory, recording.steps, recording.contents, grouping)
        self._ctas = Ctas(self.launches, self._title)
        self._arrivals = Arrivals(self._ctas)
        self.program = replace(self._ctas.program, confirm=self._arrivals.confirm)

    @property
    def machine_runs(self) -> int:
        """Times that the PTX machine ran a CTA."""
        return self._ctas.machine_runs

    def learn(self, take_turns: bool = True) -> None:
        """Find out by a random execution which loops wait, so that a search need not begin anew for them.

        Args:
            take_turns: Whether to explore one order of interchangeable arrivals only, see ``arrivals``.
        """
        executions: list[Execution] = []
        Exploration(self.program, Options("ptx", merge_awaits=True), visit=executions.append).sample(1)
        if take_turns and executions:
            self._arrivals.learn(executions[-1])

    def forget(self) -> None:
        """Begin the search without what CTAs read in the execution that was drawn: others may read other values."""
        self._ctas.forget_histories()

    def check(self, execution: Execution) -> str | None:
        """Say where memory differs from what the recorded run left."""
        for memory in execution.memories:
            for location, value in memory.items():
                if value != self._expected(location):
                    return f"{location} ends as {value}, in the recorded run as {self._expected(location)}"
        return None

    def _expected(self, location: Location) -> Value:
        address, size = self._ctas.addresses[location]
        allocation = self.launches.memory.find(address)
        assert allocation is not None
        return int.from_bytes(self._recording.final[allocation.base][address - allocation.base :][:size], "little")


@contextlib.contextmanager
def open_compiled(
    scenario: Scenario,
    package: str = "tiebreak.impl",
    architecture: str = ARCHITECTURE,
    edit: Edit = keep_text,
    *,
    take_turns: bool = True,
) -> Iterator[tuple[Program, Check]]:
    """The compiled kernels of a scenario as a program, and what must hold; see ``explore_compiled``."""
    merge = CompiledMerge(scenario, record_run(scenario, package, architecture, edit))
    merge.learn(take_turns)
    if edit is not keep_text:
        merge.forget()
    yield merge.program, AtEnd(merge.check, results=False)


def explore_compiled(
    scenario: Scenario,
    options: Options,
    package: str = "tiebreak.impl",
    architecture: str = ARCHITECTURE,
    edit: Edit = keep_text,
    *,
    take_turns: bool = True,
) -> Exploration:
    """Explore the compiled kernels of a scenario to the end or the first failure.

    Args:
        scenario: What the hosts do.
        options: How to explore.
        package: Package that holds the implementation.
        architecture: Target to compile for.
        edit: Changes the code of kernels.
        take_turns: Whether one order of interchangeable arrivals stands for all, see ``sim.explorer.arrivals``.

    Raises:
        SimulationError: The recorded run broke a property.
        MissingBackendError: Kernels are not compiled, and CuTeDSL is not there.
    """
    with open_compiled(scenario, package, architecture, edit, take_turns=take_turns) as (program, check):
        return explore(program, options, check)
