"""Threads that are real Triton kernels, run by Triton's interpreter once per history.

Every program (CTA) of a rank is one thread; a kernel boundary is a barrier of
the programs of that rank.  Memory operations of a kernel become operations of
the thread, element by element, and the kernel computes on the values that the
explorer gives it: real memory only holds them while the interpreter reads it.
A neutral acquiring read-modify-write that a kernel repeats until its value is
another one becomes an await.

What this leaves out: the threads inside a program.  A tile's elements are
lanes without an order among them, and whatever comes later in a program comes
after all of them, as with a CTA barrier after each operation.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from greenlet import getcurrent, greenlet
from triton.runtime import interpreter

from tiebreak.errors import UnsupportedOperationError
from tiebreak.sim.device import Launch
from tiebreak.sim.interpreter import open_operations
from tiebreak.sim.memory import Memory
from tiebreak.sim.operations import Operations

from .host_writes import HostWrite
from .operations import Await, Barrier, Lanes, Load, Location, Operation, Order, Scope, Store, Update, Value
from .program import MAXIMUM_LANES, Program, Thread

_ORDERS = {"relaxed": Order.RELAXED, "acquire": Order.ACQUIRE, "release": Order.RELEASE, "acq_rel": Order.ACQ_REL,
           "acquire_release": Order.ACQ_REL}  # fmt: skip
_SCOPES = {"cta": Scope.CTA, "gpu": Scope.GPU, "sys": Scope.SYSTEM, "system": Scope.SYSTEM}

Issued = Operation | Lanes


@dataclass
class Launches:
    """Launches of all ranks, and the memory that they run on.

    Attributes:
        memory: The allocations.
        launches: Of each rank, in the order of its stream, and what its host does in between.
        contents: What each allocation held before any kernel ran, by its base.
        written: Bases of the allocations into which kernels store.
        addresses: Address and size of every location that was named.
    """

    memory: Memory
    launches: list[list[Launch | HostWrite]]
    contents: dict[int, bytes]
    written: set[int] = field(default_factory=set)
    addresses: dict[Location, tuple[int, int]] = field(default_factory=dict)

    def locate(self, address: int, size: int) -> tuple[Location, int | None]:
        """Name of a location, and its value if no kernel ever changes it."""
        allocation = self.memory.find(address)
        if allocation is None:
            raise UnsupportedOperationError(f"access of {hex(address)}, which is in no allocation")
        offset = address - allocation.base
        value = int.from_bytes(self.contents[allocation.base][offset : offset + size], "little")
        location, place = allocation.place(address), (address, size)
        while self.addresses.setdefault(location, place) != place:
            location += "'"  # Another allocation of the same name.
        return location, None if allocation.base in self.written else value


class Kernels:
    """Makes threads of launches.

    Args:
        launches: What the ranks launch.
        title: For people, and for checkpoints.
    """

    def __init__(self, launches: Launches, title: str = "kernels") -> None:
        self.launches = launches
        self.title = title
        self.sizes: dict[int, int] = {}
        self.initial: dict[Location, Value] = {}
        self.waits: dict[tuple[int, int, int, tuple[Any, ...]], _Wait] = {}
        self.running: _Run | None = None

    @property
    def program(self) -> Program:
        """One thread per program index of each rank."""
        threads = []
        for rank, launches in enumerate(self.launches.launches):
            width = max(_count_programs(launch) for launch in launches)
            for number in range(width):
                body = functools.partial(_follow, self, rank, number, width)
                threads.append(Thread(body, f"r{rank}.p{number}", cta=number, gpu=rank, team=rank))
        return Program(tuple(threads), self.initial, self.title)

    def name(self, address: int, size: int) -> tuple[Location, int | None]:
        """Location of an address, see ``Launches.locate``.

        Raises:
            UnsupportedOperationError: It is accessed in elements of two sizes.
        """
        if self.sizes.setdefault(address, size) != size:
            raise UnsupportedOperationError(f"accesses of {size} and {self.sizes[address]} bytes at one address")
        location, constant = self.launches.locate(address, size)
        if location not in self.initial:
            allocation = self.launches.memory.find(address)
            assert allocation is not None
            offset = address - allocation.base
            held = self.launches.contents[allocation.base][offset : offset + size]
            self.initial[location] = int.from_bytes(held, "little")
        return location, constant

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Route the memory operations of the interpreter here, while programs are explored."""
        with open_operations(_Hooks(self)):
            yield


