"""All executions of a small program, by brute force and independently of the search.

Every thread that can go on is let go on, in every order, with every write that
a read may read and every place in coherence order; the axioms of the model are
evaluated over plain relations each time.  It takes exponentially longer than
the search, visits classes many times over, and shares no code with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from .operations import Await, Barrier, Fence, Lanes, Load, Location, Operation, Order, Store, Update, Value
from .program import Program

Name = tuple[int, int, int, int]
"""Thread, block, lane, and 0 for a read or 1 for a write (further numbers for fences and barriers)."""
Pair = tuple[Name, Name]


@dataclass(frozen=True)
class Node:
    """An event.

    Attributes:
        name: What it is called in every execution.
        order: Its memory order.
        location: What it accesses, None for fences.
        value: What it reads or writes.
        source: Write that a read reads from, None for the initial value.
    """

    name: Name
    order: Order
    location: Location | None
    value: Value = None
    source: Name | None = None


@dataclass(frozen=True)
class Partial:
    """A graph under construction: its events, and the writes of each location in coherence order."""

    nodes: tuple[Node, ...] = ()
    coherence: tuple[tuple[Location, tuple[Name, ...]], ...] = ()

    def by_name(self) -> dict[Name, Node]:
        """Events by name."""
        return {node.name: node for node in self.nodes}

    def writes(self, location: Location) -> tuple[Name, ...]:
        """Writes of a location in coherence order."""
        return dict(self.coherence).get(location, ())

    def key(self) -> Hashable:
        """Same form as ``Execution.key``."""
        reads = frozenset((node.name, node.source) for node in self.nodes if node.name[3] == 0)
        order = dict(self.coherence)
        writes = frozenset(
            (node.name, frozenset(order[node.location][: order[node.location].index(node.name)]))
            for node in self.nodes
            if node.name[3] == 1
        )
        return frozenset(node.name for node in self.nodes), reads, writes


def enumerate_classes(program: Program, model: str) -> tuple[set[Hashable], set[Hashable]]:
    """Classes in which all threads end, and those in which some wait for ever.

    A thread can wait for ever if the last write of the location, in coherence
    order, does not end the wait, even where an earlier one would have.
    """
    complete: set[Hashable] = set()
    stuck: set[Hashable] = set()
    seen: set[Hashable] = set()
    pending = [Partial()]
    while pending:
        graph = pending.pop()
        blocks = [_next(program, graph, thread) for thread in range(len(program.threads))]
        if not any(block[1] for block in blocks):
            complete.add(graph.key())
            continue
        starved = True
        for thread, block in enumerate(blocks):
            for lane, operation in _missing(graph, thread, block):
                further = _extend(program, graph, (thread, block[0], lane), operation)
                allowed = [extended for extended in further if is_consistent(extended, model)]
                starved = starved and (not allowed or _can_starve(program, graph, operation))
                fresh = [extended for extended in allowed if extended.key() not in seen]
                seen.update(extended.key() for extended in fresh)
                pending += fresh
        if starved:
            stuck.add(graph.key())
    return complete, stuck


def _can_starve(program: Program, graph: Partial, operation: Operation) -> bool:
    """Whether the last write of a location does not end a wait for it."""
    if not isinstance(operation, Await):
        return False
    writes = graph.writes(operation.location)
    last = graph.by_name()[writes[-1]].value if writes else program.initial_value(operation.location)
    return not operation.predicate(last)


Block = tuple[int, tuple[Operation, ...]]


def _next(program: Program, graph: Partial, thread: int) -> Block:
    """Block that a thread is in, by running it from its beginning on what it read."""
    nodes = graph.by_name()
    run = program.threads[thread].body()
    number = 0
    try:
        issued = next(run)
        while True:
            lanes = isinstance(issued, Lanes)
            operations = issued.operations if isinstance(issued, Lanes) else (issued,)
            if any(not _is_done(nodes, (thread, number, lane), operation) for lane, operation in enumerate(operations)):
                return number, operations
            results = tuple(_result(nodes, (thread, number, lane), op) for lane, op in enumerate(operations))
            number += 2 if isinstance(operations[0], Barrier) else 1
            issued = run.send(results if lanes else results[0])
    except StopIteration:
        return number, ()


def _is_done(nodes: dict[Name, Node], place: tuple[int, int, int], operation: Operation) -> bool:
    """Whether an operation was executed."""
    if isinstance(operation, Store):
        return (*place, 1) in nodes
    if isinstance(operation, Fence):
        return (*place, 2) in nodes
    if isinstance(operation, Barrier):
        return (place[0], place[1] + 1, place[2], 4) in nodes
    return (*place, 0) in nodes


def _result(nodes: dict[Name, Node], place: tuple[int, int, int], operation: Operation) -> Any:
    """What a thread is sent for an operation."""
    return nodes[(*place, 0)].value if isinstance(operation, Load | Update) else None


def _missing(graph: Partial, thread: int, block: Block) -> Iterator[tuple[int, Operation]]:
    """Operations of a block that were not executed."""
    nodes = graph.by_name()
    for lane, operation in enumerate(block[1]):
        if not _is_done(nodes, (thread, block[0], lane), operation):
            yield lane, operation


def _extend(program: Program, graph: Partial, place: tuple[int, int, int], operation: Operation) -> Iterator[Partial]:
    """Graphs with one operation more."""
    if isinstance(operation, Fence):
        yield replace(graph, nodes=(*graph.nodes, Node((*place, 2), operation.order, None)))
    elif isinstance(operation, Barrier):
        yield from _extend_barrier(graph, place, operation)
    elif isinstance(operation, Store):
        yield from _insert(graph, (*place, 1), operation, operation.value, None)
    else:
        nodes = graph.by_name()
        for source in (None, *graph.writes(operation.location)):
            value = program.initial_value(operation.location) if source is None else nodes[source].value
            if isinstance(operation, Await) and not operation.predicate(value):
                continue
            read = Node((*place, 0), operation.order, operation.location, value, source)
            further = replace(graph, nodes=(*graph.nodes, read))
            new = operation.function(value) if isinstance(operation, Update) else None
            if isinstance(operation, Update) and new is not None:
                yield from _insert(further, (*place, 1), operation, new, (source,))
            else:
                yield further


def _extend_barrier(graph: Partial, place: tuple[int, int, int], operation: Barrier) -> Iterator[Partial]:
    """Arrive, or depart once everyone has arrived as often."""
    nodes = graph.by_name()
    arrival, departure = (*place, 3), (place[0], place[1] + 1, place[2], 4)
    if arrival not in nodes:
        yield replace(graph, nodes=(*graph.nodes, Node(arrival, Order.WEAK, operation.name)))
        return
    arrivals = [name for name in nodes if name[3] == 3 and nodes[name].location == operation.name]
    phase = sum(name[0] == place[0] for name in arrivals)
    threads = {name[0] for name in arrivals}
    ready = [thread for thread in threads if sum(name[0] == thread for name in arrivals) >= phase]
    if len(ready) >= operation.participants:
        yield replace(graph, nodes=(*graph.nodes, Node(departure, Order.WEAK, operation.name)))


def _insert(
    graph: Partial, name: Name, operation: Store | Update, value: Value, source: tuple[Name | None] | None
) -> Iterator[Partial]:
    """Put a write at every place in coherence order; an update's is right after what it read."""
    order = dict(graph.coherence)
    writes = order.get(operation.location, ())
    node = Node(name, operation.order, operation.location, value)
    for position in range(len(writes) + 1):
        if source is not None and (writes[position - 1] if position else None) != source[0]:
            continue
        order[operation.location] = (*writes[:position], name, *writes[position:])
        yield Partial((*graph.nodes, node), tuple(sorted(order.items(), key=repr)))


