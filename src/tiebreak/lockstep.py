"""Ranks of one process whose kernels run in lock step under the stock interpreter.

Host programs of all ranks run in threads while they meet in collectives; the
kernels of a merge are queued and then run kernel by kernel, all ranks' ``pack``
before any rank's ``push`` and so on.  That order satisfies every wait, so the
interpreter, which runs one program after another, can execute the exchange.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from unittest import mock

import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction

from tiebreak.impl.geometry import Geometry
from tiebreak.impl.merge import merge_topk
from tiebreak.impl.workspace import Workspace

PHASES = ("initialise", "wait_writable", "pack", "all_gather", "push", "publish", "wait", "select", "complete")

_run = InterpretedFunction.run
_interpreter_lock = threading.RLock()


class _Language:
    """Stands in for a kernel whose globals name the whole language."""

    __globals__: ClassVar[dict[str, Any]] = {"tl": tl, "core": tl.core}


class _HeldScope:
    """A patch that outlives the launch that asks for it."""

    def restore(self) -> None:
        """Leave the language patched."""


def _keep_language(_: Any) -> _HeldScope:
    return _HeldScope()


@contextmanager
def held_language() -> Iterator[None]:
    """Patch Triton's language once for many launches.

    The interpreter patches it again in every call of a device function, which
    takes most of the time of a small kernel.
    """
    scope = interpreter._patch_lang(_Language)
    try:
        with mock.patch.object(interpreter, "_patch_lang", _keep_language):
            yield
    finally:
        scope.restore()


@dataclass(frozen=True)
class Buffer:
    """Symmetric buffer in CPU memory."""

    local: torch.Tensor
    peer_addresses: torch.Tensor


@dataclass
class World:
    """What the ranks of one test share."""

    world_size: int
    failing: frozenset[int] = frozenset()
    barrier: threading.Barrier = field(init=False)
    values: dict[int, Any] = field(default_factory=dict)
    buffers: dict[int, torch.Tensor] = field(default_factory=dict)
    inputs: dict[int, torch.Tensor] = field(default_factory=dict)
    queue: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.world_size, timeout=60)


@dataclass
class LockstepFabric:
    """One rank's view of a ``World``."""

    world: World
    rank: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.world.world_size

    def gather_objects(self, value: Any) -> list[Any]:
        """Meet all ranks and return their values."""
        self.world.values[self.rank] = value
        self.world.barrier.wait()
        values = [self.world.values[rank] for rank in range(self.world_size)]
        self.world.barrier.wait()
        return values

    def rendezvous(self, byte_count: int) -> Buffer:
        """Allocate poisoned memory; fails on the ranks in ``world.failing``."""
        local = torch.full((byte_count,), 0xA5, dtype=torch.uint8)
        self.world.buffers[self.rank] = local
        addresses = self.gather_objects(local.data_ptr())
        if self.rank in self.world.failing:
            raise RuntimeError("no peer access")
        return Buffer(local, torch.tensor(addresses, dtype=torch.int64))

    def all_gather(self, output: torch.Tensor, contribution: torch.Tensor) -> None:
        """Queue the gather behind all ranks' ``pack``."""
        self.world.inputs[self.rank] = contribution
        self.world.queue.append(("all_gather", lambda: self._gather(output)))

    def _gather(self, output: torch.Tensor) -> None:
        output.copy_(torch.stack([self.world.inputs[rank] for rank in range(self.world_size)]))

    def synchronize(self) -> None:
        """Nothing is in flight: queued kernels run before anybody asks."""

    def free(self, buffer: Buffer) -> None:
        """Note which rank gave its memory back."""
        self.world.freed.append(self.rank)


def on_all_ranks(world: World, host: Callable[[LockstepFabric], Any]) -> list[Any]:
    """Run a host program on every rank; an exception is returned as that rank's result."""

    def run(rank: int) -> Any:
        try:
            return host(LockstepFabric(world, rank))
        except Exception as error:
            return error

    with ThreadPoolExecutor(world.world_size) as pool, mock.patch.object(InterpretedFunction, "run", _run_alone):
        return list(pool.map(run, range(world.world_size)))


def create_workspaces(world: World, *, max_polls: int = 3, **geometry: Any) -> list[Workspace]:
    """Create one workspace per rank, or raise what rank 0 raised."""
    results = on_all_ranks(world, lambda fabric: Workspace.create(fabric, Geometry(**geometry), max_polls=max_polls))
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def merge_in_lockstep(
    workspaces: Sequence[Workspace], arguments: Sequence[tuple[Any, ...]], skipped: Sequence[int] = ()
) -> list[torch.Tensor]:
    """Merge once on every rank but ``skipped``, kernel by kernel."""
    world: World = workspaces[0].fabric.world  # type: ignore[attr-defined]
    with queued(world):
        outputs = [
            merge_topk(workspace, *arguments[rank]) for rank, workspace in enumerate(workspaces) if rank not in skipped
        ]
    drain(world)
    return outputs


@contextmanager
def queued(world: World) -> Iterator[None]:
    """Queue launches in ``world`` instead of running them."""

    def enqueue(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        name = kernel.fn.__name__
        world.queue.append((name, lambda: _run(kernel, *args, grid=grid, warmup=warmup, **kwargs)))

    with mock.patch.object(InterpretedFunction, "run", enqueue):
        yield


def drain(world: World) -> None:
    """Run what was queued, in phase order."""
    work = sorted(world.queue, key=lambda entry: PHASES.index(entry[0]))
    world.queue.clear()
    for _, action in work:
        action()


def _run_alone(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a launch while no other thread is in the interpreter."""
    with _interpreter_lock:
        return _run(kernel, *args, **kwargs)
