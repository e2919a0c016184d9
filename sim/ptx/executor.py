"""Execution of a PTX kernel on CPU memory, thread by thread, many threads at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tiebreak.errors import InputError

from .executor_barriers import ClusterBarrier
from .executor_code import Code, CompiledKernel
from .executor_cta import Cta
from .executor_groups import Unit
from .executor_layout import Layout, Triple
from .executor_parameters import pack_parameters
from .executor_progress import fail_blocked, fail_budget, fail_spinning
from .memory import Array, Region
from .memory_global import GlobalMemory
from .module import Kernel, Module
from .observation import Access, Observer
from .program import KernelIdentity
from .schedules import make_schedule
from .table import Entry

Gate = Callable[[Access, tuple[Array, ...]], None]

STEPS = 20_000_000
"""Default bound of the steps of a launch."""

SPINS = 100_000
"""Turns in a row in which every thread polls and nothing changes, after which they never will."""


@dataclass(frozen=True)
class Report:
    """What ran.

    Attributes:
        instructions: How many instructions ran by entry of the table, each counted once per group of threads.
        thread_instructions: The same summed over threads.
        steps: Turns that the schedule gave.
        seconds: Wall time.
        schedule: Text that repeats the order of the execution.
    """

    instructions: dict[Entry, int]
    thread_instructions: int
    steps: int
    seconds: float
    schedule: str


class Launch:
    """A launch of a kernel.

    Args:
        kernel: The kernel.
        module: Its module.
        grid: CTAs: x, or x, y, z.
        block: Threads of a CTA: x, or x, y, z.
        arguments: One per parameter, as ``pack_parameters`` takes them.
        shared_bytes: Dynamic shared memory.
        cluster: CTAs of a cluster: x, or x, y, z.
        observer: Who is told of accesses and edges.
        schedule: Order of the warps, see ``schedules``.
        memory: Global memory; arguments are added to it.
        rank: Rank whose device it is.
        number: Number of the launch on that device.
        gate: Called with each access of global memory and the values of its operands before it is performed; it may
            let others run.
        steps: Bound of the steps.
        spins: Bound of turns in a row in which all threads poll in vain; what a gate lets run may end such a wait.
        replay: Command that repeats the execution, for findings.

    Raises:
        InputError: The shape does not suit the kernel, or the arguments do not.
        UnknownInstructionError: The kernel has an instruction that is not in the table.
    """

    def __init__(
        self,
        kernel: Kernel,
        module: Module,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any],
        *,
        shared_bytes: int = 0,
        cluster: int | Sequence[int] = 1,
        observer: Observer | None = None,
        schedule: str = "lockstep",
        memory: GlobalMemory | None = None,
        rank: int = 0,
        number: int = 0,
        gate: Gate | None = None,
        steps: int = STEPS,
        spins: int = SPINS,
        replay: str = "",
    ) -> None:
        self.kernel = kernel
        self.grid, self.block, self.cluster = (
            _triple("grid", grid),
            _triple("block", block),
            _triple("cluster", cluster),
        )
        _check_shape(kernel, self.grid, self.block, self.cluster)
        self.threads = int(np.prod(self.block))
        self.ctas = int(np.prod(self.grid))
        self.cluster_ctas = int(np.prod(self.cluster))
        self.observer, self.gate = observer, gate
        self.rank, self.number, self.replay = rank, number, replay
        self.memory = memory if memory is not None else GlobalMemory()
        self.schedule = make_schedule(schedule)
        self.by_warp = self.schedule is not None
        self.compiled = compile_kernel(kernel, fine=self.by_warp)
        space = pack_parameters(kernel, arguments, self.memory)
        pointer = space.ctypes.data
        self.parameters = Region("parameters", pointer, len(space), base=pointer, owner=space, writable=False)
        if self.compiled.exposes_parameters:
            self.memory.add(self.parameters)
        self.layout = Layout(kernel, self.compiled.symbols, module, self.memory, pointer, shared_bytes)
        self.version = 0
        self.reported: set[int] = set()
        self.steps = 0
        self._bounds = steps, spins
        self._runs: dict[int, list[int]] = {}
        self._codes: dict[int, Code] = {}
        self._decided: dict[int, list[int]] = {}
        self._fruitless = 0

    def run(self, ctas: Sequence[int] | None = None) -> Report:
        """Execute some CTAs, whole clusters of them, or all.

        Raises:
            FindingError: The execution cannot go on.
        """
        start = time.perf_counter()
        chosen = list(range(self.ctas)) if ctas is None else list(ctas)
        with np.errstate(all="ignore"):
            self._run(self._group_clusters(chosen))
        return self._report(time.perf_counter() - start)

    def count(self, code: Code, threads: int) -> None:
        """Count one run of code by so many threads."""
        runs = self._runs.get(code.key)
        if runs is None:
            runs = self._runs[code.key] = [0, 0]
            self._codes[code.key] = code
        runs[0] += 1
        runs[1] += threads

    def count_decision(self, place: int, threads: int) -> None:
        """Count one instruction that the executor performs itself."""
        runs = self._decided.setdefault(place, [0, 0])
        runs[0] += 1
        runs[1] += threads

    def _group_clusters(self, ctas: list[int]) -> list[list[int]]:
        """CTAs by cluster; those of a cluster are numbered by their place in it."""
        if self.cluster_ctas == 1:
            return [[number] for number in ctas]
        groups: dict[Hashable, list[int]] = {}
        x, y, _ = self.grid
        for number in ctas:
            place = number % x, number // x % y, number // (x * y)
            groups.setdefault(tuple(p // c for p, c in zip(place, self.cluster, strict=True)), []).append(number)
        if any(len(group) != self.cluster_ctas for group in groups.values()):
            raise InputError("CTAs to run", value=ctas, limit="clusters run whole")
        return list(groups.values())

    def _run(self, clusters: list[list[int]]) -> None:
        pending = clusters[::-1]
        resident: list[Cta] = []
        current: Unit | None = None
        while pending or resident:
            if not resident:
                resident += self._start(pending.pop())
            units = [unit for cta in resident for unit in cta.units if unit.groups and unit.ready]
            eager = [unit for unit in units if unit.seen != self.version]
            if not eager and pending:
                # What the resident CTAs wait for may be a CTA that has not started.
                resident += self._start(pending.pop())
                continue
            if not units:
                fail_blocked(resident)
            self._note_turn(bool(eager), resident)
            current = self._choose(eager or units, current)
            current.seen = -1
            if self._advance(current):
                for cta in [cta for cta in resident if cta.finished]:
                    cta.end()
                    resident.remove(cta)

    def _advance(self, unit: Unit) -> bool:
        """Let a unit run: one step of a schedule of warps, else until it waits; returns whether its threads exited."""
        cta: Cta = unit.cta
        while True:
            cta.step(unit)
            self.steps += 1
            if not unit.groups:
                return True
            if self.by_warp or unit.seen == self.version or not unit.ready:
                return False
            if self.steps > self._bounds[0]:
                fail_budget([cta], self._bounds[0])

    def _choose(self, units: list[Unit], current: Unit | None) -> Unit:
        if self.schedule is None:
            # The unit that polled last goes last, so that all get their turn.
            return next((unit for unit in units if current is not None and unit.rank > current.rank), units[0])
        return self.schedule.choose(self.steps, units, current)

    def _note_turn(self, fruitful: bool, resident: list[Cta]) -> None:
        self._fruitless = 0 if fruitful else self._fruitless + 1
        if self._fruitless > self._bounds[1]:
            fail_spinning(resident, self._bounds[1])
        if self.steps > self._bounds[0]:
            fail_budget(resident, self._bounds[0])

    def _start(self, numbers: list[int]) -> list[Cta]:
        cluster: list[Cta] = []
        barrier = ClusterBarrier()
        for number in numbers:
            Cta(self, number, cluster, barrier)
        barrier.join(cluster)
        if self.observer is not None:
            for cta in cluster:
                self.observer.begin(cta.position, self.kernel)
        return cluster

    def _report(self, seconds: float) -> Report:
        places = np.zeros((len(self.kernel.body) + 1, 2), np.int64)
        for key, runs in self._runs.items():
            code = self._codes[key]
            places[code.start : code.stop] += runs
        for place, runs in self._decided.items():
            places[place] += runs
        entries = self.compiled.distinct_entries
        sums = np.bincount(self.compiled.entry_numbers, places[:-1, 0], len(entries)).astype(np.int64)
        counts = {entry: count for entry, count in zip(entries, sums.tolist(), strict=True) if count}
        total = int(places[:, 1].sum())
        text = self.schedule.describe() if self.schedule is not None else "lockstep"
        return Report(counts, total, self.steps, seconds, text)


def execute(
    kernel: Kernel,
    module: Module,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Any],
    **options: Any,
) -> Report:
    """Launch a kernel and run all of it; arguments and errors are those of ``Launch`` and ``Launch.run``."""
    return Launch(kernel, module, grid, block, arguments, **options).run()


def compile_kernel(kernel: Kernel, *, fine: bool = False) -> CompiledKernel:
    """Return the code of a kernel, kept for kernels that were asked for before."""
    return _compile_kernel(KernelIdentity(kernel), fine)


@lru_cache(maxsize=32)
def _compile_kernel(identity: KernelIdentity, fine: bool) -> CompiledKernel:
    return CompiledKernel(identity.kernel, fine)


def _triple(what: str, extents: int | Sequence[int]) -> Triple:
    given = (extents,) if isinstance(extents, int) else tuple(extents)
    if not 1 <= len(given) <= 3 or any(extent < 1 for extent in given):
        raise InputError(what, value=extents, limit="one to three positive numbers")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _check_shape(kernel: Kernel, grid: Triple, block: Triple, cluster: Triple) -> None:
    """Whether a shape suits the performance directives of a kernel.

    Raises:
        InputError: It does not.
    """
    required = kernel.directives.get("reqntid")
    if required is not None and _triple("reqntid", required) != block:
        raise InputError("block", value=block, limit=f"{kernel.name} requires {required}")
    most = kernel.directives.get("maxntid")
    if most is not None and np.prod(block) > np.prod(most):
        raise InputError("block", value=block, limit=f"{kernel.name} allows {most}")
    clustered = kernel.directives.get("reqnctapercluster")
    if clustered is not None and _triple("reqnctapercluster", clustered) != cluster:
        raise InputError("cluster", value=cluster, limit=f"{kernel.name} requires {clustered}")
    if any(extent % part for extent, part in zip(grid, cluster, strict=True)):
        raise InputError("grid", value=grid, limit=f"whole clusters of {cluster}")
