"""The registers of one CTA: a NumPy array of all threads per register, and what generated code sees of them.

Generated code reads a list of arrays, its *slots*.  A slot names a register or
a constant and the type it is seen in; it is resolved once per range of threads
and kept as long as the register file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .form import CARRY, SPECIAL_REGISTERS, storage_of
from .memory import Array
from .module import Immediate, Kernel

LANES = 32


@dataclass(frozen=True)
class Slot:
    """An array that generated code uses.

    Attributes:
        name: Name of a declared or special register; empty for a constant.
        view: NumPy type it is seen in.
        bits: Value of a constant, as an integer of the width of ``view``.
    """

    name: str
    view: str
    bits: int = 0


class RegisterFile:
    """Registers of a CTA, for as many threads as fill its warps.

    Args:
        kernel: Its kernel.
        width: Threads, rounded up to whole warps.
    """

    def __init__(self, kernel: Kernel, width: int) -> None:
        self.width = width
        self._places: dict[str, tuple[str, int]] = {}
        counts: dict[str, int] = {}
        for name, kind in (*kernel.registers.items(), (CARRY.name, "pred"), *SPECIAL_REGISTERS.items()):
            storage = storage_of(kind)
            self._places[name] = storage, counts.get(storage, 0)
            counts[storage] = counts.get(storage, 0) + 1
        self._arrays = {storage: np.empty((count, width), storage) for storage, count in counts.items()}
        self._windows: dict[tuple[int, int, int], list[Array]] = {}

    def array(self, name: str, view: str = "") -> Array:
        """Return a register of all threads, in its storage or seen as another type of the same width."""
        storage, place = self._places[name]
        array: Array = self._arrays[storage][place]
        return array.view(view) if view and view != storage else array

    def resolve(self, key: int, slots: tuple[Slot, ...], low: int, high: int) -> list[Array]:
        """Return the slots of code number ``key`` for the threads from ``low`` to ``high``."""
        found = self._windows.get((key, low, high))
        if found is None:
            found = self._windows[key, low, high] = [self._find(slot, low, high) for slot in slots]
        return found

    def _find(self, slot: Slot, low: int, high: int) -> Array:
        if not slot.name:
            return np.broadcast_to(make_constant(slot.bits, slot.view), high - low)
        storage, _ = self._places[slot.name]
        narrow = np.dtype(slot.view).itemsize != np.dtype(storage).itemsize
        return self.array(slot.name, "" if narrow else slot.view)[low:high]


def make_constant(bits: int, view: str) -> Array:
    """Return a zero-dimensional array of a type with the given bits, those beyond its width dropped."""
    if view == "bool":
        return np.array(bool(bits))
    width = np.dtype(view).itemsize
    return np.array(bits % (1 << 8 * width), f"uint{8 * width}").view(view)


def read_immediate(immediate: Immediate, view: str) -> int:
    """Return the bits of a constant operand that is read as a type.

    A floating constant keeps its value where a floating type reads it, and its
    bits where an untyped one of its width does; a decimal constant is a double,
    and single where 32 bits are read (PTX ISA, "Floating-Point Constants").
    """
    if not immediate.floating:
        return immediate.bits
    width = 8 * np.dtype(view).itemsize
    if width == immediate.floating:
        return immediate.bits
    value: Any = np.array(immediate.bits, f"uint{immediate.floating}").view(f"float{immediate.floating}")
    return int(value.astype(f"float{width}").view(f"uint{width}"))
