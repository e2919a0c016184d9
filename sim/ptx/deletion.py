"""Which barriers of a kernel an execution shows to be needed.

A barrier only makes threads wait, so every execution of a kernel is also one of
the kernel without some barrier.  One execution therefore judges all deletions
of a single barrier at once: where the accesses of the two intervals around a
barrier race once nothing orders them, the kernel without it has a race, and the
barrier is needed.  Nothing is run a second time.

Intervals further away are not joined, not even those around two turns of the
same barrier in a loop: that could only show more races.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from .findings import Finding
from .module import Instruction, Kernel
from .observation import Access, Position, Scope, Threads
from .races import RaceDetector

Event = Access | tuple[Threads, Instruction]
"""An access, or a barrier of a warp or of some threads: who takes part, and where."""


@dataclass
class _Interval:
    """What a CTA did since its last barrier.

    Attributes:
        events: Accesses, and barriers of warps, in order.
        opener: The barrier that the interval began with, or None.
    """

    events: list[Event] = field(default_factory=list)
    opener: Instruction | None = None


class BarrierJudge:
    """Watches executions of one kernel; satisfies ``Observer``.

    Args:
        place: Names an address of global memory.

    Attributes:
        needed: A race that appears without the barrier, by its place in the kernel.
        reached: Barriers of CTAs and of warps that completed, by place.
    """

    def __init__(self, place: Callable[[int], str] = hex) -> None:
        self.needed: dict[int, Finding] = {}
        self.reached: set[int] = set()
        self._place = place
        self._ctas: dict[Position, tuple[Kernel, _Interval, _Interval]] = {}

    def begin(self, position: Position, kernel: Kernel) -> None:
        """A CTA starts."""
        self._ctas[position] = kernel, _Interval(), _Interval()

    def access(self, access: Access) -> None:
        """Keep an access; its arrays may change once it is performed."""
        values = tuple(value.copy() for value in access.values) if access.values is not None else None
        kept = replace(access, addresses=access.addresses.copy(), values=values)
        self._ctas[access.position][2].events.append(kept)

    def synchronise(self, position: Position, threads: Threads, instruction: Instruction, scope: str) -> None:
        """A barrier completed; one of the whole CTA ends an interval."""
        kernel, before, current = self._ctas[position]
        self.reached.add(instruction.index)
        if scope == "warp" or len(threads) < position.threads:
            current.events.append((threads.copy(), instruction))
            return
        self._judge(position, kernel, before, current)
        self._ctas[position] = kernel, current, _Interval(opener=instruction)

    def end(self, position: Position) -> None:
        """Every thread of a CTA exited."""
        self._judge(position, *self._ctas.pop(position))

    def _judge(self, position: Position, kernel: Kernel, before: _Interval, after: _Interval) -> None:
        """Look for races that only the barrier between two intervals, or one of a warp inside the second, prevents."""
        opener = after.opener
        if opener is not None and opener.index not in self.needed:
            self._look(position, kernel, opener, before.events + after.events, dropped=None)
        inside = {event[1].index: event[1] for event in after.events if isinstance(event, tuple)}
        for index, instruction in inside.items():
            if index not in self.needed:
                self._look(position, kernel, instruction, after.events, dropped=index)

    def _look(
        self, position: Position, kernel: Kernel, barrier: Instruction, events: list[Event], dropped: int | None
    ) -> None:
        detector = RaceDetector(place=self._place, ranks=position.rank + 1)
        alone = replace(position, launch=0)
        detector.begin(alone, kernel)
        for event in events:
            if isinstance(event, Access):
                detector.access(replace(event, position=alone))
            elif event[1].index != dropped:
                detector.synchronise(alone, event[0], event[1], "warp" if "warp" in event[1].modifiers else "cta")
        detector.end(alone)
        races = [finding for finding in detector.findings if finding.kind == "race"]
        if races:
            self.needed[barrier.index] = races[0]

    def join_cluster(self, positions: tuple[Position, ...], instruction: Instruction) -> None:
        """A cluster barrier completed: it is not judged."""

    def release(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """A one-way edge: it is not judged."""

    def acquire(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """A one-way edge: it is not judged."""

    def fence(self, position: Position, threads: Threads, instruction: Instruction, order: str, scope: Scope) -> None:
        """A fence: it is not judged."""

    def report(self, finding: Finding) -> None:
        """Another finding: it is none of a barrier's."""
