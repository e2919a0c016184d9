"""``ldmatrix`` and ``stmatrix``: rows of 16 bytes that lanes give the addresses of, spread over a warp."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .access import AccessForm
from .executor_faults import report
from .executor_groups import Group
from .executor_location import locate
from .executor_memory import MemoryInstruction, Operands, Part
from .executor_registers import LANES
from .memory import Array
from .module import Instruction, Kernel, Operand
from .warp import distribute_matrices, gather_matrices

if TYPE_CHECKING:
    from .executor_cta import Cta

ROW = 8
"""Elements of a row, and rows of a matrix."""


class Rows(NamedTuple):
    """Rows of the matrices of some warps.

    Attributes:
        cta: Their CTA.
        warps: The warps, by their place in the group's range.
        threads: Lane that has the address of each row.
        addresses: The addresses.
        targets: Destinations, of the whole range.
        values: Registers to write, of the whole range.
    """

    cta: Cta
    warps: Array
    threads: Array
    addresses: Array
    targets: list[Array | None]
    values: tuple[Array, ...]


class MatrixAccess(MemoryInstruction):
    """An instruction that whole warps perform together."""

    def __init__(self, instruction: Instruction, kernel: Kernel, form: AccessForm) -> None:
        super().__init__(instruction, kernel, form)
        self._count = next(int(word[1:]) for word in instruction.modifiers if word in ("x1", "x2", "x4"))
        self._transposed = "trans" in instruction.modifiers

    def view_source(self, operand: Operand) -> str:
        """Registers hold two elements each."""
        return "uint32"

    def __call__(self, cta: Cta, group: Group, operands: Operands) -> None:
        """Perform it for the warps of a group; all lanes of a warp take part (``.aligned``)."""
        active = operands.guard if operands.guard is not None else group.mask
        lanes = np.ones(group.high - group.low, bool) if active is None else active
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
        addresses = operands.find_addresses(index, index)
        self.move(Rows(cta, warps, index + group.low, addresses, operands.targets, operands.values))

    @abstractmethod
    def move(self, rows: Rows) -> None:
        """Read or write the rows."""

    def locate_parts(self, rows: Rows, data: Array | None = None) -> Iterator[Part]:
        """Yield the rows of each region, announced; ``data`` is what is written to them."""
        for piece in locate(rows.cta, self.form, self.instruction, rows.threads, rows.addresses):
            mine: Any = ... if piece.part is None else piece.part
            values = () if data is None else tuple(data[mine].T)
            part = Part(rows.cta, rows.threads[mine], piece, piece.part, [], values)
            self.announce(part)
            yield part


class LoadMatrix(MatrixAccess):
    """``ldmatrix``."""

    reads = True

    def move(self, rows: Rows) -> None:
        """Read."""
        data = np.empty((len(rows.threads), ROW), np.uint16)
        for part in self.locate_parts(rows):
            part.piece.check_written(rows.cta, self.instruction, part.threads, self.form)
            data[... if part.places is None else part.places] = part.piece.region.read(part.piece.at, np.uint16, ROW)
        matrices = distribute_matrices(data.reshape(len(rows.warps), self._count, ROW, ROW), self._transposed)
        for target, matrix in zip(rows.targets, matrices, strict=True):
            if target is not None:
                target.reshape(-1, LANES)[rows.warps] = matrix


class StoreMatrix(MatrixAccess):
    """``stmatrix``."""

    def move(self, rows: Rows) -> None:
        """Write."""
        registers = tuple(value.reshape(-1, LANES)[rows.warps] for value in rows.values)
        data = np.ascontiguousarray(gather_matrices(registers, self._transposed)).reshape(len(rows.threads), ROW)
        for part in self.locate_parts(rows, data):
            part.piece.region.write(part.piece.at, np.stack(part.values, axis=1), ROW)
        rows.cta.launch.version += 1
