"""Global memory: every tensor and array that a kernel may touch, by address."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tiebreak.errors import InputError

from .memory import ALIGNMENT, Addresses, Region
from .module import Module, Variable


class GlobalMemory:
    """All registered memory, sorted by address.

    Args:
        find: Finds memory that was not registered: takes an address and returns its region, or None.
    """

    def __init__(self, find: Callable[[int], Region | None] | None = None) -> None:
        self._bases: list[int] = []
        self._regions: list[Region] = []
        self._find = find
        self._variables: dict[tuple[int, str], tuple[Module, int]] = {}

    def register(
        self, value: torch.Tensor | npt.NDArray[Any], *, name: str, initialised: bool = True, exact: bool = False
    ) -> Region:
        """Track the storage of a tensor, or the array that owns the memory of an array.

        Args:
            value: CPU tensor or array.
            name: Printed name.
            initialised: Whether its bytes count as written.
            exact: Track only the bytes of ``value``, not all of its storage, so that a view has bounds of its own.

        Raises:
            InputError: Not a CPU tensor, or it overlaps other memory that does not hold all of it.
        """
        pointer, size, owner, writable = _extent(value, name, exact=True)
        known = self.find(pointer)
        if known is not None and pointer + size <= known.end:
            return known
        pointer, size, owner, writable = _extent(value, name, exact=exact)
        region = Region(name, pointer, size, base=pointer, owner=owner, initialised=initialised, writable=writable)
        if size:
            self.add(region)
        return region

    def add(self, region: Region) -> None:
        """Track a region.

        Raises:
            InputError: It overlaps another one.
        """
        place = bisect.bisect_left(self._bases, region.base)
        neighbours = self._regions[max(place - 1, 0) : place + 1]
        for other in neighbours:
            if region.base < other.end and other.base < region.end:
                limit = f"it overlaps {other.name}"
                raise InputError(f"memory of {region.name}", limit=limit, remedy="register the whole storage first")
        self._bases.insert(place, region.base)
        self._regions.insert(place, region)

    def find(self, address: int) -> Region | None:
        """Return the region that holds an address, if any."""
        place = bisect.bisect_right(self._bases, address) - 1
        if place >= 0 and address < self._regions[place].end:
            return self._regions[place]
        return self._find(address) if self._find is not None else None

    def place(self, address: int) -> str:
        """Return an address relative to the nearest region."""
        below = bisect.bisect_right(self._bases, address) - 1
        near = self._regions[max(below, 0) : below + 2]
        if not near:
            return hex(address)
        closest = min(near, key=lambda region: max(region.base - address, address - region.end + 1, 0))
        return closest.place(address)

    def place_variable(self, module: Module, variable: Variable) -> int:
        """Return the address of a module variable, which keeps its bytes from launch to launch."""
        key = id(module), variable.name
        if key not in self._variables:
            buffer = np.zeros(variable.size + ALIGNMENT, np.uint8)
            pointer = buffer.ctypes.data + -buffer.ctypes.data % ALIGNMENT
            first = pointer - buffer.ctypes.data
            buffer[first : first + len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
            writable = variable.space != "const"
            self.add(Region(variable.name, pointer, variable.size, base=pointer, owner=buffer, writable=writable))
            self._variables[key] = module, pointer
        return self._variables[key][1]

    def split(self, addresses: Addresses, width: int) -> tuple[list[tuple[Region, npt.NDArray[np.bool_] | None]], int]:
        """Group accesses by region.

        Returns:
            Pairs of a region and the mask of the accesses that lie in it (None: all of them), and the position of
            the first access that no region holds, or -1.
        """
        low, high = int(addresses.min()), int(addresses.max())
        region = self.find(low)
        if region is not None and high + width <= region.end:
            return [(region, None)], -1
        groups: list[tuple[Region, npt.NDArray[np.bool_] | None]] = []
        rest = np.ones(len(addresses), bool)
        while rest.any():
            first = int(rest.argmax())
            region = self.find(int(addresses[first]))
            if region is None or addresses[first] + width > region.end:
                return groups, first
            inside = rest & (addresses >= region.base) & (addresses + width <= region.end)
            groups.append((region, inside))
            rest &= ~inside
        return groups, -1


def _extent(value: torch.Tensor | npt.NDArray[Any], name: str, *, exact: bool) -> tuple[int, int, object, bool]:
    """Return the first address, size, owner and writability of the memory behind a tensor or an array."""
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            raise InputError(f"device of {name}", value=str(value.device), limit="arguments are CPU tensors")
        if exact:
            last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
            size = (last + 1) * value.element_size() if value.numel() else 0
            return value.data_ptr(), size, value, True
        storage = value.untyped_storage()
        return storage.data_ptr(), storage.nbytes(), storage, True
    while not exact and isinstance(value.base, np.ndarray):
        value = value.base
    low, high = np.lib.array_utils.byte_bounds(value)
    return low, (high - low) if value.size else 0, value, bool(value.flags.writeable)
