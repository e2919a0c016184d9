"""Loads, stores and atomics in generated code: addresses, bounds, alignment, observers, values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .access import AccessForm, resolve_access
from .atomic import resolve_update
from .executor_atomics import Serialiser
from .executor_groups import Group, Mask
from .executor_location import Piece, locate
from .executor_taint import UnwrittenReadError
from .form import VIEWS, register_storage, storage_of
from .memory import Array
from .module import Instruction, Kernel, Operand, Register
from .observation import Access, Kind, Observer

if TYPE_CHECKING:
    from .executor_cta import Cta

Index = npt.NDArray[np.int64]
OBSERVED = ("shared", "global")


class MemoryInstruction:
    """One memory instruction.

    Args:
        instruction: The instruction.
        kernel: Its kernel.
        form: What it touches.

    Attributes:
        reads: Whether its first operand is a destination.
        used: First element that anything uses, and how many from it on.
    """

    reads = False

    def __init__(self, instruction: Instruction, kernel: Kernel, form: AccessForm) -> None:
        self.instruction = instruction
        self.form = form
        self._kernel = kernel
        self._storage = storage_of(form.element)
        self._strong = form.order != "weak"
        self._kind: Any = form.kind
        self.used = 0, form.vector

    def view_target(self, register: Register) -> str:
        """NumPy type in which a destination register is written: narrow signed values are extended."""
        storage = register_storage(register.name, self._kernel)
        return storage.removeprefix("u") if self.form.element.startswith("s") else storage

    def view_source(self, operand: Operand) -> str:
        """NumPy type in which a source operand is read."""
        return register_storage(operand.name, self._kernel) if isinstance(operand, Register) else self._storage

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
        """Perform it for the threads of a group that ``guard`` lets through."""
        threads, index = _choose(group, guard)
        if not len(threads):
            return
        if self._strong and targets:
            group.polled = True
        if base is None:
            addresses = np.full(len(threads), offset, np.int64)
        else:
            addresses = (base if index is None else base.take(index)).astype(np.int64)
            if offset:
                addresses += offset
        if index is not None:
            values = tuple(value.take(index) for value in values)
        for piece in locate(cta, self.form, self.instruction, threads, addresses):
            part = values if piece.part is None else tuple(value[piece.part] for value in values)
            self._announce(cta, threads, piece, part)
            at = index
            if piece.part is not None:
                at = piece.part.nonzero()[0] if index is None else index[piece.part]
            self.perform(cta, threads, piece, at, targets, part)
        if self.reads and cta.taints.fresh:
            cta.taints.fresh = False
            raise UnwrittenReadError(self.instruction.index + 1)

    def perform(
        self,
        cta: Cta,
        threads: Index,
        piece: Piece,
        index: Index | None,
        targets: list[Array | None],
        values: tuple[Array, ...],
    ) -> None:
        """Read and write memory that was checked; ``index`` says which threads of the range do, None: all."""
        raise NotImplementedError

    def _note_missing(self, cta: Cta, threads: Index, piece: Piece) -> None:
        """Let what an access reads be followed where nothing wrote it."""
        missing = piece.region.find_missing(piece.at, self.form.element_bytes, self.form.vector)
        first, count = self.used
        if missing is not None and missing[:, first : first + count].any():
            mine = threads if piece.part is None else threads[piece.part]
            place = piece.describe(int(piece.at[missing.any(axis=1)][0]))
            cta.taints.note_load(self.instruction, mine, missing, place)

    def _announce(self, cta: Cta, threads: Index, piece: Piece, values: tuple[Array, ...]) -> None:
        """Tell whoever watches, and let others run before."""
        gate = cta.launch.gate if piece.space == "global" else None
        if (gate is None and cta.observer is None) or piece.space not in OBSERVED:
            return
        form, (first, count) = self.form, self.used
        addresses, size = piece.addresses, form.element_bytes
        access = Access(
            cta.position, self.instruction, piece.space, self._kind,  # type: ignore[arg-type]  # one of OBSERVED
            threads if piece.part is None else threads[piece.part], addresses + first * size if first else addresses,
            count * size, form.order, form.scope, piece.owner, "generic",
            values if self._kind == "write" else (), count,
        )  # fmt: skip
        if gate is not None:
            gate(access, values)
        if cta.copies.in_flight:
            cta.copies.judge(access)
        if cta.observer is not None:
            self.tell(cta.observer, access, piece, values)

    def tell(self, observer: Observer, access: Access, piece: Piece, values: tuple[Array, ...]) -> None:
        """Tell an observer of an access that happens next."""
        observer.access(access)


class Load(MemoryInstruction):
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

    def perform(
        self,
        cta: Cta,
        threads: Index,
        piece: Piece,
        index: Index | None,
        targets: list[Array | None],
        values: tuple[Array, ...],
    ) -> None:
        """Read."""
        count = self.form.vector
        self._note_missing(cta, threads, piece)
        found = piece.region.read(piece.at, self._dtype, count)
        for place, target in enumerate(targets):
            if target is not None:
                target[... if index is None else index] = found if count == 1 else found[:, place]


class Store(MemoryInstruction):
    """``st``."""

    def perform(
        self,
        cta: Cta,
        threads: Index,
        piece: Piece,
        index: Index | None,
        targets: list[Array | None],
        values: tuple[Array, ...],
    ) -> None:
        """Write; of threads that write one address the last one is seen."""
        if len(values) == 1:
            data = values[0].astype(self._storage, copy=False)
        else:
            data = np.empty((len(values[0]), len(values)), self._storage)
            for place, value in enumerate(values):
                data[:, place] = value
        piece.region.write(piece.at, data, self.form.vector)
        if cta.taints:
            cta.taints.note_store(self.instruction, self.form, piece, threads)
        cta.launch.version += 1


class Update(MemoryInstruction):
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

    def perform(
        self,
        cta: Cta,
        threads: Index,
        piece: Piece,
        index: Index | None,
        targets: list[Array | None],
        values: tuple[Array, ...],
    ) -> None:
        """Update, in the order of the threads."""
        serialiser = self._serialisers[piece.space]
        if self.form.operation == "exch":
            piece.region.mark(piece.at, self.form.element_bytes, self.form.vector)
        elif self.reads:
            # Memory that nothing wrote stays so: its new value depends on what it held.
            self._note_missing(cta, threads, piece)
        count = self.form.vector
        memory = piece.region.view(np.dtype(self._storage).type)
        at = piece.region.index(piece.at, memory.itemsize)
        for place in range(count):
            operands = tuple(value.astype(self._storage, copy=False) for value in values[place::count])
            target = targets[place] if targets else None
            if target is None:
                serialiser.reduce(memory, at + place, operands)
            else:
                target[... if index is None else index] = serialiser.exchange(memory, at + place, operands)
        cta.launch.version += 1

    def tell(self, observer: Observer, access: Access, piece: Piece, values: tuple[Array, ...]) -> None:
        """Tell of an access; a comparison that fails only reads."""
        if self.form.operation != "cas":
            observer.access(access)
            return
        places, index = np.unique(piece.at, return_inverse=True)
        memory = piece.region.read(places, np.dtype(self._storage).type, 1)
        operands = tuple(value.astype(self._storage, copy=False) for value in values)
        found = self._serialisers[piece.space].exchange(memory, index, operands)
        writes = found == operands[0]
        if writes.all():
            observer.access(access)
            return
        kinds: tuple[tuple[Kind, Array], ...] = (("update", writes), ("read", ~writes))
        for kind, part in kinds:
            if part.any():
                threads, addresses = access.threads[part], access.addresses[part]
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
    from .executor_matrix import LoadMatrix, StoreMatrix
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
