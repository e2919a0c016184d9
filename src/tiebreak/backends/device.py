"""What a host program needs of a real GPU, besides a fabric."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tiebreak.errors import WorkspaceError
from tiebreak.impl.kernels_state import ERROR_KIND, INDEX_RANGE, NO_ERROR
from tiebreak.impl.torch_fabric import TorchFabric, TorchSymmetricBuffer
from tiebreak.verify.scenario import Scenario

from .host import TOLERANT_FAULTS

MAX_POLLS = 2_000_000
"""Bound of a wait: some seconds, far beyond any skew between ranks of a test."""

FAULTY_MAX_POLLS = 300_000
"""Bound where a rank dies on purpose and somebody does wait that long."""

CYCLES_PER_MICROSECOND = 2000
"""Of a device that runs at 2 GHz; a delay need not be exact."""


class Recording:
    """A captured merge: CUDA graphs, with steps of the host between them where a fabric needs any."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []
        self._graph: torch.cuda.CUDAGraph | None = None
        self._pool = torch.cuda.graph_pool_handle()

    def begin(self) -> None:
        """Start to capture the current stream."""
        self._graph = torch.cuda.CUDAGraph()
        # Other threads of this process may allocate meanwhile.
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def end(self) -> None:
        """Stop, and keep what was captured."""
        assert self._graph is not None
        self._graph.capture_end()
        self._steps.append(self._graph.replay)

    def interrupt(self, step: Callable[[], None]) -> None:
        """Let the host run ``step`` here whenever the recording is replayed."""
        self.end()
        self._steps.append(step)
        self.begin()

    def replay(self) -> None:
        """Launch everything again, in order."""
        for step in self._steps:
            step()


class DeviceRank(abc.ABC):
    """One rank's device, as ``host.HostProgram`` uses it.

    Attributes:
        rank: The rank.
        device: CUDA device of the rank.
        fails_rendezvous: Whether this rank's rendezvous raises, after taking part in it.
        recording: What is being captured, if anything.
    """

    rank: int
    device: torch.device
    fails_rendezvous: bool = False
    recording: Recording | None = None

    @abc.abstractmethod
    def gather_objects(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait for this rank's work."""

    def launch_alone(self) -> contextlib.AbstractContextManager[Any]:
        """Launch without waiting for the other ranks."""
        return contextlib.nullcontext()

    def upload(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Return a copy in device memory."""
        return tensor.to(self.device)

    def write(self, target: torch.Tensor, values: torch.Tensor) -> None:
        """Overwrite device memory."""
        target.copy_(values)

    def name_regions(self, tensor: torch.Tensor, regions: dict[int, str]) -> None:
        """Do nothing: no report here names addresses."""
        return

    def delay(self, microseconds: int) -> None:
        """Hold this rank's stream back."""
        sleep: Callable[[int], None] = torch.cuda._sleep
        sleep(microseconds * CYCLES_PER_MICROSECOND)

    def warm_up(self, state: torch.Tensor, launch: Callable[[], Any]) -> None:
        """Launch once with an error on record, so that kernels are compiled and loaded, and none waits for a peer.

        A rank that still compiles or loads must not be waited for: loading may
        wait until the device is idle, and a bounded wait would run out.
        """
        with self.launch_alone():
            state[ERROR_KIND.value] = INDEX_RANGE.value
            launch()
            state[ERROR_KIND.value] = NO_ERROR.value
            self.synchronize()

    def line_up(self) -> None:
        """Wait until every rank is ready to launch."""
        self.synchronize()
        self.gather_objects(None)

    @contextlib.contextmanager
    def capture(self) -> Iterator[Recording]:
        """Record launches on the current stream instead of running them."""
        self.recording = Recording()
        self.recording.begin()
        try:
            yield self.recording
        finally:
            self.recording.end()
            self.recording = None

    def replay(self, graph: Recording) -> None:
        """Launch a recording."""
        graph.replay()


class DeviceFabric(DeviceRank, TorchFabric):
    """A rank with a process and a GPU of its own."""

    def gather_objects(self, value: Any) -> list[Any]:
        """Return every rank's value, through the host group."""
        return TorchFabric.gather_objects(self, value)

    def synchronize(self) -> None:
        """Wait for the device."""
        TorchFabric.synchronize(self)

    def rendezvous(self, byte_count: int) -> TorchSymmetricBuffer:
        """Allocate symmetric memory, with unspecified content.

        Raises:
            WorkspaceError: A step failed, or this rank was told to fail.
        """
        buffer = super().rendezvous(byte_count)
        buffer.local.fill_(0xA5)
        self.synchronize()
        fail_on_request(self)
        return buffer


def choose_max_polls(scenario: Scenario) -> int:
    """Return the bound of the waits of a scenario."""
    return FAULTY_MAX_POLLS if scenario.fault in TOLERANT_FAULTS else MAX_POLLS


def fail_on_request(rank: DeviceRank) -> None:
    """Raise where a scenario wants a rendezvous to fail.

    Raises:
        WorkspaceError: It does, on this rank.
    """
    if rank.fails_rendezvous:
        raise WorkspaceError("rendezvous of this rank", limit="the scenario makes it fail here")
