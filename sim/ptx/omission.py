"""What an execution would lack without one of its synchronising instructions.

A barrier or a fence only adds order, so every execution of a kernel is also one
of the kernel without it.  A race detector that never hears of the instruction
therefore judges the kernel without it, and one execution judges all of them.
If no race appears, every other order of the threads reads and writes the same,
up to the order of atomic operations: programs without races behave the same in
all orders (Adve and Hill, "Weak Ordering", ISCA 1990).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from .access import resolve_access
from .findings import Finding
from .module import Instruction, Kernel
from .observation import Access, Position, Scope, Threads
from .races import RaceDetector
from .table import find_entry

Role = Literal["barrier", "warp barrier", "cluster barrier", "fence", "order"]
"""What an instruction orders by; ``order`` is the acquire or release of a memory access."""


@dataclass(frozen=True)
class Edge:
    """An instruction that orders something.

    Attributes:
        instruction: The instruction.
        role: How it does.
    """

    instruction: Instruction
    role: Role


def list_edges(kernel: Kernel) -> list[Edge]:
    """Return the barriers, fences, acquires and releases of a kernel, in order.

    Raises:
        UnknownInstructionError: The kernel has an instruction that is not in the table.
    """
    roles = ((instruction, _find_role(instruction, kernel)) for instruction in kernel.body)
    return [Edge(instruction, role) for instruction, role in roles if role is not None]


def _find_role(instruction: Instruction, kernel: Kernel) -> Role | None:
    kind = find_entry(instruction).kind
    if kind == "barrier" and instruction.opcode in ("bar", "barrier"):
        if "cluster" in instruction.modifiers:
            return "cluster barrier"
        return "warp barrier" if "warp" in instruction.modifiers else "barrier"
    if kind == "fence":
        return "fence" if instruction.opcode in ("fence", "membar") else None
    if kind in ("memory", "atomic") and {"acquire", "release", "acq_rel"} & set(instruction.modifiers):
        return "order" if resolve_access(instruction, kernel.name).order != "weak" else None
    return None


class Omission:
    """A race detector that never hears of some instructions; satisfies ``Observer``.

    Args:
        omitted: Their places in the kernel.
        detector: The detector.

    Attributes:
        reached: Those of them that ran.
    """

    def __init__(self, omitted: frozenset[int], detector: RaceDetector) -> None:
        self.omitted = omitted
        self.detector = detector
        self.reached: set[int] = set()

    @property
    def race(self) -> Finding | None:
        """A race, if there is one so far; between warps if there is one of those."""
        races = [finding for finding in self.detector.findings if finding.kind == "race"]
        return min(races, key=_is_within_warp, default=None)

    def begin(self, position: Position, kernel: Kernel) -> None:
        """A CTA starts."""
        self.detector.begin(position, kernel)

    def access(self, access: Access) -> None:
        """Some threads access memory; without its order an access is relaxed."""
        self.detector.access(replace(access, order="relaxed") if self._omits(access.instruction) else access)

    def synchronise(self, position: Position, threads: Threads, instruction: Instruction, scope: str) -> None:
        """A barrier completed."""
        if not self._omits(instruction):
            self.detector.synchronise(position, threads, instruction, scope)

    def join_cluster(self, positions: tuple[Position, ...], instruction: Instruction) -> None:
        """A cluster barrier completed."""
        if not self._omits(instruction):
            self.detector.join_cluster(positions, instruction)

    def release(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """Threads arrive somewhere."""
        if not self._omits(instruction):
            self.detector.release(position, threads, instruction, token)

    def acquire(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """Threads learn what was released."""
        if not self._omits(instruction):
            self.detector.acquire(position, threads, instruction, token)

    def fence(self, position: Position, threads: Threads, instruction: Instruction, order: str, scope: Scope) -> None:
        """Threads perform a fence."""
        if not self._omits(instruction):
            self.detector.fence(position, threads, instruction, order, scope)

    def end(self, position: Position) -> None:
        """Every thread of a CTA exited."""
        self.detector.end(position)

    def report(self, finding: Finding) -> None:
        """The executor found something."""
        self.detector.report(finding)

    def _omits(self, instruction: Instruction) -> bool:
        if instruction.index not in self.omitted:
            return False
        self.reached.add(instruction.index)
        return True


def _is_within_warp(finding: Finding) -> bool:
    places = {(actor.rank, actor.launch, actor.cta, actor.warp) for actor in finding.actors}
    return len(finding.actors) == 2 and len(places) == 1


class Omissions:
    """Judges every omission in one execution; satisfies ``Observer``.

    Args:
        sets: Sets of instructions to leave out, each judged by itself.
        place: Names an address of global memory.

    Attributes:
        whole: The kernel as it is: nothing is left out.
        omissions: One for each set.
    """

    def __init__(self, sets: Iterable[frozenset[int]], place: Callable[[int], str] = hex) -> None:
        self.whole = Omission(frozenset(), RaceDetector(place=place))
        self.omissions = [Omission(omitted, RaceDetector(place=place)) for omitted in sets]
        self._watching = [self.whole, *self.omissions]

    def begin(self, position: Position, kernel: Kernel) -> None:
        """A CTA starts."""
        for each in self._watching:
            each.begin(position, kernel)

    def access(self, access: Access) -> None:
        """Some threads access memory."""
        for each in self._watching:
            each.access(access)

    def synchronise(self, position: Position, threads: Threads, instruction: Instruction, scope: str) -> None:
        """A barrier completed."""
        for each in self._watching:
            each.synchronise(position, threads, instruction, scope)
        # One race is enough.
        self._watching = [each for each in self._watching if each is self.whole or each.race is None]

    def join_cluster(self, positions: tuple[Position, ...], instruction: Instruction) -> None:
        """A cluster barrier completed."""
        for each in self._watching:
            each.join_cluster(positions, instruction)

    def release(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """Threads arrive somewhere."""
        for each in self._watching:
            each.release(position, threads, instruction, token)

    def acquire(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """Threads learn what was released."""
        for each in self._watching:
            each.acquire(position, threads, instruction, token)

    def fence(self, position: Position, threads: Threads, instruction: Instruction, order: str, scope: Scope) -> None:
        """Threads perform a fence."""
        for each in self._watching:
            each.fence(position, threads, instruction, order, scope)

    def end(self, position: Position) -> None:
        """Every thread of a CTA exited."""
        for each in self._watching:
            each.end(position)

    def report(self, finding: Finding) -> None:
        """The executor found something, whatever is left out."""
        self.whole.report(finding)

    def finish(self) -> None:
        """Judge what is not judged yet, after an execution that was broken off."""
        for each in self._watching:
            each.detector.finish()
