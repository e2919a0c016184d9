"""Speed of the PTX machine: rows that a CuTeDSL selector chooses from, instruction by instruction, on one core."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tiebreak.errors import SimulationError
from tiebreak.impl.selector import find_reciprocal
from tiebreak.impl.selector_choice import count_slots
from tiebreak.impl.specialization import SelectorSpecialization
from tiebreak.ptx.arguments import place
from tiebreak.ptx.cutedsl import obtain_selector_code
from tiebreak.ptx.launch import Prepared

from .inputs import draw_input
from .model import Shape

THREADS = 512
VECTORS = 4


@dataclass(frozen=True)
class Speed:
    """How fast one row was executed.

    Attributes:
        kind: Kind of scores.
        races: Whether races were looked for.
        thread_instructions: Instructions summed over threads.
        seconds: Least processor time of the samples.
    """

    kind: str
    races: bool
    thread_instructions: int
    seconds: float

    @property
    def rate(self) -> float:
        """Thread-instructions per second."""
        return self.thread_instructions / self.seconds


def measure_machine(
    candidates: int, k: int, kinds: Sequence[str], architecture: str, samples: int, seed: int
) -> Iterator[Speed]:
    """Time the selector at 512 threads on one row of each kind, with and without looking for races.

    Processor time is taken, so that other processes do not count.  Code is generated in a first execution, which is
    not timed and whose output is checked.

    Raises:
        MissingBackendError: The selector is not compiled, and CuTeDSL is not there.
        SimulationError: An output is not that of the specification, or the kernel has findings.
    """
    slots = count_slots(min(k, candidates))
    specialization = SelectorSpecialization(threads=THREADS, vectors=VECTORS, contract="order", slots=slots)
    code = obtain_selector_code(specialization, architecture)
    for kind in kinds:
        drawn = draw_input(kind, Shape(1, candidates, k), 1, seed)
        row, out = torch.from_numpy(drawn.candidates).clone(), torch.full((1, k), -1, dtype=torch.int32)
        values = (row, out, 0, 0, row.numel() * 4, 0, k, candidates, candidates, find_reciprocal(candidates), 1, k, 0)
        arguments = tuple(place(value, "argument") for value in values)
        prepared = Prepared(code, arguments, (1, 1, 1), (THREADS, 1, 1))
        prepared.run().check()
        if not np.array_equal(out.numpy(), drawn.expected):
            raise SimulationError(f"selection from {kind} scores", limit="must be that of the specification")
        for races in (False, True):
            yield _measure(prepared, kind, races, samples)


def _measure(prepared: Prepared, kind: str, races: bool, samples: int) -> Speed:
    times = []
    instructions = 0
    for _ in range(samples):
        start = time.process_time()
        report = prepared.run(races=races).check().report
        times.append(time.process_time() - start)
        assert report is not None
        instructions = report.thread_instructions
    return Speed(kind, races, instructions, min(times))
