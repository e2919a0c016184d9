"""mbarrier objects (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier").

The opaque word in memory holds the number of the phase; the counts are kept
beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .executor_faults import fail
from .module import Instruction

if TYPE_CHECKING:
    from .executor_cta import Cta

Index = npt.NDArray[np.int64]


@dataclass
class Mbarrier:
    """An mbarrier object.

    Attributes:
        expected: Arrivals of a phase.
        pending: Arrivals that the present phase still needs.
        bytes: Bytes that the present phase still waits for.
        phase: Phases that completed.
    """

    expected: int
    pending: int
    bytes: int = 0
    phase: int = 0


class Mbarriers:
    """The mbarrier objects in the shared memory of a CTA.

    Args:
        cta: The CTA.
    """

    def __init__(self, cta: Cta) -> None:
        self._cta = cta
        self._objects: dict[int, Mbarrier] = {}

    def initialise(self, offset: int, count: int) -> None:
        """Perform ``mbarrier.init``."""
        self._objects[offset] = Mbarrier(count, count)
        self._cta.shared.view(np.uint64)[offset // 8] = 0

    def invalidate(self, offset: int) -> None:
        """Perform ``mbarrier.inval``."""
        self._objects.pop(offset, None)

    def find(self, by: Cta, threads: Index, instruction: Instruction, offset: int) -> Mbarrier:
        """Return an object that threads of a CTA use.

        Raises:
            FindingError: There is none at that offset.
        """
        found = self._objects.get(offset)
        if found is None:
            place = f"shared byte {offset}"
            fail(by, "uninitialised", instruction, threads[:1], "uses an mbarrier", place, "no mbarrier.init made it")
        return found

    def arrive(
        self, by: Cta, threads: Index, instruction: Instruction, offset: int, count: int, *, drop: bool = False
    ) -> int:
        """Let threads of a CTA arrive, each ``count`` times; returns the phase that they arrive in.

        Raises:
            FindingError: More arrive than are expected.
        """
        found = self.find(by, threads, instruction, offset)
        phase = found.phase
        if by.observer is not None and "relaxed" not in instruction.modifiers:
            by.observer.release(by.position, threads, instruction, self.token(offset, phase))
        found.pending -= count * len(threads)
        found.expected -= count * len(threads) if drop else 0
        if found.pending < 0:
            place, missing = f"mbarrier at shared byte {offset}", "more arrive than are expected"
            fail(by, "divergent-barrier", instruction, threads[:1], "arrives", place, missing)
        self._settle(found)
        return phase

    def expect_bytes(self, by: Cta, threads: Index, instruction: Instruction, offset: int, size: int) -> None:
        """Let the present phase wait for more bytes."""
        self.find(by, threads, instruction, offset).bytes += size

    def complete_bytes(self, by: Cta, threads: Index, instruction: Instruction, offset: int, size: int) -> None:
        """Count bytes that a copy wrote."""
        found = self.find(by, threads, instruction, offset)
        if by.observer is not None:
            by.observer.release(by.position, threads, instruction, self.token(offset, found.phase))
        found.bytes -= size * len(threads)
        self._settle(found)

    def token(self, offset: int, phase: int) -> tuple[object, ...]:
        """Return what identifies a phase of an object to observers."""
        position = self._cta.position
        return "mbarrier", position.rank, position.launch, position.cta, offset, phase

    def _settle(self, found: Mbarrier) -> None:
        if found.pending == 0 and found.bytes == 0:
            found.phase += 1
            found.pending = found.expected
        self._cta.launch.version += 1
