"""How many executions those stand for that were explored by symmetry."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise, permutations, product
from math import factorial

from tiebreak.errors import InputError, UnsupportedOperationError

from .execution import EventKey, Execution
from .history import Histories, State
from .layout import ANCHOR, AT_THREADS, HEADER, PERFORMED, SEED, THREAD_RECORD, TWIN, Array
from .operations import Barrier
from .program import Program
from .symmetry import Images, Places, check_symmetry

MOST_THREADS = 6
"""Interchangeable threads of which every permutation is tried to count the executions that one stands for."""


@dataclass(frozen=True)
class Anchor:
    """Point to which interchangeable threads come in one order, see ``twins``.

    Attributes:
        block: Number of a block of operations.
        performed: Whether it is the one operation of that block, or that the thread enters the block.
    """

    block: int
    performed: bool

    @classmethod
    def parse(cls, text: str) -> Anchor:
        """An anchor as text.

        Raises:
            InputError: It is none.
        """
        kind, _, block = text.partition(":")
        if kind not in ("enter", "perform") or not block.isdecimal():
            raise InputError("symmetry", value=text, limit="enter:BLOCK or perform:BLOCK")
        return cls(int(block), kind == "perform")

    def __str__(self) -> str:
        return f"{'perform' if self.performed else 'enter'}:{self.block}"


class Orbits:
    """Counts the executions that the explored ones stand for.

    Args:
        program: It states its symmetry.
        anchor: Point to which threads come in one order.
        visit: Called with every execution that is counted.

    Raises:
        InputError: The program states none, or of too many threads.

    Attributes:
        counts_images: Whether to count the executions that those explored stand for, which takes time.
        explored: Complete executions that were explored.
        total: Complete executions that there are.
    """

    def __init__(self, program: Program, anchor: Anchor, visit: Callable[[Execution], None] | None = None) -> None:
        self._images, self._anchor, self._visit = Images(program), anchor, visit
        if len(self._images.symmetry.threads) > MOST_THREADS:
            raise InputError("symmetry", value=program.name, limit=f"up to {MOST_THREADS} interchangeable threads")
        self.counts_images = True
        self._lanes: dict[Hashable, list[tuple[int, ...]]] = {}
        self._seen: set[bytes] = set()
        self.explored, self.total = 0, 0

    @property
    def number(self) -> int:
        """Executions that are not images of one another."""
        return len(self._seen)

    def describe(self) -> str:
        """What was counted, in words."""
        threads = self._images.symmetry.threads
        point = f"{'perform' if self._anchor.performed else 'enter'} block {self._anchor.block}"
        return (
            f"{self.explored:,} executions stand for {self.total:,}, {self.number:,} up to permutations of threads "
            f"{', '.join(map(str, threads))}, which {point} in this order"
        )

    def put(self, memory: Array) -> None:
        """Tell a search at its beginning which threads come one after the other, and count from the beginning.

        Raises:
            InputError: It draws executions.
        """
        if memory[SEED]:
            raise InputError("symmetry", value=self._images.program.name, limit="of all executions, not of samples")
        self._seen.clear()
        self.explored, self.total = 0, 0
        memory[ANCHOR], memory[PERFORMED] = self._anchor.block, self._anchor.performed
        for before, thread in pairwise(self._images.symmetry.threads):
            memory[HEADER + memory[AT_THREADS] + THREAD_RECORD * thread + TWIN] = before

    def check(self, histories: Histories) -> None:
        """Check that threads are interchangeable, see ``check_symmetry``."""
        check_symmetry(self._images, histories)

    def add(self, execution: Execution) -> None:
        """Count an execution and its images.

        Raises:
            UnsupportedOperationError: Threads are not alike, or have several lanes at an anchor that is one operation.
        """
        if self._anchor.performed and any(
            event.key[1] == self._anchor.block and event.key[2] and event.thread in self._images.symmetry.threads
            for event in execution.events
        ):
            raise UnsupportedOperationError("symmetry by a block of several operations")
        self.explored += 1
        if not self.counts_images:
            return
        images = [self._digest(execution, places) for places in self._sort_threads(execution)]
        least = min(images)
        if least not in self._seen:
            self._seen.add(least)
            # As many permutations lead to one image as to each other one.
            self.total += factorial(len(self._images.symmetry.threads)) // images.count(least)
        if self._visit is not None:
            self._visit(execution)

    def list_images(self, execution: Execution) -> Iterator[bytes]:
        """Fingerprints of the images of an execution, as often as there are permutations."""
        threads, everyone = self._images.symmetry.threads, range(len(execution.states))
        for order in permutations(threads):
            places = {**{thread: thread for thread in everyone}, **dict(zip(threads, order, strict=True))}
            yield self._digest(execution, places)

    def _sort_threads(self, execution: Execution) -> Iterator[dict[int, int]]:
        """Permutations that put threads in an order of what images have in common; of an orbit all lead to the same."""
        threads = self._images.symmetry.threads
        facts: dict[int, list[tuple[int, ...]]] = {thread: [] for thread in range(len(execution.states))}
        for event in execution.events:
            source = execution.events[event.source].key[1] if event.source is not None and event.source >= 0 else -1
            facts[event.thread].append((event.key[1], event.kind, source * (not event.open), len(event.earlier)))
        groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for thread in threads:
            groups.setdefault(tuple(sorted(facts[thread])), []).append(thread)
        for orders in product(*(permutations(group) for _, group in sorted(groups.items()))):
            sorted_threads = [thread for order in orders for thread in order]
            yield {**{thread: thread for thread in facts}, **dict(zip(sorted_threads, threads, strict=True))}

    def _digest(self, execution: Execution, places: Places) -> bytes:
        """Fingerprint of an image: its events, what they read, and what they are written after."""
        names = {
            event.number: self._name(places, event.key, execution.states[event.thread]) for event in execution.events
        }
        facts = [
            (
                names[event.number],
                () if event.source is None or event.open else names.get(event.source, (-1,)),
                tuple(sorted(names[number] for number in event.earlier)),
            )
            for event in execution.events
        ]
        return hashlib.blake2b(repr(sorted(facts)).encode(), digest_size=16).digest()

    def _name(self, places: Places, key: EventKey, state: State) -> tuple[int, ...]:
        """Name of the image of an event."""
        thread, block, lane, kind = key
        return places[thread], block, self._list_lanes(places, state)[block][lane], kind

    def _list_lanes(self, places: Places, state: State) -> list[tuple[int, ...]]:
        """Of each block of a thread the lanes of its image; a barrier is two blocks."""
        key = tuple(places.items()), state.thread, state.sent
        if key not in self._lanes:
            blocks: list[tuple[int, ...]] = []
            for length in range(len(state.sent) + 1):
                sent = state.sent[:length]
                lanes = self._images.find(places, state.thread, sent)[1]
                issued = self._images.issue(state.thread, sent)
                blocks += [lanes] * (1 + isinstance(issued[0], Barrier))
            self._lanes[key] = blocks
        return self._lanes[key]
