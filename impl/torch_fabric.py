"""A fabric over torch: process groups, and torch symmetric memory on CUDA devices."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from tiebreak.errors import MissingBackendError, PeerLostError, WorkspaceError

from .agreement import require

Result = TypeVar("Result")


@dataclass(frozen=True)
class TorchSymmetricBuffer:
    """Symmetric memory of one rendezvous.

    Attributes:
        local: This rank's part, uint8 [byte_count].
        peer_addresses: Addresses of all parts, int64 [W], on the device.
        handle: What keeps the peers' memory mapped.
    """

    local: torch.Tensor
    peer_addresses: torch.Tensor
    handle: Any


class TorchFabric:
    """One rank's view of a process group whose ranks have one CUDA device each.

    Args:
        group: Process group of the ranks, with an NCCL backend; the default group if absent.
        host_group: Group of the same ranks for host objects; a new gloo group if
            absent, and then every rank of the default group must construct the fabric.
        device: This rank's device; the current one if absent.

    Raises:
        MissingBackendError: There is no CUDA device, no process group, or no symmetric memory in this torch.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        host_group: dist.ProcessGroup | None = None,
        device: torch.device | None = None,
    ) -> None:
        _require_backends()
        members = dist.group.WORLD if group is None else group
        assert members is not None  # An initialised process has its default group.
        self._group = members
        ranks = dist.get_process_group_ranks(self._group)
        self._host_group = dist.new_group(ranks, backend="gloo") if host_group is None else host_group
        self.rank = dist.get_rank(self._group)
        self.world_size = dist.get_world_size(self._group)
        self.device = torch.device("cuda", torch.cuda.current_device()) if device is None else device
        self._buffers: list[TorchSymmetricBuffer] = []

    def gather_objects(self, value: Any) -> list[Any]:
        """Return every rank's value, through the host group.

        Raises:
            PeerLostError: The group lost a rank, or waited too long for one.
        """
        values: list[Any] = [None] * self.world_size
        try:
            dist.all_gather_object(values, value, group=self._host_group)
        except RuntimeError as error:
            raise PeerLostError(
                f"a peer of rank {self.rank}",
                limit=f"the host group lost it: {error}",
                remedy="see which rank ended or stands still, and create the workspaces anew without it",
            ) from error
        return values

    def rendezvous(self, byte_count: int) -> TorchSymmetricBuffer:
        """Allocate symmetric memory and map the peers' parts.

        Every step that can fail on one rank is followed by a gather of the
        outcomes, since the exchange of handles would wait for a missing rank.

        Raises:
            WorkspaceError: On every rank, when a step failed on any.
        """
        import torch.distributed._symmetric_memory as symmetric_memory

        # Multicast objects are not needed, and not every system can make them.
        os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        with torch.cuda.device(self.device):
            local = self._step(
                "allocation of symmetric memory",
                lambda: symmetric_memory.empty(byte_count, dtype=torch.uint8, device=self.device),
            )
            handle = self._step("exchange of memory handles", lambda: symmetric_memory.rendezvous(local, self._group))
            # A buffer may start anywhere in the block that the handle describes.
            offset = local.data_ptr() - handle.buffer_ptrs[self.rank]
            offsets = self.gather_objects(offset)
            addresses = [base + shift for base, shift in zip(handle.buffer_ptrs, offsets, strict=True)]
            table = self._step("address table", lambda: torch.tensor(addresses, dtype=torch.int64, device=self.device))
        buffer = TorchSymmetricBuffer(local, table, handle)
        self._buffers.append(buffer)
        return buffer

    def _step(self, what: str, action: Callable[[], Result]) -> Result:
        """Run one step of the rendezvous on all ranks."""
        return require(self, what, action, remedy="see that all GPUs of the group can address one another")

    def all_gather(self, output: torch.Tensor, contribution: torch.Tensor) -> None:
        """Gather through NCCL on the current stream."""
        # An all-gather of nothing is skipped by every rank alike, since all have the same rows.
        if contribution.numel() > 0:
            dist.all_gather_into_tensor(output.view(-1), contribution.view(-1), group=self._group)

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self.device)

    def free(self, buffer: TorchSymmetricBuffer) -> None:
        """Drop the memory and its mappings.

        Raises:
            WorkspaceError: The buffer is not one of this fabric's.
        """
        kept = [other for other in self._buffers if other is not buffer]
        if len(kept) == len(self._buffers):
            raise WorkspaceError("buffer", limit="must come from this fabric's rendezvous and be freed once")
        self._buffers = kept


def _require_backends() -> None:
    """Check that this process can take part in device collectives."""
    if not torch.cuda.is_available():
        raise MissingBackendError(
            "a CUDA device", limit="torch sees none", remedy="run on a machine with GPUs, or use simulated ranks"
        )
    if not dist.is_initialized():
        raise MissingBackendError("a process group", remedy="call torch.distributed.init_process_group first")
