"""Layout of a rank's symmetric buffer: three flag arrays, then the inbox.

::

    published       int64 [W]      epoch that rank s has published to me
    published_rows  int64 [2, W]   rows of that epoch, by epoch parity
    acknowledged    int64 [W]      epoch that rank s has finished selecting
    inbox           int32 [slots, max_rows, W, L, 2]

Every array starts on a boundary of 256 bytes, so that flags and payload share
no cache line.  ``published_rows`` needs its two halves because a fast peer may
publish epoch n + 1 while this rank still checks the rows of epoch n; it cannot
publish n + 2 before this rank published n + 1, which is after that check.

The inbox is row-major with the rank second, so a row's candidates lie together.
Slot ``epoch & 1`` holds an epoch when there are two slots.
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
        max_rows: Largest number of rows of one exchange.
        local_candidates: Candidates L that each rank contributes per row.
        slots: Inbox slots, 1 or 2.
    """

    world_size: int
    max_rows: int
    local_candidates: int
    slots: int

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
    def inbox(self) -> int:
        """Offset of the inbox."""
        return self.acknowledged + align(8 * self.world_size)

    @property
    def slot_words(self) -> int:
        """Words (int32) of one inbox slot."""
        return self.max_rows * self.world_size * self.local_candidates * 2

    @property
    def byte_count(self) -> int:
        """Size of the whole buffer."""
        return self.inbox + 4 * self.slots * self.slot_words

    def flags(self, buffer: torch.Tensor) -> torch.Tensor:
        """View everything in front of the inbox as int64."""
        return buffer[: self.inbox].view(torch.int64)

    def array(self, buffer: torch.Tensor, offset: int) -> torch.Tensor:
        """View one flag array, and what follows it in front of the inbox, as int64."""
        return buffer[offset : self.inbox].view(torch.int64)

    def inbox_words(self, buffer: torch.Tensor) -> torch.Tensor:
        """View the inbox as int32 [slots * slot_words]."""
        return buffer[self.inbox : self.byte_count].view(torch.int32)


def align(byte_count: int) -> int:
    """Round up to the alignment of the buffer's parts."""
    return -(-byte_count // ALIGNMENT) * ALIGNMENT