class _Run:
    """One program of a rank, from one of its launches on; nothing but memory lasts from launch to launch.

    Attributes:
        position: Number of the launch that it is in.
    """

    def __init__(self, kernels: Kernels, rank: int, number: int, width: int, position: int = 0) -> None:
        self.kernels, self.rank, self.number, self.width, self.position = kernels, rank, number, width, position
        self.index: tuple[tuple[int, int, int], tuple[int, int, int]] = ((0, 0, 0), (1, 1, 1))
        self.parent = getcurrent()
        self.thread = greenlet(self._body)

    def _body(self) -> None:
        launches = self.kernels.launches.launches[self.rank]
        for position in range(self.position, len(launches)):
            self.position, launch = position, launches[position]
            if isinstance(launch, HostWrite):
                if self.number == 0:
                    self._write(launch)
            elif self.number < _count_programs(launch):
                self.index = (list(launch.indices())[self.number], launch.grid)
                self._enter()
                launch.body()
            if self.width > 1:
                self.yield_(Barrier((self.rank, position), self.width))

    def _write(self, write: HostWrite) -> None:
        """Do what a host does."""
        for address, expected in write.split(write.before or b""):
            location, _ = self.kernels.name(address, write.size)
            found = self.yield_(Load(location, Order.WEAK))
            assert found == expected, f"{location} is {found} when the host reads it, in the recorded run {expected}"
        for address, value in write.split(write.after):
            self.yield_(Store(self.kernels.name(address, write.size)[0], value, Order.WEAK))

    def _enter(self) -> None:
        interpreter.interpreter_builder.set_grid_dim(*self.index[1])
        interpreter.interpreter_builder.set_grid_idx(*self.index[0])

    def yield_(self, issued: Issued) -> Any:
        """Issue an operation, and return what it read."""
        answer = self.parent.switch(issued)
        self._enter()
        return answer

    def advance(self, answer: Any = None) -> Issued | None:
        """Go on to the next operation; None at the end."""
        self.parent = getcurrent()
        self.kernels.running = self
        issued: Issued | None = self.thread.switch(answer) if self.thread else self.thread.switch()
        self.kernels.running = None
        return None if self.thread.dead else issued


def _count_programs(launch: Launch | HostWrite) -> int:
    """Programs of a launch."""
    return 1 if isinstance(launch, HostWrite) else len(list(launch.indices()))


def _follow(kernels: Kernels, rank: int, number: int, width: int) -> Generator[Issued, Any, None]:
    """A thread that issues what a program does."""
    run = _Run(kernels, rank, number, width)
    position, answers = 0, list[Any]()
    issued = run.advance()
    while issued is not None:
        if run.position != position:
            position, answers = run.position, []
        if isinstance(issued, Await):
            key = (rank, number, position, tuple(answers))
            wait = kernels.waits.setdefault(key, _Wait(kernels, rank, number, width, position, tuple(answers), issued))
            yield Await(issued.location, wait.ends, issued.order, issued.scope, "reached")
            answer = wait.value
        else:
            answer = yield issued
        answers.append(answer)
        issued = run.advance(answer)


class _Wait:
    """A poll, and which values end it: those after which the program does not poll again.

    Args:
        kernels, rank, number, width, position: Where the program begins again to find out.
        answers: What it has read since then.
        poll: The operation.
    """

    def __init__(
        self,
        kernels: Kernels,
        rank: int,
        number: int,
        width: int,
        position: int,
        answers: tuple[Any, ...],
        poll: Await,
    ) -> None:
        self._place = (kernels, rank, number, width, position)
        self._answers, self._poll = answers, poll
        self._next: dict[Value, Issued | None] = {}
        self._vain: set[Value] = set()

    def ends(self, value: Value) -> bool:
        """Whether a value ends the wait."""
        if value in self._next or value in self._vain:
            return value in self._next
        run = _Run(*self._place)
        run.advance()
        for answer in self._answers:
            run.advance(answer)
        after = run.advance(value)
        if isinstance(after, Await) and after.location == self._poll.location:
            self._vain.add(value)
            return False
        self._next[value] = after
        if len({repr(_plain(issued)) for issued in self._next.values()}) > 1:
            raise UnsupportedOperationError("a wait after which the value that ended it still matters")
        return True

    @property
    def value(self) -> Value:
        """A value that ends the wait."""
        return next(iter(self._next))


def _plain(issued: Issued | None) -> object:
    """An operation without its functions."""
    if isinstance(issued, Lanes):
        return [_plain(operation) for operation in issued.operations]
    return None if issued is None else {k: v for k, v in vars(issued).items() if not callable(v)}