class Relation:
    """Pairs of events."""

    def __init__(self, pairs: set[Pair]) -> None:
        self.pairs = pairs

    def __or__(self, other: Relation) -> Relation:
        return Relation(self.pairs | other.pairs)

    def then(self, other: Relation) -> Relation:
        """Composition."""
        return Relation({(a, d) for (a, b), (c, d) in product(self.pairs, other.pairs) if b == c})

    def closure(self) -> Relation:
        """Transitive closure."""
        closed = set(self.pairs)
        while more := {(a, d) for (a, b), (c, d) in product(closed, closed) if b == c} - closed:
            closed |= more
        return Relation(closed)

    @property
    def cyclic(self) -> bool:
        """Whether something is related to itself, through others or not."""
        return any(a == b for a, b in self.closure().pairs)


def is_consistent(graph: Partial, model: str) -> bool:
    """Whether a model allows a graph, from its axioms."""
    nodes = graph.by_name()
    program_order = Relation({(a, b) for a, b in product(nodes, nodes) if a[0] == b[0] and _precedes(a, b)})
    barriers = Relation(_barrier_pairs(nodes))
    reads_from = Relation({(node.source, node.name) for node in graph.nodes if node.source is not None})
    coherence, from_reads = _orders(graph)
    if not _is_atomic(graph):
        return False
    if model == "sc":
        return not (program_order | barriers | reads_from | coherence | from_reads).cyclic
    happens = (program_order | barriers | _synchronises(graph, program_order, reads_from)).closure()
    communication = (reads_from | coherence | from_reads).closure()
    if happens.cyclic or any(a == b for a, b in happens.then(communication).pairs):
        return False
    return not (program_order | barriers | reads_from).cyclic


