"""One CTA of a compiled kernel, run by the PTX machine on values that it is given."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from greenlet import getcurrent, greenlet

from tiebreak.errors import UnsupportedOperationError

from ..ptx import executor
from ..ptx.atomic import UpdateOperation, resolve_update
from ..ptx.executor_cta import Cta
from ..ptx.executor_groups import READY
from ..ptx.findings import Finding, FindingError
from ..ptx.module import Instruction, Kernel, Module
from ..ptx.observation import Access, Position, Threads
from ..ptx.observation import Scope as PtxScope
from .answered_memory import AnsweredMemory, Bytes
from .grouping import Grouping, RestartError, Span
from .operations import (
    ALL_STRANDS,
    BARRIER,
    Fence,
    Load,
    Location,
    Operation,
    Order,
    Scope,
    Store,
    Update,
    Value,
)
from .program import MAXIMUM_LANES

_ORDERS = {"weak": Order.WEAK, "relaxed": Order.RELAXED, "volatile": Order.RELAXED, "acquire": Order.ACQUIRE,
           "release": Order.RELEASE, "acq_rel": Order.ACQ_REL, "sc": Order.SC}  # fmt: skip
# A cluster is taken for one of its CTAs, which orders less.
_SCOPES = {None: Scope.SYSTEM, "cta": Scope.CTA, "cluster": Scope.CTA, "gpu": Scope.GPU, "sys": Scope.SYSTEM}

Answer = tuple[Value, ...]
"""What a block read: a value for each of its operations, None for those that read nothing."""


@dataclass(frozen=True)
class CompiledLaunch:
    """One launch of a compiled kernel.

    Attributes:
        kernel, module: The code.
        grid, block: Its shape.
        arguments: Bits of each parameter.
        shared_bytes: Dynamic shared memory of a CTA.
    """

    kernel: Kernel
    module: Module
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[int, ...]
    shared_bytes: int = 0

    @property
    def ctas(self) -> int:
        """Number of CTAs."""
        return int(np.prod(self.grid))


@dataclass(frozen=True)
class Block:
    """What a CTA does next: operations of one instruction, in no order.

    Attributes:
        operations: The operations.
        instruction: What names the instruction.
        joint: Places of strong loads that several threads perform together.
    """

    operations: tuple[Operation, ...]
    instruction: Hashable = None
    joint: frozenset[int] = frozenset()

    def says_the_same(self, other: Block | None) -> bool:
        """Whether another block does the same."""
        return other is not None and self.operations == other.operations and _changes(self) == _changes(other)


def _changes(block: Block) -> list[str]:
    """What updates of a block do, which comparing operations leaves out."""
    return [operation.name for operation in block.operations if isinstance(operation, Update)]


class _Launch(executor.Launch):
    """A launch that gives its CTAs away.

    Threads wait as late as can be: a CTA is one thread of the program, so while
    some of its own wait, the others would not go on either.
    """

    started: Sequence[Cta] = ()
    polls: Container[int] = ()

    def _start(self, numbers: list[int]) -> list[Cta]:
        # Threads that stand at a poll are told from others only if code stops before it.
        self.compiled = executor.compile_kernel(self.kernel, fine=True)
        self.started = super()._start(numbers)
        for unit in (unit for cta in self.started for unit in cta.units):
            unit.late = self.polls
        return list(self.started)


class CtaRun:
    """A CTA from its beginning; an observer of the PTX machine, and its gate.

    Args:
        launch: What is launched.
        memory: Memory that takes answers.
        grouping: What is a location, and what a strand.
        name: Gives the location of a span of bytes its name.
        place: Rank, number of the launch and number of the CTA.
        polls: Instructions of loops that wait.

    Attributes:
        scratch: Whether the values are guesses, from which nothing is learned of locations and strands.
    """

    def __init__(
        self,
        launch: CompiledLaunch,
        memory: AnsweredMemory,
        grouping: Grouping,
        name: Callable[[Span], Location],
        place: tuple[int, int, int],
        polls: Container[Hashable] = (),
    ) -> None:
        rank, number, self._cta = place
        self._memory, self._grouping, self._name = memory, grouping, name
        self._launch = _Launch(
            launch.kernel, launch.module, launch.grid, launch.block, launch.arguments,
            shared_bytes=launch.shared_bytes, observer=self, memory=memory.space, rank=rank, number=number, gate=self,
        )  # fmt: skip
        places = range(len(launch.kernel.body))
        self._launch.polls = {index for index in places if (launch.kernel.name, index) in polls}
        self._parent = getcurrent()
        self._thread = greenlet(lambda: self._launch.run([self._cta]))
        self.scratch = False
        self._issued = 0
        self._joined: list[tuple[int, int]] = [(0, ALL_STRANDS)]

    def advance(self, answer: Answer | None = None) -> Block | None:
        """Go on to the next block; None at the end.

        Raises:
            AssertionError: The machine found something wrong.
            RestartError: Locations or strands were too coarse.
        """
        self._parent = getcurrent()
        try:
            issued: Block | None = self._thread.switch(answer) if self._thread else self._thread.switch()
        except FindingError as error:
            raise AssertionError(str(error.finding)) from None
        return None if self._thread.dead else issued

    def rests(self, strands: int) -> bool:
        """Whether all threads of some strands wait for others, or exited."""
        for cta in self._launch.started:
            for group in (group for unit in cta.units for group in unit.groups):
                if group.state == READY and self._grouping.touched(cta.position, group.threads) & strands:
                    return False
        return True

    def _yield(
        self, operations: list[Operation], instruction: Instruction | None = None, joint: set[Operation] | None = None
    ) -> list[Value]:
        """Issue operations, and return what each of them read."""
        self._issued += 1
        name = (self._launch.kernel.name, instruction.index) if instruction is not None else None
        values: list[Value] = []
        for start in range(0, len(operations), MAXIMUM_LANES):
            part = tuple(operations[start : start + MAXIMUM_LANES])
            together = frozenset(place for place, operation in enumerate(part) if operation in (joint or ()))
            values += self._parent.switch(Block(part, name, together))
        return values

    # -- accesses ------------------------------------------------------------------------------------------------

    def __call__(self, access: Access, operands: tuple[npt.NDArray[Any], ...]) -> None:
        """Perform an access of global memory.

        Raises:
            RestartError: Locations or strands were too coarse.
        """
        if not self._grouping.suits(access):
            if not self.scratch:
                self._grouping.note(access)
                raise RestartError
            self._parent.switch(
                Block((replace(BARRIER, strands=self._grouping.touched(access.position, access.threads)),))
            )
            self._answer(access, self._initial(access), 2)
        elif access.kind == "write":
            self._write(access, operands)
        elif access.kind == "read":
            self._read(access)
        else:
            self._update(access, operands)

    def _list(self, access: Access) -> list[tuple[int, Span]]:
        """Rows of an access, and the locations in them."""
        found: list[tuple[int, Span]] = []
        known: dict[int, list[Span]] = {}
        for row, address in enumerate(access.addresses.tolist()):
            if address not in known:
                known[address] = self._list_at(access, address)
            found += [(row, span) for span in known[address]]
        return found

    def _list_at(self, access: Access, address: int) -> list[Span]:
        """Locations in what an access touches at an address."""
        parts = self._grouping.list_parts(access, address)
        return [span for part in parts for span in self._grouping.list_locations(*part)]

    def _order(self, access: Access, row: int, span: Span) -> Order:
        """Order of an access of a location.

        Accesses that overlap in part are not morally strong (PTX ISA, "Morally
        strong operations"), so one that holds several locations is taken for weak.
        """
        whole = span in self._grouping.list_parts(access, int(access.addresses[row]))
        return _ORDERS[access.order] if whole else Order.WEAK

    def _mask(self, access: Access, row: int) -> int:
        return 1 << self._grouping.strand_of(access.position, int(access.threads[row]))

    def _read(self, access: Access) -> None:
        rows = self._initial(access)
        scope = _SCOPES[access.scope]
        wanted: dict[Operation, list[tuple[int, Span]]] = {}
        joint: set[Operation] = set()
        for row, span in self._list(access):
            order = self._order(access, row, span)
            operation = Load(self._name(span), order, scope, self._mask(access, row))
            wanted.setdefault(operation, []).append((row, span))
            if order is not Order.WEAK and not self._grouping.is_alone(access.position, int(access.threads[row])):
                joint.add(operation)
        if wanted:
            values = self._yield(list(wanted), access.instruction, joint)
            for value, places in zip(values, wanted.values(), strict=True):
                for row, (low, high) in places:
                    assert isinstance(value, int)
                    start = low - int(access.addresses[row])
                    rows[row, start : start + high - low] = np.frombuffer(value.to_bytes(high - low, "little"), "u1")
        self._answer(access, rows)

    def _write(self, access: Access, operands: tuple[npt.NDArray[Any], ...]) -> None:
        rows = _encode(operands, len(access.threads), access.width // access.elements)
        operations: list[Operation] = []
        for row, (low, high) in self._list(access):
            start = low - int(access.addresses[row])
            value = int.from_bytes(rows[row, start : start + high - low].tobytes(), "little")
            order, scope, mask = self._order(access, row, (low, high)), _SCOPES[access.scope], self._mask(access, row)
            operations.append(Store(self._name((low, high)), value, order, scope, mask))
        self._yield(operations)

    def _update(self, access: Access, operands: tuple[npt.NDArray[Any], ...]) -> None:
        if access.elements != 1:
            raise UnsupportedOperationError("atomic of a vector")
        update = resolve_update(access.instruction, "global", self._launch.kernel.name)
        dtype = np.dtype(update.storage)
        given = [np.broadcast_to(operand, access.threads.shape).astype(dtype, copy=False) for operand in operands]
        operations: list[Operation] = []
        for row, span in self._list(access):
            if span not in self._grouping.list_parts(access, int(access.addresses[row])):
                raise UnsupportedOperationError("atomic of bytes of which others access a part")
            own = tuple(operand[row : row + 1] for operand in given)
            name = f"{access.instruction.name} {', '.join(str(value[0]) for value in own)}"
            change = functools.partial(_change, update, own, "cas" in access.instruction.modifiers)
            order, scope, mask = _ORDERS[access.order], _SCOPES[access.scope], self._mask(access, row)
            operations.append(Update(self._name(span), change, order, scope, name, mask))
        values = self._yield(operations)
        rows = np.array(values, dtype).reshape(-1, 1).view(np.uint8)
        self._answer(access, rows, 2 if "cas" in access.instruction.modifiers else 1)

    def _initial(self, access: Access) -> Bytes:
        """What memory held at first, a row per thread."""
        places, index = np.unique(access.addresses, return_inverse=True)
        parts = [self._memory.initial(address, address + access.width) for address in places.tolist()]
        return np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), access.width)[index.reshape(-1)]

    def _answer(self, access: Access, rows: Bytes, times: int = 1) -> None:
        first = int(access.addresses[0])
        self._memory.region(first).answer(rows, first, times)

    # -- what orders threads -------------------------------------------------------------------------------------

    def synchronise(self, position: Position, threads: Threads, instruction: Instruction, scope: str) -> None:
        """A barrier orders the strands that take part as a whole, unless it does so already."""
        mask = self._grouping.mask_of(position, threads)
        done = any(issued == self._issued and mask & ~joined == 0 for issued, joined in self._joined)
        if mask and not done:
            self._yield([replace(BARRIER, strands=mask)])
            self._joined = [pair for pair in self._joined if pair[0] == self._issued]
        self._joined.append((self._issued, mask))

    def fence(
        self, position: Position, threads: Threads, instruction: Instruction, order: str, scope: PtxScope
    ) -> None:
        """Threads perform a fence, each for itself."""
        if order == "proxy":
            return
        mask = self._grouping.mask_of(position, threads)
        kind = Order.SC if order == "sc" else Order.ACQ_REL
        strands = (1 << strand for strand in range(self._grouping.count(position)))
        self._yield([Fence(kind, _SCOPES[scope], strand) for strand in strands if strand & mask])

    def begin(self, position: Position, kernel: Kernel) -> None:
        """Nothing: a barrier stands between launches."""

    def access(self, access: Access) -> None:
        """Nothing: the gate has seen it."""

    def join_cluster(self, positions: tuple[Position, ...], instruction: Instruction) -> None:
        """Refuse clusters."""
        raise UnsupportedOperationError("barrier of a cluster")

    def release(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """Nothing: that an arrival orders is left out, which can only add executions."""

    def acquire(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """Nothing, likewise."""

    def end(self, position: Position) -> None:
        """Nothing: a barrier stands between launches."""

    def report(self, finding: Finding) -> None:
        """Something is wrong that does not end the execution; it ends this one."""
        raise FindingError(finding)


def _encode(operands: tuple[npt.NDArray[Any], ...], threads: int, size: int) -> Bytes:
    """What threads store, a row of bytes each: the low bytes of each element of the vector."""
    columns = [np.broadcast_to(operand, (threads,)) for operand in operands]
    parts = [np.ascontiguousarray(column).reshape(-1, 1).view(np.uint8)[:, :size] for column in columns]
    return np.concatenate(parts, axis=1)


def _change(update: UpdateOperation, operands: tuple[npt.NDArray[Any], ...], compares: bool, old: Value) -> Value:
    """What an atomic writes, None if a comparison failed."""
    dtype = np.dtype(update.storage)
    assert isinstance(old, int)
    before = np.frombuffer(old.to_bytes(dtype.itemsize, "little"), dtype)
    if compares and before[0] != operands[0][0]:
        return None
    return int.from_bytes(np.asarray(update.evaluate(before, *operands), dtype).tobytes(), "little")
