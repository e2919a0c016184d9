"""Kernels of the zoo as they are launched, whatever they are written in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiebreak.ptx.code import KernelCode
from tiebreak.ptx.triton_arguments import bind
from tiebreak.ptx.triton_compiler import obtain_code
from tiebreak.sim.ptx.findings import Finding
from tiebreak.sim.ptx.module import Instruction

from . import triton_kernels
from .kernel import ARCHITECTURE, BrokenKernel, SoundKernel, Trial, build_text, find_line
from .triton_twins import TRITON_TWINS, TritonTwins

WARP = 32
TRITON_WARPS = 4


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What must be reported of a broken kernel.

    Attributes:
        rule: The rule that it breaks.
        source: Where the same mistake was made in public.
        findings: Kinds of findings of which one must be reported.
        lines: Lines that the finding must name, of the PTX text or of ``file``.
        file: Name of the source file that ``lines`` belong to; empty for the PTX text.
        schedule: Order of warps under which the output is wrong; empty if none is known.
    """

    rule: str
    source: str
    findings: tuple[str, ...]
    lines: frozenset[int]
    file: str = ""
    schedule: str = ""

    def is_met_by(self, finding: Finding) -> bool:
        """Whether a finding is of an expected kind, and names every line."""
        named = {line for each in finding.instructions for line in self._find_lines(each)}
        return finding.kind in self.findings and self.lines <= named

    def _find_lines(self, instruction: Instruction) -> Iterator[int]:
        location = instruction.location
        if not self.file:
            yield instruction.line
        while self.file and location is not None:
            if location.file.rsplit("/", 1)[-1] == self.file:
                yield location.line
            location = location.inlined_at


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """A kernel that can be launched.

    Attributes:
        name: Name in the zoo.
        language: What it is written in.
        code: PTX.
        trials: Arguments of launches, by name.
        threads: Threads per CTA.
        grid: CTAs of the launch.
        cluster: CTAs per cluster.
        expectation: What must be reported of it, or None for a correct kernel.
    """

    name: str
    language: str
    code: KernelCode
    trials: dict[str, Trial]
    threads: int
    grid: int
    cluster: int = 1
    expectation: Expectation | None = None

    def list_arguments(self, trial: Trial) -> list[int]:
        """Arguments in the order of the kernel's parameters, arrays as addresses; scratch memory of Triton is null."""
        given = trial.arguments.values()
        values = [int(value.ctypes.data) if isinstance(value, np.ndarray) else value for value in given]
        return values + [0] * (len(self.code.kernel.parameters) - len(values))


def describe_sound(kernel: SoundKernel, architecture: str = ARCHITECTURE) -> Specimen:
    """A correct kernel written in PTX."""
    return Specimen(
        name=kernel.name,
        language="PTX",
        code=KernelCode(build_text(kernel, architecture), kernel.name),
        trials={name: make() for name, make in kernel.trials.items()},
        threads=kernel.threads,
        grid=kernel.grid,
        cluster=kernel.cluster,
    )


def describe_broken(kernel: BrokenKernel, architecture: str = ARCHITECTURE) -> Specimen:
    """A broken kernel written in PTX."""
    text, original = build_text(kernel, architecture), kernel.original
    return Specimen(
        name=kernel.name,
        language="PTX",
        code=KernelCode(text, kernel.name),
        trials={kernel.trial or next(iter(original.trials)): kernel.make_trial()},
        threads=original.threads,
        grid=original.grid,
        cluster=original.cluster,
        expectation=Expectation(
            rule=kernel.rule,
            source=kernel.source,
            findings=kernel.findings,
            lines=frozenset(find_line(text, place) for place in kernel.places),
            schedule=kernel.schedule,
        ),
    )


def describe_twins(twins: TritonTwins, broken: bool, capability: int = 90) -> Specimen:
    """One of two Triton kernels, compiled for a compute capability."""
    trial = twins.make_trial()
    constants = twins.broken if broken else twins.sound
    bound = bind(twins.kernel, (), {**trial.arguments, **constants}, capability, warps=TRITON_WARPS)
    code = obtain_code(bound.source)
    path = Path(triton_kernels.__file__)
    given = {name: value for name, value in trial.arguments.items() if any(value is each for each in bound.arguments)}
    return Specimen(
        name=twins.name if broken else f"{twins.name}, mended",
        language="Triton",
        code=KernelCode(code.ptx, twins.name, code.shared_bytes),
        trials={"default": Trial(given, trial.expected)},
        threads=WARP * TRITON_WARPS,
        grid=twins.grid,
        expectation=Expectation(
            rule=twins.rule,
            source=twins.source,
            findings=twins.findings,
            lines=frozenset(find_line(path.read_text(), place) for place in twins.places),
            file=path.name,
        )
        if broken
        else None,
    )


def list_sound(kernels: dict[str, SoundKernel]) -> Iterator[Specimen]:
    """Yield the correct kernels, those in Triton after those in PTX."""
    yield from map(describe_sound, kernels.values())
    yield from (describe_twins(twins, broken=False) for twins in TRITON_TWINS)


def list_broken(kernels: dict[str, BrokenKernel]) -> Iterator[Specimen]:
    """Yield the broken kernels, those in Triton after those in PTX."""
    yield from map(describe_broken, kernels.values())
    yield from (describe_twins(twins, broken=True) for twins in TRITON_TWINS)
