"""Warp instructions in generated code: values that lanes exchange, and what is wrong with how they meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .executor_faults import report
from .executor_groups import Group, Mask, lane_bits
from .executor_registers import LANES
from .memory import Array
from .module import Immediate, Instruction, Kernel
from .table import split_operands
from .warp import resolve_warp

if TYPE_CHECKING:
    from .executor_cta import Cta

FULL = 0xFFFFFFFF
_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


class WarpInstruction:
    """One warp instruction, performed for all warps of a group at once.

    Args:
        instruction: The instruction.
        kernel: Its kernel.

    Attributes:
        sources: NumPy type in which each source is read.
    """

    def __init__(self, instruction: Instruction, kernel: Kernel) -> None:
        self._instruction = instruction
        self._operation = resolve_warp(instruction, kernel)
        self.sources = self._operation.sources
        _, operands = split_operands(instruction)
        constants = [operand.bits & FULL if isinstance(operand, Immediate) else None for operand in operands]
        place = self._operation.membermask
        self._whole = place >= 0 and constants[place] == FULL
        self._lanes: Array | None = None
        self._indices: dict[int, Array] = {}
        if instruction.opcode == "shfl" and self._whole and None not in constants[1:] and len(self._targets) == 1:
            probe = [np.zeros((1, LANES), np.uint32)] + [np.full((1, LANES), c, np.uint32) for c in constants[1:]]
            assert self._operation.reads is not None
            self._lanes = self._operation.reads(*probe)[0]

    @property
    def _targets(self) -> tuple[Any, ...]:
        return self._operation.destinations

    def __call__(
        self, cta: Cta, group: Group, guard: Mask | None, targets: list[Array | None], sources: list[Array]
    ) -> None:
        """Perform it for the threads of a group that ``guard`` lets through."""
        if group.mask is None and guard is None and self._whole:
            results = self._exchange_whole(sources)
            if results is not None:
                if targets[0] is not None:
                    targets[0][...] = results
                return
        active = guard if guard is not None else group.mask
        if active is None:
            active = np.ones(group.high - group.low, bool)
        if not active.any():
            return
        lanes = active.reshape(-1, LANES)
        shaped = [source.reshape(-1, LANES) for source in sources]
        if not (self._whole and lanes.all()):
            self._check(cta, group, lanes, shaped)
        results = self._operation.evaluate(lanes, *shaped)
        for target, values in zip(targets, results if isinstance(results, tuple) else (results,), strict=True):
            if target is not None:
                np.copyto(target, np.broadcast_to(values, lanes.shape).reshape(-1), where=active)

    def _exchange_whole(self, sources: list[Array]) -> Array | None:
        """Return the result where every lane takes part, or None if there is no short way."""
        opcode, words = self._instruction.opcode, self._instruction.modifiers
        if self._lanes is not None:
            width = len(sources[0])
            index = self._indices.get(width)
            if index is None:
                index = (np.arange(0, width, LANES)[:, None] + self._lanes).reshape(-1)
                self._indices[width] = index
            shuffled: Array = sources[0].take(index)
            return shuffled
        if opcode == "redux" and words[-1] != "f32":
            values = sources[0].reshape(-1, LANES)
            reduced: Array = _REDUCTIONS[words[1]].reduce(values, axis=1, dtype=values.dtype)
            return reduced.view("uint32").repeat(LANES)
        if opcode == "vote" and words[1] in ("any", "all"):
            truth = sources[0].reshape(-1, LANES)
            said = np.asarray(truth.any(axis=1) if words[1] == "any" else truth.all(axis=1))
            return said.repeat(LANES)
        if opcode == "vote" and words[1] == "ballot":
            return lane_bits(np.ascontiguousarray(sources[0])).repeat(LANES)
        return None

    def _check(self, cta: Cta, group: Group, lanes: Array, sources: list[Array]) -> None:
        for wrong, why in self._operation.problems(lanes, *sources):
            threads = wrong.reshape(-1).nonzero()[0] + group.low
            place = f"warp {threads[0] // LANES}"
            report(cta, "warp-mask", self._instruction, threads[:1], "takes part", place, why)
