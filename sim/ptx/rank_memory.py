"""Memory of simulated ranks as global memory of the PTX machine: the same bytes, addresses, names and bounds."""

from __future__ import annotations

import numpy as np

from ..memory import Allocation, Memory
from .memory import Region
from .memory_global import GlobalMemory


class _AllocationRegion(Region):
    """The bytes of one allocation.

    Args:
        allocation: The allocation.
    """

    def __init__(self, allocation: Allocation) -> None:
        written = bool(allocation.shadow.initialised.all())
        super().__init__(
            allocation.name,
            allocation.base,
            allocation.size,
            base=allocation.base,
            owner=allocation.owner,
            initialised=written,
        )
        self._allocation = allocation
        self.refresh()

    def refresh(self) -> None:
        """Take over what the host wrote since."""
        if self.missing is not None:
            shadow = self._allocation.shadow
            written = np.repeat(shadow.initialised, shadow.granule)[: self.size]
            self.missing[self.base - self.start :][: self.size][written] = 0

    def place(self, address: int) -> str:
        """Return the printed form of an address, as simulated ranks print it."""
        return self._allocation.place(address)


class RankMemory:
    """All memory of one machine.

    Args:
        memory: Its allocations.

    Attributes:
        space: What launches are given.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._regions: list[_AllocationRegion] = []
        self.space = GlobalMemory(self._find)

    def refresh(self) -> None:
        """Take over what hosts wrote since the last launch."""
        for region in self._regions:
            region.refresh()

    def place(self, address: int) -> str:
        """Return the printed form of an address."""
        allocation = self._memory.find(address)
        return allocation.place(address) if allocation is not None else self._memory.nearest(address)

    def _find(self, address: int) -> Region | None:
        allocation = self._memory.find(address)
        if allocation is None:
            return None
        region = _AllocationRegion(allocation)
        self._regions.append(region)
        self.space.add(region)
        return region
