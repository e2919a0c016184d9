"""Accesses as the race detector keeps them: one record per instruction, and their elements where it matters.

An element is one thread's touch of one granule of four bytes.  Only elements on
suspected granules are ever made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .module import Instruction
from .observation import Access, Addresses, Threads
from .races_cta import View

GRANULE = 4
"""Bytes per granule."""

SCOPES = {None: 0, "cta": 1, "cluster": 2, "gpu": 3, "sys": 4}
"""Scopes in rising order; 0 is a weak access."""

Ints = npt.NDArray[np.int64]


class Record(NamedTuple):
    """One memory instruction of some threads.

    Attributes:
        view: What its CTA knew.
        instruction: The instruction.
        writes: Whether it writes.
        scope: Number of its scope in ``SCOPES``.
        threads: Threads.
        addresses: Address of each.
        width: Bytes that each touches.
        element: Bytes of one element of its vector.
        values: What a plain write stores, as in ``Access.values``.
        owner: CTA whose shared memory it is; -1 for global memory.
    """

    view: View
    instruction: Instruction
    writes: bool
    scope: int
    threads: Threads
    addresses: Addresses
    width: int
    element: int
    values: tuple[npt.NDArray[np.generic], ...]
    owner: int


def record_access(access: Access, view: View) -> Record:
    """Return the record of an access; registers may change afterwards."""
    return Record(
        view,
        access.instruction,
        access.kind != "read",
        0 if access.order == "weak" and access.kind != "update" else SCOPES[access.scope or "gpu"],
        access.threads,
        access.addresses.copy(),
        access.width,
        access.width // access.elements,
        tuple(value.copy() for value in access.values),
        access.owner,
    )


def expand(addresses: Addresses, width: int) -> Ints:
    """Return the first byte of every granule that ``width`` bytes at each address touch, those of one together."""
    span = -(-width // GRANULE)
    first = addresses & -GRANULE
    return first if span == 1 else (first[:, None] + np.arange(span) * GRANULE).reshape(-1)


@dataclass(frozen=True)
class Elements:
    """Elements of records; arrays of shape [elements].

    Attributes:
        records: The records.
        granule: Number of the granule.
        thread: Thread.
        record: Place in ``records``.
        start: First byte that the thread touches in the granule.
        stop: Byte after the last one.
        value: Bits that a plain write stores there, else 0.
    """

    records: Sequence[Record]
    granule: Ints
    thread: Ints
    record: Ints
    start: Ints
    stop: Ints
    value: Ints

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.granule.size

    def take(self, chosen: npt.NDArray[np.generic]) -> Elements:
        """Return some of the elements, by mask or by place."""
        columns = (self.granule, self.thread, self.record, self.start, self.stop, self.value)
        return Elements(self.records, *(column[chosen] for column in columns))

    def without_idle(self) -> Elements:
        """Return the same elements without the records that have none."""
        used, record = np.unique(self.record, return_inverse=True)
        if used.size == len(self.records):
            return self
        records = [self.records[number] for number in used.tolist()]
        return Elements(records, self.granule, self.thread, record, self.start, self.stop, self.value)

    def of_records(self, values: Iterable[int]) -> Ints:
        """Return for each element the value of its record."""
        return np.fromiter(values, dtype=np.int64, count=len(self.records))[self.record]


def make_elements(records: Sequence[Record], locate: Callable[[Ints], Ints]) -> Elements:
    """Return all elements of records; ``locate`` says in which granules addresses are."""
    widths: dict[int, list[int]] = {}
    for number, record in enumerate(records):
        widths.setdefault(record.width, []).append(number)
    parts = [_split(records, numbers, width, locate) for width, numbers in widths.items()]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    # Record by record, whatever their widths.
    order = np.argsort(columns[2], kind="stable") if len(parts) > 1 else slice(None)
    return Elements(records, *(column[order] for column in columns))


def join_elements(parts: Sequence[Elements]) -> Elements:
    """Return the elements of several sets of records as those of one."""
    parts = [part.without_idle() for part in parts]
    records = [record for part in parts for record in part.records]
    offsets = np.cumsum([0, *(len(part.records) for part in parts[:-1])])
    columns = [
        [getattr(part, name) for part in parts] for name in ("granule", "thread", "record", "start", "stop", "value")
    ]
    columns[2] = [column + offset for column, offset in zip(columns[2], offsets, strict=True)]
    return Elements(records, *(np.concatenate(column) for column in columns))


def _split(
    records: Sequence[Record], numbers: Sequence[int], width: int, locate: Callable[[Ints], Ints]
) -> tuple[Ints, ...]:
    """Return the columns of the elements of records of one width."""
    chosen = [records[number] for number in numbers]
    addresses = np.concatenate([record.addresses for record in chosen])
    first = expand(addresses, width)
    span = first.size // addresses.size
    thread = np.repeat(np.concatenate([record.threads for record in chosen]), span)
    sizes = [record.threads.size * span for record in chosen]
    start = np.maximum(first, np.repeat(addresses, span))
    stop = np.minimum(first + GRANULE, np.repeat(addresses + width, span))
    value = np.zeros(start.size, dtype=np.int64)
    for record, end, size in zip(chosen, np.cumsum(sizes).tolist(), sizes, strict=True):
        if record.values:
            value[end - size : end] = _values(record, span)
    return locate(first), thread, np.repeat(np.array(numbers), sizes), start, stop, value


def _values(record: Record, span: int) -> Ints:
    """Return the bits that a plain write stores into each granule."""
    columns = [np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}") for value in record.values]
    stored = np.zeros((record.threads.size, max(record.width, span * GRANULE)), dtype=np.uint8)
    size = record.element
    for place, column in enumerate(columns):
        stored[:, place * size : (place + 1) * size] = column.reshape(-1, 1).view(np.uint8)[:, :size]
    words: Ints = stored[:, : span * GRANULE].copy().view("<u4").astype(np.int64).reshape(-1)
    return words
