"""Whether threads are interchangeable.

A program states which threads may be permuted, and what locations and values
become.  That is checked on every history that the search came to, and on all
its images: each of two threads must do the same, renamed, after the same
values, renamed.  An execution that the search did not see an image of would
have a first event after such histories that breaks this, so it would be found.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tiebreak.errors import InputError, UnsupportedOperationError

from .execution import describe
from .history import Histories
from .operations import Await, Barrier, Fence, Lanes, Operation, Store, Update, Value
from .program import Program, Symmetry

MOST_HISTORIES = 100_000
"""Histories and images of histories that are compared."""

Sent = tuple[Any, ...]
Places = Mapping[int, int]


class Images:
    """What becomes of a program when threads are permuted.

    Args:
        program: It states its symmetry.

    Raises:
        InputError: It states none.
    """

    def __init__(self, program: Program) -> None:
        if program.symmetry is None or len(program.symmetry.threads) < 2:
            raise InputError(
                "symmetry", value=program.name, limit="a program that states which threads may be permuted"
            )
        self.program, self.symmetry = program, program.symmetry
        self._issued: dict[tuple[int, Sent], tuple[Operation, ...] | str] = {}
        self._lanes: dict[tuple[Hashable, int, Sent], tuple[Sent, tuple[int, ...]]] = {}

    def issue(self, thread: int, sent: Sent) -> tuple[Operation, ...] | str:
        """What a thread does after what it was sent; in words if it has come to an end."""
        key = thread, sent
        if key not in self._issued:
            self._issued[key] = self._run(thread, sent)
        return self._issued[key]

    def _run(self, thread: int, sent: Sent) -> tuple[Operation, ...] | str:
        run = self.program.threads[thread].body()
        try:
            issued = next(run)
            for value in sent:
                issued = run.send(value)
        except StopIteration:
            return "ends"
        except AssertionError:
            return "asserts something in vain"
        return issued.operations if isinstance(issued, Lanes) else (issued,)

    def find(self, places: Places, thread: int, sent: Sent) -> tuple[Sent, tuple[int, ...]]:
        """What the thread in the place of another one was sent, and the lanes of its block for those of the other.

        Raises:
            UnsupportedOperationError: It does something else there.
        """
        key = tuple(places.items()), thread, sent
        if key not in self._lanes:
            image: Sent = ()
            if sent:
                image, lanes = self.find(places, thread, sent[:-1])
                image = (*image, self._send(places, lanes, sent[-1]))
            self._lanes[key] = image, self._match(places, thread, sent, image)
        return self._lanes[key]

    def _send(self, places: Places, lanes: tuple[int, ...], sent: Any) -> Any:
        """What is sent, renamed and each lane in its place."""
        if not isinstance(sent, tuple) or len(sent) != len(lanes):
            return self._rename(places, sent)
        return tuple(self._rename(places, sent[lanes.index(lane)]) for lane in range(len(lanes)))

    def _rename(self, places: Places, value: Value) -> Value:
        return None if value is None else self.symmetry.rename_value(places, value)

    def _match(self, places: Places, thread: int, sent: Sent, image: Sent) -> tuple[int, ...]:
        """Lanes of the image of a block."""
        mine, others = self.issue(thread, sent), self.issue(places[thread], image)
        if isinstance(mine, str) or isinstance(others, str):
            if mine == others:
                return ()
            raise self._differ(places, thread, mine, others)
        lanes: list[int] = []
        for operation in mine:
            found = (lane for lane, other in enumerate(others) if lane not in lanes)
            lane = next((lane for lane in found if self._agree(places, operation, others[lane])), None)
            if lane is None or len(mine) != len(others):
                raise self._differ(places, thread, mine, others)
            lanes.append(lane)
        return tuple(lanes)

    def _agree(self, places: Places, one: Operation, other: Operation) -> bool:
        """Whether an operation is the image of another one, but for functions."""
        if isinstance(one, Barrier | Fence) or type(one) is not type(other):
            return one == other
        assert not isinstance(other, Barrier | Fence)
        same = (one.order, one.scope, one.strands) == (other.order, other.scope, other.strands)
        if not same or self.symmetry.rename_location(places, one.location) != other.location:
            return False
        if isinstance(one, Store) and isinstance(other, Store):
            return self._rename(places, one.value) == other.value
        return getattr(one, "given", False) == getattr(other, "given", False)

    def _differ(self, places: Places, thread: int, mine: Any, others: Any) -> UnsupportedOperationError:
        """Error about a thread that is not what another one is."""
        changed = ", ".join(f"{one} to {other}" for one, other in places.items() if one != other)
        doing = others if isinstance(others, str) else ", ".join(map(describe, others))
        wanted = mine if isinstance(mine, str) else ", ".join(self._describe(places, operation) for operation in mine)
        name = self.program.threads[places[thread]].name or f"thread {places[thread]}"
        return UnsupportedOperationError(
            f"symmetry: with threads moved from {changed}, {name} would have to do: {wanted}; it does: {doing}"
        )

    def _describe(self, places: Places, operation: Operation) -> str:
        """The image of an operation, in words."""
        if isinstance(operation, Barrier | Fence):
            return describe(operation)
        image = replace(operation, location=self.symmetry.rename_location(places, operation.location))
        return describe(replace(image, value=self._rename(places, image.value)) if isinstance(image, Store) else image)


def check_symmetry(images: Images, histories: Histories) -> None:
    """Check that threads are interchangeable in all that the search saw.

    Raises:
        UnsupportedOperationError: They are not, or there is too much to compare.
    """
    program, swaps = images.program, list(_list_swaps(images.program, images.symmetry))
    pending = {(state.thread, state.sent): state for state in histories.states if not state.cut and not state.read}
    values = _close(images, swaps, histories)
    _check_places(program, swaps)
    seen, left = set(pending), list(pending)
    while left:
        thread, sent = left.pop()
        for places in swaps:
            image, lanes = images.find(places, thread, sent)
            _check_functions(images, places, (thread, sent), (places[thread], image), lanes, values)
            if (places[thread], image) not in seen:
                seen.add((places[thread], image))
                left.append((places[thread], image))
        if len(seen) > MOST_HISTORIES:
            raise UnsupportedOperationError(f"symmetry of a program with more than {MOST_HISTORIES:,} histories")


def _list_swaps(program: Program, symmetry: Symmetry) -> Iterator[dict[int, int]]:
    """Permutations of two threads each, of which all others are made."""
    for one, other in pairwise(symmetry.threads):
        yield {**{thread: thread for thread in range(len(program.threads))}, one: other, other: one}


def _check_places(program: Program, swaps: list[dict[int, int]]) -> None:
    """Check that threads are on one CTA or GPU exactly if their images are."""
    threads = program.threads
    for places in swaps:
        for one in range(len(threads)):
            for other in range(len(threads)):
                a, b, c, d = threads[one], threads[other], threads[places[one]], threads[places[other]]
                here, there = (a.gpu == b.gpu, a.cta == b.cta), (c.gpu == d.gpu, c.cta == d.cta)
                if here != there and (here[0] or there[0]):
                    raise UnsupportedOperationError(f"symmetry: {a.name} and {c.name} are not alike in where they run")


def _close(images: Images, swaps: list[dict[int, int]], histories: Histories) -> list[Value]:
    """All values, and their images; the same is checked of initial values."""
    rename = images.symmetry
    for location in histories.locations.items:
        for places in swaps:
            if isinstance(location, Barrier):
                continue
            before = images.program.initial_value(location)
            after = images.program.initial_value(rename.rename_location(places, location))
            if (before if before is None else rename.rename_value(places, before)) != after:
                raise UnsupportedOperationError(f"symmetry: {location!r} begins otherwise than its image")
    values = [value for value in histories.values.items if value is not None]
    for value in values:
        for places in swaps:
            image = rename.rename_value(places, value)
            if image not in values:
                values.append(image)
        if len(values) > MOST_HISTORIES:
            raise UnsupportedOperationError("symmetry of a program with values without end")
    return values


def _check_functions(
    images: Images,
    places: Places,
    one: tuple[int, Sent],
    other: tuple[int, Sent],
    lanes: tuple[int, ...],
    values: list[Value],
) -> None:
    """Check that updates and awaits do the same, renamed, with every value."""
    mine, others = images.issue(*one), images.issue(*other)
    for operation, lane in zip(mine, lanes, strict=isinstance(mine, tuple)):
        match = others[lane]
        for value in values:
            renamed = images.symmetry.rename_value(places, value)
            if isinstance(operation, Await) and isinstance(match, Await):
                same = _try(operation.predicate, value) == _try(match.predicate, renamed)
            elif isinstance(operation, Update) and isinstance(match, Update):
                new = _try(operation.function, value)
                kept = new is None or isinstance(new, _Failed)
                same = (new if kept else images.symmetry.rename_value(places, new)) == _try(match.function, renamed)
            else:
                continue
            if not same:
                raise UnsupportedOperationError(
                    f"symmetry: {describe(operation)} does with {value!r} what {describe(match)} in its place does not"
                )


class _Failed:
    """Stands for the result of a function that has none for a value."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Failed)

    __hash__ = object.__hash__


def _try(function: Any, value: Value) -> Any:
    try:
        return function(value)
    except (TypeError, UnsupportedOperationError):
        return _Failed()