def _precedes(a: Name, b: Name) -> bool:
    """Program order within a thread: by blocks, and an update's read comes before its write."""
    return a[1] < b[1] or (a[1:3] == b[1:3] and a[3] < b[3])


def _barrier_pairs(nodes: dict[Name, Node]) -> set[Pair]:
    """Arrivals before the departures of their phase."""

    def phase(name: Name, kind: int) -> int:
        return sum(
            other[0] == name[0] and other[3] == kind and nodes[other].location == nodes[name].location
            and other[1] < name[1]
            for other in nodes
        )  # fmt: skip

    arrivals = [name for name in nodes if name[3] == 3]
    departures = [name for name in nodes if name[3] == 4]
    return {
        (a, d)
        for a, d in product(arrivals, departures)
        if nodes[a].location == nodes[d].location and phase(a, 3) == phase(d, 4)
    }


def _orders(graph: Partial) -> tuple[Relation, Relation]:
    """Coherence, and from each read to the writes after the one that it reads."""
    coherence, from_reads = set(), set()
    for location, writes in graph.coherence:
        coherence |= {(a, b) for i, a in enumerate(writes) for b in writes[i + 1 :]}
        for node in graph.nodes:
            if node.name[3] == 0 and node.location == location:
                first = writes.index(node.source) + 1 if node.source is not None else 0
                own = (*node.name[:3], 1)
                from_reads |= {(node.name, write) for write in writes[first:] if write != own}
    return Relation(coherence), Relation(from_reads)


def _is_atomic(graph: Partial) -> bool:
    """Whether each update writes right after what it read."""
    nodes = graph.by_name()
    for _, writes in graph.coherence:
        for position, write in enumerate(writes):
            read = nodes.get((*write[:3], 0))
            if read is not None and read.source != (writes[position - 1] if position else None):
                return False
    return True


def _synchronises(graph: Partial, program_order: Relation, reads_from: Relation) -> Relation:
    """RC11's synchronises-with."""
    nodes = graph.by_name()
    releasing = {name for name in nodes if nodes[name].order >= Order.RELEASE}
    acquiring = {name for name in nodes if nodes[name].order in (Order.ACQUIRE, Order.ACQ_REL, Order.SC)}
    strong = {name for name in nodes if nodes[name].order > Order.WEAK}
    same = {(a, b) for a, b in program_order.pairs if a[3] == b[3] == 1 and nodes[a].location == nodes[b].location}
    writes = {name for name in strong if name[3] == 1}
    sequence = {(w, w) for w in writes} | {(a, b) for a, b in same if a in nodes and b in writes and a in writes}
    updates = {((*name[:3], 0), name) for name in writes if (*name[:3], 0) in nodes}
    chains = reads_from.then(Relation(updates)).closure()
    sequence |= Relation(sequence).then(chains).pairs
    starts = {(w, w) for w in releasing & writes}
    starts |= {(f, w) for f, w in program_order.pairs if f[3] == 2 and f in releasing and w in writes}
    ends = {(r, r) for r in acquiring if r[3] == 0}
    ends |= {(r, f) for r, f in program_order.pairs if f[3] == 2 and f in acquiring and r[3] == 0 and r in strong}
    return Relation(starts).then(Relation(sequence)).then(reads_from).then(Relation(ends))
