"""Runs conformance cases on the PTX machine, and compares with what a device gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiebreak.sim.ptx.executor import execute
from tiebreak.sim.ptx.floats import FORMATS, widen
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


@dataclass(frozen=True)
class Error:
    """How far the results of an approximate case are from the device's.

    Attributes:
        units: Largest difference in units in the last place; of the upper 32 bits for ``f64``.
        scaled: Largest difference of numbers, as a part of those above 1; infinite if one side is a NaN or an infinity
            and the other is not.
    """

    units: int
    scaled: float


def measure_error(case: Case, expected: Results, got: Results) -> Error:
    """Error of a case with one destination, each part of a packed one by itself."""
    (kind,) = case.destinations
    single = kind.removesuffix("x2")
    number = FORMATS[single]
    units, scaled = 0, 0.0
    for shift in range(0, 32 if kind != single else 1, 16):
        wanted, found = ((words >> np.uint64(shift)).astype(number.storage) for words in (expected[0], got[0]))
        step = 32 if single == "f64" else 0
        distance = np.abs(_order(wanted, number.width) - _order(found, number.width)) >> step
        left, right = widen(wanted, single), widen(found, single)
        with np.errstate(invalid="ignore"):
            difference = np.where(wanted == found, 0.0, np.abs(left - right) / np.maximum(1.0, np.abs(left)))
        units = max(units, int(distance.max()))
        scaled = max(scaled, float(np.where(np.isnan(difference), np.inf, difference).max()))
    return Error(units, scaled)


def _order(words: npt.NDArray[np.unsignedinteger[Any]], width: int) -> npt.NDArray[np.object_]:
    """Integers that are as far apart as numbers are in units in the last place."""
    sign = 1 << (width - 1)
    return np.array([-(bits & (sign - 1)) if bits & sign else bits & (sign - 1) for bits in map(int, words)], object)
