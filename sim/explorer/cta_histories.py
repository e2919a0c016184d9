"""What one CTA of a compiled kernel does after each history, and which of its loops wait.

See ``ctas``: a load that is repeated until its value is another one is an
await, whatever the loop around it looks like.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Generator, Hashable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from tiebreak.errors import UnsupportedOperationError

from .cta_runs import Answer, Block, CompiledLaunch, CtaRun
from .grouping import RestartError
from .history import gives_value
from .operations import Await, Lanes, Load, Location, Operation, Order, Store, Update, Value

if TYPE_CHECKING:
    from .ctas import Ctas

REPEATS = 32
"""Times that a location is loaded in a row, with nothing else done, from which the loop counts as one that waits."""

AHEAD = 4096
"""Blocks that a CTA is run on at most to see whether a value ends a wait."""


Place = tuple[int, int, int]
"""Rank, number of the launch and number of the CTA."""


@dataclass(frozen=True)
class Turn:
    """When a CTA arrives at a counter.

    Attributes:
        location: The counter.
        value: What it holds then; None if the CTA is the first and waits for nobody.
    """

    location: Location
    value: Value

    def wait(self, block: Block) -> Await:
        """Wait for the turn; neither orders more than the arrival itself nor races where that does not."""
        (update,) = block.operations
        assert isinstance(update, Update)
        reached = functools.partial(operator.eq, self.value)
        return Await(self.location, reached, Order.RELAXED, update.scope, "turn", strands=update.strands)


class CtaHistory:
    """All that one CTA of one launch did.

    Args:
        ctas: What makes runs.
        launch: The launch.
        place: Rank, number of the launch and number of the CTA.
    """

    def __init__(self, ctas: Ctas, launch: CompiledLaunch, place: Place) -> None:
        self.ctas = ctas
        self._launch, self.place = launch, place
        self._blocks: dict[tuple[Answer, ...], Block | None] = {}
        self._waits: dict[tuple[Answer, ...], _Wait] = {}
        self._read: dict[tuple[Answer, ...], Answer] = {}
        self._ended: list[tuple[Answer, ...]] = []
        self._live: tuple[tuple[Answer, ...], CtaRun] | None = None

    def follow(self) -> Generator[Operation | Lanes, Any, tuple[Answer, ...]]:
        """Issue what the CTA does; returns what it has read at its end."""
        answers: tuple[Answer, ...] = ()
        block, turn = self.block(answers), self.ctas.launches.turns.get(self.place)
        while block is not None:
            if turn is not None and is_update(block, turn.location):
                if turn.value is not None:
                    yield turn.wait(block)
                turn = None
            wait = self._wait(answers, block)
            operations = wait.operations if wait is not None else block.operations
            sent = yield operations[0] if len(operations) == 1 else Lanes(operations)
            answer: Answer = (sent,) if len(operations) == 1 else sent
            answers = (*answers, answer if wait is None else wait.complete(answer))
            self._look_for_loop(answers, block)
            block = self.block(answers)
        self.finish(answers)
        return answers

    def finish(self, answers: tuple[Answer, ...]) -> None:
        """See that a whole history is the same whichever values end its waits.

        Raises:
            RestartError: It is not.
        """
        if answers not in self._ended:
            self._ended.append(answers)
            for wait in [wait for before, wait in self._waits.items() if answers[: len(before)] == before]:
                wait.try_others(answers)

    def _wait(self, answers: tuple[Answer, ...], block: Block) -> _Wait | None:
        """The wait that a block is, if it is one."""
        if block.instruction not in self.ctas.launches.polls:
            return None
        return self._waits.setdefault(answers, _Wait(self, answers, block))

    def _look_for_loop(self, answers: tuple[Answer, ...], block: Block) -> None:
        """See whether the last block is that of a loop which waits, and whether its threads read one value.

        Raises:
            RestartError: It is, and that is new.
            UnsupportedOperationError: They do not.
        """
        learned = self.ctas.launches
        seen = self._read.setdefault(answers[:-1], answers[-1])
        if any(seen[place] != answers[-1][place] for place in block.joint):
            raise UnsupportedOperationError("strong load by many threads, which may read different values")
        for operation in block.operations:
            loads = self._list_repeats(answers, operation)
            if len(loads) >= REPEATS and not learned.polls.issuperset(loads):
                learned.polls.update(loads)
                raise RestartError

    def _list_repeats(self, answers: tuple[Answer, ...], operation: Operation) -> list[Hashable]:
        """Instructions by which a strand loaded a location in a row, the last time at the end."""
        found: list[Hashable] = []
        for length in range(len(answers) - 1, -1, -1):
            block = self._blocks[answers[:length]]
            own = [other for other in block.operations if other.strands & operation.strands] if block else []
            if block is None or (own and not is_load(block)):
                break
            if any(isinstance(other, Load) and other.location == locate(operation) for other in own):
                found.append(block.instruction)
        return found

    def block(self, answers: tuple[Answer, ...]) -> Block | None:
        """What the CTA does after some answers; None if it ends."""
        if answers not in self._blocks:
            live, self._live = self._live, None
            if live is not None and answers and live[0] == answers[:-1]:
                run = live[1]
                self._blocks[answers] = run.advance(answers[-1])
            else:
                run, self._blocks[answers] = self.run(answers)
            self._live = answers, run
        return self._blocks[answers]

    def run(self, answers: tuple[Answer, ...]) -> tuple[CtaRun, Block | None]:
        """Run the CTA from its beginning to what it does after some answers."""
        run = self.ctas.start(self._launch, self.place)
        block = run.advance()
        for answer in answers:
            block = run.advance(answer)
        return run, block

    def list_ends(self, answers: tuple[Answer, ...]) -> list[tuple[Answer, ...]]:
        """Whole histories that begin with some answers."""
        return [ended for ended in self._ended if ended[: len(answers)] == answers]

    def try_other(self, place: int, poll: Hashable, ended: tuple[Answer, ...], other: Answer) -> None:
        """See that a whole history is the same if a wait ended by other values.

        Raises:
            RestartError: It is not.
        """
        answers = (*ended[:place], other, *ended[place + 1 :])
        run = self.ctas.start(self._launch, self.place)
        block = run.advance()
        for number, answer in enumerate(answers):
            expected = self._blocks[ended[:number]]
            if block is None or not block.says_the_same(expected):
                break
            block = run.advance(answer)
        else:
            if block is None:
                return
        self.ctas.launches.mattering.add(poll)
        raise RestartError


class _Wait:
    """Loads of one instruction, and which values end the loop that repeats them.

    Args:
        history: What the CTA did.
        answers: What it had read before.
        block: The loads.

    Attributes:
        operations: The loads as awaits.
    """

    def __init__(self, history: CtaHistory, answers: tuple[Answer, ...], block: Block) -> None:
        self._history, self._answers, self._block = history, answers, block
        learned = history.ctas.launches
        self._given = block.instruction in learned.mattering
        self._ends: list[list[Value]] = [[] for _ in block.operations]
        self._looping: dict[Answer, frozenset[int]] = {}
        self._doubtful: set[tuple[int, Value]] = set()
        self.operations = tuple(
            Await(each.location, functools.partial(self.ends, lane), each.order, each.scope, "poll", self._given,
                  each.strands)
            for lane, each in enumerate(block.operations)
            if isinstance(each, Load)
        )  # fmt: skip

    def ends(self, lane: int, value: Value) -> bool:
        """Whether a value ends the wait of a lane.

        A loop may wait for several words at once.  Then a value ends it if it
        does together with values that end it for the others; before any are
        known, if it does so for all of them.  Of words that one strand waits
        for some may not matter: then any value ends it beside those that do.

        Raises:
            RestartError: It was asked too early whether other values do.
            UnsupportedOperationError: Whether it does depends on more than that.
        """
        ended = lane not in self._probe(tuple(value for _ in self._block.operations))
        beside = self._beside(lane, value)
        if not ended and beside is not None:
            ended = lane not in self._probe(beside)
        elif not ended:
            self._doubtful.add((lane, value))
        if ended and value not in self._ends[lane]:
            self._add_end(lane, value)
        return ended

    def _key(self, lane: int) -> Hashable:
        return self._history.place, len(self._answers), lane

    def _beside(self, lane: int, value: Value) -> Answer | None:
        """A value for one lane, and for the others one that is known to end their wait; None if none is.

        Where one is known of the same strand, the value itself stands for those that are not known.
        """
        learned = self._history.ctas.launches.ends
        firsts = [ends[0] if ends else learned.get(self._key(place)) for place, ends in enumerate(self._ends)]
        firsts[lane] = None
        strands = self.operations[lane].strands
        alike = (
            each.strands == strands and first is not None for each, first in zip(self.operations, firsts, strict=True)
        )
        if any(alike):
            firsts = [value if first is None else first for first in firsts]
        firsts[lane] = value
        return None if None in firsts else tuple(firsts)

    def _add_end(self, lane: int, value: Value) -> None:
        self._ends[lane].append(value)
        for other, doubt in sorted(self._doubtful, key=str):
            beside = self._beside(other, doubt)
            if beside is not None and other not in self._probe(beside):
                self._learn_ends()
        for ended in self._history.list_ends(self._answers):
            self.try_others(ended)

    def _learn_ends(self) -> None:
        """Begin anew with what is known to end the wait."""
        known = self._history.ctas.launches.ends
        before = len(known)
        for place, ends in enumerate(self._ends):
            if ends:
                known.setdefault(self._key(place), ends[0])
        if len(known) == before:
            raise UnsupportedOperationError("loop that waits for several words whose values depend on one another")
        raise RestartError

    def complete(self, answer: Answer) -> Answer:
        """What the loads read, a value that ends the wait where it is left open which.

        Raises:
            RuntimeError: None is known.
        """
        if self._given:
            return answer
        if not all(self._ends):
            raise RuntimeError("wait that no known value ends")
        return tuple(ends[0] for ends in self._ends)

    def try_others(self, ended: tuple[Answer, ...]) -> None:
        """See that a whole history is the same whichever values end the wait.

        Raises:
            RestartError: It is not.
        """
        place = len(self._answers)
        if self._given or ended[:place] != self._answers:
            return
        for others in product(*self._ends):
            if sum(other != first for other, first in zip(others, ended[place], strict=True)) == 1:
                self._history.try_other(place, self._block.instruction, ended, others)

    def _probe(self, values: Answer) -> frozenset[int]:
        """Lanes that load again after some values, with nothing done in between."""
        if values not in self._looping:
            self._looping[values] = self._look_ahead(values)
        return self._looping[values]

    def _look_ahead(self, values: Answer) -> frozenset[int]:
        run, _ = self._history.run(self._answers)
        run.scratch = True
        read = {operation.location: value for operation, value in zip(self.operations, values, strict=True)}
        repeats: Counter[int] = Counter()
        open_lanes, block = dict(enumerate(self.operations)), run.advance(values)
        for _ in range(AHEAD):
            for lane, operation in list(open_lanes.items()):
                own = [other for other in block.operations if other.strands & operation.strands] if block else []
                goes_on = block is not None and (is_load(block) or not own)
                repeats[lane] += any(isinstance(other, Load) and other.location == operation.location for other in own)
                if repeats[lane] == REPEATS or not goes_on or run.rests(operation.strands):
                    del open_lanes[lane]
            if not open_lanes or block is None:
                return frozenset(lane for lane, count in repeats.items() if count == REPEATS)
            block = run.advance(tuple(self._guess(other, read) for other in block.operations))
        raise UnsupportedOperationError(f"loop that is not over after {AHEAD} accesses")

    def _guess(self, operation: Operation, read: dict[Location, Value]) -> Value:
        """A value for what is read after the loads, so that the CTA goes on."""
        location = locate(operation)
        return read.get(location, self._history.ctas.initial[location]) if gives_value(operation) else None


def is_update(block: Block, location: Location) -> bool:
    """Whether a block is one update of a location."""
    return (
        len(block.operations) == 1
        and isinstance(block.operations[0], Update)
        and block.operations[0].location == location
    )


def locate(operation: Operation) -> Location:
    """Location of an access, None for others."""
    return operation.location if isinstance(operation, Load | Store | Update | Await) else None


def is_load(block: Block) -> bool:
    """Whether a block is loads, which change nothing."""
    return all(isinstance(each, Load) for each in block.operations)
