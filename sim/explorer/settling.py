"""Leaving out of execution graphs what has only one way to go.

Most accesses of a correct protocol are in order: whatever is written is read
only after it was acquired, and written again only after that was acquired in
turn.  A location is *settled* if in every execution any two accesses of it, one
of them a write, are ordered by happens-before (``PTX``: base causality).  Its
accesses are not events of the search: a thread is given the value at once.

Settled locations are assumed, and the assumption is checked.  For every class
that the search finds, ``orders`` compares all accesses of settled locations:
each two that conflict must be ordered, and each read must have been given the
value of the last write before it.  If not, the location becomes *visible*, and
the search begins anew; as locations can only become visible that ends.

Why a search that ends has seen everything.  Take an execution of the whole
program, and its events in an order in which each comes after those before it by
program order and reads-from (there is one: models without such an order are not
explored).  Let e be the first access of a settled location that conflicts with
an earlier one without being ordered after it, or reads another value than its
thread was given.  The events before e without the settled ones are a graph of
the search, since settled accesses put nothing into the relations of a model
that is not there already: reads-from, coherence and from-reads of a settled
location, and what a release or acquire of it adds, are part of
happens-before.  The search finds a class of which this graph is a part, in
which the thread of e performs e.  What happens before e is the same there: the
other access is not ordered before e, nor after it, because what happens before
the other access lies in the part as well.  So the check of that class finds
the two.  If there is no e, the execution follows from its graph without the
settled events, and all of those were seen.

Accesses of order sc take part in an order of their own, and what a CTA performs
as a whole puts its strands in order: with one of the former, or with strands,
nothing is settled.

*Quiet* barriers.  The threads of a team take part in the same barriers, which
divide what they do into phases.  A phase is loud if a thread has a visible
operation in it, and only the barriers at the end of loud phases are events.
Two visible events in different phases are ordered by the barrier after the
first one; a thread that waits for ever does so in a loud phase, so nobody goes
on beyond the barrier after it.  An access comes after all that is visible of
its team in earlier phases, by the barrier after the last loud one, and before
all that is visible in later ones; ``orders.Followers`` looks these up.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tiebreak.errors import InputError

from .history import EndlessError
from .operations import ALL_STRANDS, Await, Barrier, Fence, Lanes, Location, Operation, Order, Store, Update, Value
from .pilot import Pilot, number_teams
from .program import Body, Program, Thread
from .refinement import Refinement
from .traces import Node, Traces


class UnsettledError(Exception):
    """A location or a phase became visible: the search has to begin anew."""


@dataclass
class Step:
    """A block of operations on a thread's way.

    Attributes:
        node: What the thread issued.
        block: Number of the block in the whole program.
        phase: Barriers of the team before it.
        low: Visible blocks of the thread that are before it, all of them.
        high: Number of the first visible block of the thread that is after it.
        visible: Lanes that are events of the search.
        values: What each lane reads, None where it reads nothing.
    """

    node: Node
    block: int
    phase: int
    low: int
    high: int
    visible: tuple[int, ...]
    values: list[Value]


class Settling:
    """A program with settled locations left out.

    Args:
        program: The whole one.
        limit: Blocks of operations after which a thread is cut short.

    Attributes:
        traces: What the threads of the whole program issue.
        visible: Locations that are not settled, as text.
        loud: Teams and phases with visible operations.
        everything: Whether nothing is settled.
        teams: Number of the team of each thread.
    """

    def __init__(self, program: Program, limit: int = 100_000) -> None:
        self.program, self.limit = program, limit
        self.teams = number_teams(program)
        self.traces = Traces(program)
        self.pilot = Pilot(self.traces, self.teams)
        self.everything = self.pilot.whole
        self.visible = {repr(location) for location, use in self.pilot.uses.items() if use.communicates}
        self.loud: set[tuple[int, int]] = set()
        self._settled: dict[Location, bool] = {}
        self._listen()

    def _listen(self) -> None:
        """Guess from the pilot which phases are loud."""
        for thread, path in enumerate(self.pilot.paths):
            phase = 0
            for node in path:
                if self.is_of_team(thread, node):
                    phase += 1
                elif any(self.is_visible(operation) for operation in node.operations):
                    self.loud.add((self.teams[thread], phase))

    @property
    def refinement(self) -> Refinement:
        """What was found out so far."""
        return Refinement(visible=frozenset(self.visible), loud=frozenset(self.loud), everything=self.everything)

    def refine(self, refinement: Refinement) -> None:
        """Take over what another search of the program found out."""
        self.visible |= refinement.visible
        self.loud |= refinement.loud
        self.everything |= refinement.everything
        self._settled.clear()

    def reveal(self, locations: Iterable[Location]) -> None:
        """Make locations visible."""
        self.visible |= {repr(location) for location in locations}
        self._settled.clear()

    @property
    def reduced(self) -> Program:
        """What the search explores."""
        threads = tuple(
            Thread(self._body(index), thread.name, thread.cta, thread.gpu, thread.team)
            for index, thread in enumerate(self.program.threads)
        )
        return Program(threads, self.program.initial, self.program.name)

    def _body(self, thread: int) -> Body:
        """What is visible of a thread."""

        def run() -> Generator[Operation | Lanes, Any, Any]:
            walk = Walk(self, thread)
            while (issued := walk.proceed()) is not None:
                walk.answer((yield issued))
            return walk.node.result

        return run

    def follow(self, thread: int, sent: tuple[Any, ...]) -> Walk:
        """A thread on its way through answers to what is visible, up to the next visible operation."""
        walk = Walk(self, thread)
        try:
            for answer in sent:
                walk.proceed()
                walk.answer(answer)
            walk.proceed()
        except (AssertionError, EndlessError):
            pass
        return walk

    def check_teams(self, walks: Iterable[Walk]) -> None:
        """Check that threads of a team that have ended took part in the same barriers.

        Raises:
            InputError: They did not.
        """
        barriers: dict[int, tuple[Hashable, ...]] = {}
        for walk in walks:
            nodes = (step.node for step in walk.steps)
            names = tuple(
                node.issued.name
                for node in nodes
                if isinstance(node.issued, Barrier) and self.is_of_team(walk.thread, node)
            )
            if walk.ended and barriers.setdefault(self.teams[walk.thread], names) != names:
                team = self.program.threads[walk.thread].team
                raise InputError("team", value=team, limit="threads that take part in the same barriers, in one order")

    def is_of_team(self, thread: int, node: Node) -> bool:
        """Whether a thread comes to a barrier of its whole team."""
        if not isinstance(node.issued, Barrier) or self.program.threads[thread].team is None:
            return False
        return node.issued.participants == self.teams.count(self.teams[thread])

    def is_visible(self, operation: Operation) -> bool:
        """Whether an operation is an event of the search."""
        if isinstance(operation, Fence | Barrier) or self.everything:
            return True
        if operation.location not in self._settled:
            self._settled[operation.location] = repr(operation.location) not in self.visible
        return not self._settled[operation.location]


@dataclass
class Walk:
    """A thread that is given the values of settled locations.

    Attributes:
        steps: Its way so far.
        node: Where it is.
        ended: Whether it is at its end.
    """

    settling: Settling
    thread: int
    steps: list[Step] = field(default_factory=list)
    ended: bool = False
    _block: int = 0
    _visible_block: int = 0
    _phase: int = 0
    _seen: dict[Location, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.node = self.settling.traces.root(self.thread)

    def proceed(self) -> Operation | Lanes | None:
        """Go on to the next visible operations; None at the end of the thread.

        Raises:
            AssertionError: The thread asserts something in vain.
            EndlessError: It takes too many steps.
            UnsettledError: Something turned out to be visible.
        """
        while True:
            if self.node.failure:
                raise AssertionError(self.node.failure)
            if self.node.issued is None:
                self.ended = True
                return None
            if len(self.steps) >= self.settling.limit:
                raise EndlessError
            step = self._take()
            self.steps.append(step)
            if step.visible:
                return self._select(step)
            self._go_on(step)

    def answer(self, sent: Any) -> None:
        """Go on from visible operations with what was read."""
        step = self.steps[-1]
        answers = sent if isinstance(step.node.issued, Lanes) else (sent,)
        for lane, value in zip(step.visible, answers, strict=True):
            step.values[lane] = value
        self._visible_block = step.high
        self._go_on(step)

    def _select(self, step: Step) -> Operation | Lanes:
        """The visible ones of the operations of a step."""
        assert step.node.issued is not None
        if len(step.visible) == len(step.node.operations):
            return step.node.issued
        return Lanes(tuple(step.node.operations[lane] for lane in step.visible))

    def _take(self) -> Step:
        """The operations at hand."""
        node, settling, low = self.node, self.settling, self._visible_block
        if settling.is_of_team(self.thread, node):
            team = settling.teams[self.thread]
            loud = (team, self._phase) in settling.loud
            return Step(node, self._block, self._phase, low, low + 2 * loud, (0,) if loud else (), [None])
        visible = tuple(lane for lane, operation in enumerate(node.operations) if settling.is_visible(operation))
        step = Step(node, self._block, self._phase, low, low + (node.blocks if visible else 0), visible, [])
        if visible:
            self._check_phase()
        step.values = [self._guess(step, lane) for lane in range(len(node.operations))]
        return step

    def _check_phase(self) -> None:
        """A phase in which something is visible is loud."""
        place = (self.settling.teams[self.thread], self._phase)
        if place not in self.settling.loud:
            self.settling.loud.add(place)
            raise UnsettledError

    def _guess(self, step: Step, lane: int) -> Value:
        """What a settled operation reads; what was read in the pilot, where the thread did the same there."""
        operation = step.node.operations[lane]
        if isinstance(operation, Fence | Barrier):
            return None
        self._check(operation)
        if lane in step.visible or isinstance(operation, Store):
            return None
        pilot, place = self.settling.pilot, len(self.steps)
        path, values = pilot.paths[self.thread], pilot.values[self.thread]
        if place < len(values) and path[place] is step.node:
            value = values[place][lane]
        elif operation.location in self._seen:
            value = self._seen[operation.location]
        else:
            unknown = self.settling.program.initial_value(operation.location)
            value = pilot.seen[self.thread].get(operation.location, unknown)
        if isinstance(operation, Await) and not operation.predicate(value):
            self.settling.reveal([operation.location])
            raise UnsettledError
        return value

    def _check(self, operation: Operation) -> None:
        """Make visible what cannot be settled."""
        settling = self.settling
        assert not isinstance(operation, Fence | Barrier)
        if (operation.order is Order.SC or operation.strands != ALL_STRANDS) and not settling.everything:
            settling.everything = True
            raise UnsettledError

    def _go_on(self, step: Step) -> None:
        """Go on with the answers to a step."""
        for operation, value in zip(step.node.operations, step.values, strict=True):
            if isinstance(operation, Fence | Barrier):
                continue
            written = operation.value if isinstance(operation, Store) else None
            if isinstance(operation, Update):
                written = operation.function(value)
            self._seen[operation.location] = value if written is None else written
        self._block += step.node.blocks
        self._phase += self.settling.is_of_team(self.thread, step.node)
        self.node = self.settling.traces.answer(self.node, tuple(step.values))
