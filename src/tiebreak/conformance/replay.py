"""Runs conformance cases on the PTX machine, and compares with what a device gave."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiebreak.sim.ptx.executor import execute
from tiebreak.sim.ptx.parser import parse

from .case import SOURCE_NAMES, Case
from .kernel_text import ENTRY, make_kernel, output_bytes
from .operands import draw_operands
from .recorder import pack_operands
from .vectors import Results, split_results

FILE = "tests/ptx_vectors.npz"
"""Where the golden vectors are, from the root of the repository."""


@dataclass(frozen=True)
class Mismatch:
    """One result that is not the device's.

    Attributes:
        case: The case.
        destination: Place of the destination.
        thread: Thread, or repetition of a sequence.
        operands: Bits of its operands.
        expected: Bits that the device gave.
        got: Bits that the PTX machine gave.
    """

    case: Case
    destination: int
    thread: int
    operands: tuple[int, ...]
    expected: int
    got: int

    def __str__(self) -> str:
        named = ", ".join(f"{name} = {bits:#x}" for name, bits in zip(SOURCE_NAMES, self.operands, strict=False))
        return (
            f"{self.case.text} thread {self.thread}: {named or 'no operands'}: destination {self.destination} is"
            f" {self.expected:#x} on the device and {self.got:#x} here; to repeat:\n"
            f"  python -m tiebreak.conformance replay {FILE} '{self.case.name}'"
        )


def run_on_machine(case: Case) -> Results:
    """Results of a case on the PTX machine.

    Raises:
        InputError: The kernel cannot be parsed, or has an instruction that is not in the table.
        FindingError: The kernel cannot be executed to its end.
    """
    module = parse(make_kernel(case), case.name)
    operands = np.frombuffer(pack_operands(case), np.uint8).copy()
    results = np.zeros(output_bytes(case), np.uint8)
    threads = 1 if case.kind == "sequence" else case.count
    execute(module.kernels[ENTRY], module, 1, threads, (operands, results))
    return split_results(case, results.tobytes())


def compare(case: Case, expected: Results, got: Results) -> list[Mismatch]:
    """Every result that differs."""
    operands = draw_operands(case)
    mismatches = []
    for destination, (wanted, found) in enumerate(zip(expected, got, strict=True)):
        words = len(wanted) // case.count
        for place in np.flatnonzero(wanted != found):
            thread = int(place) // words
            bits = tuple(int(words_of[thread]) for words_of in operands)
            mismatches.append(Mismatch(case, destination, thread, bits, int(wanted[place]), int(found[place])))
    return mismatches


def measure_error(case: Case, expected: Results, got: Results) -> int:
    """Largest difference in units in the last place of an approximate case; a NaN on one side only is the largest."""
    difference = 0
    for kind, wanted, found in zip(case.destinations, expected, got, strict=True):
        width = 8 * case.widths[0]
        part = 16 if kind.endswith("x2") else width
        for shift in range(0, width, part):
            left, right = (_order(words >> np.uint64(shift), part) for words in (wanted, found))
            difference = max(difference, int(np.abs(left - right).max()))
    return difference


def _order(words: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.object_]:
    """Integers that are as far apart as numbers are in units in the last place."""
    sign = 1 << (width - 1)
    return np.array([-(bits & (sign - 1)) if bits & sign else bits & (sign - 1) for bits in map(int, words)], object)
