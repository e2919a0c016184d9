"""What a rank's host program sees: its device, its peers, and its memory.

``SimulatedFabric`` has the methods that host code asks of a fabric (rank,
world size, rendezvous, gather, all-gather, synchronise), so that code written
for torch symmetric memory runs on it unchanged, and a few that tests use.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tiebreak.errors import PeerLostError, SimulationError, WorkspaceError

from .agent import Pending
from .clock import Clock
from .device import Collective, Graph
from .interpreter import open_session
from .machine import Execution, Machine, Settings
from .schedulers import Scheduler
from .schedulers.registry import make_scheduler


@dataclass(frozen=True)
class SymmetricBuffer:
    """Memory of the same size on every rank.

    Attributes:
        local: This rank's part, uint8 [byte_count]; poisoned, as nothing promises its content.
        peer_addresses: Address of every rank's part, own included, int64 [world size].
    """

    local: torch.Tensor
    peer_addresses: torch.Tensor


@dataclass
class _Round:
    """One host collective: what each rank contributed so far, and what it knew then."""

    values: dict[int, Any] = field(default_factory=dict)
    clocks: list[Clock] = field(default_factory=list)
    agreed: bool = False


class World:
    """State that the fabrics of one execution share."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.rounds: list[_Round] = []
        self.failing_rendezvous: frozenset[int] = frozenset()


