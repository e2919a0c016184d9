"""Room for CTAs: a device starts the CTAs of a kernel in any order, and only so many before one of them ends.

The programming model promises no more: a CTA that was not started yet may have
to wait until another one has ended (CUDA C++ Programming Guide, "Cooperative
Groups"; https://github.com/vllm-project/vllm/pull/41189).
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from typing import Any, NamedTuple

from .operations import Operation, Order, Scope, add, at_least


class Room(NamedTuple):
    """Location that counts CTAs which a device has ``started``, or which have ``ended``."""

    what: str
    gpu: int
    kernel: Hashable


def occupy(gpu: int, kernel: Hashable, residency: int) -> Generator[Operation, Any, None]:
    """Start a CTA: at once while there is room, else after enough others have ended.  Orders no memory."""
    before = yield add(Room("started", gpu, kernel), 1, Order.RELAXED, Scope.GPU)
    if before >= residency:
        yield at_least(Room("ended", gpu, kernel), before - residency + 1, Order.RELAXED, Scope.GPU)


def leave(gpu: int, kernel: Hashable) -> Generator[Operation, Any, None]:
    """End a CTA, whose room is free from now on."""
    yield add(Room("ended", gpu, kernel), 1, Order.RELAXED, Scope.GPU)
