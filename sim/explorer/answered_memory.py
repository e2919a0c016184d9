"""Global memory of a CTA of the PTX machine whose reads somebody else answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tiebreak.errors import UnsupportedOperationError

from ..memory import Allocation, Memory
from ..ptx.memory import Addresses, Array, Region
from ..ptx.memory_global import GlobalMemory

Bytes = npt.NDArray[np.uint8]


class AnsweredRegion(Region):
    """An allocation.  Each access takes what was prepared for it, and nothing is written.

    Args:
        allocation: The allocation.
    """

    def __init__(self, allocation: Allocation) -> None:
        base, size = allocation.base, allocation.size
        super().__init__(allocation.name, base, size, base=base, owner=allocation.owner)
        self._answer: Bytes | None = None
        self._first, self._times = 0, 0

    def answer(self, rows: Bytes, first: int, times: int = 1) -> None:
        """Prepare what the next access finds.

        Args:
            rows: One row of bytes per thread.
            first: Address of the first row.
            times: How often the access looks.
        """
        self._answer, self._first, self._times = rows, first, times

    def _take(self, width: int, start: int) -> Bytes:
        """What was prepared, in rows of so many bytes, of which the first begins at an address."""
        answer, self._times = self._answer, self._times - 1
        if answer is None or self._times < 0:
            raise UnsupportedOperationError(f"access of {self.name} that is not announced")
        rows, lead = np.zeros((len(answer), width), np.uint8), self._first - start
        # Elements of a vector that nothing uses are not among what was prepared.
        rows[:, lead : lead + answer.shape[1]] = answer
        return rows

    def read(self, addresses: Addresses, dtype: Any, count: int) -> Array:
        """What was prepared, as elements."""
        found: Array = self._take(np.dtype(dtype).itemsize * count, int(addresses[0])).view(dtype)
        return found if count > 1 else found.reshape(-1)

    def write(self, addresses: Addresses, values: Array, count: int) -> None:
        """Nothing: who prepares answers knows what was written."""

    def view(self, dtype: Any, count: int = 1) -> Array:
        """What was prepared, an element for each thread, to be updated in vain."""
        found: Array = self._take(np.dtype(dtype).itemsize * count, self._first).view(dtype)
        return found.reshape(-1)

    def index(self, addresses: Addresses, width: int) -> Addresses:
        """Threads update what was prepared for them."""
        return np.arange(len(addresses))


class AnsweredMemory:
    """All allocations of simulated ranks.

    Args:
        memory: The allocations.
        contents: What each held before any kernel ran, by its base.

    Attributes:
        space: What launches are given.
    """

    def __init__(self, memory: Memory, contents: dict[int, bytes]) -> None:
        self._memory = memory
        self._contents = contents
        self.space = GlobalMemory(self._find)

    def region(self, address: int) -> AnsweredRegion:
        """The allocation of an address."""
        found = self.space.find(address)
        assert isinstance(found, AnsweredRegion)
        return found

    def initial(self, start: int, stop: int) -> bytes:
        """What some bytes of one allocation held before any kernel ran.

        Raises:
            UnsupportedOperationError: Kernels of the recorded run did not know the memory.
        """
        allocation = self._memory.find(start)
        if allocation is None or allocation.base not in self._contents:
            raise UnsupportedOperationError(f"access of {hex(start)}, which no kernel knew when it was recorded")
        return self._contents[allocation.base][start - allocation.base : stop - allocation.base]

    def place(self, start: int) -> str:
        """Printed form of an address."""
        allocation = self._memory.find(start)
        assert allocation is not None
        return allocation.place(start)

    def _find(self, address: int) -> AnsweredRegion | None:
        allocation = self._memory.find(address)
        if allocation is None:
            return None
        region = AnsweredRegion(allocation)
        self.space.add(region)
        return region
