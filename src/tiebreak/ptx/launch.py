"""Launches on the PTX machine from Python: Triton kernels, CuTeDSL kernels and ``.ptx`` files.

Memory of the arguments is used in place, so outputs are where the kernel put them::

    launch(kernel, (rows,), scores, out, 64, size=64).check()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tiebreak.errors import InputError, SimulationError
from tiebreak.sim.ptx.executor import Report, execute
from tiebreak.sim.ptx.findings import Finding, FindingError
from tiebreak.sim.ptx.memory_global import GlobalMemory
from tiebreak.sim.ptx.module import Kernel
from tiebreak.sim.ptx.observation import Observer
from tiebreak.sim.ptx.races import RaceDetector

from .arguments import Argument, place
from .code import KernelCode
from .parameters import check_arguments, pack_argument, register_argument
from .replays import restore, save_replay, take_snapshot
from .targets import compile_target, find_target

Shape = tuple[int, ...]
MOST_THREADS = 1024


@dataclass(frozen=True)
class Launched:
    """What a launch gave, besides what it wrote.

    Attributes:
        code: What ran.
        findings: What is wrong with it.
        report: Instructions and time that it took; None if it could not go on to its end.
    """

    code: KernelCode
    findings: tuple[Finding, ...]
    report: Report | None

    def check(self) -> Launched:
        """Return this launch if nothing is wrong with it.

        Raises:
            SimulationError: Something is; says all of it.
        """
        if self.findings:
            raise SimulationError("\n".join(map(str, self.findings)))
        return self


@dataclass(frozen=True)
class Prepared:
    """A launch that is ready.

    Attributes:
        code: What to run.
        arguments: One for each parameter.
        grid: CTAs in x, y and z.
        block: Threads of a CTA in x, y and z.
        cluster: CTAs of a cluster, along x.
        schedule: Order in which warps run.
    """

    code: KernelCode
    arguments: tuple[Argument, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: int = 1
    schedule: str = "lockstep"

    def run(self, *, races: bool = True) -> Launched:
        """Launch.

        Args:
            races: Whether to look for races, and for reads of memory that nothing wrote.

        Raises:
            InputError: An argument does not fit its parameter.
            UnknownInstructionError: The kernel has an instruction that the machine does not know.
        """
        before = take_snapshot(self.arguments)
        report, findings = self._execute(races)
        if not findings:
            return Launched(self.code, (), report)
        explained = self
        if self.code.explain is not None:
            explained = replace(self, code=self.code.explain())
            restore(before)
            report, findings = explained._execute(races)
        replay = save_replay(explained, before)
        return Launched(explained.code, tuple(replace(finding, replay=replay) for finding in findings), report)

    def _execute(self, races: bool) -> tuple[Report | None, list[Finding]]:
        """Run to the end, or to the first finding after which nothing can go on."""
        memory = self.place_arguments()
        detector = RaceDetector(place=memory.place) if races else None
        report, fatal = None, []
        try:
            report = self.perform(memory, detector)
        except FindingError as error:
            fatal.append(error.finding)
            if detector is not None:
                detector.finish()
        others = detector.findings if detector is not None else ()
        return report, [*(finding for finding in others if finding not in fatal), *fatal]

    def place_arguments(self) -> GlobalMemory:
        """Memory that holds the arrays of the arguments, and nothing else."""
        memory = GlobalMemory()
        for parameter, argument in zip(self.code.kernel.parameters, self.arguments, strict=True):
            register_argument(memory, argument, parameter.name)
        return memory

    def perform(self, memory: GlobalMemory, observer: Observer | None, kernel: Kernel | None = None) -> Report:
        """Run once.

        Args:
            memory: What ``place_arguments`` gave.
            observer: Who is told of accesses and edges.
            kernel: What to run in place of the kernel of ``code``, with the same parameters.

        Raises:
            FindingError: The execution cannot go on.
        """
        pairs = zip(self.code.kernel.parameters, self.arguments, strict=True)
        packed = [pack_argument(parameter, argument) for parameter, argument in pairs]
        return execute(
            kernel or self.code.kernel,
            self.code.module,
            self.grid,
            self.block,
            packed,
            shared_bytes=self.code.shared_bytes,
            cluster=self.cluster,
            observer=observer,
            schedule=self.schedule,
            memory=memory,
        )


def launch(
    target: Any,
    grid: Shape,
    *arguments: Any,
    architecture: str = "sm_100a",
    threads: Shape | None = None,
    cluster: int | None = None,
    shared_bytes: int | None = None,
    schedule: str = "lockstep",
    races: bool = True,
    **named: Any,
) -> Launched:
    """Compile a kernel if need be, and run it on the PTX machine.

    Args:
        target: Triton kernel, ``KernelRecipe`` of a CuTeDSL kernel, ``KernelCode``, path of a ``.ptx`` file, or
            ``module:attribute`` of one of them.
        grid: CTAs in x, y and z; fewer than three numbers are filled up with ones.
        arguments: CPU tensors, NumPy arrays and numbers, one for each parameter.
        architecture: Target to compile for: ``sm_90a``, ``sm_100a`` or ``sm_121a``.
        threads: Threads of a CTA in x, y and z; what the kernel requires if absent.
        cluster: CTAs of a cluster, along x; what the kernel requires if absent.
        shared_bytes: Dynamic shared memory of a CTA; what the compiler says if absent.
        schedule: Order in which warps run, see ``tiebreak.sim.ptx.schedule``.
        races: Whether to look for races, and for reads of memory that nothing wrote.
        named: Arguments of a Triton kernel by name, constants and ``num_warps`` included; one that is called like an
            argument of this function is passed by position.

    Raises:
        InputError: The target, the grid or an argument is none.
        PtxSyntaxError: The file is not PTX.
        MissingBackendError: CuTeDSL is not there.
        WorkerError: Triton refuses the kernel.
    """
    return prepare(
        target,
        grid,
        arguments,
        named,
        architecture=architecture,
        block=threads,
        cluster=cluster,
        shared_bytes=shared_bytes,
        schedule=schedule,
    ).run(races=races)


def prepare(
    target: Any,
    grid: Shape,
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    *,
    architecture: str = "sm_100a",
    block: Shape | None = None,
    cluster: int | None = None,
    shared_bytes: int | None = None,
    schedule: str = "lockstep",
) -> Prepared:
    """Compile, and check what can be checked without running; see ``launch``."""
    if isinstance(target, str | Path):
        target = find_target(str(target), architecture)
    code, given, _ = compile_target(target, arguments, named, architecture)
    if shared_bytes is not None:
        code = replace(code, shared_bytes=shared_bytes)
    kernel = code.kernel
    check_arguments(kernel, given)
    placed = [place(value, parameter.name) for value, parameter in zip(given, kernel.parameters, strict=True)]
    stated = kernel.directives.get("reqnctapercluster", (1,))[0]
    return Prepared(code, tuple(placed), _fill(grid, "grid"), _choose_block(kernel, block), cluster or stated, schedule)


def _fill(shape: Shape, name: str) -> tuple[int, int, int]:
    """Three numbers of one, two or three."""
    if not 1 <= len(shape) <= 3 or any(size < 1 for size in shape):
        raise InputError(name, value=shape, limit="must be one to three positive numbers")
    x, y, z = (*shape, 1, 1)[:3]
    return int(x), int(y), int(z)


def _choose_block(kernel: Kernel, block: Shape | None) -> tuple[int, int, int]:
    """Threads of a CTA: as asked for and required."""
    required = kernel.directives.get("reqntid")
    if block is None and required is None:
        raise InputError("block", limit=f"{kernel.name} does not say how many threads it needs", remedy="state it")
    filled = _fill(block or required or (), "block")
    if required is not None and filled != _fill(required, "block"):
        raise InputError("block", value=filled, limit=f"{kernel.name} requires {_fill(required, 'block')}")
    if filled[0] * filled[1] * filled[2] > MOST_THREADS:
        raise InputError("block", value=filled, limit=f"a CTA has at most {MOST_THREADS} threads")
    return filled
