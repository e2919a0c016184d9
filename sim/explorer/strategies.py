"""Which thread goes on in an execution that is drawn at random.

A strategy puts the threads in an order before every step; the first one that
can go on does.  Which of several writes a read reads is drawn evenly, except
under ``sc``, where it is the last one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .operations import Location


@dataclass(frozen=True)
class Turn:
    """What a thread would do next.

    Attributes:
        thread: Which one.
        place: Number of its operations before.
        location: What it would access, None if nothing.
        writes: Whether it might write.
    """

    thread: int
    place: int
    location: Location | None
    writes: bool


class Strategy(Protocol):
    """Puts threads in order; one object serves many executions."""

    def begin(self, seed: int) -> None:
        """Prepare an execution."""

    def rank(self, turns: Sequence[Turn], last: Turn | None) -> list[int]:
        """Threads, the one to be tried first at the beginning; ``last`` is what was done last."""


@dataclass
class Pct:
    """Probabilistic concurrency testing: priorities, and ``depth - 1`` times the thread that runs falls behind all.

    A failure that needs ``depth`` ordering constraints among n threads and k
    steps is found with probability at least 1 / (n * k^(depth-1)) (Burckhardt,
    Kothari, Musuvathi, Nagarakatte, ASPLOS 2010).  ``steps`` is the number of
    steps of the longest execution so far.
    """

    depth: int = 3
    steps: int = 1
    _random: random.Random = field(default_factory=random.Random)
    _priorities: dict[int, float] = field(default_factory=dict)
    _drops: set[int] = field(default_factory=set)
    _step: int = 0

    def begin(self, seed: int) -> None:
        """Draw where the running thread falls behind."""
        self._random, self._step = random.Random(seed), 0
        self._priorities.clear()
        self._drops = {self._random.randrange(1, self.steps + 1) for _ in range(self.depth - 1)}

    def rank(self, turns: Sequence[Turn], last: Turn | None) -> list[int]:
        """Order by priority."""
        for turn in turns:
            if turn.thread not in self._priorities:
                self._priorities[turn.thread] = 1.0 + self._random.random()
        self._step += 1
        self.steps = max(self.steps, self._step)
        if last is not None and self._step in self._drops:
            self._priorities[last.thread] = -float(self._step)
        return sorted((turn.thread for turn in turns), key=lambda thread: -self._priorities[thread])


@dataclass
class Pos:
    """Partial order sampling: operations have random priorities, drawn anew for those that race with what was done.

    Yuan, Yang, Gu, "Partial Order Aware Concurrency Sampling", CAV 2018.
    """

    _random: random.Random = field(default_factory=random.Random)
    _priorities: dict[tuple[int, int], float] = field(default_factory=dict)

    def begin(self, seed: int) -> None:
        """Forget all priorities."""
        self._random = random.Random(seed)
        self._priorities.clear()

    def rank(self, turns: Sequence[Turn], last: Turn | None) -> list[int]:
        """Order by the priority of what each would do next."""
        for turn in turns:
            key = (turn.thread, turn.place)
            races = (
                last is not None
                and last.location is not None
                and (turn.location == last.location and (turn.writes or last.writes))
            )
            if races or key not in self._priorities:
                self._priorities[key] = self._random.random()
        return [turn.thread for turn in sorted(turns, key=lambda turn: -self._priorities[turn.thread, turn.place])]


@dataclass
class Surw:
    """Selectively uniform random walk: every order of the accesses of one location is as likely as the others.

    The location is drawn for each execution; the thread whose access of it
    comes next is drawn in proportion to how many each has left, and others wait
    at theirs (Zhao, Wang, et al., "Selectively Uniform Concurrency Testing",
    ASPLOS 2025).

    Attributes:
        counts: How often each thread accesses each location, as far as is known.
    """

    counts: Sequence[dict[Location, int]]
    _random: random.Random = field(default_factory=random.Random)
    _location: Location | None = None
    _left: list[int] = field(default_factory=list)
    _chosen: int = -1

    def begin(self, seed: int) -> None:
        """Draw the location."""
        self._random = random.Random(seed)
        users: dict[Location, int] = {}
        for counts in self.counts:
            for location in counts:
                users[location] = users.get(location, 0) + 1
        shared = sorted((location for location, count in users.items() if count > 1), key=repr)
        self._location = self._random.choice(shared) if shared else None
        self._left = [counts.get(self._location, 0) for counts in self.counts]
        self._choose()

    def _choose(self) -> None:
        """Draw who accesses the location next."""
        if any(self._left):
            (self._chosen,) = self._random.choices(range(len(self._left)), self._left)

    def rank(self, turns: Sequence[Turn], last: Turn | None) -> list[int]:
        """Order at random, with those last that would access the location out of turn."""
        if last is not None and last.location is not None and last.location == self._location:
            self._left[last.thread] = max(0, self._left[last.thread] - 1)
            self._choose()
        order = list(turns)
        self._random.shuffle(order)
        order.sort(key=lambda turn: turn.location == self._location and turn.thread != self._chosen)
        return [turn.thread for turn in order]


STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "pct": lambda counts, depth=3: Pct(depth),
    "pos": lambda counts: Pos(),
    "surw": lambda counts: Surw(counts()),
}
"""Strategies by name; each is given a function that tells how often threads access locations."""
