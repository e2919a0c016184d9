"""One CTA in execution: its registers, shared memory and units, and what each step of a unit does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .executor_barriers import ClusterBarrier, CtaBarriers
from .executor_code import Code
from .executor_control import decide
from .executor_convergence import find_converged
from .executor_copies import Copies
from .executor_groups import Group, Mask, Unit
from .executor_mbarrier import Mbarriers
from .executor_registers import LANES, make_constant
from .executor_taint import Taints, UnwrittenReadError
from .memory import Array, make_region
from .observation import Position

if TYPE_CHECKING:
    from .executor import Launch

Triple = tuple[int, int, int]


class Cta:
    """A CTA.

    Args:
        launch: Its launch.
        number: Its number in the launch.
        cluster: The CTAs of its cluster; this one is added.
        barrier: Barrier of its cluster.

    Attributes:
        position: How observers know it.
        alive: Mask of its threads that have not exited, of as many threads as fill its warps.
        units: What a schedule chooses among.
        shared: Its shared memory.
        local: Local memory of its threads, one after the other.
    """

    def __init__(self, launch: Launch, number: int, cluster: list[Cta], barrier: ClusterBarrier) -> None:
        self.launch = launch
        self.observer = launch.observer
        self.cluster = cluster
        self.cluster_rank = len(cluster)
        self.cluster_barrier = barrier
        cluster.append(self)
        threads = launch.threads
        width = threads + -threads % LANES
        self.position = Position(launch.rank, launch.number, number, number // launch.cluster_ctas, threads)
        self.file = launch.compiled.take_file(width)
        self.alive: Mask = np.arange(width) < threads
        self.shared = make_region("shared memory", launch.layout.shared_bytes)
        self.local_bytes = launch.layout.local_bytes
        self.local = make_region("local memory", self.local_bytes * width)
        self.barriers = CtaBarriers(self)
        self.taints = Taints(self)
        self.copies = Copies(self)
        self.mbarriers = Mbarriers(self)
        self.units = self._make_units(width)
        launch.layout.fill_special(self, width)

    def _make_units(self, width: int) -> list[Unit]:
        number, launch = self.position.cta, self.launch
        if not launch.by_warp:
            return [Unit(f"c{number}", number, self, self.alive.copy(), 0, width)]
        units = []
        for warp, low in enumerate(range(0, width, LANES)):
            active = np.zeros(width, bool)
            active[low : low + LANES] = self.alive[low : low + LANES]
            rank = number * (width // LANES) + warp
            units.append(Unit(f"c{number}.w{warp}", rank, self, active, low, low + LANES))
        return units

    @property
    def finished(self) -> bool:
        """Whether every thread exited."""
        return not any(unit.groups for unit in self.units)

    def step(self, unit: Unit) -> None:
        """Run code of the group of a unit whose turn it is, up to the next decision."""
        group = unit.pick()
        code = self._code(group)
        if code.leader is not None:
            chosen = find_converged(self, unit, group, code.leader)
            if chosen is None:
                return
            if chosen is not group:
                group = chosen
                code = self._code(group)
        if code.stop > code.start:
            self._run(code, group)
        if group.place == code.stop and self.launch.compiled.ends(code.stop):
            decide(self, unit, group)

    def _code(self, group: Group) -> Code:
        return self.launch.compiled.code(group.place, group.mask is not None, single=bool(self.taints))

    def _run(self, code: Code, group: Group) -> None:
        launch = self.launch
        follows = bool(self.taints)
        try:
            code.run(self.file.resolve(code.key, code.slots, group.low, group.high), self, group)
        except UnwrittenReadError as unwritten:
            group.place = unwritten.place
            for place in range(code.start, group.place):
                launch.count_decision(place, group.count)
        else:
            group.place = code.stop
            launch.count(code, group.count)
            if follows:
                self.taints.follow(group, launch.kernel.body[code.start])
        if self.taints:
            live = 0
            for unit in self.units:
                for other in unit.groups:
                    live |= launch.compiled.liveness.live_before(other.place)
            self.taints.prune(live, launch.compiled.liveness.number)

    def address(self, name: str) -> int:
        """Return what a symbol stands for: an address in its state space."""
        return self.launch.layout.addresses[name]

    def address_array(self, name: str, offset: int, view: str) -> Array:
        """Return the same as an array without dimensions, of a NumPy type."""
        return make_constant(self.address(name) + offset, view)

    def read_clock(self, name: str) -> int:
        """Return a counter: steps of the launch so far, as cycles or as nanoseconds."""
        return self.launch.steps >> 32 if name.endswith("hi") else self.launch.steps & 0xFFFFFFFF

    def end(self) -> None:
        """Every thread exited: say so, and give the registers back."""
        self.copies.finish()
        if self.observer is not None:
            self.observer.end(self.position)
        self.launch.compiled.give_file(self.file)