class _Hooks(Operations):
    """Memory operations of the program that is running."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self.machine: Any = SimpleNamespace(current=self, program=self)

    def _places(self, pointers: Any, mask: Any) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_], int]:
        addresses = np.asarray(pointers.data, dtype=np.uint64).reshape(-1)
        active = np.ones(addresses.shape, bool) if mask is None else np.broadcast_to(mask.data, np.shape(pointers.data))
        size = int(np.dtype(interpreter._get_np_dtype(pointers.get_element_ty())).itemsize)
        return addresses, np.asarray(active, dtype=bool).reshape(-1), size

    def _issue(self, operations: list[Operation]) -> list[Any]:
        """Issue operations as lanes, in blocks that are as large as can be."""
        run = self.kernels.running
        assert run is not None
        if len(operations) == 1:
            return [run.yield_(operations[0])]
        values: list[Any] = []
        for start in range(0, len(operations), MAXIMUM_LANES):
            values += run.yield_(Lanes(tuple(operations[start : start + MAXIMUM_LANES])))
        return values

    def load(self, pointers: Any, mask: Any, perform: Callable[[], Any]) -> Any:
        """A plain load."""
        addresses, active, size = self._places(pointers, mask)
        wanted: list[tuple[int, Operation]] = []
        for address in addresses[active].tolist():
            location, constant = self.kernels.name(address, size)
            if constant is None:
                wanted.append((address, Load(location, Order.WEAK)))
            else:
                _poke(address, constant, size)
        if wanted:
            values = self._issue([operation for _, operation in wanted])
            for (address, _), value in zip(wanted, values, strict=True):
                _poke(address, value, size)
        return perform()

    def store(self, pointers: Any, mask: Any, value: Any, perform: Callable[[], Any]) -> Any:
        """A plain store."""
        addresses, active, size = self._places(pointers, mask)
        data = np.ascontiguousarray(np.broadcast_to(value.data, np.shape(pointers.data))).reshape(-1)
        operations: list[Operation] = []
        for address, item in zip(addresses[active].tolist(), data[active], strict=True):
            location, constant = self.kernels.name(address, size)
            if constant is not None:
                raise UnsupportedOperationError(f"store to {location}, which the recorded run left alone")
            operations.append(Store(location, int.from_bytes(item.tobytes(), "little"), Order.WEAK))
        if operations:
            self._issue(operations)

    def rmw(
        self, op: str, pointers: Any, value: Any, mask: Any, sem: str, scope: str, perform: Callable[[], Any]
    ) -> Any:
        """An atomic read-modify-write; one that changes nothing is a load, and if it acquires a poll."""
        neutral = op in ("add", "or", "xor", "umax") and not np.asarray(value.data).any()
        return self._update(pointers, mask, sem, scope, perform, neutral)

    def cas(self, pointers: Any, compare: Any, sem: str, scope: str, perform: Callable[[], Any]) -> Any:
        """An atomic compare-and-swap."""
        return self._update(pointers, None, sem, scope, perform, False)

    def _update(self, pointers: Any, mask: Any, sem: str, scope: str, perform: Callable[[], Any], neutral: bool) -> Any:
        addresses, active, size = self._places(pointers, mask)
        if int(active.sum()) != 1:
            raise UnsupportedOperationError("atomic of several elements")
        address = int(addresses[active][0])
        location, _ = self.kernels.name(address, size)
        order, reach = _ORDERS[sem], _SCOPES[scope]

        def change(old: Value) -> Value:
            assert isinstance(old, int)
            _poke(address, old, size)
            perform()
            return _peek(address, size)

        operation: Operation = Update(location, change, order, reach, "update")
        if neutral and order is Order.ACQUIRE:
            operation = Await(location, bool, order, reach, "poll")
        elif neutral:
            operation = Load(location, order, reach)
        (old,) = self._issue([operation])
        _poke(address, old, size)
        return perform()

    def atomic_load(self, pointers: Any, mask: Any, sem: str, scope: str) -> Any:
        """Not among the operations of the kernels that are explored."""
        raise UnsupportedOperationError("atomic_load")

    def atomic_store(self, pointers: Any, value: Any, mask: Any, sem: str, scope: str) -> Any:
        """Not among the operations of the kernels that are explored."""
        raise UnsupportedOperationError("atomic_store")

    def atomic_poll(self, pointers: Any, expected: Any, bounded: bool, sem: str, scope: str) -> npt.NDArray[np.bool_]:
        """Not among the operations of the kernels that are explored."""
        raise UnsupportedOperationError("atomic_poll")

    def barrier(self) -> None:
        """A barrier of the CTA; everything in a program is in order already."""


def _poke(address: int, value: Any, size: int) -> None:
    """Put a value into real memory, for the interpreter to read."""
    assert isinstance(value, int)
    ctypes.memmove(address, value.to_bytes(size, "little"), size)


def _peek(address: int, size: int) -> int:
    """A value in real memory."""
    return int.from_bytes(ctypes.string_at(address, size), "little")
