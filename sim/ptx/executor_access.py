"""Loads, stores and atomics in generated code: addresses, bounds, alignment, observers, values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .access import AccessForm, resolve_access
from .atomic import resolve_update
from .executor_atomics import Serialiser
from .executor_groups import Group, Mask
from .executor_location import locate
from .executor_matrix import LoadMatrix, StoreMatrix
from .executor_memory import OBSERVED, Index, MemoryInstruction, Operands, Part
from .executor_taint import UnwrittenReadError
from .form import VIEWS, register_storage
from .memory import Array
from .module import Instruction, Kernel, Register
from .observation import Access, Kind, Observer

if TYPE_CHECKING:
    from .executor_cta import Cta


class ThreadAccess(MemoryInstruction):
    """An instruction that each thread performs by itself."""

    def __call__(self, cta: Cta, group: Group, operands: Operands) -> None:
        """Perform it for the threads of a group that its guard lets through."""
        threads, index = _choose(group, operands.guard)
        if not len(threads):
            return
        targets, values = operands.targets, operands.values
        if targets and self.form.order != "weak":
            group.polled = True
        addresses = operands.find_addresses(threads, index)
        if index is not None:
            values = tuple(value.take(index) for value in values)
        for piece in locate(cta, self.form, self.instruction, threads, addresses):
            part = Part(cta, threads, piece, index, targets, values)
            if (mine := piece.part) is not None:
                at = mine.nonzero()[0] if index is None else index[mine]
                part = Part(cta, threads[mine], piece, at, targets, tuple(value[mine] for value in values))
            self.announce(part)
            self.perform(part)
        if self.reads and cta.taints.fresh:
            cta.taints.fresh = False
            raise UnwrittenReadError(self.instruction.index + 1)

    @abstractmethod
    def perform(self, part: Part) -> None:
        """Read and write memory."""

    def note_missing(self, part: Part) -> None:
        """Let what an access reads be followed where nothing wrote it."""
        piece = part.piece
        missing = piece.region.find_missing(piece.at, self.form.element_bytes, self.form.vector)
        first, count = self.used
        if missing is not None and missing[:, first : first + count].any():
            place = piece.describe(int(piece.at[missing.any(axis=1)][0]))
            part.cta.taints.note_load(self.instruction, part.threads, missing, place)


class Load(ThreadAccess):
    """``ld`` and its like."""

    reads = True

    def __init__(self, instruction: Instruction, kernel: Kernel, form: AccessForm) -> None:
        super().__init__(instruction, kernel, form)
        signed = form.element.startswith("s")
        self._dtype = np.dtype(VIEWS[form.element] if signed else self._storage).type

    def narrow(self, used: Sequence[bool]) -> None:
        """State which elements anything uses: a load into a register that nothing reads is no access."""
        if any(used):
            first = used.index(True)
            self.used = first, len(used) - first - used[::-1].index(True)

    def perform(self, part: Part) -> None:
        """Read."""
        count = self.form.vector
        self.note_missing(part)
        found = part.piece.region.read(part.piece.at, self._dtype, count)
        for place, target in enumerate(part.targets):
            if target is not None:
                target[... if part.places is None else part.places] = found if count == 1 else found[:, place]


class Store(ThreadAccess):
    """``st``."""

    def perform(self, part: Part) -> None:
        """Write; of threads that write one address the last one is seen."""
        values = part.values
        if len(values) == 1:
            data = values[0].astype(self._storage, copy=False)
        else:
            data = np.empty((len(values[0]), len(values)), self._storage)
            for place, value in enumerate(values):
                data[:, place] = value
        part.piece.region.write(part.piece.at, data, self.form.vector)
        if part.cta.taints:
            part.cta.taints.note_store(self.instruction, self.form, part.piece, part.threads)
        part.cta.launch.version += 1


class Update(ThreadAccess):
    """``atom`` and ``red``."""

    def __init__(self, instruction: Instruction, kernel: Kernel, form: AccessForm) -> None:
        super().__init__(instruction, kernel, form)
        self.reads = instruction.opcode == "atom"
        self._serialisers = {
            space: Serialiser(resolve_update(instruction, space, kernel.name), form.operation, form.element)
            for space in OBSERVED
        }

    def view_target(self, register: Register) -> str:
        """Atomics return the bits of the element."""
        return register_storage(register.name, self._kernel)

    def perform(self, part: Part) -> None:
        """Update, in the order of the threads."""
        piece, targets = part.piece, part.targets
        serialiser = self._serialisers[piece.space]
        if self.form.operation == "exch":
            piece.region.mark(piece.at, self.form.element_bytes, self.form.vector)
        elif self.reads:
            # Memory that nothing wrote stays so: its new value depends on what it held.
            self.note_missing(part)
        count = self.form.vector
        memory = piece.region.view(np.dtype(self._storage).type)
        at = piece.region.index(piece.at, memory.itemsize)
        for place in range(count):
            operands = tuple(value.astype(self._storage, copy=False) for value in part.values[place::count])
            target = targets[place] if targets else None
            if target is None:
                serialiser.reduce(memory, at + place, operands)
            else:
                target[... if part.places is None else part.places] = serialiser.exchange(memory, at + place, operands)
        part.cta.launch.version += 1

    def tell(self, observer: Observer, access: Access, part: Part) -> None:
        """Tell of an access; a comparison that fails only reads."""
        if self.form.operation != "cas":
            observer.access(access)
            return
        piece = part.piece
        places, index = np.unique(piece.at, return_inverse=True)
        memory = piece.region.read(places, np.dtype(self._storage).type, 1)
        operands = tuple(value.astype(self._storage, copy=False) for value in part.values)
        found = self._serialisers[piece.space].exchange(memory, index, operands)
        writes = found == operands[0]
        if writes.all():
            observer.access(access)
            return
        kinds: tuple[tuple[Kind, Array], ...] = (("update", writes), ("read", ~writes))
        for kind, some in kinds:
            if some.any():
                threads, addresses = access.threads[some], access.addresses[some]
                observer.access(replace(access, kind=kind, threads=threads, addresses=addresses))


def _choose(group: Group, guard: Mask | None) -> tuple[Index, Index | None]:
    """Threads of a group that a guard lets through, and their places in its range; None if they are all of it."""
    if guard is not None:
        chosen = guard.nonzero()[0]
        if len(chosen) != group.count:
            return chosen + group.low, chosen
    return group.threads, group.index


def make_access(instruction: Instruction, kernel: Kernel) -> MemoryInstruction | None:
    """Return what performs a memory instruction, or None for one without effect.

    Raises:
        UnknownInstructionError: The table has no such form.
    """
    from .executor_parameters import LoadParameter

    form = resolve_access(instruction, kernel.name)
    if form.kind == "none":
        return None
    if instruction.opcode in ("ldmatrix", "stmatrix"):
        return (LoadMatrix if instruction.opcode == "ldmatrix" else StoreMatrix)(instruction, kernel, form)
    if form.kind == "update":
        return Update(instruction, kernel, form)
    if form.space == "param" and form.kind == "read":
        return LoadParameter(instruction, kernel, form)
    return (Load if form.kind == "read" else Store)(instruction, kernel, form)
