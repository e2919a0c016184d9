"""The workspace of a merge: memory, geometry and error state of one rank."""

from __future__ import annotations

from typing import Literal, NoReturn

import torch

from tiebreak.errors import InputError, PeerTimeoutError, RowMismatchError, WorkspaceError

from .agreement import attempt, failure_error, require
from .fabric import Fabric, SymmetricBuffer
from .fused import agree_fused_rows
from .geometry import Geometry, agree, check_integer
from .kernels_state import (
    ACKNOWLEDGE_TIMEOUT,
    ERROR_KIND,
    INDEX_RANGE,
    NO_ERROR,
    PUBLISH_TIMEOUT,
    RETURN_TIMEOUT,
    ROW_MISMATCH,
    STATE_WORDS,
    clear,
    initialise,
)
from .launch import device_guard
from .layout import BufferLayout, rows_per_owner
from .policy import Policy, resolve_policy

DEFAULT_MAX_POLLS = 100_000_000
"""Polls of one flag before a peer counts as missing; some tens of seconds on a GPU."""

CLEAR_BLOCK = 1024
"""Words that one program clears."""

Route = Literal["local", "symmetric", "all-gather"]

_AWAITED_FLAGS = {
    PUBLISH_TIMEOUT.value: "published",
    ACKNOWLEDGE_TIMEOUT.value: "acknowledged",
    RETURN_TIMEOUT.value: "returned",
}
"""Flag that an error record of a wait in vain is about."""


