"""Values that come from memory that nothing wrote: followed until they matter.

Reading such memory is no mistake by itself: kernels read whole rows of shared
words and drop those beyond the last warp.  What depends on such a value is
followed through registers and shared memory, and reported once it decides a
branch, is an address, enters an atomic or reaches global memory (Seward and
Nethercote, "Using Valgrind to detect undefined value errors with bit-precision",
USENIX ATC 2005; here with one bit per value).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .access import AccessForm
from .executor_faults import make_actor
from .executor_groups import Group, Mask
from .executor_liveness import list_read, list_registers, list_written
from .executor_registers import LANES
from .findings import Finding, FindingError
from .module import Address, Instruction, Register
from .table import split_operands
from .warp import resolve_warp

if TYPE_CHECKING:
    from .executor_cta import Cta
    from .executor_location import Piece


class UnwrittenReadError(Exception):
    """A load read memory that nothing wrote: code stops behind it, and what it read is followed from there."""

    def __init__(self, place: int) -> None:
        self.place = place
        super().__init__(place)


@dataclass
class Taint:
    """Threads whose value of a register comes from memory that nothing wrote.

    Attributes:
        mask: Those threads, of all of the CTA.
        origin: The load that read it.
        place: What it read, in words.
    """

    mask: Mask
    origin: Instruction
    place: str


class Taints:
    """The registers of a CTA that have such values.

    Args:
        cta: The CTA.

    Attributes:
        fresh: Whether the load that runs now read memory that nothing wrote.
    """

    def __init__(self, cta: Cta) -> None:
        self._cta = cta
        self.fresh = False
        self._registers: dict[str, Taint] = {}

    def __bool__(self) -> bool:
        return bool(self._registers)

    def note_load(self, instruction: Instruction, threads: Any, unwritten: Mask, place: str) -> None:
        """Note what a load read; ``unwritten`` is ``[n, elements]`` for ``threads``."""
        self.fresh = True
        active = np.zeros(len(self._cta.alive), bool)
        active[threads] = True
        target = instruction.operands[0]
        for column, element in enumerate(getattr(target, "elements", (target,))):
            mask = np.zeros(len(active), bool)
            mask[threads] = unwritten[:, column]
            for name in list_registers(element):
                self._merge(name, mask, active, Taint(mask, instruction, place))

    def follow(self, group: Group, instruction: Instruction) -> None:
        """Say which results of an instruction that a group performed depend on such values."""
        if self._registers.keys().isdisjoint(self._cta.launch.compiled.touched[instruction.index]):
            return
        active = self._active(group, instruction)
        kind = self._cta.launch.compiled.entries[instruction.index].kind
        if kind in ("value", "address", "warp"):
            taint = self._warp(instruction, active) if kind == "warp" else self._value(instruction)
            self._write(instruction, active, taint)
            return
        address = [operand for operand in instruction.operands if isinstance(operand, Address)]
        self._use(instruction, active, [name for one in address for name in list_registers(one)], "uses it as address")
        if instruction.opcode != "st":
            given = instruction.operands[len(address) + (1 if list_written(instruction) else 0) :]
            self._use(instruction, active, [n for one in given for n in list_registers(one)], "gives it to memory")
        self._write(instruction, active, None)

    def check_decision(self, group: Group, instruction: Instruction) -> None:
        """Report a branch or a barrier that depends on such a value."""
        if not self._registers.keys().isdisjoint(self._cta.launch.compiled.touched[instruction.index]):
            self._use(instruction, group.active, list_read(instruction), "is decided by it")

    def note_store(self, instruction: Instruction, form: AccessForm, piece: Piece, threads: Any) -> None:
        """Let memory that threads of a piece wrote such values to count as not written, or report it if global."""
        names = [next(iter(list_registers(one)), "") for one in split_elements(instruction)]
        for place, name in enumerate(names):
            taint = self._registers.get(name)
            if taint is None:
                continue
            wrong = taint.mask[threads]
            if not wrong.any():
                continue
            if piece.space == "global":
                self._use(instruction, taint.mask, [name], "stores it")
            else:
                piece.region.unmark(piece.at[wrong] + place * form.element_bytes, form.element_bytes)

    def prune(self, live: int, number: dict[str, int]) -> None:
        """Forget registers that nothing reads any more."""
        for name in [name for name in self._registers if not live >> number[name] & 1]:
            del self._registers[name]

    def _active(self, group: Group, instruction: Instruction) -> Mask:
        guard = instruction.guard
        if guard is None:
            return group.active
        self._use(instruction, group.active, [guard.register], "is decided by it")
        holds = self._cta.file.array(guard.register)
        return group.active & (~holds if guard.negated else holds)

    def _value(self, instruction: Instruction) -> Taint | None:
        names = [name for one in split_operands(instruction)[1] for name in list_registers(one)]
        taint = self._union(names)
        if taint is None:
            return None
        if instruction.opcode == "selp":
            _, a, b, p = instruction.operands
            truth = self._read(p)
            mask = np.where(truth, self._mask(a), self._mask(b)) | self._mask(p)
            return Taint(mask, taint.origin, taint.place)
        if instruction.opcode in ("and", "or") and len(instruction.operands) == 3:
            return self._logic(instruction, taint)
        return taint

    def _logic(self, instruction: Instruction, taint: Taint) -> Taint:
        """A known operand may decide an ``and`` or an ``or`` alone."""
        _, a, b = instruction.operands
        if not (isinstance(a, Register) and isinstance(b, Register)):
            return taint
        decisive = [
            (values == (0 if instruction.opcode == "and" else np.invert(values.dtype.type(0)))) & ~self._mask(one)
            for one in (a, b)
            for values in [self._read(one)]
        ]
        return Taint(taint.mask & ~decisive[0] & ~decisive[1], taint.origin, taint.place)

    def _warp(self, instruction: Instruction, active: Mask) -> Taint | None:
        _, sources = split_operands(instruction)
        taint = self._union([name for one in sources for name in list_registers(one)])
        if taint is None:
            return None
        lanes = active.reshape(-1, LANES)
        if instruction.opcode == "shfl":
            operation = resolve_warp(instruction, self._cta.launch.kernel)
            values = [self._values(one).reshape(-1, LANES) for one in sources[1:]]
            data = self._mask(sources[0]).astype(np.uint32).reshape(-1, LANES)
            found = operation.evaluate(lanes, data, *values)
            mask = np.asarray(found[0] if isinstance(found, tuple) else found).astype(bool).reshape(-1)
        else:
            mask = ((taint.mask & active).reshape(-1, LANES).any(axis=1)).repeat(LANES)
        return Taint(mask, taint.origin, taint.place)

    def _write(self, instruction: Instruction, active: Mask, taint: Taint | None) -> None:
        for name in list_written(instruction):
            self._merge(name, taint.mask if taint else np.zeros_like(active), active, taint)

    def _merge(self, name: str, mask: Mask, active: Mask, taint: Taint | None) -> None:
        old = self._registers.get(name)
        merged = mask & active if old is None else np.where(active, mask, old.mask)
        source = taint or old
        if source is None or not merged.any():
            self._registers.pop(name, None)
        else:
            self._registers[name] = Taint(merged, source.origin, source.place)

    def _union(self, names: list[str]) -> Taint | None:
        found = [self._registers[name] for name in names if name in self._registers]
        if not found:
            return None
        return Taint(np.logical_or.reduce([one.mask for one in found]), found[0].origin, found[0].place)

    def _use(self, instruction: Instruction, active: Mask, names: list[str], action: str) -> None:
        """Report values that matter, once for each load that they come from."""
        for name in names:
            taint = self._registers.get(name)
            if taint is None or not (taint.mask & active).any():
                continue
            cta, thread = self._cta, int((taint.mask & active).argmax())
            if taint.origin.index in cta.launch.reported:
                continue
            cta.launch.reported.add(taint.origin.index)
            actors = make_actor(cta, taint.origin, thread, "reads"), make_actor(cta, instruction, thread, action)
            finding = Finding("uninitialised", actors, taint.place, "nothing wrote it before", cta.launch.replay)
            if cta.observer is None:
                raise FindingError(finding)
            cta.observer.report(finding)

    def _mask(self, operand: Any) -> Mask:
        name = next(iter(list_registers(operand)), "")
        taint = self._registers.get(name)
        return taint.mask if taint is not None else np.zeros(len(self._cta.alive), bool)

    def _read(self, operand: Any) -> Any:
        assert isinstance(operand, Register)
        values = self._cta.file.array(operand.name.removeprefix("!"))
        return ~values if operand.name.startswith("!") else values

    def _values(self, operand: Any) -> Any:
        if isinstance(operand, Register):
            return self._read(operand)
        return np.full(len(self._cta.alive), operand.bits & 0xFFFFFFFF, np.uint32)


def split_elements(instruction: Instruction) -> list[Any]:
    """Elements that a store writes."""
    value = instruction.operands[1]
    return list(getattr(value, "elements", (value,)))
