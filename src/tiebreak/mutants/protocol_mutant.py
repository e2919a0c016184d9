"""What a mutant of a protocol is: a correct protocol, one change, and how the explorer must see it fail."""

from __future__ import annotations

from dataclasses import dataclass

from tiebreak.sim.protocols.protocol import Protocol

RACE, WRONG = "race", "assertion"
LOST, NEVER = "lost signal", "signal never sent"
DEADLOCK, LIVELOCK, STARVED = "deadlock", "livelock", "starvation by residency"

ENDLESS = 100_000
"""More blocks of operations than a thread of a protocol issues."""


@dataclass(frozen=True, kw_only=True)
class ProtocolMutant:
    """A protocol with one rule broken.

    Attributes:
        name: Name on the command line, with that of the protocol before it.
        protocol: The correct one.
        changed: The broken one.
        rule: The rule that it breaks.
        source: Where the same mistake was made in public.
        failures: Kinds of failure of which one must be found: a property, or of those that concern progress the kind
            that the message begins with.
        steps: Blocks of operations after which a thread is cut short.
    """

    name: str
    protocol: Protocol
    changed: Protocol
    rule: str
    source: str
    failures: tuple[str, ...]
    steps: int = ENDLESS

    @property
    def title(self) -> str:
        """Protocol and name."""
        return f"{self.protocol.name}/{self.name}"
