"""Ranks as threads of one process, each with a stream and buffers of its own, on one device.

For machines with fewer GPUs than ranks.  Peer memory is memory of the same
device, so kernels and host code run unchanged.  That kernels of several ranks
wait for one another on one device asks for some care:

* Hardware queues.  Two streams that share one run in launch order, and a
  waiting kernel would block the kernel that it waits for.  The worker sets
  ``CUDA_DEVICE_MAX_CONNECTIONS=32`` (the default is 8), more than there are ranks.
* Modules.  Loading a kernel may wait until the device is idle.  The worker sets
  ``CUDA_MODULE_LOADING=EAGER``, and ``HostProgram`` launches every kernel before
  any rank may wait, on a workspace with an error on record, where nothing waits
  (CUDA C++ Programming Guide, Lazy Loading).
* Memory.  ``cudaMalloc`` and ``cudaFree`` may wait for the device too.  What a
  program needs is allocated before the ranks line up; the caching allocator
  serves the rest from what the warm-up left.
* Synchronisation.  A rank waits for its own stream only.  To wait for the
  device would be to wait for peers that need this thread's next launch.
* Turns.  One rank's host runs at a time, and the turn passes where it gathers or
  synchronises, so compilation, capture and allocation never overlap.  What a
  rank launches must fit the queue of its stream, 1,024 launches, since a full one
  would block the turn.
* Multiprocessors.  All CTAs that wait must be resident together with one CTA of
  whoever they wait for.  Kernels that wait with a CTA per row therefore need a
  device with room for the rows of all ranks: scenarios for streams are small.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tiebreak.errors import WorkspaceError

from .device import DeviceRank, fail_on_request

LARGEST_WORLD = 16
"""Ranks of one device; half of the largest number of hardware queues."""


@dataclass(frozen=True)
class StreamBuffer:
    """Memory of the same size for every rank of a device.

    Attributes:
        local: This rank's part, uint8 [byte_count].
        peer_addresses: Addresses of all parts, int64 [W], on the device.
    """

    local: torch.Tensor
    peer_addresses: torch.Tensor


@dataclass
class _Round:
    """One gather: what each rank contributed so far, and how many have read it."""

    values: dict[int, Any] = field(default_factory=dict)
    readers: int = 0


class StreamWorld:
    """State that the ranks of one device share.

    Args:
        device: The device.
        streams: One stream per rank, none of them the default one, which cannot be captured.

    Attributes:
        turn: Held by the rank whose host runs; notified when a rank came to a gather or ended.
        rounds: Gathers that some rank has still to read, by number.
        ended: Ranks whose program ended.
        buffers: Memory that was not given back.
    """

    def __init__(self, device: torch.device, streams: Sequence[Any]) -> None:
        self.device = device
        self.streams = list(streams)
        self.turn = threading.Condition()
        self.rounds: dict[int, _Round] = {}
        self.ended: set[int] = set()
        self.buffers: list[StreamBuffer] = []

    def run(self, programs: Sequence[Callable[[StreamFabric], None]]) -> list[BaseException | None]:
        """Run one program per rank, each but the first in a thread of its own; return what each raised.

        Buffers that nobody gave back live until every stream is idle.
        """
        errors: list[BaseException | None] = [None] * len(programs)
        threads = [
            threading.Thread(target=self._run_rank, args=(rank, program, errors), daemon=True)
            for rank, program in enumerate(programs)
            if rank > 0
        ]
        for thread in threads:
            thread.start()
        self._run_rank(0, programs[0], errors)
        for thread in threads:
            thread.join()
        for stream in self.streams:
            stream.synchronize()
        self.buffers.clear()
        return errors

    def _run_rank(self, rank: int, program: Callable[[StreamFabric], None], errors: list[BaseException | None]) -> None:
        """Run one rank's program on its stream."""
        stream = self.streams[rank]
        context = torch.cuda.stream(stream) if self.device.type == "cuda" else contextlib.nullcontext()
        with self.turn, context:
            try:
                program(StreamFabric(self, rank))
            except Exception as error:  # Whatever it is, the judge must hear of it.
                errors[rank] = error
            self.ended.add(rank)
            self.turn.notify_all()


