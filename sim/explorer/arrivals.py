"""Leaving out in which order the CTAs of a launch arrive at a counter, where nothing depends on it.

The CTAs of a launch often end by counting themselves: each adds to a counter,
and the last one to arrive finishes what all have begun ("threadFenceReduction"
of the CUDA samples).  Which one that is makes a class of executions of its own,
n! per launch and rank, and all of them are the same but for a name.  So CTAs
are made to take turns: each waits with its arrival until the counter holds what
it does once the CTAs of lower numbers have arrived.  That is an assumption, and
it is checked at every class that the search finds.  If it fails anywhere, or if
anything at all is wrong with a class, the search begins anew without turns.

What is checked of a launch with turns, in the histories of its CTAs:

1. Every CTA ends, and arrives once, by one update of the counter, which is the
   first access of the counter that it performs.  No other rank accesses it.
2. The arrival acquires and releases at a scope that holds all CTAs of the rank.
3. All that the CTA did before precedes it in program order, strand by strand.
4. A CTA that is not the last one to arrive does nothing more.
5. What the last one does (the *continuation*) are loads, stores and updates by
   the threads that performed the arrival; strong ones reach the whole GPU; none
   is of order sc, and none is the poll of a loop.
6. The value of the counter depends on which CTAs have arrived, not on their
   order; and each CTA, run on from any such value, does nothing more, or, if all
   others have arrived, performs the same continuation, given the same values, by
   the threads that performed its own arrival.

Why a search that ends has seen everything, up to the name of the CTA that goes
on.  Take an execution E of the program, and call a launch orderly if it is as
in 1 to 6.  Suppose that all are.  Exchange in E, launch by launch, the arrivals
for arrivals in turn, and let the CTA of the highest number perform the
continuation.  By 6 this is again what the CTAs do.  By 2 and 3, whatever the CTAs
of the launch did before they arrived happens before the continuation, in E as
well as afterwards: arrivals are morally strong with one another and form a chain
of updates.  What comes after it comes after the kernel boundary, which orders
everything; and by 4 nothing else is there.  So no relation of the model between
two events changes, but for those of arrivals with one another: an access of the
continuation now belongs to another CTA, but by 5 its scope holds both, by 3 those
of its former CTA are ordered before it rather than strong towards it, and other
devices cannot tell.  So E stays consistent, has the same races, and leaves the
same memory.  It takes turns, so the search has found its class; that a CTA polls
before it arrives adds a relaxed read of what the arrival itself reads next, of
which nothing follows.

Suppose that some launch is not orderly, and let e be the first event of E, in an
order in which each comes after those before it by program order and reads-from,
by which that shows: a second access of a counter, say, an arrival that is too
weak, an operation after an arrival that was not the last, or one that differs from
what the CTA of the highest number would have done.  What is before e contains
orderly launches, which can be exchanged as above, and arrivals of other launches;
those that are out of turn are taken away, which nobody has noticed, since only
arrivals read them.  The rest is part of an execution that takes turns, and so of a
class of the search.  If in that class somebody waits for ever, for a turn or for
something else, the search begins anew.  Else all CTAs arrive there, and those
that had arrived before e did so with the same histories.  Which values the counter
takes depends on these alone, so the check of the class, which looks at every set
of CTAs that arrives first, finds what e shows.

Failures are never reported with turns: the search begins anew without them.  A
property that is checked must not ask which CTA did what, only what memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tiebreak.errors import UnsupportedOperationError

from .cta_histories import CtaHistory, Place, Turn, is_update, locate
from .cta_runs import Answer, Block
from .ctas import Ctas
from .execution import Execution
from .grouping import RestartError
from .operations import ALL_STRANDS, Barrier, Load, Location, Operation, Order, Scope, Store, Update, Value

MAXIMUM_CTAS = 6
"""CTAs of a launch: all sets of those that have arrived are looked at."""

Steps = list[tuple[Block, Answer]]
"""What a CTA did, and what it read."""


@dataclass(frozen=True)
class Arrival:
    """A CTA that has ended, and how it arrived.

    Attributes:
        history: What else the CTA may have done.
        before: What it had read before.
        update: The arrival.
        read: What that read.
        preceding, continuation: What the CTA did before and after.
    """

    history: CtaHistory
    before: tuple[Answer, ...]
    update: Update
    read: Value
    preceding: Steps
    continuation: Steps

    @property
    def written(self) -> Value | None:
        """What it wrote."""
        return self.update.function(self.read)

    def is_strong(self) -> bool:
        """Whether it orders all that the CTA did before all that the last CTA does."""
        update = self.update
        if update.order is not Order.ACQ_REL or update.scope is Scope.CTA:
            return False
        strands = update.strands
        for block, _ in reversed(self.preceding):
            for operation in block.operations:
                if not operation.strands & strands:
                    return False
            for operation in block.operations:
                strands |= operation.strands
        return True

    def may_move(self, polls: set[Hashable]) -> bool:
        """Whether another CTA may as well perform the continuation."""
        return all(
            block.instruction not in polls and self._is_own(block) and all(_may_move(each) for each in block.operations)
            for block, _ in self.continuation
        )

    def _is_own(self, block: Block) -> bool:
        """Whether the threads that arrived perform a block."""
        return all(operation.strands == self.update.strands for operation in block.operations)

    def goes_on(self, read: Value, continuation: Steps) -> bool:
        """Whether the CTA performs a continuation, and ends, had the arrival read another value."""
        answers: tuple[Answer, ...] = (*self.before, (read,))
        try:
            for block, answer in continuation:
                found = self.history.block(answers)
                if found is None or not self._is_own(found) or not _whole(found).says_the_same(_whole(block)):
                    return False
                answers = (*answers, answer)
            if self.history.block(answers) is not None:
                return False
        except (AssertionError, UnsupportedOperationError):
            return False
        self.history.finish(answers)
        return True


def _may_move(operation: Operation) -> bool:
    """Whether an operation is the same for memory whichever CTA of a GPU performs it."""
    if not isinstance(operation, Load | Store | Update) or operation.order is Order.SC:
        return False
    return operation.order is Order.WEAK or operation.scope is not Scope.CTA


def _whole(block: Block) -> Block:
    """A block without its strands, whose numbers differ from CTA to CTA."""
    operations = (
        each if isinstance(each, Barrier) else replace(each, strands=ALL_STRANDS) for each in block.operations
    )
    return replace(block, operations=tuple(operations))


class Arrivals:
    """Makes CTAs take turns, and checks that nothing is lost by it.

    Args:
        ctas: The CTAs.
    """

    def __init__(self, ctas: Ctas) -> None:
        self._ctas = ctas

    @property
    def _turns(self) -> dict[Place, Turn]:
        return self._ctas.launches.turns

    def learn(self, execution: Execution) -> None:
        """Find counters at which CTAs arrive in a complete execution, and when it is whose turn."""
        for launch in self._list_launches(execution):
            for location in sorted(_list_counters(launch), key=str):
                arrivals = self._list_arrivals(launch, location)
                values = _list_turns(arrivals)
                if len(values) == len(launch) > 1:
                    turns = (Turn(location, value if number else None) for number, value in enumerate(values))
                    self._turns.update(zip(launch, turns, strict=True))
                    break

    def confirm(self, execute: Callable[[], Execution], right: bool) -> None:
        """Check that a class tells of all others.

        Args:
            execute: Makes one of its executions.
            right: Whether it is complete, and nothing is wrong with it.

        Raises:
            RestartError: It does not, and CTAs take no turns any more.
        """
        if self._turns and not (right and self._is_orderly(execute())):
            self._turns.clear()
            # What was read in turn may differ from what is read in any order, where something is wrong.
            self._ctas.forget_histories()
            raise RestartError

    def _is_orderly(self, execution: Execution) -> bool:
        """Whether every launch with turns is orderly."""
        launches = self._list_launches(execution)
        owners = _list_owners(launches)
        return all(
            self._is_launch_orderly(launch, self._turns[place].location)
            and owners[self._turns[place].location] == {place[0]}
            for launch in launches
            for place in list(launch)[:1]
            if place in self._turns
        ) and set(self._turns) <= {place for launch in launches for place in launch}

    def _is_launch_orderly(self, launch: dict[Place, Steps], counter: Location) -> bool:
        arrivals = self._list_arrivals(launch, counter)
        if len(arrivals) != len(launch) or not all(arrival.is_strong() for arrival in arrivals):
            return False
        *others, last = arrivals
        if any(arrival.continuation for arrival in others) or not last.may_move(self._ctas.launches.polls):
            return False
        values = _follow_sets(arrivals)
        reads = (values.get(frozenset(range(number))) for number in range(len(arrivals)))
        if not values or any(read != arrival.read for read, arrival in zip(reads, arrivals, strict=True)):
            return False
        return all(
            arrival.goes_on(value, last.continuation if len(arrived) == len(others) else [])
            for arrived, value in values.items()
            for number, arrival in enumerate(arrivals)
            if number not in arrived
        )

    def _list_launches(self, execution: Execution) -> list[dict[Place, Steps]]:
        """What the CTAs of each launch did that ended, by number."""
        ended = self._ctas.list_answers(execution)
        found = []
        for _, places in groupby(sorted(ended), key=lambda place: place[:2]):
            found.append({place: list(self._list_steps(place, ended[place])) for place in places})
        return found

    def _list_steps(self, place: Place, answers: tuple[Answer, ...]) -> Iterator[tuple[Block, Answer]]:
        history = self._ctas.history(place)
        for number, answer in enumerate(answers):
            block = history.block(answers[:number])
            assert block is not None
            yield block, answer

    def _list_arrivals(self, launch: dict[Place, Steps], counter: Location) -> list[Arrival]:
        """How CTAs arrive at a counter, those whose first access of it is an update."""
        found = []
        for place, steps in launch.items():
            index = next((index for index, (block, _) in enumerate(steps) if _accesses(block, counter)), None)
            if index is None or not is_update(steps[index][0], counter):
                continue
            (update,), (read,) = steps[index][0].operations, steps[index][1]
            assert isinstance(update, Update)
            before = tuple(answer for _, answer in steps[:index])
            history = self._ctas.history(place)
            found.append(Arrival(history, before, update, read, steps[:index], steps[index + 1 :]))
        return found


def _accesses(block: Block, location: Location) -> bool:
    return any(locate(operation) == location for operation in block.operations)


def _list_counters(launch: dict[Place, Steps]) -> set[Location]:
    """Locations that are updated."""
    return {
        operation.location
        for steps in launch.values()
        for block, _ in steps
        for operation in block.operations
        if isinstance(operation, Update)
    }


def _list_owners(launches: list[dict[Place, Steps]]) -> dict[Location, set[int]]:
    """Ranks that access each location."""
    owners: dict[Location, set[int]] = {}
    for launch in launches:
        for (rank, _, _), steps in launch.items():
            for block, _ in steps:
                for operation in block.operations:
                    owners.setdefault(locate(operation), set()).add(rank)
    return owners


def _list_turns(arrivals: Sequence[Arrival]) -> list[Value]:
    """What a counter holds before each arrival, were they in order; empty if that is not clear."""
    if not 1 < len(arrivals) <= MAXIMUM_CTAS:
        return []
    written = {arrival.written for arrival in arrivals}
    first = [arrival.read for arrival in arrivals if arrival.read not in written]
    values: list[Value] = first[:1]
    for arrival in arrivals[:-1] if len(first) == 1 else ():
        values.append(arrival.update.function(values[-1]))
    return values


def _follow_sets(arrivals: Sequence[Arrival]) -> dict[frozenset[int], Value]:
    """What a counter holds once each set of CTAs has arrived, but for all; empty if the order matters."""
    values: dict[frozenset[int], Value] = {frozenset(): arrivals[0].read}
    sets = list(values)
    for arrived in sets:
        for number in set(range(len(arrivals))) - arrived:
            value, more = arrivals[number].update.function(values[arrived]), arrived | {number}
            if more not in values:
                sets.append(more)
            if value is None or values.setdefault(more, value) != value:
                return {}
    del values[frozenset(range(len(arrivals)))]
    return values
