"""What hosts do to device memory between launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class HostWrite:
    """What a host does between two launches, when all before is done: it reads device memory, and writes it.

    Attributes:
        address: Where.
        size: Bytes of an element.
        before: What it reads, None if it reads nothing.
        after: What it writes.
    """

    address: int
    size: int
    before: bytes | None
    after: bytes

    def split(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Address and value of each element."""
        for offset in range(0, len(data), self.size):
            yield self.address + offset, int.from_bytes(data[offset : offset + self.size], "little")