class StreamFabric(DeviceRank):
    """One rank's view of the ranks of its device."""

    def __init__(self, world: StreamWorld, rank: int) -> None:
        self._world = world
        self._alone = False
        self._round = 0
        self._stream = world.streams[rank]
        self.rank = rank
        self.world_size = len(world.streams)
        self.device = world.device

    def gather_objects(self, value: Any) -> list[Any]:
        """Return every rank's value, in rank order.

        Raises:
            WorkspaceError: A rank ended without coming.
        """
        world, number = self._world, self._round
        self._round += 1
        this = world.rounds.setdefault(number, _Round())
        this.values[self.rank] = value
        world.turn.notify_all()
        world.turn.wait_for(lambda: len(this.values) == self.world_size or world.ended - this.values.keys())
        if len(this.values) < self.world_size:
            raise WorkspaceError(
                f"gather {number} of rank {self.rank}",
                limit=f"ranks {sorted(world.ended - this.values.keys())} ended before it",
                remedy="see their errors",
            )
        this.readers += 1
        if this.readers == self.world_size:
            del world.rounds[number]
        return [this.values[rank] for rank in range(self.world_size)]

    @contextlib.contextmanager
    def _pass_turn(self) -> Iterator[None]:
        """Let the hosts of other ranks run."""
        self._world.turn.release()
        try:
            yield
        finally:
            self._world.turn.acquire()

    def rendezvous(self, byte_count: int) -> StreamBuffer:
        """Allocate memory with unspecified content and exchange addresses.

        Raises:
            WorkspaceError: A rank ended without coming, or this one was told to fail.
        """
        local = torch.full((byte_count,), 0xA5, dtype=torch.uint8, device=self.device)
        self.synchronize()
        addresses = self.gather_objects(local.data_ptr())
        fail_on_request(self)
        buffer = StreamBuffer(local, torch.tensor(addresses, dtype=torch.int64, device=self.device))
        self._world.buffers.append(buffer)
        return buffer

    def all_gather(self, output: torch.Tensor, contribution: torch.Tensor) -> None:
        """Gather by copies in stream order, between two captured graphs where this is captured."""
        if self.recording is not None:
            self.recording.interrupt(lambda: self._copy_contributions(output, contribution))
        elif not self._alone:
            self._copy_contributions(output, contribution)

    def _copy_contributions(self, output: torch.Tensor, contribution: torch.Tensor) -> None:
        """Copy every rank's contribution when it is ready, and let nobody overwrite one before all have it."""
        parts = self.gather_objects((contribution, self._stream.record_event()))
        for rank, (part, ready) in enumerate(parts):
            self._stream.wait_event(ready)
            output[rank].copy_(part)
        for done in self.gather_objects(self._stream.record_event()):
            self._stream.wait_event(done)

    def synchronize(self) -> None:
        """Wait for this rank's stream."""
        with self._pass_turn():
            self._stream.synchronize()

    def free(self, buffer: StreamBuffer) -> None:
        """Give a buffer back.

        Raises:
            WorkspaceError: The buffer is not one of this device's.
        """
        self.synchronize()
        self.gather_objects(None)
        kept = [other for other in self._world.buffers if other is not buffer]
        if len(kept) == len(self._world.buffers):
            raise WorkspaceError("buffer", limit="must come from this fabric's rendezvous and be freed once")
        self._world.buffers = kept

    @contextlib.contextmanager
    def launch_alone(self) -> Iterator[None]:
        """Let an all-gather that is launched meanwhile gather nothing."""
        self._alone = True
        try:
            yield
        finally:
            self._alone = False
