"""Progress: starting and retiring programs, and telling why nothing moves.

Three ends that look alike from outside are told apart.  *Deadlock*: every
agent waits, and no step of any agent can end a wait.  *Livelock*: agents keep
running, through states that were seen before.  *Budget*: neither was shown
within the steps allowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .agent import Agent, Program
from .device import Collective, Launch, Stream
from .trace import Violation

if TYPE_CHECKING:
    from .machine import Machine

PATIENCE = 100_000
"""Largest number of fruitless polls that a tolerated stall may take in a row."""


class Progress:
    """Moves streams forward and watches for their standing still."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.programs: dict[str, Program] = {}
        self._streams: dict[str, Stream] = {}
        self._confirming: frozenset[tuple[str, object]] = frozenset()
        self._fruitless = 0
        self._states: Counter[int] = Counter()

    # -- streams -------------------------------------------------------------------------------------------------

    def advance_streams(self) -> None:
        """Activate launches and start programs while residency allows."""
        moved = True
        while moved:
            moved = False
            living = [device for device in self._machine.devices if not self._machine.faults.is_dead(device.rank)]
            for device in living:
                for _, stream in sorted(device.streams.items()):
                    before = stream.active
                    stream.advance()
                    if stream.active is not before:
                        moved = True
                        device.launches += stream.active is not None
                        stream.launched = device.launches
                    while stream.waiting and device.resident < device.residency:
                        self._start(stream)
            moved |= self._try_collective()

    def _start(self, stream: Stream) -> None:
        entry = stream.active
        assert entry is not None and isinstance(entry.work, Launch)
        program = self._machine.make_program(stream, entry.work, stream.waiting.popleft())
        stream.running.append(program)
        self.programs[program.agent.name] = program
        self._streams[program.agent.name] = stream

    def retire(self, agent: Agent) -> None:
        """Account for an agent that ended: its program leaves the device."""
        program = self.programs.pop(agent.name, None)
        if program is not None:
            stream = self._streams.pop(agent.name)
            stream.running.remove(program)
            stream.ended.join(program.final_clock())

    def _try_collective(self) -> bool:
        """Complete a collective that every rank has reached."""
        heads = [
            stream
            for device in self._machine.devices
            for stream in device.streams.values()
            if stream.active is not None and isinstance(stream.active.work, Collective)
        ]
        if len(heads) < self._machine.ranks or len({stream.rank for stream in heads}) < self._machine.ranks:
            return False
        self._machine.finish_collective(heads)
        return True

    # -- standing still ------------------------------------------------------------------------------------------

    def note_step(self, agent: Agent) -> None:
        """Watch for repeated states: same agent, same operation, same memory under it."""
        pending = agent.pending
        if pending is None or self._machine.step * 2 < self._machine.settings.budget:
            return
        value = pending.value() if pending.value is not None else None
        self._states[hash((agent.name, pending.addresses, str(pending.site), repr(value)))] += 1

    def report_exhausted(self) -> None:
        """Report the end of the budget, as a livelock if the late states all repeat."""
        steps = sum(self._states.values())
        repeats = [count for count in self._states.values() if count > 2]
        budget = self._machine.settings.budget
        if steps and sum(repeats) >= 0.9 * steps:
            message = f"the last {steps} of {budget} steps ran through only {len(self._states)} states; {self._waits()}"
            self._machine.report(Violation("livelock", message, self._machine.step))
        else:
            message = f"{budget} steps were not enough, and their states did not all repeat; raise the budget"
            self._machine.report(Violation("budget", message, self._machine.step))

    def resolve_stall(self, agents: Sequence[Agent]) -> list[Agent]:
        """Decide what happens when nobody can move.

        Returns the agents that may poll once more although nothing changed;
        an empty list ends the execution with a deadlock.
        """
        pollers = [agent for agent in agents if agent.pending is not None and agent.pending.value is not None]
        state = frozenset((agent.name, agent.pending.addresses if agent.pending else ()) for agent in agents)
        self._fruitless = self._fruitless + 1 if state == self._confirming else 0
        confirmed = self._fruitless > 0 and not self._machine.settings.tolerate_stalls
        self._confirming = state
        if not pollers or confirmed or self._fruitless > PATIENCE:
            self._machine.report(Violation("deadlock", self._waits(), self._machine.step))
            return []
        for agent in pollers:
            agent.patient = True
        return pollers

    def _waits(self) -> str:
        """Return who waits for what, and who wrote it last."""
        parts = [self._explain(agent) for agent in self._machine.agents()]
        for device in self._machine.devices:
            for stream in device.streams.values():
                if stream.active is not None and isinstance(stream.active.work, Collective):
                    parts.append(f"rank {device.rank} waits in {stream.active.work.name}")
                elif stream.waiting:
                    parts.append(f"{len(stream.waiting)} programs of rank {device.rank} wait for a free slot")
        for host in self._machine.hosts:
            if host.error is not None:
                parts.append(f"{host.name} ended with {host.error!r}")
            elif host.finished:
                parts.append(f"{host.name} ended")
        return "; ".join(parts)

    def _explain(self, agent: Agent) -> str:
        pending = agent.pending
        if pending is None:
            return f"{agent.name} has not started"
        if pending.waits_for is not None:
            return f"{agent.name} waits for {pending.waits_for()}"
        if not pending.addresses:
            return f"{agent.name} is at {pending.action}"
        address = pending.addresses[0]
        allocation = self._machine.memory.find(address)
        place = allocation.place(address) if allocation is not None else hex(address)
        value = pending.value() if pending.value is not None else None
        last = self._machine.last_writes.get(address, "nobody")
        return f"{agent.name} polls {place} (value {value}, last written by {last}) at {pending.site}"
