"""Agents: the sequential actors whose interleaving the scheduler owns.

A host program of a rank is one agent, and so is every program (CTA) of a
kernel that has started.  An agent is a greenlet that runs until its next
scheduling point, announces the operation it is about to perform, and hands
control back; it performs the operation when it is chosen next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import greenlet

from .clock import Clock
from .shadow import Party
from .trace import Site


@dataclass(frozen=True)
class Pending:
    """The operation that an agent performs when it is chosen next.

    Attributes:
        action: The operation in words.
        addresses: Addresses it touches, at most a few for polls.
        value: For an operation that may be a failed poll: a function that
            returns what a poll would read now, or None if it would change memory.
        ready: For a blocking host operation: whether it can complete now.
        waits_for: What a blocked operation waits for, in words.
    """

    action: str
    addresses: tuple[int, ...] = ()
    value: Callable[[], object | None] | None = None
    ready: Callable[[], bool] | None = None
    waits_for: Callable[[], str] | None = None
    site: Site | None = None

    @property
    def key(self) -> tuple[tuple[int, ...], Site | None]:
        """What makes two polls the same poll: the addresses and the source position."""
        return self.addresses, self.site


@dataclass
class Agent:
    """One sequential actor.

    Attributes:
        name: ``h<rank>`` for a host, ``r<rank>.p<program>`` for a program of
            stream 0, ``r<rank>.s<stream>.p<program>`` for other streams.
        rank: Rank it belongs to.
        body: What it runs; its return value is kept in ``result``.
        pending: Operation announced at the current scheduling point.
        polls: Values read by polls since the last effect, by ``Pending.key``.
        patient: Whether the agent may poll again although nothing changed.
        waited_out: Whether its last poll was one that it took for that reason.
    """

    name: str
    rank: int
    body: Callable[[], Any]
    pending: Pending | None = None
    polls: dict[tuple[tuple[int, ...], Site | None], object] = field(default_factory=dict)
    patient: bool = False
    waited_out: bool = False
    finished: bool = False
    result: Any = None
    error: BaseException | None = None
    thread: greenlet | None = None

    @property
    def enabled(self) -> bool:
        """Whether a step of this agent can change anything."""
        pending = self.pending
        if self.finished:
            return False
        if pending is None:
            return True
        if pending.ready is not None:
            return pending.ready()
        return self.patient or not self.waiting

    @property
    def waiting(self) -> bool:
        """Whether the next operation would be a poll that fails exactly as it did before."""
        pending = self.pending
        if pending is None or pending.value is None or pending.key not in self.polls:
            return False
        value = pending.value()
        return value is not None and value == self.polls[pending.key]

    def note_poll(self, key: tuple[tuple[int, ...], Site | None], value: object) -> None:
        """Remember a poll that changed nothing."""
        self.polls[key] = value
        self.waited_out = self.patient
        self.patient = False

    def note_effect(self) -> None:
        """Forget the polls: the agent did something else than polling."""
        self.polls.clear()


@dataclass
class Program:
    """A Triton program (CTA): two components, the leader thread and the other lanes.

    The leader issues scalar stores and atomics; tile operations belong to the
    lanes.  Neither knows what the other did since their last CTA barrier.
    ``launch`` counts the launches of its device.
    """

    agent: Agent
    kernel: str
    index: tuple[int, int, int]
    grid: tuple[int, int, int]
    leader: Party
    lanes: Party
    leader_clock: Clock
    lanes_clock: Clock
    launch: int = 0
    acquired: Clock = field(default_factory=Clock)
    failed: bool = False

    def synchronise(self) -> None:
        """Perform a CTA barrier: all threads know what any of them did or acquired."""
        self.leader_clock.join(self.lanes_clock)
        self.leader_clock.join(self.acquired)
        self.lanes_clock = self.leader_clock.copy()
        self.leader_clock.tick(self.leader.component)
        self.lanes_clock.tick(self.lanes.component)
        self.acquired = Clock()

    def final_clock(self) -> Clock:
        """Return what a later kernel of the stream knows."""
        self.synchronise()
        return self.leader_clock
