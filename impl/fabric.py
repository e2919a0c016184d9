"""What the host code asks of the ranks' interconnect.

A fabric is one rank's view of W ranks.  Two things implement it: torch
symmetric memory (``torch_fabric``), and anything that stands in for it, such as
simulated ranks.  The host code of this package knows no other way to a peer.

Contract.

* The host channel is ``gather_objects``: a collective of the host programs,
  usable at any time and also by a rank that failed.
* Symmetric memory comes from ``rendezvous``.  Its content is unspecified: the
  workspace initialises its own part, synchronises, and gathers once more before
  any rank may launch a kernel that writes to a peer.  (Zeroing after addresses
  are in use erases flags: https://github.com/apache/tvm/pull/16797.)
* The fabric keeps every buffer alive until ``free``, whoever else refers to it.
* ``rendezvous`` may fail on some ranks only.  It then raises on those ranks and
  returns or raises on the others; no rank is left waiting.
* Device work goes to the current stream of the rank's device.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch


class SymmetricBuffer(Protocol):
    """Memory of one size on every rank, reachable from every rank.

    Attributes:
        local: This rank's part, uint8 [byte_count].
        peer_addresses: Address of every rank's part as seen from this rank, own
            included, int64 [W], in device memory.
    """

    @property
    def local(self) -> torch.Tensor:
        """This rank's part."""
        ...

    @property
    def peer_addresses(self) -> torch.Tensor:
        """Addresses of all parts."""
        ...


class Fabric(Protocol):
    """One rank's view of all ranks."""

    @property
    def rank(self) -> int:
        """This rank, within 0..W-1."""
        ...

    @property
    def world_size(self) -> int:
        """Number of ranks W."""
        ...

    @property
    def device(self) -> torch.device:
        """Device that holds this rank's tensors."""
        ...

    def gather_objects(self, value: Any) -> list[Any]:
        """Return the values of all ranks in rank order.  Collective of the hosts."""
        ...

    def rendezvous(self, byte_count: int) -> Any:
        """Return a ``SymmetricBuffer``.  Collective; may raise on some ranks only."""
        ...

    def all_gather(self, output: torch.Tensor, contribution: torch.Tensor) -> None:
        """Gather ``contribution`` [...] of every rank into ``output`` [W, ...].  Stream-ordered, capturable."""
        ...

    def synchronize(self) -> None:
        """Wait until this rank's device has finished all its work."""
        ...

    def free(self, buffer: Any) -> None:
        """Give a buffer back.  Collective; no rank may use the buffer any more."""
        ...