class Workspace:
    """Memory and state that one rank's merges share.

    Create it with ``Workspace.create`` on every rank, outside of graph capture.
    Merges of one workspace go to one stream, in the same order on all ranks.

    Attributes:
        fabric: This rank's view of its peers.
        geometry: What all ranks agreed on.
        route: How candidates travel: ``symmetric`` memory, ``all-gather``, or
            ``local`` (one rank needs neither).
        policy: Special-value policies of the geometry's preset.
        layout: Layout of the symmetric buffer.
        max_polls: Polls of one flag before a peer counts as missing.
        state: Epoch counter and error record, int64, see ``kernels_state``.
        buffer: Symmetric buffer of the ``symmetric`` route.
        fused_rows: Rows up to which a merge is one launch, see ``fused``.
    """

    def __init__(
        self, fabric: Fabric, geometry: Geometry, max_polls: int, state: torch.Tensor, buffer: SymmetricBuffer | None
    ) -> None:
        self.fabric = fabric
        self.geometry = geometry
        self.max_polls = max_polls
        self.state = state
        self.buffer = buffer
        self.policy: Policy = resolve_policy(geometry.preset)
        self.layout = _layout(fabric, geometry)
        self.route: Route = "symmetric" if buffer is not None else _route_without_buffer(fabric, geometry)
        self.fused_rows = 0
        self._closed = False
        self._failed = False

    @classmethod
    def create(cls, fabric: Fabric, geometry: Geometry | Exception, *, max_polls: int = DEFAULT_MAX_POLLS) -> Workspace:
        """Create the workspaces of all ranks together.

        Collective: every rank calls it, also a rank that failed to make a
        geometry, which passes its exception instead.

        Args:
            fabric: This rank's fabric.
            geometry: What this rank expects; must be the same on all ranks.
            max_polls: Polls of one flag before a peer counts as missing.

        Raises:
            GeometryError: On every rank, when any rank failed or they disagree.
            WorkspaceError: On every rank, when one could not get its memory, or
                cannot fuse launches that must be.
        """
        agreed = agree(fabric, geometry)
        buffer = _rendezvous(fabric, agreed)
        # No peer may write before the flags of every rank are initialised: this gather is that barrier.
        workspace = require(
            fabric,
            "initialisation of the workspace",
            lambda: cls._initialised(fabric, agreed, max_polls, buffer),
            remedy="free device memory, or correct the arguments, on the ranks named",
        )
        workspace.fused_rows = agree_fused_rows(fabric, agreed, symmetric=buffer is not None)
        if workspace.fused_rows > 0:
            workspace = require(
                fabric,
                "initialisation of the packets",
                workspace._with_clear_packets,
                remedy="free device memory on the ranks named, or choose launches 'separate' on every rank",
            )
        return workspace

    @classmethod
    def _initialised(
        cls, fabric: Fabric, geometry: Geometry, max_polls: int, buffer: SymmetricBuffer | None
    ) -> Workspace:
        """Make this rank's workspace with its flags and counter set."""
        check_integer("max_polls", max_polls, 1, 2**63 - 1)
        layout = _layout(fabric, geometry)
        words = STATE_WORDS.value
        state = torch.empty(words, dtype=torch.int64, device=fabric.device)
        flags = state if buffer is None else layout.flags(buffer.local)
        with device_guard(fabric.device):
            initialise[(1,)](
                state,
                flags,
                geometry.first_epoch,
                state_words=words,
                flag_words=0 if buffer is None else flags.numel(),
                block=128,
                num_warps=1,
            )
        fabric.synchronize()
        return cls(fabric, geometry, max_polls, state, buffer)

    def _with_clear_packets(self) -> Workspace:
        """Give all packets the phase before the first; returns the workspace."""
        assert self.buffer is not None
        words = self.layout.packet_words(self.buffer.local)
        with device_guard(self.fabric.device):
            clear[(-(-words.numel() // CLEAR_BLOCK),)](words, words.numel(), block=CLEAR_BLOCK)
        self.fabric.synchronize()
        return self

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    @property
    def closed(self) -> bool:
        """Whether it was closed or abandoned."""
        return self._closed

    def merges_at_once(self, rows: int) -> bool:
        """Whether a merge of so many rows is one launch."""
        return self.fused_rows > 0 and rows <= self.fused_rows

    def merges_by_owner(self, rows: int) -> bool:
        """Whether a merge of so many rows is owner-sharded: through symmetric memory, from ``owner_rows`` on."""
        return self.buffer is not None and self.geometry.merges_by_owner(rows, self.fabric.world_size)

    def require_usable(self) -> None:
        """Check that merges may be launched.

        Raises:
            WorkspaceError: The workspace was closed, or ``check`` found an error.
        """
        if self._closed or self._failed:
            raise WorkspaceError(
                f"workspace of rank {self.fabric.rank}",
                value="closed" if self._closed else "failed",
                limit="only an open workspace without an error can merge",
                remedy="create a new workspace on every rank",
            )

    def check(self) -> None:
        """Wait for the device and raise if an exchange ended in an error.

        Results of the failed exchange and of all later ones are -1 everywhere.

        Raises:
            PeerTimeoutError: A peer did not publish, return or acknowledge in time.
            RowMismatchError: A peer merged another number of rows.
            InputError: A local index of this rank was outside its shard.
            WorkspaceError: The workspace was closed.
        """
        if self._closed:
            self.require_usable()
        self.fabric.synchronize()
        _, kind, subject, epoch, observed, *_ = (int(word) for word in self.state.tolist())
        if kind != NO_ERROR.value:
            self._failed = True
            self._raise(kind, subject, epoch, observed)

    def _raise(self, kind: int, subject: int, epoch: int, observed: int) -> NoReturn:
        """Raise the error that a record stands for."""
        if kind == INDEX_RANGE.value:
            raise InputError(
                f"local index of row {subject} in exchange {epoch} on rank {self.fabric.rank}",
                value=observed,
                limit="its column must lie in the shard and its global id in int32",
                remedy="check the local selection, row_starts and the width of the scores",
            )
        if kind == ROW_MISMATCH.value:
            raise RowMismatchError(
                f"rank {subject} merged {observed} rows in exchange {epoch}",
                peer=subject,
                epoch=epoch,
                flag="published_rows",
                limit=f"rank {self.fabric.rank} merged another number of rows",
                remedy="merge the same rows in the same order on every rank",
            )
        flag = _AWAITED_FLAGS[kind]
        raise PeerTimeoutError(
            f"rank {self.fabric.rank} waited in vain for rank {subject}: flag {flag!r} stayed at {observed}",
            peer=subject,
            epoch=epoch,
            flag=flag,
            limit=f"it must reach exchange {epoch} within {self.max_polls} polls",
            remedy=f"see whether rank {subject} still runs and merges as often; max_polls is the patience",
        )

    def close(self) -> None:
        """Wait for the device and give the memory back.  Collective, idempotent.

        If the exchange failed on any rank, nobody can tell whether a slow peer
        still writes, so the symmetric memory stays with the fabric on all ranks.
        A rank whose peer no longer answers calls ``abandon`` instead.
        """
        if self._closed:
            return
        self.fabric.synchronize()
        failed = self.state[ERROR_KIND.value].item() != NO_ERROR.value
        buffer = self.buffer
        self.abandon()
        if buffer is not None and not any(self.fabric.gather_objects(failed)):
            self.fabric.free(buffer)

    def abandon(self) -> None:
        """Close this rank's side only; the symmetric memory stays with the fabric.  Idempotent.

        What a ``with`` block does when it ends in an exception, since the peers may be gone.
        """
        self._closed = True
        self.buffer = None


def _layout(fabric: Fabric, geometry: Geometry) -> BufferLayout:
    """Return the buffer layout of a geometry."""
    world_size, inbox_rows, returned_rows = fabric.world_size, geometry.max_rows, 0
    if geometry.merges_by_owner(geometry.max_rows, world_size):
        # Of many rows a rank gets its share only, so the inbox needs few rows more than the merges without owners.
        inbox_rows = max(geometry.count_unsharded_rows(world_size), rows_per_owner(geometry.max_rows, world_size))
        returned_rows = geometry.max_rows
    return BufferLayout(
        world_size,
        inbox_rows,
        geometry.local_candidates,
        geometry.slots,
        returned_rows,
        geometry.count_packet_rows(world_size),
        geometry.k,
    )


def _route_without_buffer(fabric: Fabric, geometry: Geometry) -> Route:
    """Return how candidates travel when there is no symmetric memory."""
    return "local" if fabric.world_size == 1 and geometry.transport == "auto" else "all-gather"


def _rendezvous(fabric: Fabric, geometry: Geometry) -> SymmetricBuffer | None:
    """Get symmetric memory on all ranks or on none.

    Raises:
        WorkspaceError: On every rank, when the transport is ``symmetric`` and some rank failed.
    """
    if geometry.transport == "all-gather" or (geometry.transport == "auto" and fabric.world_size == 1):
        return None
    size = _layout(fabric, geometry).byte_count
    buffer: SymmetricBuffer | None
    buffer, failures = attempt(fabric, lambda: fabric.rendezvous(size))
    if not failures:
        return buffer
    if geometry.transport == "symmetric":
        raise failure_error(
            "rendezvous of symmetric memory", failures, remedy="choose transport 'all-gather' or 'auto' on every rank"
        )
    return None
