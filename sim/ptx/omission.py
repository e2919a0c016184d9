"""What an execution would lack without one of its synchronising instructions.

A barrier or a fence only adds order, and so does what a wait acquires: every
execution of a kernel is also one of the kernel without it.  A race detector that
never hears of the instruction therefore judges the kernel without it, and one
execution judges all of them.  In a launch of one CTA it need not even hear of
the rest: a barrier of all threads orders everything before it with everything
after it, so only the intervals between such barriers in which the instruction
runs, or which it separates, are judged again.  If no race appears, every other
order of the threads reads and writes the same, up to the order of atomic
operations: programs without races behave the same in all orders (Adve and Hill,
"Weak Ordering", ISCA 1990).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from .access import resolve_access
from .findings import Finding
from .module import Instruction, Kernel
from .observation import Access, Position, Scope, Threads
from .races import RaceDetector
from .table import find_entry

Role = Literal["barrier", "warp barrier", "cluster barrier", "fence", "proxy fence", "order", "wait"]
"""What an instruction orders by; ``order`` is the acquire or release of an access or arrival, ``wait`` one for copies
or for a barrier object."""


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
    words = set(instruction.modifiers)
    if kind == "fence" and instruction.opcode in ("fence", "membar"):
        # One of ``mbarrier_init`` is about proxies too.
        proxies = any(word.startswith("proxy") for word in words) or "mbarrier_init" in words
        return "proxy fence" if proxies else "fence"
    if kind == "async":
        if words & {"wait_group", "wait_all", "test_wait", "try_wait"}:
            return "wait"
        return "order" if instruction.opcode == "mbarrier" and words & {"arrive", "arrive_drop"} else None
    if kind in ("memory", "atomic") and {"acquire", "release", "acq_rel"} & words:
        return "order" if resolve_access(instruction, kernel.name).order != "weak" else None
    return None


Event = tuple[str, tuple[Any, ...]]
"""Method of an observer, and its arguments."""


class Omission:
    """A race detector that never hears of some instructions; satisfies ``Observer``.

    Args:
        omitted: Their places in the kernel.
        detector: The detector.

    Attributes:
        reached: Those of them that ran.
        active: Whether it is told of what happens.
        lasting: Whether a proxy fence was performed meanwhile, so that the next barrier does not settle everything.
    """

    def __init__(self, omitted: frozenset[int], detector: RaceDetector) -> None:
        self.omitted = omitted
        self.detector = detector
        self.reached: set[int] = set()
        self.active = False
        self.lasting = False

    def start(self, detector: RaceDetector, events: Iterable[Event]) -> None:
        """Start with a detector and what it has not heard yet."""
        self.detector, self.active, self.lasting = detector, True, False
        for name, arguments in events:
            getattr(self, name)(*arguments)

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
        self.lasting = self.lasting or order == "proxy"
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
        alone: Whether the launch has one CTA only.

    Attributes:
        whole: The kernel as it is: nothing is left out.
        omissions: One for each set.
    """

    def __init__(
        self, sets: Iterable[frozenset[int]], place: Callable[[int], str] = hex, *, alone: bool = False
    ) -> None:
        self.whole = Omission(frozenset(), RaceDetector(place=place))
        self.omissions = [Omission(omitted, RaceDetector(place=place)) for omitted in sets]
        self._alone = alone
        self._by_place: dict[int, list[Omission]] = {}
        for each in self.omissions:
            each.active = not alone
            for index in each.omitted:
                self._by_place.setdefault(index, []).append(each)
        self._watching = self._list_watching()
        self._settled = self.whole.detector
        self._interval: list[Event] = []

    def begin(self, position: Position, kernel: Kernel) -> None:
        """A CTA starts."""
        for each in self._watching:
            each.begin(position, kernel)
        if self._alone:
            self._settled = self.whole.detector.fork()

    def access(self, access: Access) -> None:
        """Some threads access memory."""
        if self._alone:
            # Arrays are registers, which change.
            values = tuple(value.copy() for value in access.values)
            access = replace(access, addresses=access.addresses.copy(), values=values)
        self._tell(access.instruction, "access", access)

    def synchronise(self, position: Position, threads: Threads, instruction: Instruction, scope: str) -> None:
        """A barrier completed."""
        self._tell(instruction, "synchronise", position, threads, instruction, scope)
        if scope != "warp" and threads.size == position.threads:
            self._settle(instruction)

    def join_cluster(self, positions: tuple[Position, ...], instruction: Instruction) -> None:
        """A cluster barrier completed."""
        self._tell(instruction, "join_cluster", positions, instruction)

    def release(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """Threads arrive somewhere."""
        self._tell(instruction, "release", position, threads, instruction, token)

    def acquire(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """Threads learn what was released."""
        self._tell(instruction, "acquire", position, threads, instruction, token)

    def fence(self, position: Position, threads: Threads, instruction: Instruction, order: str, scope: Scope) -> None:
        """Threads perform a fence."""
        self._tell(instruction, "fence", position, threads, instruction, order, scope)

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

    def _list_watching(self) -> list[Omission]:
        return [self.whole, *(each for each in self.omissions if each.active)]

    def _tell(self, instruction: Instruction, name: str, *arguments: Any) -> None:
        """Tell all that watch of an event, and those that leave its instruction out from now on too."""
        for each in self._by_place.get(instruction.index, ()):
            if not each.active and each.race is None:
                each.start(self._settled.fork(), self._interval)
                self._watching.append(each)
        for each in self._watching:
            getattr(each, name)(*arguments)
        if self._alone:
            self._interval.append((name, arguments))

    def _settle(self, instruction: Instruction) -> None:
        """Let those rest that found a race, or heard of this barrier: what is before it races with nothing to come."""
        for each in self.omissions:
            heard = self._alone and instruction.index not in each.omitted and not each.lasting
            each.active = each.active and not heard and each.race is None
        self._watching = self._list_watching()
        self._interval.clear()
        if self._alone:
            self._settled = self.whole.detector.fork()
