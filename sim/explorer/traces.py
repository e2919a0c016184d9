"""What the threads of a program issue, each run once per history of what it was sent."""

from __future__ import annotations

from collections.abc import Generator, Hashable
from dataclasses import dataclass, field
from typing import Any

from .history import describe_failure, gives_value
from .operations import Barrier, Lanes, Operation, Value
from .program import Program


@dataclass(eq=False)
class Node:
    """A thread after a history.

    Attributes:
        thread: Which one.
        parent: The node before it, None at the beginning.
        sent: What the thread was sent there.
        issued: What it issues, None at its end.
        result: What it returned.
        failure: What it asserts in vain.
        after: Nodes after it, by what the thread is sent.
    """

    thread: int
    parent: Node | None = None
    sent: Any = None
    issued: Operation | Lanes | None = None
    result: Any = None
    failure: str = ""
    after: dict[Hashable, Node] = field(default_factory=dict)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What the thread issues, at once where there are several."""
        if isinstance(self.issued, Lanes):
            return self.issued.operations
        return () if self.issued is None else (self.issued,)

    @property
    def blocks(self) -> int:
        """Blocks of events that this makes: a barrier is arrived at, and departed from."""
        return 2 if isinstance(self.issued, Barrier) else 1


class Traces:
    """Nodes of all threads that were asked for.

    Attributes:
        runs: Times that a thread was started from its beginning.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.runs = 0
        self._live: dict[int, tuple[Node, Generator[Operation | Lanes, Any, Any]]] = {}
        self._roots: dict[int, Node] = {}

    def root(self, thread: int) -> Node:
        """A thread at its beginning."""
        if thread not in self._roots:
            self._roots[thread] = Node(thread)
            self._go_on(self._roots[thread])
        return self._roots[thread]

    def follow(self, node: Node, sent: Any) -> Node:
        """A thread once it was sent something."""
        key = _key(sent)
        if key not in node.after:
            after = Node(node.thread, node, sent)
            self._go_on(after)
            node.after[key] = after
        return node.after[key]

    def answer(self, node: Node, values: tuple[Value, ...]) -> Node:
        """A thread once each of the operations that it issued has read a value, or None."""
        results = tuple(
            value if gives_value(operation) else None for operation, value in zip(node.operations, values, strict=True)
        )
        return self.follow(node, results if isinstance(node.issued, Lanes) else results[0])

    def _go_on(self, node: Node) -> None:
        """Run a thread to a node from where it stands, if that is right, else from its beginning."""
        try:
            at, run = self._live.pop(node.thread, (None, None))
            if run is None or at is not node.parent or at is None:
                run = self._restart(node)
            else:
                node.issued = run.send(node.sent)
            self._live[node.thread] = node, run
        except StopIteration as stop:
            node.result = stop.value
        except AssertionError as failure:
            node.failure = describe_failure(failure)

    def _restart(self, node: Node) -> Generator[Operation | Lanes, Any, Any]:
        """Run a thread from its beginning to a node."""
        self.runs += 1
        run = self.program.threads[node.thread].body()
        path: list[Any] = []
        place = node
        while place.parent is not None:
            path.append(place.sent)
            place = place.parent
        issued = next(run)
        for sent in reversed(path):
            issued = run.send(sent)
        node.issued = issued
        return run


def _key(sent: Any) -> Hashable:
    """What tells things sent apart: 1, 1.0 and True are three things."""
    return tuple(_key(item) for item in sent) if isinstance(sent, tuple) else (type(sent), sent)
