"""The memory model: what each operation of a program does to visibility.

Axioms, and where each is enforced:

1. Program order inside one thread: component clocks in ``Program``.
2. A CTA barrier orders all threads of the program: ``Program.synchronise``.
3. A release by one thread covers that thread and, across the last CTA barrier,
   the others: ``_publish`` copies the clock of the issuing component only.
4. An acquire synchronises with the releases whose values it may have observed,
   through chains of read-modify-writes, when the two are morally strong:
   ``_acquire``.
5. Conflicting accesses without an edge race unless morally strong: ``Shadow``.
6. Barriers that the compiler inserts are those of the lowering profile:
   ``atomic``.

Values are those of the interleaving (every load sees the latest store); that a
load *could* see an older store is what a race says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .agent import Program
from .clock import Clock
from .lowering import Lowering
from .memory import AddressArray, Allocation, Memory
from .shadow import LEADER, PLAIN, Access, Conflict, Operation, Party, morally_strong
from .trace import Site, Violation

STRENGTH_NAMES = ("plain", "atomic cta", "atomic gpu", "atomic sys")


@dataclass(frozen=True)
class Message:
    """What a release published at an address."""

    clock: Clock
    strength: int
    party: Party


@dataclass(frozen=True)
class Touch:
    """The memory that one operation touches.

    Attributes:
        addresses: Address of each active element; shape [elements].
        lanes: Lane of each active element.
        itemsize: Bytes per element.
        tile: Number of elements of the whole tile; 1 for scalar operations.
        groups: The allocations involved, with the mask of their elements.
    """

    addresses: AddressArray
    lanes: npt.NDArray[np.int32]
    itemsize: int
    tile: int
    groups: tuple[tuple[Allocation, npt.NDArray[np.bool_]], ...]

    @property
    def scalar(self) -> bool:
        """Whether one thread (the leader) performs it."""
        return self.tile == 1

    @property
    def shared(self) -> bool:
        """Whether peers can reach any of the memory."""
        return any(allocation.shared for allocation, _ in self.groups)

    def by_other_threads(self) -> Touch:
        """Return a scalar operation as the threads beside the leader perform it."""
        return replace(self, lanes=np.zeros(1, dtype=np.int32))

    @property
    def place(self) -> str:
        """The first address, and how many elements there are, in print."""
        allocation, mask = self.groups[0]
        text = allocation.place(int(self.addresses[mask][0]))
        return text if self.scalar else f"{text}[{self.addresses.size}]"


class Observer:
    """Keeps shadows, messages and violations of one execution."""

    def __init__(self, memory: Memory, lowering: Lowering, report: Callable[[Violation], None]) -> None:
        self.memory = memory
        self.lowering = lowering
        self._report = report
        self._messages: dict[int, list[Message]] = {}
        self._sites: list[Site] = []
        self._names: dict[int, str] = {}

    def name(self, party: Party, name: str) -> None:
        """Remember the printed name of a component."""
        self._names[party.component] = name

    def touch(
        self, pointers: AddressArray, mask: npt.NDArray[np.bool_], itemsize: int
    ) -> tuple[Touch | None, int | None]:
        """Resolve the addresses of an operation; return it, or the address that lies nowhere."""
        flat = np.asarray(pointers, dtype=np.uint64).reshape(-1)
        active = np.asarray(mask, dtype=bool)
        if active.shape != np.shape(pointers):
            active = np.broadcast_to(active, np.shape(pointers))
        active = active.reshape(-1)
        addresses = flat[active]
        groups, bad = self.memory.split(addresses, itemsize)
        if bad is not None or addresses.size == 0:
            return None, bad
        lanes = np.flatnonzero(active).astype(np.int32) if flat.size > 1 else np.array([LEADER], dtype=np.int32)
        return Touch(addresses, lanes, itemsize, flat.size, tuple(groups)), None

    def load(self, program: Program, touch: Touch, site: Site, step: int) -> None:
        """Account for a plain load.  A scalar load is performed by every thread."""
        for allocation, mask in touch.groups:
            offsets = (touch.addresses[mask] - np.uint64(allocation.base)).astype(np.int64)
            bad = allocation.shadow.find_uninitialised(offsets, touch.itemsize)
            if bad is not None:
                place = allocation.place(allocation.base + bad)
                message = f"{program.agent.name} reads {place}, which nothing wrote, at {site}"
                self._report(Violation("uninitialised-read", message, step))
        if touch.scalar:
            self._record(program.leader, program.leader_clock, touch, PLAIN, False, site, step)
            touch = touch.by_other_threads()
        self._record(program.lanes, program.lanes_clock, touch, PLAIN, False, site, step)

    def store(self, program: Program, touch: Touch, site: Site, step: int) -> None:
        """Account for a plain store; it ends release sequences at its addresses."""
        party, clock = self._issuer(program, touch)
        self._record(party, clock, touch, PLAIN, True, site, step)
        if self._messages:
            for address in touch.addresses.tolist():
                self._messages.pop(address, None)

    def atomic(
        self,
        program: Program,
        touch: Touch,
        sem: str,
        strength: int,
        *,
        used: bool,
        writes: bool,
        site: Site,
        step: int,
    ) -> None:
        """Account for an atomic: barriers of the lowering, acquire, access, release."""
        acquires, releases = sem in ("acquire", "acq_rel"), sem in ("release", "acq_rel")
        if releases and touch.scalar and self.lowering.barrier_before_release:
            program.synchronise()
        party, clock = self._issuer(program, touch)
        if acquires:
            self._acquire(program, party, touch, strength)
        self._record(party, clock, touch, strength, writes, site, step)
        if releases:
            self._publish(program, party, touch, strength)
        after_acquire = acquires and self.lowering.barrier_after_acquire
        if touch.scalar and (after_acquire or (used and self.lowering.barrier_after_used_result)):
            program.synchronise()

    @staticmethod
    def _issuer(program: Program, touch: Touch) -> tuple[Party, Clock]:
        if touch.scalar:
            return program.leader, program.leader_clock
        return program.lanes, program.lanes_clock

    def _acquire(self, program: Program, party: Party, touch: Touch, strength: int) -> None:
        target = program.leader_clock if touch.scalar else program.acquired
        for address in touch.addresses.tolist():
            for message in self._messages.get(address, ()):
                if morally_strong(message.strength, message.party, strength, party):
                    target.join(message.clock)

    def _publish(self, program: Program, party: Party, touch: Touch, strength: int) -> None:
        _, clock = self._issuer(program, touch)
        published = clock.copy()
        if not touch.scalar:
            # Each lane releases for itself only; what all lanes share ends at the last barrier.
            published.times[party.component] -= 1
        for address in touch.addresses.tolist():
            self._messages.setdefault(address, []).append(Message(published, strength, party))
        clock.tick(party.component)

    def _record(
        self, party: Party, clock: Clock, touch: Touch, strength: int, writes: bool, site: Site, step: int
    ) -> None:
        self._sites.append(site)
        operation = Operation(party, clock, touch.tile, strength, len(self._sites) - 1, writes)
        for allocation, mask in touch.groups:
            offsets = (touch.addresses[mask] - np.uint64(allocation.base)).astype(np.int64)
            conflict = allocation.shadow.record(operation, offsets, touch.itemsize, touch.lanes[mask])
            if conflict is not None:
                self._report(Violation("race", self._explain(conflict, operation, allocation, site), step))

    def _explain(self, conflict: Conflict, operation: Operation, allocation: Allocation, site: Site) -> str:
        earlier = conflict.earlier
        return (
            f"{self._describe(earlier, self._sites[earlier.site])} and "
            f"{self._describe(operation, site)} both touch {allocation.place(allocation.base + conflict.offset)} "
            f"with no happens-before edge; {self._missing(earlier, operation)}"
        )

    def _describe(self, access: Access | Operation, site: Site) -> str:
        kind = "write" if access.writes else "read"
        return f"{self._names[access.party.component]} {STRENGTH_NAMES[access.strength]} {kind} at {site}"

    def _missing(self, earlier: Access, later: Operation) -> str:
        """Name the edge that is missing, from what the two accesses are."""
        if earlier.party.program == later.party.program and earlier.party.rank == later.party.rank:
            return f"no CTA barrier between them under {self.lowering.name}"
        if earlier.strength and later.strength:
            return "their scopes do not include each other"
        if earlier.party.rank != later.party.rank:
            return f"no release.sys to acquire.sys chain covers both under {self.lowering.name}"
        return f"no release to acquire chain covers both under {self.lowering.name}"
