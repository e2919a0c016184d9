"""The machine: runs host programs and kernels of all ranks in one process.

Everything that happens is a step of one agent, chosen by the scheduler; given
the same programs, inputs and choices, every execution is the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from greenlet import getcurrent, greenlet

from tiebreak.errors import InputError

from .agent import Agent, Pending, Program
from .clock import Clock
from .device import Collective, Device, Entry, Launch, Stream, Work
from .faults import Fault, FaultWatch
from .lowering import resolve_lowering
from .memory import Memory
from .observer import Observer
from .progress import Progress
from .schedulers import Scheduler, continue_or_first
from .schedulers.replay import encode
from .shadow import Party
from .trace import Event, Site, Trace, Violation

HostProgram = Callable[[Any], Any]

WatchWrite: TypeAlias = Callable[[int, torch.Tensor], AbstractContextManager[None]]
"""Surrounds a write of a host, given its rank and what it writes to."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Parameters of a machine.

    Attributes:
        lowering: Lowering profile, see ``lowering.LOWERINGS``.
        residency: Programs of one device that can run at a time.
        budget: Largest number of steps of an execution.
        tolerate_stalls: Whether time passes, so that bounded waits run out and hosts hear
            of peers that ended in an error, instead of reporting a deadlock.
        stop_at_first: Whether an execution ends at its first violation.
        data_points: Whether plain accesses to shared memory are scheduling
            points too.  Races are found either way; wrong values need it.
        fault: What happens to a rank, or None.
    """

    lowering: str = "triton-3.6"
    residency: int = 132
    budget: int = 200_000
    tolerate_stalls: bool = False
    stop_at_first: bool = True
    data_points: bool = True
    fault: Fault | None = None


@dataclass
class Execution:
    """Outcome of one execution.

    Attributes:
        results: What each host program returned; None where it did not finish.
        errors: Exception of each host program, or None.
        violations: Broken properties, in the order they were seen.
        schedule: Text that replays the execution, see ``schedulers.replay``.
        steps: Number of steps.
        rank_steps: Number of steps of each rank.
        struck: Whether the fault of the settings took a step away or put one off.
        switches: Number of steps that left an agent which could have gone on.
        stalls: Number of times that nobody could move.
        trace: The events.
    """

    results: list[Any]
    errors: list[BaseException | None]
    violations: list[Violation] = field(default_factory=list)
    schedule: str = "-"
    steps: int = 0
    rank_steps: list[int] = field(default_factory=list)
    struck: bool = False
    switches: int = 0
    stalls: int = 0
    trace: Trace = field(default_factory=Trace)


class Machine:
    """Simulated ranks with one device each.

    Args:
        ranks: World size, at least 1.
        settings: See ``Settings``.

    Raises:
        InputError: ``ranks``, ``residency`` or ``budget`` is below 1, or the
            lowering profile is unknown.
    """

    def __init__(self, ranks: int, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        for name, value in (("ranks", ranks), ("residency", self.settings.residency), ("budget", self.settings.budget)):
            if value < 1:
                raise InputError(name, value=value, limit="at least 1 is needed", remedy="pass a positive number")
        self.ranks = ranks
        self.memory = Memory()
        self.devices = [Device(rank, self.settings.residency) for rank in range(ranks)]
        self.observer = Observer(self.memory, resolve_lowering(self.settings.lowering), self.report)
        self.current: Agent | None = None
        self.program: Program | None = None
        self.hosts: list[Agent] = []
        self.host_clocks: list[Clock] = []
        self.current_stream = [0] * ranks
        self.enter: Callable[[Program], None] = lambda program: None
        self.agree: Callable[[], None] = lambda: None
        self.place: Callable[[int, torch.Tensor], torch.Tensor] = lambda rank, tensor: tensor
        self.watch_launch: Callable[[int, Work], None] = lambda rank, work: None
        self.watch_write: WatchWrite = lambda rank, target: contextlib.nullcontext()
        self.last_writes: dict[int, str] = {}
        self.step = 0
        self.faults = FaultWatch(self.settings.fault, ranks)
        self._components: dict[tuple[int, int, int], int] = {}
        self._deviations: dict[int, str] = {}
        self._main: greenlet | None = None
        self._halted = False
        self._outcome = Execution([], [])
        self._progress = Progress(self)

    # -- one execution -------------------------------------------------------------------------------------------

    def run(self, hosts: Sequence[Callable[[], Any]], scheduler: Scheduler) -> Execution:
        """Run one host program per rank to the end, or to the first violation.

        A machine runs once: memory, shadows and clocks belong to the execution.
        """
        self._main = getcurrent()
        self._outcome = Execution([None] * self.ranks, [None] * self.ranks)
        self.hosts = [Agent(f"h{rank}", rank, body) for rank, body in enumerate(hosts)]
        self.host_clocks = [Clock() for _ in hosts]
        for rank, clock in enumerate(self.host_clocks):
            clock.tick(self._component(rank, -1, 0))
        try:
            self._loop(scheduler)
        finally:
            self._close()
        outcome = self._outcome
        outcome.results = [host.result for host in self.hosts]
        outcome.errors = [host.error for host in self.hosts]
        outcome.violations += [
            Violation("host-error", f"{host.name} raised {host.error!r}", self.step)
            for host in self.hosts
            if host.error is not None
        ]
        outcome.schedule = encode(self._deviations)
        outcome.steps = self.step
        outcome.rank_steps = self.faults.steps
        outcome.struck = self.faults.has_struck([host.finished for host in self.hosts])
        return outcome

    def _loop(self, scheduler: Scheduler) -> None:
        while not self._halted:
            self._progress.advance_streams()
            agents = self.agents()
            if not agents and all(device.idle or self.faults.is_dead(device.rank) for device in self.devices):
                return
            moving = [agent for agent in agents if not self.faults.is_held(agent.rank)]
            enabled = [agent for agent in moving if agent.enabled]
            if not enabled and self.faults.release(moving):
                continue
            if not enabled:
                self._outcome.stalls += 1
                enabled = self._progress.resolve_stall(moving)
                if not enabled:
                    return
            if self.step >= self.settings.budget:
                self._progress.report_exhausted()
                return
            self._take(scheduler, enabled)

    def _take(self, scheduler: Scheduler, enabled: Sequence[Agent]) -> None:
        before = self.current
        preferred = continue_or_first(enabled, before)
        chosen = scheduler.choose(self.step, enabled, before)
        if chosen is not preferred:
            self._deviations[self.step] = chosen.name
            self._outcome.switches += before in enabled
        self._progress.note_step(chosen)
        self.faults.steps[chosen.rank] += 1
        self._resume(chosen)
        self.step += 1

    def _resume(self, agent: Agent) -> None:
        self.current = agent
        self.program = self._progress.programs.get(agent.name)
        if agent.thread is None:
            agent.thread = greenlet(lambda: self._body(agent), parent=self._main)
        if self.program is not None:
            self.enter(self.program)
        agent.thread.switch()
        if agent.finished:
            self._progress.retire(agent)

    def _body(self, agent: Agent) -> None:
        try:
            agent.result = agent.body()
        except Exception as error:
            agent.error = error
            if agent.name in self._progress.programs:
                self.report(Violation("kernel-error", f"{agent.name} raised {error!r}", self.step))
        agent.finished = True
        agent.pending = None

    def _close(self) -> None:
        """Kill the agents that did not finish, so that no frame outlives the execution."""
        for agent in self._unfinished(range(self.ranks)):
            if agent.thread is not None and not agent.thread.dead:
                agent.thread.throw()
        self._main = None

    def agents(self) -> list[Agent]:
        """Return the unfinished agents that exist now on ranks that live, hosts first, then programs in order."""
        return self._unfinished([rank for rank in range(self.ranks) if not self.faults.is_dead(rank)])

    def _unfinished(self, ranks: Sequence[int]) -> list[Agent]:
        hosts = [self.hosts[rank] for rank in ranks if not self.hosts[rank].finished]
        programs = [
            program.agent
            for rank in ranks
            for _, stream in sorted(self.devices[rank].streams.items())
            for program in stream.running
            if not program.agent.finished
        ]
        return hosts + programs

    def has_left(self, rank: int) -> bool:
        """Whether others can know that a rank takes part in nothing any more: it died, or its host raised long ago."""
        return self.faults.is_dead(rank) or (self.settings.tolerate_stalls and self.hosts[rank].error is not None)

    # -- what agents call ----------------------------------------------------------------------------------------

    def reach(self, pending: Pending) -> None:
        """Announce an operation and hand over; return when it is this agent's turn."""
        agent = self.current
        assert agent is not None and self._main is not None
        agent.pending = pending
        self._main.switch()
        agent.pending = None

    def record(self, action: str, *, place: str = "", value: str = "", site: Site | None = None) -> None:
        """Add an event of the current agent to the trace."""
        agent = self.current
        assert agent is not None
        self._outcome.trace.add(Event(self.step, agent.rank, agent.name, action, place, value, site))

    def report(self, violation: Violation) -> None:
        """Add a violation; end the execution here if it is to stop at the first."""
        self._outcome.violations.append(violation)
        if self.settings.stop_at_first:
            self.halt()

    def halt(self) -> None:
        """End the execution; an agent that calls this never runs again."""
        self._halted = True
        if self._main is not None and getcurrent() is not self._main:
            self._main.switch()

    def enqueue(self, rank: int, stream: int, work: Work) -> None:
        """Launch work on a stream, or add it to the graph that is being captured."""
        device = self.devices[rank]
        if device.capturing is not None:
            device.capturing.work.append(work)
            return
        device.stream(stream).queue.append(Entry(work, self.leave_host(rank)))
        self.record(f"launch {work.kernel if isinstance(work, Launch) else work.name}")
        self.watch_launch(rank, work)

    def leave_host(self, rank: int) -> Clock:
        """Return what the host of ``rank`` knows now; what it does next is not part of it."""
        clock = self.host_clocks[rank]
        known = clock.copy()
        clock.tick(self._component(rank, -1, 0))
        return known

    def wait_for_device(self, rank: int) -> None:
        """Block the host until its device is idle; it then knows all that ran there."""
        device = self.devices[rank]
        self.reach(
            Pending("synchronise", ready=lambda: device.idle, waits_for=lambda: f"the streams of rank {rank} to drain")
        )
        for stream in device.streams.values():
            self.host_clocks[rank].join(stream.clock)
        self.record("synchronise")

    def overwrite(self, rank: int, target: torch.Tensor, values: torch.Tensor) -> None:
        """Let the host of a rank, whose device is idle, write device memory."""
        with self.watch_write(rank, target):
            target.copy_(values)
            self.memory.register(target, name=f"r{rank}.written", rank=rank).initialise(target)

    def make_program(self, stream: Stream, launch: Launch, index: tuple[int, int, int]) -> Program:
        """Create the program ``index`` of the active launch of ``stream``."""
        linear = (index[0] * launch.grid[1] + index[1]) * launch.grid[2] + index[2]
        prefix = f"r{stream.rank}" + (f".s{stream.number}" if stream.number else "")
        agent = Agent(f"{prefix}.p{linear}", stream.rank, launch.body)
        base = self._component(stream.rank, stream.number, linear)
        leader, lanes = Party(base, stream.rank, base), Party(base + 1, stream.rank, base)
        self.observer.name(leader, f"{agent.name} leader")
        self.observer.name(lanes, f"{agent.name} lanes")
        program = Program(
            agent,
            launch.kernel,
            index,
            launch.grid,
            leader,
            lanes,
            stream.clock.copy(),
            stream.clock.copy(),
            launch=stream.launched,
        )
        program.leader_clock.tick(leader.component)
        program.lanes_clock.tick(lanes.component)
        return program

    def finish_collective(self, streams: Sequence[Stream]) -> None:
        """Complete a collective on all ranks: everyone then knows what everyone did."""
        joined = Clock()
        for stream in streams:
            joined.join(stream.clock)
        works = [stream.active.work for stream in streams if stream.active is not None]
        collectives = [work for work in works if isinstance(work, Collective)]
        collectives[0].finish([work.payload for work in collectives])
        for stream in streams:
            stream.clock = joined.copy()
            stream.active = None
        self.agree()

    def _component(self, rank: int, stream: int, program: int) -> int:
        """Return the first of the two components of a host or program position.

        Programs at the same position of successive launches share theirs,
        because launches of a stream are ordered.
        """
        return self._components.setdefault((rank, stream, program), 2 * len(self._components))
