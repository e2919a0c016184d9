"""Atomic updates of many threads: equal addresses are updated one after the other, in the order of the threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .atomic import UpdateOperation
from .memory import Array

Index = npt.NDArray[np.int64]

_UFUNCS = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip


class Serialiser:
    """Performs one kind of update.

    Args:
        update: The update.
        operation: Its name: ``add``.
        element: Its type: ``u32``.
    """

    def __init__(self, update: UpdateOperation, operation: str, element: str) -> None:
        self._update = update
        self._operation = operation
        ordinary = element[0] in "usb" and element[1:].isdigit()
        self._ufunc = _UFUNCS.get(operation) if ordinary else None
        self._view = f"int{element[1:]}" if element[0] == "s" else update.storage

    def reduce(self, memory: Array, index: Index, operands: tuple[Array, ...]) -> None:
        """Update ``memory[index]`` without returning what was there."""
        if self._ufunc is not None:
            self._ufunc.at(memory.view(self._view), index, operands[0].view(self._view))
        else:
            self.exchange(memory, index, operands)

    def exchange(self, memory: Array, index: Index, operands: tuple[Array, ...]) -> Array:
        """Update ``memory[index]`` in order; returns what each thread found."""
        order = np.argsort(index, kind="stable")
        places = index[order]
        heads = np.empty(len(places), bool)
        heads[0] = True
        np.not_equal(places[1:], places[:-1], out=heads[1:])
        if heads.all():
            found = memory[index]
            memory[index] = self._update.evaluate(found, *operands)
            return found
        starts = heads.nonzero()[0]
        lengths = np.diff(starts, append=len(places))
        given = tuple(operand[order] for operand in operands)
        first = memory[places[starts]]
        rows, last = self._run(first, starts, lengths, given)
        memory[places[starts]] = last
        found = np.empty_like(rows)
        found[order] = rows
        return found

    def _run(self, first: Array, starts: Index, lengths: Index, given: tuple[Array, ...]) -> tuple[Array, Array]:
        """Return what each update found, sorted by address, and what the last one of each address left."""
        ends = starts + lengths - 1
        if self._operation == "add" and self._ufunc is not None:
            running = np.cumsum(given[0], dtype=given[0].dtype)
            before = running - given[0]
            rows = before + np.repeat(first - before[starts], lengths)
            return rows, rows[ends] + given[0][ends]
        if self._operation == "exch":
            rows = np.roll(given[0], 1)
            rows[starts] = first
            return rows, given[0][ends]
        if self._operation == "inc" and (given[0] == given[0][0]).all():
            return _count(first, starts, lengths, int(given[0][0]))
        if self._ufunc is not None:
            return self._accumulate(first, starts, lengths, given[0])
        return self._step(first, starts, lengths, given)

    def _accumulate(self, first: Array, starts: Index, lengths: Index, given: Array) -> tuple[Array, Array]:
        assert self._ufunc is not None
        rows, last = np.empty_like(given), np.empty_like(first)
        for number, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            line = np.concatenate((first[number : number + 1], given[start : start + length]))
            line = self._ufunc.accumulate(line.view(self._view)).view(given.dtype)
            rows[start : start + length] = line[:-1]
            last[number] = line[-1]
        return rows, last

    def _step(self, first: Array, starts: Index, lengths: Index, given: tuple[Array, ...]) -> tuple[Array, Array]:
        rows, current = np.empty_like(given[0]), first.copy()
        for turn in range(int(lengths.max())):
            active = (lengths > turn).nonzero()[0]
            at = starts[active] + turn
            rows[at] = current[active]
            current[active] = self._update.evaluate(current[active], *(operand[at] for operand in given))
        return rows, current


def _count(first: Array, starts: Index, lengths: Index, bound: int) -> tuple[Array, Array]:
    """``inc`` with one bound: counts up to the bound, then from 0 again."""
    turns = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
    rows = _counted(np.repeat(first, lengths), turns, bound)
    return rows, _counted(first, lengths, bound)


def _counted(first: Array, turns: Any, bound: int) -> Array:
    """Value after ``turns`` steps; beyond the bound the first step goes to 0."""
    start = first.astype(np.int64)
    inside = (start + turns) % (bound + 1)
    outside = np.where(turns == 0, start, (turns - 1) % (bound + 1))
    counted: Array = np.where(start <= bound, inside, outside).astype(first.dtype)
    return counted
