"""Layout of a rank's symmetric buffer: flag arrays, the inbox, the returned ids, and packets.

::

    published       int64 [W]      epoch that rank s has published to me
    published_rows  int64 [2, W]   rows of that epoch, by epoch parity
    acknowledged    int64 [W]      epoch that rank s has finished selecting
    returned        int64 [W]      epoch whose ids owner s has returned to me
    arrived_rows    int64 [2, W]   rows of that epoch, by epoch parity
    arrived         int64 [W]      epoch of the merge in one launch that rank s has begun
    inbox           int32 [slots, inbox_rows, W, L, 2]
    returned_ids    int32 [returned_rows, k]
    uses            int32 [packet_rows, 2]  times that the packets of a row have been used, by epoch parity
    packets         int64 [2, packet_rows, W, L]

Every array starts on a boundary of 256 bytes, so that flags and payload share
no cache line.  ``published_rows`` needs its two halves because a fast peer may
publish epoch n + 1 while this rank still checks the rows of epoch n; it cannot
publish n + 2 before this rank published n + 1, which is after that check.

``arrived``, ``uses`` and ``packets`` are for merges in one launch, in which every
candidate is a message of its own; ``arrived_rows`` has two halves for the same
reason as ``published_rows``.  No other merge touches the packets, since the
phase of each must differ from what lay there before; ``uses`` is this rank's own.

The inbox is row-major with the rank second, so a row's candidates lie together.
Slot ``epoch & 1`` holds an epoch when there are two slots.

In an owner-sharded merge rank s owns rows s P .. (s + 1) P - 1 of the merge,
P = ``rows_per_owner``.  Its inbox holds those rows only, from row 0 on;
``returned_ids`` holds the ids of all rows.  It has one slot under both
disciplines.  Owner s writes it for epoch n after it acquired ``published`` = n
of every peer; a peer publishes n after it copied the ids of its latest
owner-sharded merge before n out, since its stream runs one exchange after the
other.  So nothing is overwritten before it was read, whichever kinds of merges
follow one another.  The inbox is read, as in any merge, before its reader
publishes or acknowledges anything further.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

ALIGNMENT = 256


@dataclass(frozen=True)
class BufferLayout:
    """Byte offsets of the parts of a symmetric buffer.

    Attributes:
        world_size: Number of ranks W.
        inbox_rows: Largest number of rows that one exchange brings to this rank.
        local_candidates: Candidates L that each rank contributes per row.
        slots: Inbox slots, 1 or 2.
        returned_rows: Largest number of rows of an owner-sharded exchange, 0 if there is none.
        packet_rows: Largest number of rows of a merge in one launch, 0 if there is none.
        k: Ids per row.
    """

    world_size: int
    inbox_rows: int
    local_candidates: int
    slots: int
    returned_rows: int
    packet_rows: int
    k: int

    @property
    def published(self) -> int:
        """Offset of ``published``."""
        return 0

    @property
    def published_rows(self) -> int:
        """Offset of ``published_rows``."""
        return align(8 * self.world_size)

    @property
    def acknowledged(self) -> int:
        """Offset of ``acknowledged``."""
        return self.published_rows + align(16 * self.world_size)

    @property
    def returned(self) -> int:
        """Offset of ``returned``."""
        return self.acknowledged + align(8 * self.world_size)

    @property
    def arrived_rows(self) -> int:
        """Offset of ``arrived_rows``."""
        return self.returned + align(8 * self.world_size)

    @property
    def arrived(self) -> int:
        """Offset of ``arrived``."""
        return self.arrived_rows + align(16 * self.world_size)

    @property
    def inbox(self) -> int:
        """Offset of the inbox."""
        return self.arrived + align(8 * self.world_size)

    @property
    def slot_words(self) -> int:
        """Words (int32) of one inbox slot."""
        return self.inbox_rows * self.world_size * self.local_candidates * 2

    @property
    def returned_ids(self) -> int:
        """Offset of ``returned_ids``."""
        return self.inbox + align(4 * self.slots * self.slot_words)

    @property
    def uses(self) -> int:
        """Offset of ``uses``."""
        return self.returned_ids + align(4 * self.returned_rows * self.k)

    @property
    def packets(self) -> int:
        """Offset of the packets."""
        return self.uses + align(8 * self.packet_rows)

    @property
    def packet_slot_bytes(self) -> int:
        """Size of one slot of packets."""
        return 8 * self.packet_rows * self.world_size * self.local_candidates

    @property
    def byte_count(self) -> int:
        """Size of the whole buffer."""
        return self.packets + 2 * self.packet_slot_bytes

    def flags(self, buffer: torch.Tensor) -> torch.Tensor:
        """View everything in front of the inbox as int64."""
        return buffer[: self.inbox].view(torch.int64)

    def array(self, buffer: torch.Tensor, offset: int) -> torch.Tensor:
        """View one flag array, and what follows it in front of the inbox, as int64."""
        return buffer[offset : self.inbox].view(torch.int64)

    def inbox_words(self, buffer: torch.Tensor) -> torch.Tensor:
        """View the inbox as int32 [slots * slot_words]."""
        return buffer[self.inbox : self.inbox + 4 * self.slots * self.slot_words].view(torch.int32)

    def returned_words(self, buffer: torch.Tensor) -> torch.Tensor:
        """View the returned ids as int32 [returned_rows * k]."""
        return buffer[self.returned_ids : self.returned_ids + 4 * self.returned_rows * self.k].view(torch.int32)

    def packet_words(self, buffer: torch.Tensor) -> torch.Tensor:
        """View ``uses`` and the packets as int64."""
        return buffer[self.uses : self.byte_count].view(torch.int64)


def align(byte_count: int) -> int:
    """Round up to the alignment of the buffer's parts."""
    return -(-byte_count // ALIGNMENT) * ALIGNMENT


def rows_per_owner(rows: int, world_size: int) -> int:
    """Rows that one rank owns: equal shares, so that the last ranks may own fewer, or none."""
    return -(-rows // world_size)
