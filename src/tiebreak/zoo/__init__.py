"""A zoo of small kernels in PTX: correct ones, and the same ones with one public mistake each.

The race detector must catch every broken kernel, name the lines of the mistake,
and say nothing about the correct ones.  ``tiebreak zoo`` prints what it does.
"""

from __future__ import annotations

from . import (
    blocks,
    broken_blocks,
    broken_copies,
    broken_devices,
    broken_selection,
    broken_warps,
    bulk,
    copies,
    devices,
    lists,
    radix,
    warps,
)
from .kernel import BrokenKernel, SoundKernel, build_text

SOUND_KERNELS: dict[str, SoundKernel] = {
    kernel.name: kernel for module in (blocks, radix, lists, warps, devices, copies, bulk) for kernel in module.SOUND
}
"""Correct kernels by name."""

BROKEN_KERNELS: dict[str, BrokenKernel] = {
    kernel.name: kernel
    for module in (broken_blocks, broken_selection, broken_warps, broken_devices, broken_copies)
    for kernel in module.BROKEN
}
"""Broken kernels by name."""

__all__ = ["BROKEN_KERNELS", "SOUND_KERNELS", "BrokenKernel", "SoundKernel", "build_text"]
