"""Memory of the PTX machine: regions of bytes, their bounds, and which bytes were ever written.

Global memory is the real CPU memory of tensors and arrays, at its real
addresses, so that tables of addresses work as they do on a device.  Shared and
local memory are regions of their own that start at address 0.
"""

from __future__ import annotations

import ctypes
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

ALIGNMENT = 32
"""Largest alignment that an access asks for: 256-bit vectors (PTX ISA, "ld")."""

POISON = np.array([0xA5, 0xA5, 0xA5, 0x7F], np.uint8)
"""Fill of fresh memory, little endian: a NaN as fp32, and far beyond any id as int32."""

Array: TypeAlias = npt.NDArray[Any]
Addresses: TypeAlias = npt.NDArray[np.int64]

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Region:
    """A block of memory.

    Args:
        name: Printed name.
        pointer: Where the bytes lie in this process.
        size: Size in bytes.
        base: Address of the first byte as kernels see it, congruent to ``pointer`` modulo ``ALIGNMENT``.
        owner: Object that keeps the bytes alive.
        initialised: Whether every byte counts as written.
        writable: Whether kernels may write.

    Attributes:
        missing: uint8 per byte counted from ``start``, not 0 where nothing was ever written; None if all was.
        start: ``base`` rounded down to a multiple of ``ALIGNMENT``.
    """

    def __init__(
        self,
        name: str,
        pointer: int,
        size: int,
        *,
        base: int,
        owner: object,
        initialised: bool = True,
        writable: bool = True,
    ) -> None:
        self.name = name
        self.base = base
        self.size = size
        self.end = base + size
        self.start = base - pointer % ALIGNMENT
        self.writable = writable
        self.missing: npt.NDArray[np.uint8] | None = None
        self._pointer = pointer - (base - self.start)
        self._owner = owner
        self._views: dict[tuple[Any, int], Array] = {}
        self._missing_views: dict[tuple[Any, int], Array] = {}
        if not initialised:
            extent = self.end - self.start
            self.missing = np.zeros(extent + -extent % ALIGNMENT, np.uint8)
            self.missing[base - self.start : extent] = 1

    def view(self, dtype: Any, count: int = 1) -> Array:
        """Return the memory from ``start`` on as elements, or as rows of ``count`` elements."""
        key = (dtype, count)
        found = self._views.get(key)
        if found is None:
            width = np.dtype(dtype).itemsize * count
            rows = (self.end - self.start) // width
            raw = (ctypes.c_uint8 * (rows * width)).from_address(self._pointer)
            found = np.frombuffer(raw, dtype)
            found = self._views[key] = found.reshape(rows, count) if count > 1 else found
        return found

    def read(self, addresses: Addresses, dtype: Any, count: int) -> Array:
        """Return the values at addresses that were checked: ``[n]``, or ``[n, count]`` for vectors."""
        view = self.view(dtype, count)
        values: Array = view.take(self.index(addresses, view.itemsize * count), axis=0)
        return values

    def index(self, addresses: Addresses, width: int) -> Addresses:
        """Return which word of ``width`` bytes, a power of two, each address is that of."""
        # A shift costs half of what a division does.
        return (addresses - self.start if self.start else addresses) >> width.bit_length() - 1

    def write(self, addresses: Addresses, values: Array, count: int) -> None:
        """Write values to addresses that were checked; of equal addresses the last one stays."""
        index = self.index(addresses, values.itemsize * count)
        self.view(values.dtype.type, count)[index] = values
        if self.missing is not None:
            self._missing_view(values.itemsize, count)[index] = 0

    def mark(self, addresses: Addresses, itemsize: int, count: int) -> None:
        """Count the bytes of accesses as written."""
        if self.missing is not None:
            self._missing_view(itemsize, count)[self.index(addresses, itemsize * count)] = 0

    def find_missing(self, addresses: Addresses, itemsize: int, count: int) -> npt.NDArray[np.bool_] | None:
        """Return which elements ``[n, count]`` hold a byte that nothing was ever written to, or None if none does."""
        if self.missing is None:
            return None
        taken = self._missing_view(itemsize, count).take(self.index(addresses, itemsize * count), axis=0)
        if not np.count_nonzero(taken):
            return None
        unwritten: npt.NDArray[np.bool_] = taken.reshape(len(addresses), count) != 0
        return unwritten

    def unmark(self, addresses: Addresses, itemsize: int) -> None:
        """Count the bytes of elements as never written."""
        assert self.missing is not None
        view = self._missing_view(itemsize, 1)
        view[self.index(addresses, itemsize)] = np.iinfo(view.dtype).max

    def place(self, address: int) -> str:
        """Return the printed form of an address in or near this region."""
        return f"{self.name}{address - self.base:+d} (of {self.size} bytes)"

    def _missing_view(self, itemsize: int, count: int) -> Array:
        key = (itemsize, count)
        found = self._missing_views.get(key)
        if found is None:
            assert self.missing is not None
            found = self.missing.view(_WORDS[itemsize])
            found = self._missing_views[key] = found[: len(found) // count * count].reshape(-1, count)
            if count == 1:
                found = self._missing_views[key] = found.reshape(-1)
        return found


def make_region(name: str, size: int, *, initialised: bool = False) -> Region:
    """Return fresh memory whose addresses start at 0, filled with ``POISON``."""
    buffer = np.empty(size + ALIGNMENT, np.uint8)
    lead = -buffer.ctypes.data % ALIGNMENT
    whole = buffer[lead : lead + size - size % 4].reshape(-1, 4)
    whole[:] = POISON
    buffer[lead + size - size % 4 :] = POISON[0]
    return Region(name, buffer.ctypes.data + lead, size, base=0, owner=buffer, initialised=initialised)
