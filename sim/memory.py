"""Device memory of the simulated ranks: allocations, poison and bounds.

Memory is real CPU memory inside torch storages, so that unmodified kernels and
host code use real addresses.  What the simulator adds is a map from addresses
to allocations, and for each allocation its shadow (see ``shadow``).
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .shadow import Shadow

POISON = 0x7FA5A5A5
"""Fill of fresh memory: a NaN as fp32, and far beyond any id as int32."""

AddressArray = npt.NDArray[np.uint64]


@dataclass
class Allocation:
    """One block of device memory.

    Attributes:
        name: Printed name, for example ``r0.symmetric0``.
        rank: Rank whose device owns the memory.
        base: First address.
        size: Size in bytes.
        shared: Whether peers can reach it (accesses are then scheduling points).
        shadow: Access history per granule.
        owner: The torch storage, kept alive so that addresses are never reused.
        regions: Printed names of parts by the offset they start at, where somebody gave them.
    """

    name: str
    rank: int
    base: int
    size: int
    shared: bool
    shadow: Shadow
    owner: Any
    regions: dict[int, str] = field(default_factory=dict)

    def initialise(self, tensor: torch.Tensor) -> None:
        """Count the memory of a contiguous view as written."""
        start = tensor.data_ptr() - self.base
        offsets = np.arange(start, start + tensor.numel() * tensor.element_size(), tensor.element_size())
        granules, _ = self.shadow.granules(offsets, tensor.element_size())
        self.shadow.initialised[granules] = True

    def place(self, address: int) -> str:
        """Return the printed form of an address in this allocation."""
        offset = address - self.base
        start = max((start for start in self.regions if start <= offset), default=0)
        return f"{self.regions.get(start, self.name)}+{offset - start}"


class Memory:
    """All allocations of one simulation."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._allocations: dict[int, Allocation] = {}

    @property
    def bases(self) -> tuple[int, ...]:
        """First address of every allocation, in order."""
        return tuple(self._bases)

    def register(
        self, tensor: torch.Tensor, *, name: str, rank: int, shared: bool = False, initialised: bool = True
    ) -> Allocation:
        """Track the storage of ``tensor``; a storage that is known is returned as it is."""
        storage = tensor.untyped_storage()
        base, size = storage.data_ptr(), storage.nbytes()
        if base in self._allocations:
            return self._allocations[base]
        allocation = Allocation(name, rank, base, size, shared, Shadow(size, initialised), storage)
        if size > 0:
            bisect.insort(self._bases, base)
            self._allocations[base] = allocation
        return allocation

    def find(self, address: int) -> Allocation | None:
        """Return the allocation that holds ``address``, if any."""
        index = bisect.bisect_right(self._bases, address) - 1
        if index < 0:
            return None
        allocation = self._allocations[self._bases[index]]
        return allocation if address < allocation.base + allocation.size else None

    def nearest(self, address: int) -> str:
        """Return an address that lies nowhere, relative to the allocation below it."""
        index = bisect.bisect_right(self._bases, address) - 1
        if index < 0:
            return hex(address)
        allocation = self._allocations[self._bases[index]]
        return f"{allocation.place(address)} (of {allocation.size} bytes)"

    def split(
        self, addresses: AddressArray, itemsize: int
    ) -> tuple[list[tuple[Allocation, npt.NDArray[np.bool_]]], int | None]:
        """Group the addresses of one operation by allocation.

        Returns:
            Pairs of an allocation and the mask of the addresses it holds, and
            the first address (if any) whose ``itemsize`` bytes lie in none.
        """
        if addresses.size and (whole := self._find_whole(addresses, itemsize)) is not None:
            return [(whole, np.ones(addresses.shape, dtype=bool))], None
        rest = np.ones(addresses.shape, dtype=bool)
        groups: list[tuple[Allocation, npt.NDArray[np.bool_]]] = []
        while rest.any():
            address = int(addresses[rest][0])
            allocation = self.find(address)
            if allocation is None:
                return groups, address
            offsets = addresses - np.uint64(allocation.base)
            inside = rest & (addresses >= np.uint64(allocation.base)) & (offsets < np.uint64(allocation.size))
            overhang = inside & (offsets + np.uint64(itemsize) > np.uint64(allocation.size))
            if overhang.any():
                return groups, int(addresses[overhang][0])
            groups.append((allocation, inside))
            rest &= ~inside
        return groups, None

    def _find_whole(self, addresses: AddressArray, itemsize: int) -> Allocation | None:
        """Return the allocation that holds all of an operation, if one does."""
        first, last = int(addresses.min()), int(addresses.max())
        allocation = self.find(first)
        if allocation is None or last + itemsize > allocation.base + allocation.size:
            return None
        return allocation


def poison(tensor: torch.Tensor) -> None:
    """Fill ``tensor`` with the poison pattern, bytes beyond a multiple of 4 with 0xA5."""
    storage = tensor.untyped_storage()
    raw = torch.tensor([], dtype=torch.uint8).set_(storage)
    pattern = torch.tensor([0xA5, 0xA5, 0xA5, 0x7F], dtype=torch.uint8)
    raw.copy_(pattern.repeat(raw.numel() // 4 + 1)[: raw.numel()])
