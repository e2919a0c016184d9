"""What memory instructions have in common: operands, the part of an access in one region, and who is told of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .access import AccessForm
from .executor_groups import Group, Mask
from .executor_location import Piece
from .form import register_storage, storage_of
from .memory import Array
from .module import Instruction, Kernel, Operand, Register
from .observation import Access, Observer

if TYPE_CHECKING:
    from .executor_cta import Cta

Index = npt.NDArray[np.int64]
OBSERVED = ("shared", "global")


class Operands(NamedTuple):
    """Operands of an instruction, one element for each thread of a group's range.

    Attributes:
        guard: Which threads perform it, or None.
        base: Register of the address, or None.
        offset: What is added to it.
        targets: Destinations; None where nothing uses one.
        values: Values to write.
    """

    guard: Mask | None
    base: Array | None
    offset: int
    targets: list[Array | None]
    values: tuple[Array, ...]

    def find_addresses(self, threads: Index, places: Index | None) -> Index:
        """Return the addresses of some threads; ``places`` are theirs in the range, None for all of it."""
        if self.base is None:
            return np.full(len(threads), self.offset, np.int64)
        addresses: Index = (self.base if places is None else self.base.take(places)).astype(np.int64)
        if self.offset:
            addresses += self.offset
        return addresses


class Part(NamedTuple):
    """The threads of an access whose addresses lie in one region, which were checked.

    Attributes:
        cta: Their CTA.
        threads: The threads.
        piece: The region and their addresses in it.
        places: Their places in the group's range, or None for all of it.
        targets: Destinations, of the whole range.
        values: Values of the threads.
    """

    cta: Cta
    threads: Index
    piece: Piece
    places: Index | Mask | None
    targets: list[Array | None]
    values: tuple[Array, ...]


class MemoryInstruction(ABC):
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
        self._kind: Any = form.kind
        self.used = 0, form.vector

    def view_target(self, register: Register) -> str:
        """NumPy type in which a destination register is written: narrow signed values are extended."""
        storage = register_storage(register.name, self._kernel)
        return storage.removeprefix("u") if self.form.element.startswith("s") else storage

    def view_source(self, operand: Operand) -> str:
        """NumPy type in which a source operand is read."""
        return register_storage(operand.name, self._kernel) if isinstance(operand, Register) else self._storage

    @abstractmethod
    def __call__(self, cta: Cta, group: Group, operands: Operands) -> None:
        """Perform it for the threads of a group that its guard lets through."""

    def announce(self, part: Part) -> None:
        """Tell whoever watches, and let others run before."""
        cta, piece = part.cta, part.piece
        gate = cta.launch.gate if piece.space == "global" else None
        if (gate is None and cta.observer is None) or piece.space not in OBSERVED:
            return
        form, (first, count) = self.form, self.used
        addresses, size = piece.addresses, form.element_bytes
        access = Access(
            cta.position, self.instruction, piece.space, self._kind,  # type: ignore[arg-type]  # one of OBSERVED
            part.threads, addresses + first * size if first else addresses, count * size, form.order, form.scope,
            piece.owner, "generic", part.values if self._kind == "write" else (), count,
        )  # fmt: skip
        if gate is not None:
            gate(access, part.values)
        if cta.copies.in_flight:
            cta.copies.judge(access)
        if cta.observer is not None:
            self.tell(cta.observer, access, part)

    def tell(self, observer: Observer, access: Access, part: Part) -> None:
        """Tell an observer of an access that happens next."""
        observer.access(access)