class SimulatedFabric:
    """One rank's view of the simulated ranks."""

    def __init__(self, world: World, rank: int) -> None:
        self._world = world
        self._machine = world.machine
        self._round = 0
        self._buffers = 0
        self.rank = rank
        self.world_size = world.machine.ranks
        self.device = torch.device("cpu")

    # -- what host code uses -------------------------------------------------------------------------------------

    def gather_objects(self, value: Any) -> list[Any]:
        """Return every rank's value, in rank order; blocks until all ranks called.

        Raises:
            PeerLostError: A rank that has not called died, or its host raised and time passes.
        """
        world, number = self._world, self._round
        self._round += 1
        if number == len(world.rounds):
            world.rounds.append(_Round())
        this = world.rounds[number]
        this.values[self.rank] = value
        this.clocks.append(self._machine.leave_host(self.rank))

        def missing() -> list[int]:
            return sorted(set(range(self.world_size)) - set(this.values))

        def lost() -> list[int]:
            return [rank for rank in missing() if self._machine.has_left(rank)]

        self._machine.reach(
            Pending(
                "gather",
                ready=lambda: not missing() or bool(lost()),
                waits_for=lambda: f"ranks {missing()} to gather",
            )
        )
        if missing():
            raise PeerLostError(f"rank {lost()[0]}", limit="left while this rank waited to hear of it")
        if not this.agreed:
            this.agreed = True
            self._machine.agree()
        for clock in this.clocks:
            self._machine.host_clocks[self.rank].join(clock)
        self._machine.record("gather")
        return [this.values[rank] for rank in range(self.world_size)]

    def rendezvous(self, byte_count: int) -> SymmetricBuffer:
        """Allocate memory that every rank can address; collective.

        Raises:
            WorkspaceError: This rank was told to fail.  The others succeed and wait for nobody.
        """
        local = torch.empty(max(byte_count, 1), dtype=torch.uint8)
        name = f"r{self.rank}.symmetric{self._buffers}"
        self._buffers += 1
        allocation = self._machine.memory.register(local, name=name, rank=self.rank)
        allocation.name, allocation.shared = name, True
        addresses = self.gather_objects(local.data_ptr())
        if self.rank in self._world.failing_rendezvous:
            raise WorkspaceError(f"rendezvous of rank {self.rank}", limit="the simulation makes it fail here")
        peer_addresses = self._machine.place(self.rank, torch.tensor(addresses, dtype=torch.int64))
        self._machine.memory.register(peer_addresses, name=f"{name}.addresses", rank=self.rank)
        return SymmetricBuffer(local, peer_addresses)

    def all_gather(self, output: torch.Tensor, input: torch.Tensor) -> None:
        """Gather ``input`` of every rank into ``output`` [world size, ...], in stream order."""
        memory = self._machine.memory

        def finish(payloads: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
            parts = [given.clone() for _, given in payloads]
            for rank, (target, _) in enumerate(payloads):
                target.copy_(torch.stack(parts).reshape(target.shape))
                memory.register(target, name=f"r{rank}.gathered", rank=rank).initialise(target)

        self._machine.enqueue(
            self.rank, self._machine.current_stream[self.rank], Collective("all-gather", (output, input), finish)
        )

    def synchronize(self) -> None:
        """Wait until this rank's device is idle."""
        self._machine.wait_for_device(self.rank)

    def free(self, buffer: SymmetricBuffer) -> None:
        """Give symmetric memory back; collective, after all devices are idle."""
        self.synchronize()
        self.gather_objects(None)

    # -- what tests use ------------------------------------------------------------------------------------------

    def upload(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Return a copy of ``tensor`` in this rank's device memory."""
        copy = self._machine.place(self.rank, tensor.clone())
        self._machine.memory.register(copy, name=f"r{self.rank}.{name}", rank=self.rank)
        return copy

    def write(self, target: torch.Tensor, values: torch.Tensor) -> None:
        """Overwrite device memory from the host, between launches that have finished."""
        self.synchronize()
        self._machine.overwrite(self.rank, target, values)

    def name_regions(self, tensor: torch.Tensor, regions: dict[int, str]) -> None:
        """Give parts of a buffer printed names, by the offset in bytes that each starts at."""
        allocation = self._machine.memory.register(tensor, name=f"r{self.rank}.named", rank=self.rank)
        allocation.regions = {offset: f"r{self.rank}.{name}" for offset, name in regions.items()}

    def warm_up(self, state: torch.Tensor, launch: Callable[[], Any]) -> None:
        """Do nothing: interpreted kernels need no first launch."""

    def line_up(self) -> None:
        """Do nothing: a rank that waits for a late one is not scheduled."""

    def delay(self, microseconds: int) -> None:
        """Do nothing: schedules hold ranks back."""

    @contextlib.contextmanager
    def capture(self) -> Iterator[Graph]:
        """Record launches into a graph instead of running them; host scalars freeze."""
        device = self._machine.devices[self.rank]
        device.capturing = Graph()
        try:
            yield device.capturing
        finally:
            device.capturing = None

    def replay(self, graph: Graph) -> None:
        """Launch everything in ``graph``, in order, on the current stream."""
        for work in graph.work:
            self._machine.enqueue(self.rank, self._machine.current_stream[self.rank], work)

    @contextlib.contextmanager
    def stream(self, number: int) -> Iterator[None]:
        """Make stream ``number`` the current one."""
        before = self._machine.current_stream[self.rank]
        self._machine.current_stream[self.rank] = number
        try:
            yield
        finally:
            self._machine.current_stream[self.rank] = before


HostBody = Callable[[SimulatedFabric], Any]
Session = Callable[[Machine], contextlib.AbstractContextManager[None]]
"""What makes launches of this process those of a machine."""


def simulate(
    hosts: Sequence[HostBody],
    scheduler: Scheduler,
    settings: Settings | None = None,
    *,
    failing_rendezvous: Sequence[int] = (),
    session: Session = open_session,
) -> Execution:
    """Run one host program per rank once, under ``scheduler``.

    Args:
        hosts: One callable per rank; each gets its rank's fabric.
        scheduler: Chooses every step; ``begin`` must have been called.
        settings: See ``machine.Settings``.
        failing_rendezvous: Ranks whose rendezvous raises.
        session: Decides how kernels run; the default interprets them.

    Returns:
        The execution.  An exception of a host program is in ``errors`` and,
        when nothing else went wrong, also a ``host-error`` violation.
    """
    machine = Machine(len(hosts), settings)
    world = World(machine)
    world.failing_rendezvous = frozenset(failing_rendezvous)
    bodies = [_bind(host, SimulatedFabric(world, rank)) for rank, host in enumerate(hosts)]
    with session(machine):
        return machine.run(bodies, scheduler)


def run_ranks(
    host: HostBody,
    ranks: int,
    schedule: str = "default",
    settings: Settings | None = None,
    *,
    failing_rendezvous: Sequence[int] = (),
    session: Session = open_session,
) -> list[Any]:
    """Run one host program on every rank once, and return what it returns on each.

    For programs that must not fail; ``simulate`` returns what was found instead.

    Args:
        host: Gets the fabric of the rank it runs on.
        ranks: World size.
        schedule: See ``make_scheduler``.
        settings: See ``machine.Settings``.
        failing_rendezvous: Ranks whose rendezvous raises.
        session: Decides how kernels run; the default interprets them.

    Raises:
        SimulationError: A host program raised (the cause), or the execution raced,
            stood still, read memory that nothing wrote or left its bounds.
    """
    scheduler = make_scheduler(schedule)
    scheduler.begin()
    execution = simulate([host] * ranks, scheduler, settings, failing_rendezvous=failing_rendezvous, session=session)
    if execution.violations:
        found = execution.violations[0]
        cause = next((error for error in execution.errors if error is not None), None)
        raise SimulationError(f"{found.property}: {found.message}") from cause
    return execution.results


def _bind(host: HostBody, fabric: SimulatedFabric) -> Callable[[], Any]:
    return lambda: host(fabric)
