"""One instruction on one tuple of operands, through the instruction table alone."""

from __future__ import annotations

from functools import cache

import numpy as np

from tiebreak.sim.ptx.module import Register
from tiebreak.sim.ptx.parser import parse
from tiebreak.sim.ptx.table import ValueOperation, resolve_value

from .case import Case
from .kernel_text import ENTRY, make_kernel


@cache
def find_operation(text: str, sources: tuple[str, ...], destinations: tuple[str, ...]) -> ValueOperation:
    """What the table has for the one instruction of a snippet."""
    kernel = parse(make_kernel(Case(text, sources, destinations))).kernels[ENTRY]
    (instruction,) = [one for one in kernel.body if one.name == text.split()[0] and one.operands[0] == Register("%d")]
    return resolve_value(instruction, kernel)


def compute(text: str, sources: tuple[str, ...], destinations: tuple[str, ...], *bits: int) -> tuple[int, ...]:
    """Bits of the results of an instruction on bits of operands."""
    operation = find_operation(text, sources, destinations)
    arrays = []
    for value, view in zip(bits, operation.sources, strict=False):
        dtype = np.dtype(view)
        raw = np.array([value & ((1 << 8 * dtype.itemsize) - 1)], f"uint{8 * dtype.itemsize}")
        arrays.append(raw.astype(bool) if view == "bool" else raw.view(dtype))
    with np.errstate(all="ignore"):
        results = operation.evaluate(*arrays)
    results = results if isinstance(results, tuple) else (results,)
    assert tuple(str(result.dtype) for result in results) == operation.destinations
    return tuple(int(result[0]) for result in results)
