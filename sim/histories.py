"""Programs that are interpreted once per history, for many executions of the same host programs.

What a program does next depends on its arguments and on what it has read so
far, and on nothing else.  ``Histories`` keeps for every program a tree of the
operations that the interpreter asked for, with a branch for each value that was
read.  A program that goes a known way is performed from the tree, and the
interpreter runs where it leaves it; it is then given what was read so far.
Everything else is as ever: each operation is announced to the scheduler,
performed in memory, and judged.

Addresses are arguments, so memory must lie at the same ones every time: the
n-th tensor of a rank and its size take the same place in each execution.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import triton.language as tl

from .interpreter import open_session
from .machine import Machine
from .operations import Handler, Operations
from .trace import Site


class _Operation(NamedTuple):
    """A memory operation as the interpreter asked for it; all that it needs but memory."""

    handler: Handler
    perform: Callable[[], Any]
    arguments: tuple[Any, ...]
    site: Site


@dataclass
class _Node:
    """Where a program is after what it has read.

    Attributes:
        operation: What it does next; None at the end, and where nobody knows yet.
        known: Whether somebody knows.
        after: What follows, by what the operation reads.
    """

    operation: _Operation | None = None
    known: bool = False
    after: dict[object, _Node] = field(default_factory=dict)


@dataclass
class _Place:
    """A program that runs.

    Attributes:
        node: Where it is.
        given: What the interpreter has yet to be told of what was read.
        site: Position of the operation that is performed from the tree; None where the interpreter runs.
    """

    node: _Node
    given: deque[Any] = field(default_factory=deque)
    site: Site | None = None


class Histories:
    """What interpreted programs did, and the memory in which they did it.

    Attributes:
        interpreted, performed: Programs that the interpreter ran, and that were performed from the tree throughout.
    """

    def __init__(self) -> None:
        self.interpreted = 0
        self.performed = 0
        self._roots: dict[object, _Node] = {}
        self._blocks: dict[tuple[int, int, int], torch.Tensor] = {}

    @contextlib.contextmanager
    def open(self, machine: Machine) -> Iterator[None]:
        """Route what ``interpreter.open_session`` does to ``machine``, with what is known of its programs."""
        taken: Counter[int] = Counter()

        def place(rank: int, tensor: torch.Tensor) -> torch.Tensor:
            taken[rank] += 1
            return self._place(rank, taken[rank], tensor)

        machine.place = place
        with open_session(machine, _RecallingOperations(machine, self)):
            yield

    def find_root(self, key: object) -> _Node:
        """The beginning of a program."""
        return self._roots.setdefault(key, _Node())

    def _place(self, rank: int, number: int, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of the n-th tensor of a rank, where the n-th of that size always is."""
        size = tensor.numel() * tensor.element_size()
        if size == 0:
            return tensor
        block = self._blocks.setdefault((rank, number, size), torch.zeros(size, dtype=torch.uint8))
        return block.view(tensor.dtype).view(tensor.shape).copy_(tensor)


class _RecallingOperations(Operations):
    """The operations of one machine, whose programs may be known.

    Args:
        machine: The machine.
        histories: What is known.
    """

    def __init__(self, machine: Machine, histories: Histories) -> None:
        super().__init__(machine)
        self._histories = histories
        self._places: dict[str, _Place] = {}

    def run_program(self, kernel: Callable[..., Any], arguments: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """Run the current program, by the interpreter only where nobody knows it."""
        program = self._program
        key = kernel, program.index, program.grid, tuple((name, _describe(value)) for name, value in given.items())
        place = self._places[self._agent.name] = _Place(self._histories.find_root(key))
        read = self._recall(place)
        if place.node.known:
            self._histories.performed += 1
            return
        self._histories.interpreted += 1
        place.given, place.site = read, None
        kernel(**arguments)
        place.node.known = True

    def _recall(self, place: _Place) -> deque[Any]:
        """Perform what is known to come; returns what was read."""
        read: deque[Any] = deque()
        while place.node.operation is not None:
            operation = place.node.operation
            place.site = operation.site
            result = operation.handler(self, operation.perform, *operation.arguments)
            read.append(result)
            place.node = place.node.after.setdefault(_value(result), _Node())
        return read

    def issue(self, handler: Handler, perform: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Perform an operation that the interpreter asks for, unless it has been already, and remember it."""
        place = self._places[self._agent.name]
        if place.given:
            return place.given.popleft()
        # Known before it is performed: the program may never go on from there.
        place.node.operation, place.node.known = _Operation(handler, perform, arguments, self.find_site()), True
        result = handler(self, perform, *arguments)
        place.node = place.node.after.setdefault(_value(result), _Node())
        return result

    def find_site(self) -> Site:
        """Position of the operation of the current program, which may have been found long ago."""
        return self._places[self._agent.name].site or super().find_site()


def _value(result: Any) -> object:
    """What an operation read, to compare by."""
    return None if result is None else result.data.tobytes()


def _describe(value: Any) -> object:
    """What a program can tell of an argument."""
    if isinstance(value, torch.Tensor):
        return value.data_ptr(), value.dtype
    if isinstance(value, tl.constexpr):
        return _describe(value.value)
    return type(value), value
