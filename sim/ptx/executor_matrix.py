"""``ldmatrix`` and ``stmatrix``: rows of 16 bytes that lanes give the addresses of, spread over a warp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .access import AccessForm
from .executor_access import MemoryInstruction
from .executor_faults import report
from .executor_groups import Group, Mask
from .executor_location import locate
from .executor_registers import LANES
from .memory import Array
from .module import Instruction, Kernel, Operand
from .warp import distribute_matrices, gather_matrices

if TYPE_CHECKING:
    from .executor_cta import Cta

ROW = 8
"""Elements of a row, and rows of a matrix."""


class _Matrix(MemoryInstruction):
    def __init__(self, instruction: Instruction, kernel: Kernel, form: AccessForm) -> None:
        super().__init__(instruction, kernel, form)
        self._count = next(int(word[1:]) for word in instruction.modifiers if word in ("x1", "x2", "x4"))
        self._transposed = "trans" in instruction.modifiers

    def view_source(self, operand: Operand) -> str:
        """Registers hold two elements each."""
        return "uint32"

    def __call__(
        self,
        cta: Cta,
        group: Group,
        guard: Mask | None,
        base: Array | None,
        offset: int,
        targets: list[Array | None],
        values: tuple[Array, ...],
    ) -> None:
        """Perform it for the warps of a group; all lanes of a warp take part (``.aligned``)."""
        active = guard if guard is not None else group.mask
        span = group.high - group.low
        lanes = np.ones(span, bool) if active is None else active
        anyone = np.asarray(lanes.reshape(-1, LANES).any(axis=1))
        warps = anyone.nonzero()[0]
        partial = warps[~lanes.reshape(-1, LANES)[warps].all(axis=1)]
        if len(partial):
            thread = group.low + int(partial[0]) * LANES
            reason = "not all lanes of the warp take part"
            report(cta, "warp-mask", self.instruction, [thread], "takes part", f"warp {thread // LANES}", reason)
        if not len(warps):
            return
        index = (warps[:, None] * LANES + np.arange(ROW * self._count)).reshape(-1)
        source = np.broadcast_to(np.array(offset), span) if base is None else base.astype(np.int64) + offset
        addresses = source.take(index).astype(np.int64)
        self._move(cta, group, warps, index + group.low, addresses, targets, values)

    def _move(
        self,
        cta: Cta,
        group: Group,
        warps: Array,
        threads: Array,
        addresses: Array,
        targets: list[Array | None],
        values: tuple[Array, ...],
    ) -> None:
        raise NotImplementedError


class LoadMatrix(_Matrix):
    """``ldmatrix``."""

    reads = True

    def _move(
        self,
        cta: Cta,
        group: Group,
        warps: Array,
        threads: Array,
        addresses: Array,
        targets: list[Array | None],
        values: tuple[Array, ...],
    ) -> None:
        rows = np.empty((len(threads), ROW), np.uint16)
        for piece in locate(cta, self.form, self.instruction, threads, addresses):
            self._announce(cta, threads, piece, ())
            piece.check_written(cta, self.instruction, threads, self.form)
            rows[... if piece.part is None else piece.part] = piece.region.read(piece.at, np.uint16, ROW)
        parts = distribute_matrices(rows.reshape(len(warps), self._count, ROW, ROW), self._transposed)
        for target, part in zip(targets, parts, strict=True):
            if target is not None:
                target.reshape(-1, LANES)[warps] = part


class StoreMatrix(_Matrix):
    """``stmatrix``."""

    def _move(
        self,
        cta: Cta,
        group: Group,
        warps: Array,
        threads: Array,
        addresses: Array,
        targets: list[Array | None],
        values: tuple[Array, ...],
    ) -> None:
        registers = tuple(value.reshape(-1, LANES)[warps] for value in values)
        rows = np.ascontiguousarray(gather_matrices(registers, self._transposed)).reshape(len(threads), ROW)
        for piece in locate(cta, self.form, self.instruction, threads, addresses):
            data = rows if piece.part is None else rows[piece.part]
            self._announce(cta, threads, piece, tuple(data.T))
            piece.region.write(piece.at, data, ROW)
        cta.launch.version += 1
