"""Which bytes of memory are one location, and which threads of a CTA one strand.

Both are as coarse as the accesses allow, and become finer as accesses are seen.

Bytes are one location if every access touches all or none of them.  Elements
of a vector are accesses of their own (PTX ISA, Memory Consistency Model,
"Vector Data-types"), and strong ones are told apart here.  Weak elements that
always go together need not be: where no access races, a read of them has one
value in each, given by the same causes; and a race is found either way.  Bytes
that no kernel writes are constants, and no location.

Threads are one strand if they read the same locations by the same loads and do
nothing else to what kernels write.  They have the same causes; so unless there
is a race, weak loads of theirs read one value.  If strong ones could read two,
then they read either together too, so nobody needs to be told apart as long as
they read one value after each history.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tiebreak.errors import UnsupportedOperationError

from ..memory import Allocation, Memory
from ..ptx.observation import Access, Position, Threads
from .settling import UnsettledError

MAXIMUM_STRANDS = 62
"""Strands of a CTA: bits of a word."""

Span = tuple[int, int]
"""First byte, and the one after the last."""


class RestartError(UnsettledError):
    """Raised when kernels do what makes void all that was explored so far: it was too coarse."""


class _Bytes:
    """What is known of the bytes of one allocation.

    Attributes:
        cuts: Whether a location may begin at an offset.
        written: Whether a kernel writes a byte.
    """

    def __init__(self, size: int) -> None:
        self.cuts: npt.NDArray[np.bool_] = np.zeros(size + 1, bool)
        self.written: npt.NDArray[np.bool_] = np.zeros(size, bool)

    def cut(self, start: int, stop: int) -> None:
        """Let locations begin and end where an access does."""
        self.cuts[start] = self.cuts[stop] = True

    def has_cut(self, start: int, stop: int) -> bool:
        """Whether locations begin and end where an access does."""
        return bool(self.cuts[start] and self.cuts[stop])


class Grouping:
    """Locations and strands.

    Args:
        memory: The allocations.

    Attributes:
        changes: How often they may have become finer.
    """

    def __init__(self, memory: Memory) -> None:
        self.changes = 0
        self._memory = memory
        self._bytes: dict[int, _Bytes] = {}
        self._strands: dict[tuple[int, int], npt.NDArray[np.int64]] = {}

    def note(self, access: Access) -> None:
        """Make locations and strands as fine as an access needs them.

        Raises:
            UnsupportedOperationError: There would be too many strands.
        """
        touched = []
        self.changes += 1
        for address in np.unique(access.addresses).tolist():
            for known, start, stop in self._parts(access, address):
                if access.kind != "read":
                    known.written[start:stop] = True
                if known.written[start:stop].any():
                    touched.append(address)
                    known.cut(start, stop)
        strands, numbers = self._part(access, touched)
        if numbers.max() >= MAXIMUM_STRANDS:
            raise UnsupportedOperationError(
                f"more than {MAXIMUM_STRANDS} threads of a CTA that access different memory"
            )
        strands[:] = numbers

    def note_write(self, start: int, stop: int) -> None:
        """Make locations of bytes that a host writes."""
        allocation, known = self._find(start)
        self.changes += 1
        known.written[start - allocation.base : stop - allocation.base] = True
        known.cut(start - allocation.base, stop - allocation.base)

    def suits(self, access: Access) -> bool:
        """Whether locations and strands are as fine as an access needs them."""
        touched = []
        for address in np.unique(access.addresses).tolist():
            for known, start, stop in self._parts(access, address):
                written = known.written[start:stop]
                if access.kind != "read" and not written.all():
                    return False
                if written.any():
                    touched.append(address)
                    if not known.has_cut(start, stop):
                        return False
        strands, numbers = self._part(access, touched)
        return int(numbers.max()) == int(strands.max())

    def _parts(self, access: Access, address: int) -> Iterator[tuple[_Bytes, int, int]]:
        """Parts of an access by one thread, as offsets in an allocation."""
        for start, stop in self.list_parts(access, address):
            allocation, known = self._find(start)
            yield known, start - allocation.base, stop - allocation.base

    @staticmethod
    def list_parts(access: Access, address: int) -> Iterator[Span]:
        """Parts of an access by one thread that are accesses of their own."""
        elements = 1 if access.order == "weak" else access.elements
        size = access.width // elements
        for place in range(elements):
            yield address + place * size, address + (place + 1) * size

    def list_locations(self, start: int, stop: int) -> list[Span]:
        """Locations among bytes, without those that no kernel writes."""
        allocation, known = self._find(start)
        inside = known.cuts[start - allocation.base : stop - allocation.base].nonzero()[0] + start
        edges = [start, *(edge for edge in inside.tolist() if edge != start), stop]
        return [
            (low, high)
            for low, high in pairwise(edges)
            if known.written[low - allocation.base]
        ]  # fmt: skip

    def strand_of(self, position: Position, thread: int) -> int:
        """Number of a thread's strand."""
        return int(self._threads(position)[thread])

    def count(self, position: Position) -> int:
        """Number of strands of a CTA."""
        return int(self._threads(position).max()) + 1

    def is_alone(self, position: Position, thread: int) -> bool:
        """Whether a thread is a strand by itself."""
        strands = self._threads(position)
        return bool((strands == strands[thread]).sum() == 1)

    def touched(self, position: Position, threads: Threads) -> int:
        """Bits of all strands that have a thread among some."""
        return int(np.bitwise_or.reduce(1 << self._threads(position)[threads]))

    def mask_of(self, position: Position, threads: Threads) -> int:
        """Bits of the strands that have all their threads among some; -1 for all."""
        strands = self._threads(position)
        missing = np.ones(len(strands), bool)
        missing[threads] = False
        whole = set(range(self.count(position))) - set(strands[missing].tolist())
        return sum(1 << strand for strand in whole) if missing.any() else -1

    def _threads(self, position: Position) -> npt.NDArray[np.int64]:
        """Strand of each thread of a CTA; CTAs of one number in several launches share them."""
        key = position.rank, position.cta
        found = self._strands.get(key)
        if found is None or len(found) < position.threads:
            found = self._strands[key] = np.zeros(position.threads, np.int64)
        return found

    def _part(self, access: Access, touched: list[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Strands of a CTA now, and if all threads that do the same at some addresses are parted from the others."""
        strands = self._threads(access.position)
        if not touched:
            return strands, strands
        labels = np.full(len(strands), -1, np.int64)
        touching = np.isin(access.addresses, touched)
        labels[access.threads[touching]] = (access.addresses if access.kind == "read" else access.threads)[touching]
        _, numbers = np.unique(np.stack([strands, labels], axis=1), axis=0, return_inverse=True)
        return strands, numbers.reshape(-1)

    def _find(self, address: int) -> tuple[Allocation, _Bytes]:
        allocation = self._memory.find(address)
        if allocation is None:
            raise UnsupportedOperationError(f"access of {hex(address)}, which is in no allocation")
        if allocation.base not in self._bytes:
            self._bytes[allocation.base] = _Bytes(allocation.size)
        return allocation, self._bytes[allocation.base]
