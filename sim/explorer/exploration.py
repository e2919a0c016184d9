"""Exploring a program: all classes of its executions, or as many as there is time for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tiebreak.errors import InputError, UnsupportedOperationError

from .execution import Execution
from .expansion import reach_all
from .history import Histories
from .judging import Check, Failure, Judge
from .layout import (
    ANCHOR,
    AT_LOCATIONS,
    AT_THREADS,
    AT_TURNS,
    BLOCKED,
    CAPACITY,
    CHOICES,
    COMPLETE,
    CUT_SHORT,
    DONE,
    FAILED_THREAD,
    FAIR,
    FINGERPRINT,
    FRAME,
    FRAMES,
    FULL,
    HEADER,
    LAPSED,
    LAST,
    LEAF,
    MISS_ID,
    MISS_KIND,
    MISS_VALUE,
    MISSING,
    MODEL,
    OFFERED,
    ONWARD,
    PAUSED,
    REJECTED,
    SEED,
    SHARD,
    SHARDS,
    SIZE,
    SPLIT,
    STATE_NOW,
    STEPS,
    STUCK,
    TAKEN,
    THREAD_RECORD,
    TICKET,
    TOO_MANY,
    TOP,
    TWIN,
    UNSTABLE,
    UNSTABLE_AT,
    Array,
    Shape,
    double,
    make_memory,
    move,
)
from .models import find_model
from .orbits import Anchor, Orbits
from .program import Program
from .refinement import RefinedError, Refinement
from .sampling import find_last, list_turns
from .search import Shares, search
from .settling import Settling, UnsettledError
from .strategies import Strategy, Turn
from .verdicts import Conclusion, Counts, Verdict

NOBODY = Turn(-1, -1, None, False)
"""Stands for what was done last before the beginning."""

CHUNK = 20_000
"""Steps of the search between two looks at the clock."""


@dataclass(frozen=True)
class Options:
    """How to explore.

    Attributes:
        model: Memory model, see ``models``.
        merge_awaits: Whether all values that end a wait are one class; else
            each is a class of its own.
        fair: Whether to look for waits that a later value can starve.
        steps: Blocks of operations after which a thread is cut short.
        shard, shards: Which part of how many to explore; their counts add up.
        split: Decisions after which the parts begin.
        distinct: Whether to compare every class with those before, for tests.
        races: Whether an execution with a data race is a failure.
        settle: Whether to leave out of the search what is in order in every
            execution, see ``settling``; verdicts and counts are the same.
        stop: Whether to end at the first failure.
        symmetry: Anchor by which one image of an execution stands for those
            with other interchangeable threads first, see ``symmetry``; empty to explore all.
    """

    model: str = "sc"
    merge_awaits: bool = False
    fair: bool = True
    steps: int = 100_000
    shard: int = 0
    shards: int = 1
    split: int = 6
    distinct: bool = False
    races: bool = False
    settle: bool = False
    stop: bool = True
    symmetry: str = ""

    def __post_init__(self) -> None:
        find_model(self.model)
        if not 0 <= self.shard < self.shards:
            raise InputError("shard", value=self.shard, limit=f"from 0 to {self.shards - 1}")


@dataclass
class Exploration:
    """An exploration that can be continued.

    Args:
        program: What to explore.
        options: How.
        check: Property of complete executions.
        visit: Called with every complete execution.
        refinement: What other explorations of the program found out.

    Attributes:
        refined: Whether this is a shard that found out more, so that all
            shards have to begin anew with what it ``found``.
    """

    program: Program
    options: Options = field(default_factory=Options)
    check: Check | None = None
    visit: Callable[[Execution], None] | None = None
    refinement: Refinement = field(default_factory=Refinement)
    refined: bool = False
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    unsupported: str = ""
    finished: bool = False
    samples: int = 0
    _memory: Array = field(init=False, repr=False)
    _shares: Shares = field(init=False, repr=False)
    _shape: Shape = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.settling = Settling(self.program, self.options.steps) if self.options.settle else None
        if self.settling is not None:
            self.settling.refine(self.refinement)
        self.orbits = None
        if self.options.symmetry:
            if self.options.settle or self.options.merge_awaits or self.check is not None:
                limit = "neither settled locations, merged awaits nor a check"
                raise InputError("symmetry", value=self.program.name, limit=limit)
            self.orbits = Orbits(self.program, Anchor.parse(self.options.symmetry), self.visit)
        self._seed = 0
        self._strategy: Strategy | None = None
        self._last: Turn | None = NOBODY
        self._counted: Array = np.zeros(HEADER - COMPLETE, np.int64)
        self.open()

    def open(self) -> None:
        """Put the search at its beginning, on what is known of the program now."""
        program, options = self.program, self.options
        visit = self.visit if self.orbits is None else self.orbits.add
        self._judge = Judge(program, self.settling, options.races, options.distinct, self.check, visit)
        while True:
            try:
                explored = program if self.settling is None else self.settling.reduced
                apart = self.refinement.apart
                self.histories = Histories(explored, options.steps, options.merge_awaits, apart)
                break
            except UnsettledError:
                continue
        self.begin()

    def begin(self) -> None:
        """Put the search at its beginning, on the same histories."""
        self._shape = Shape(len(self.program.threads))
        while self.histories.tables.locations.shape[1] > self._shape.locations:
            self._shape = double(self._shape, "locations")
        memory = self._memory = make_memory(self._shape)
        self._shares = np.zeros(self._shape.frames + 1)
        self._shares[0] = 1.0
        for index, state in enumerate(self.histories.tables.places[0]):
            thread = HEADER + memory[AT_THREADS] + THREAD_RECORD * index
            memory[thread + STATE_NOW], memory[thread + LAST], memory[thread + TWIN] = state, -1, -1
        start = HEADER + memory[AT_LOCATIONS]
        memory[start : start + self._shape.locations] = -1
        memory[HEADER + TAKEN] = -1
        memory[UNSTABLE_AT] = -1
        options = self.options
        memory[MODEL], memory[FAIR], memory[SEED] = find_model(options.model).code, options.fair, self._seed
        memory[SHARD], memory[SHARDS], memory[SPLIT] = options.shard, options.shards, options.split
        memory[ANCHOR] = -1
        if self.orbits is not None:
            self.orbits.put(memory)
        memory[COMPLETE:HEADER] = self._counted
        memory[ONWARD] = self._strategy is not None
        if self._strategy is not None:
            self._strategy.begin(self._seed)
            self._last = NOBODY
        self._judge.forget()
        self.failures.clear()
        self.finished, self.refined, self.unsupported = False, False, ""

    @property
    def counts(self) -> Counts:
        """What was counted so far."""
        m = self._memory
        return Counts(
            complete=int(m[COMPLETE]), stuck=int(m[STUCK] + m[LAPSED]), cut=int(m[CUT_SHORT]), blocked=int(m[BLOCKED]),
            redundant=self._judge.redundant, rejected=int(m[REJECTED]), steps=int(m[STEPS]),
            runs=self.histories.runs if self.settling is None else self.settling.traces.runs, seconds=self.seconds,
        )  # fmt: skip

    @property
    def progress(self) -> float:
        """Part of the search that is done, every choice taken to weigh the same."""
        return float(self._shares[-1])

    @property
    def estimate(self) -> float:
        """Classes that there are in all, as far as can be told."""
        return self.counts.classes / self.progress if self.progress > 0 else float("nan")

    @property
    def conclusion(self) -> Conclusion:
        """What follows."""
        if self.failures:
            return Conclusion(Verdict.FAILED, self.failures[0].property)
        if self.unsupported:
            return Conclusion(Verdict.UNSUPPORTED, self.unsupported)
        if self.samples:
            return Conclusion(Verdict.SAMPLED, str(self.samples))
        if not self.finished:
            return Conclusion(Verdict.UNKNOWN, f"interrupted at {self.progress:.1%}")
        if self.options.shards > 1:
            return Conclusion(Verdict.UNKNOWN, f"shard {self.options.shard} of {self.options.shards} only")
        if self._memory[CUT_SHORT]:
            return Conclusion(Verdict.BOUNDED, str(self.options.steps))
        return Conclusion(Verdict.PROVED)

    @property
    def found(self) -> Refinement:
        """What this and other explorations found out about the program."""
        return self.refinement if self.settling is None else self.refinement | self.settling.refinement

    @property
    def dealt(self) -> tuple[int, int]:
        """How many parts of the search were dealt to the shards, and their fingerprint: the same in all shards."""
        return int(self._memory[TICKET]), int(self._memory[FINGERPRINT])

    @property
    def shape(self) -> Shape:
        """Room that the search has."""
        return self._shape

    @property
    def state(self) -> tuple[Array, Shares]:
        """Where the search stands."""
        return self._memory, self._shares

    def restore(self, shape: Shape, memory: Array, shares: Shares, seconds: float) -> None:
        """Put the search where one of the same program and options stood."""
        self._shape, self._memory, self._shares, self.seconds = shape, memory, shares, seconds

    def run(self, seconds: float = float("inf"), pause: Callable[[], bool] = lambda: False) -> Conclusion:
        """Go on until the end, the first failure, the time limit, or until ``pause`` says so."""
        start, before = time.perf_counter(), self.seconds
        try:
            while not self.finished:
                self.seconds = before + time.perf_counter() - start
                if self.seconds - before >= seconds or pause():
                    break
                self._advance()
        except UnsupportedOperationError as error:
            self.unsupported, self.refined = error.operation, isinstance(error, RefinedError)
        self.seconds = before + time.perf_counter() - start
        return self.conclusion

    def sample(self, number: int, seed: int = 0, strategy: Strategy | None = None) -> Conclusion:
        """Draw executions instead of exploring all.

        Without a strategy every choice of the search is as likely as the others at each decision.
        """
        start, self._strategy = time.perf_counter(), strategy
        try:
            for index in range(number):
                self._seed, self._counted = 1 << 31 | (seed * number + index), self._memory[COMPLETE:HEADER].copy()
                self.begin()
                before = self.counts
                while not self.failures and self.counts.classes == before.classes and not self.finished:
                    self._advance()
                self.finished = False
                self.samples += 1
                if self.failures:
                    break
        except UnsupportedOperationError as error:
            self.unsupported = error.operation
        self.seconds += time.perf_counter() - start
        return self.conclusion

    def _advance(self) -> None:
        """Let the compiled search run, and give it what it asks for."""
        try:
            self._answer(self._search())
        except UnsettledError as error:
            self._ask_others(error)
            self.open()
        if self._memory[TOO_MANY]:
            raise UnsupportedOperationError("more fences.sc, or more racing writes of a location, than are tried")
        if self.failures and self.options.stop:
            self.finished = True

    def _search(self) -> int:
        """Let the compiled search run, one step if a strategy says who goes on; why it came back."""
        tables, memory = self.histories.tables, self._memory
        if self._strategy is not None:
            if reach_all(tables, memory) == MISSING:
                return MISSING
            turns = list_turns(memory, self.histories)
            last = find_last(memory, self.histories)
            if turns is not None and last != self._last:
                memory[memory[AT_TURNS] :], self._last = self._strategy.rank(turns, last), last
        report = self._judge.needs_classes or bool(memory[SEED])
        return search(tables, memory, self._shares, CHUNK if self._strategy is None else 1, report)

    def _answer(self, status: int) -> None:
        """Give the search what it asks for."""
        memory = self._memory
        if status == DONE:
            if self.orbits is not None:
                self.orbits.check(self.histories)
            self.finished = True
        elif status == MISSING:
            self.histories.resolve(int(memory[MISS_KIND]), int(memory[MISS_ID]), int(memory[MISS_VALUE]))
        elif status == FULL:
            self._grow()
        elif status == UNSTABLE:
            location = int(memory[UNSTABLE_AT])
            self.histories.distinguish(location)
            apart = frozenset([repr(self.histories.locations.items[location])])
            self.refinement |= Refinement(apart=apart)
            self._ask_others()
            self.begin()
        elif status == FAILED_THREAD:
            self.failures += self._judge.judge_assertion(memory, self.histories)
        elif status == LEAF:
            self.failures += self._judge.judge(memory, self.histories)
        else:
            assert status == PAUSED

    def _ask_others(self, error: UnsettledError | None = None) -> None:
        """Begin anew with others only.

        Raises:
            RefinedError: The search is a shard, and the others do not know what it found out.
        """
        if self.options.shards > 1:
            raise RefinedError("a shard by itself, where all shards have to begin anew") from error

    def _grow(self) -> None:
        """Make room where there is none."""
        old, memory = self._shape, self._memory
        frame = HEADER + int(memory[TOP]) * int(memory[FRAME])
        while self.histories.tables.locations.shape[1] > self._shape.locations:
            self._shape = double(self._shape, "locations")
        if memory[TOP] + 2 >= memory[FRAMES]:
            self._shape = double(self._shape, "frames")
            self._shares = np.concatenate([self._shares[:-1], np.zeros(old.frames), self._shares[-1:]])
        if memory[frame + SIZE] + 2 >= memory[CAPACITY]:
            self._shape = double(self._shape, "events")
        if memory[frame + OFFERED] > memory[CHOICES]:
            self._shape = double(self._shape, "choices")
        self._memory = move(memory, old, self._shape)


def explore(program: Program, options: Options | None = None, check: Check | None = None) -> Exploration:
    """Explore a program to the end or to the first failure.

    Raises:
        InputError: An option or an operation has a wrong value.
    """
    exploration = Exploration(program, options or Options(), check)
    exploration.run()
    return exploration
