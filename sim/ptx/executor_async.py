"""Asynchronous instructions in generated code: copies, their groups, and mbarriers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .access import AccessForm, resolve_access
from .executor_copies import UNCOMMITTED, Copy
from .executor_faults import fail
from .executor_groups import Group, Mask
from .executor_location import Piece, locate
from .form import UnknownInstructionError, register_storage
from .memory import Array
from .module import Address, Instruction, Kernel, Operand, Pair, Register
from .observation import Access, Kind, Order, Scope
from .table import find_entry

if TYPE_CHECKING:
    from .executor_cta import Cta

Index = npt.NDArray[np.int64]
BULK = 16
"""Bytes that addresses and sizes of bulk copies are multiples of."""


@dataclass(frozen=True)
class Call:
    """Threads that perform an asynchronous instruction together.

    Attributes:
        cta: Their CTA.
        group: Their group.
        threads: The threads.
        addresses: Addresses of each memory operand, ``[threads]``.
        values: Other operands, ``[threads]``.
        write: Writes a value to the destination register of some threads, if there is one.
    """

    cta: Cta
    group: Group
    threads: Index
    addresses: list[Index]
    values: list[Index]
    write: Callable[[Any, Index], None]


class AsyncInstruction:
    """An asynchronous instruction.

    Args:
        instruction: The instruction.
        kernel: Its kernel.
        perform: Performs it.

    Attributes:
        targets: Destinations.
        sources: Sources and the NumPy type in which each is read.
    """

    def __init__(self, instruction: Instruction, kernel: Kernel, perform: Callable[[Call], None]) -> None:
        operands = list(instruction.operands)
        self.targets: list[Operand] = []
        if operands and has_destination(instruction):
            first = operands.pop(0)
            self.targets = [first.first if isinstance(first, Pair) else first]
        self.sources = [
            (one, register_storage(one.name, kernel) if isinstance(one, Register) else "int64") for one in operands
        ]
        self._perform = perform

    def __call__(
        self, cta: Cta, group: Group, guard: Mask | None, targets: list[Array | None], sources: list[Any]
    ) -> None:
        """Perform it for the threads of a group that a guard lets through."""
        threads, index = group.threads, group.index
        if guard is not None:
            index = guard.nonzero()[0]
            threads = index + group.low
        if not len(threads):
            return
        at: Any = slice(None) if index is None else index
        addresses, values = [], []
        for (operand, _), source in zip(self.sources, sources, strict=True):
            if isinstance(operand, Address):
                base, offset = source
                one = np.zeros(len(threads), np.int64) if base is None else base[at].astype(np.int64)
                addresses.append(one + offset)
            else:
                values.append(source[at].astype(np.int64))

        def write(value: Any, some: Index) -> None:
            if targets and targets[0] is not None:
                targets[0][some - group.low] = value

        self._perform(Call(cta, group, threads, addresses, values, write))


def has_destination(instruction: Instruction) -> bool:
    """Whether the first operand of an asynchronous instruction is a destination."""
    names = ("arrive", "arrive_drop", "test_wait", "try_wait")
    return instruction.opcode == "mbarrier" and any(name in instruction.modifiers for name in names) and not isinstance(
        instruction.operands[0], Address
    )  # fmt: skip


def make_async(instruction: Instruction, kernel: Kernel) -> AsyncInstruction | None:
    """Return what performs an instruction, or None for one without effect.

    Raises:
        UnknownInstructionError: It is not known.
    """
    words = instruction.modifiers
    if instruction.opcode == "mbarrier":
        perform = _make_mbarrier(instruction)
    elif "commit_group" in words:
        perform = _commit("bulk" in words)
    elif "wait_group" in words or "wait_all" in words:
        perform = _wait(instruction, "bulk" in words)
    elif "mbarrier" in words and "arrive" in words:
        perform = _arrive_after_copies(instruction)
    else:
        form = resolve_access(instruction, kernel.name)
        if form.kind == "none":
            return None
        perform = _copy(instruction, form)
    if perform is None:
        raise UnknownInstructionError(
            f"instruction of line {instruction.line} of kernel {kernel.name}",
            value=instruction.name, limit="the executor does not know it",
        )  # fmt: skip
    return AsyncInstruction(instruction, kernel, perform)


def _commit(bulk: bool) -> Callable[[Call], None]:
    return lambda call: call.cta.copies.commit(call.threads, bulk=bulk)


def _wait(instruction: Instruction, bulk: bool) -> Callable[[Call], None]:
    def perform(call: Call) -> None:
        if call.cta.observer is not None:
            call.cta.observer.acquire(call.cta.position, call.threads, instruction, ("copies", call.cta.position))
        if call.values:
            call.cta.copies.wait(call.threads, int(call.values[0][0]), bulk=bulk)
        else:
            call.cta.copies.wait_all(call.threads, bulk=bulk)

    return perform


def _copy(instruction: Instruction, form: AccessForm) -> Callable[[Call], None]:
    """cp.async and cp.async.bulk: destination, source, size, and an mbarrier or the bytes to read."""
    bulk = "bulk" in instruction.modifiers
    signals = "mbarrier::complete_tx::bytes" in instruction.modifiers

    def perform(call: Call) -> None:
        sizes = call.values[0]
        for size in np.unique(sizes).tolist():
            mine = sizes == size
            if bulk and size % BULK:
                place, missing = f"a copy of {size} bytes", f"not a multiple of {BULK}"
                fail(call.cta, "misaligned", instruction, call.threads[mine][:1], "copies", place, missing)
            taken = call.values[1][mine] if len(call.values) > 1 and not bulk else np.full(mine.sum(), size)
            # Other copies are aligned to their size.
            exact = AccessForm(
                form.entry, "copy", form.space, form.source_space, "weak", None, "b8", BULK if bulk else size
            )
            copy = Copy(
                instruction, exact, call.threads[mine], call.addresses[0][mine], call.addresses[1][mine], size,
                taken, np.full(mine.sum(), UNCOMMITTED), bulk,
            )  # fmt: skip
            if not signals:
                call.cta.copies.issue(copy)
                continue
            for piece, threads in _find_mbarriers(call, instruction, call.addresses[2][mine], call.threads[mine]):
                chosen = np.isin(copy.threads, threads)
                signal = _owner(call.cta, piece), int(piece.at[0])
                call.cta.copies.issue(replace(copy.select(chosen), signal=signal))

    return perform


def _make_mbarrier(instruction: Instruction) -> Callable[[Call], None] | None:
    words = instruction.modifiers
    if "init" in words:
        return lambda call: _each(call, instruction, "write", _initialise)
    if "inval" in words:
        return lambda call: _each(call, instruction, "write", _invalidate)
    if "test_wait" in words or "try_wait" in words:
        return lambda call: _each(call, instruction, "read", _test)
    if "arrive" in words or "arrive_drop" in words or "expect_tx" in words or "complete_tx" in words:
        return lambda call: _each(call, instruction, "update", _arrive)
    return None


def _arrive_after_copies(instruction: Instruction) -> Callable[[Call], None]:
    def perform(call: Call) -> None:
        call.cta.copies.wait_all(call.threads)
        if "noinc" in instruction.modifiers:
            _each(call, instruction, "update", _arrive)
        # Without .noinc the arrival raises the count that it then lowers.

    return perform


def _each(call: Call, instruction: Instruction, kind: Kind, perform: Callable[..., None]) -> None:
    """Perform something for each mbarrier that threads name."""
    for piece, threads in _find_mbarriers(call, instruction, call.addresses[0], call.threads):
        owner = _owner(call.cta, piece)
        if call.cta.observer is not None:
            order: Order = "weak" if kind == "write" else "relaxed"
            scope: Scope | None = None if kind == "write" else "cluster"
            call.cta.observer.access(
                Access(
                    call.cta.position,
                    instruction,
                    "shared",
                    kind,
                    threads,
                    piece.addresses,
                    8,
                    order,
                    scope,
                    piece.owner,
                )
            )
        perform(call, instruction, owner, int(piece.at[0]), threads)


def _find_mbarriers(
    call: Call, instruction: Instruction, addresses: Index, threads: Index
) -> list[tuple[Piece, Index]]:
    words = instruction.modifiers
    space: Any = "cluster" if "shared::cluster" in words or instruction.opcode == "cp" else "generic"
    if "shared" in words or "shared::cta" in words:
        space = "cluster" if instruction.opcode == "cp" else "shared"
    form = AccessForm(find_entry(instruction), "update", space, space, "relaxed", "cta", "b64", 1)
    found = []
    for address in np.unique(addresses).tolist():
        mine = addresses == address
        piece = locate(call.cta, form, instruction, threads[mine], addresses[mine])[0]
        piece.region.mark(piece.at, 8, 1)
        found.append((piece, threads[mine]))
    return found


def _owner(cta: Cta, piece: Piece) -> Cta:
    return next(other for other in cta.cluster if other.position.cta == piece.owner)


def _initialise(call: Call, instruction: Instruction, owner: Cta, offset: int, threads: Index) -> None:
    owner.mbarriers.initialise(offset, int(call.values[0][0]))


def _invalidate(call: Call, instruction: Instruction, owner: Cta, offset: int, threads: Index) -> None:
    owner.mbarriers.invalidate(offset)


def _arrive(call: Call, instruction: Instruction, owner: Cta, offset: int, threads: Index) -> None:
    words, count = instruction.modifiers, 1
    if "expect_tx" in words:
        size = int(call.values[0][np.isin(call.threads, threads)].sum())
        owner.mbarriers.expect_bytes(call.cta, threads, instruction, offset, size)
    elif "complete_tx" in words:
        owner.mbarriers.complete_bytes(call.cta, threads, instruction, offset, int(call.values[0][0]))
    elif call.values:
        count = int(call.values[0][0])
    if "arrive" in words or "arrive_drop" in words:
        drop = "arrive_drop" in words
        phase = owner.mbarriers.arrive(call.cta, threads, instruction, offset, count, drop=drop)
        call.write(phase, threads)


def _test(call: Call, instruction: Instruction, owner: Cta, offset: int, threads: Index) -> None:
    cta = call.cta
    found = owner.mbarriers.find(cta, threads, instruction, offset)
    wanted = int(call.values[0][0])

    def holds() -> bool:
        return found.phase & 1 != wanted & 1 if "parity" in instruction.modifiers else found.phase > wanted

    if not holds():
        for other in owner.cluster:
            other.copies.complete(owner, offset)
    done = holds()
    if done and cta.observer is not None and found.phase and "relaxed" not in instruction.modifiers:
        cta.observer.acquire(cta.position, threads, instruction, owner.mbarriers.token(offset, found.phase - 1))
    call.group.polled = call.group.polled or not done
    call.write(done, threads)
