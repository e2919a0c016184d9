"""Taking down what hosts write between launches of a recorded run."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator

import torch

from tiebreak.sim.explorer.host_writes import HostWrite
from tiebreak.sim.machine import Machine
from tiebreak.sim.memory import Allocation


def record_writes(
    machine: Machine, is_read: Callable[[Allocation], bool], note: Callable[[int, Allocation, HostWrite], None]
) -> None:
    """Have a machine tell what its hosts write.

    Args:
        machine: The machine.
        is_read: Called before a write; whether the host reads first what is in the allocation.
        note: Called after it, with the rank, the allocation and what was written, if that is anything.
    """

    @contextlib.contextmanager
    def watch(rank: int, target: torch.Tensor) -> Iterator[None]:
        allocation = machine.memory.register(target, name=f"r{rank}.written", rank=rank)
        address, size = target.data_ptr(), target.numel() * target.element_size()
        before = ctypes.string_at(address, size) if is_read(allocation) else None
        yield
        if size:
            note(rank, allocation, HostWrite(address, target.element_size(), before, ctypes.string_at(address, size)))

    machine.watch_write = watch
