"""One execution of a program, thread after thread, from which a first guess is made of what the search must see."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from .operations import ALL_STRANDS, Await, Barrier, Fence, Location, Operation, Order, Store, Update, Value
from .program import Program
from .traces import Node, Traces

PILOT_STEPS = 20_000
"""Blocks of operations after which a thread goes no further."""


@dataclass
class Use:
    """How a location is used.

    Attributes:
        teams: Whose threads access it.
        written, strong, awaited: Whether it is ever written, accessed in a
            strong way, or waited for in vain at first.
    """

    teams: set[int] = field(default_factory=set)
    written: bool = False
    strong: bool = False
    awaited: bool = False

    @property
    def communicates(self) -> bool:
        """Whether it looks as if teams synchronise by it."""
        return self.awaited or (len(self.teams) > 1 and self.written and self.strong)


@dataclass
class Pilot:
    """An execution in which each thread in turn goes on until it must wait.

    Attributes:
        paths: What each thread issues.
        values: What each lane of it reads, None where it reads nothing.
        uses: How each location is used.
        seen: What each thread read or wrote last at a location.
        whole: Whether there are accesses of order sc, or of strands.
    """

    traces: Traces
    teams: tuple[int, ...]
    paths: list[list[Node]] = field(default_factory=list)
    values: list[list[tuple[Value, ...]]] = field(default_factory=list)
    uses: dict[Location, Use] = field(default_factory=lambda: defaultdict(Use))
    seen: list[dict[Location, Value]] = field(default_factory=list)
    whole: bool = False
    _memory: dict[Location, Value] = field(default_factory=dict)
    _arrivals: dict[object, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    _arrived_at: dict[int, Node] = field(default_factory=dict)
    _tested: dict[tuple[int, int], Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        threads = range(len(self.program.threads))
        self.paths = [[self.traces.root(thread)] for thread in threads]
        self.values = [[] for _ in threads]
        self.seen = [{} for _ in threads]
        while sum(self._advance(thread) for thread in threads):
            pass

    @property
    def program(self) -> Program:
        """What is executed."""
        return self.traces.program

    def _advance(self, thread: int) -> bool:
        """Let a thread go on as far as it can; whether that was anywhere."""
        began = len(self.values[thread])
        while len(self.values[thread]) < PILOT_STEPS:
            node = self.paths[thread][-1]
            if node.issued is None or not all(self._is_ready(node, operation) for operation in node.operations):
                break
            values = tuple(self._perform(node, operation) for operation in node.operations)
            self.values[thread].append(values)
            self.paths[thread].append(self.traces.answer(node, values))
        return len(self.values[thread]) > began

    def _is_ready(self, node: Node, operation: Operation) -> bool:
        """Whether an operation can be performed now."""
        if isinstance(operation, Barrier):
            return self._is_complete(node, operation)
        if not isinstance(operation, Await):
            return True
        value, place = self._read(operation.location), (node.thread, id(operation))
        if self._tested.get(place, self) == value:
            return False
        self._tested[place] = value
        if operation.predicate(value):
            return True
        self.uses[operation.location].awaited = True
        return False

    def _is_complete(self, node: Node, barrier: Barrier) -> bool:
        """Whether as many threads as a barrier needs have arrived as often as this one."""
        arrivals = self._arrivals[barrier.name]
        if self._arrived_at.get(node.thread) is not node:
            self._arrived_at[node.thread] = node
            arrivals[node.thread] = arrivals.get(node.thread, 0) + 1
        return sum(count >= arrivals[node.thread] for count in arrivals.values()) >= barrier.participants

    def _perform(self, node: Node, operation: Operation) -> Value:
        """Perform an operation; what it reads."""
        if isinstance(operation, Fence | Barrier):
            return None
        use, location = self.uses[operation.location], operation.location
        use.teams.add(self.teams[node.thread])
        use.strong |= operation.order is not Order.WEAK
        self.whole |= operation.order is Order.SC or operation.strands != ALL_STRANDS
        value = None if isinstance(operation, Store) else self._read(location)
        new = operation.value if isinstance(operation, Store) else None
        if isinstance(operation, Update):
            new = operation.function(value)
        use.written |= new is not None or isinstance(operation, Store)
        if new is not None or isinstance(operation, Store):
            self._memory[location] = new
        self.seen[node.thread][location] = self._memory.get(location, value)
        return value

    def _read(self, location: Location) -> Value:
        """What a location holds."""
        return self._memory[location] if location in self._memory else self.program.initial_value(location)


def number_teams(program: Program) -> tuple[int, ...]:
    """A number for the team of each thread; threads of no team are teams of their own."""
    numbers: dict[object, int] = {}
    return tuple(
        numbers.setdefault(("team", thread.team) if thread.team is not None else index, len(numbers))
        for index, thread in enumerate(program.threads)
    )
