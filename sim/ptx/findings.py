"""What is wrong with an execution of a kernel: findings, and how to print them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from tiebreak.errors import SimulationError

from .module import Instruction, Location

FindingKind = Literal[
    "race",
    "uninitialised",
    "out-of-bounds",
    "misaligned",
    "divergent-barrier",
    "barrier-not-reached",
    "warp-mask",
    "deadlock",
    "budget",
    "trap",
]
"""What a finding is about.

``race``: conflicting accesses without an edge, or one to shared memory of a CTA that may have ended.
``uninitialised``: a read of bytes that nothing wrote. ``out-of-bounds``, ``misaligned``: an address that the
instruction may not touch. ``divergent-barrier``: threads of one warp at different barriers. ``barrier-not-reached``:
threads exited or wait elsewhere while others wait at a barrier. ``warp-mask``: a member mask that misses its caller,
or names a lane that does not take part. ``deadlock``: no thread can go on. ``budget``: more instructions than the
caller allowed. ``trap``: the kernel ended itself.
"""

WARP = 32

SHOWN_CALLS = 4
"""Positions that are printed of a chain of inlined calls."""


@dataclass(frozen=True)
class Actor:
    """A thread at one instruction.

    Attributes:
        rank: Rank whose device runs it.
        launch: Number of its launch on that device.
        cta: Number of its CTA in the launch.
        thread: Number of it in its CTA.
        instruction: What it runs.
        action: What it does there, in words: ``writes``, ``reads``, ``updates``, ``waits``.
        kernel: Name of its kernel.
    """

    rank: int
    launch: int
    cta: int
    thread: int
    instruction: Instruction
    action: str
    kernel: str = ""

    @property
    def warp(self) -> int:
        """Warp in its CTA."""
        return self.thread // WARP

    @property
    def lane(self) -> int:
        """Lane in its warp."""
        return self.thread % WARP

    @property
    def where(self) -> str:
        """The thread in words."""
        launch = f" launch {self.launch}" if self.launch else ""
        return f"rank {self.rank}{launch} CTA {self.cta} warp {self.warp} lane {self.lane} (thread {self.thread})"

    @property
    def code(self) -> str:
        """The instruction in words, with its source position."""
        source = describe_location(self.instruction.location)
        suffix = f" at {source}" if source else ""
        return f"PTX line {self.instruction.line}: {self.instruction.name}{suffix}"

    @property
    def site(self) -> str:
        """The instruction and its kernel in words."""
        return f"{self.kernel}: {self.code}" if self.kernel else self.code

    def __str__(self) -> str:
        return f"{self.where} {self.action}, {self.site}"


@dataclass(frozen=True)
class Finding:
    """Something wrong with an execution.

    Attributes:
        kind: What it is about.
        actors: The threads that it takes: two of a race, the earlier one in the PTX text first.
        place: Memory, barrier or mask in words: ``shared byte 128``.
        missing: What is missing or broken, in words: ``no bar.sync orders them``.
        replay: Command that shows it again, or an empty string.
    """

    kind: FindingKind
    actors: tuple[Actor, ...]
    place: str
    missing: str
    replay: str = field(default="", compare=False)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions that take part."""
        return tuple(actor.instruction for actor in self.actors)

    @property
    def lines(self) -> tuple[int, ...]:
        """Lines of the PTX text that take part."""
        return tuple(instruction.line for instruction in self.instructions)

    def __str__(self) -> str:
        return "\n".join(self._rows())

    def _rows(self) -> Iterator[str]:
        yield f"{self.kind}: {self.place}: {self.missing}"
        for actor in self.actors:
            yield f"  {actor.where}"
            yield f"    {actor.action}, {actor.site}"
        if self.replay:
            yield f"  replay: {self.replay}"

    def as_dict(self) -> dict[str, object]:
        """Return the finding as JSON values."""
        return {
            "kind": self.kind,
            "place": self.place,
            "missing": self.missing,
            "actors": [
                {
                    "rank": actor.rank,
                    "launch": actor.launch,
                    "cta": actor.cta,
                    "thread": actor.thread,
                    "action": actor.action,
                    "kernel": actor.kernel,
                    "line": actor.instruction.line,
                    "instruction": actor.instruction.name,
                    "source": describe_location(actor.instruction.location),
                }
                for actor in self.actors
            ],
            "replay": self.replay,
        }


class FindingError(SimulationError):
    """Raised when an execution cannot go on because of a finding.

    Attributes:
        finding: The finding.
    """

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(str(finding))


def describe_location(location: Location | None) -> str:
    """Return a source position in words: ``select.py:10``, and the next calls that it was inlined at."""
    if location is None or not location.line:
        return ""
    places = []
    while location is not None:
        places.append(f"{location.file.rsplit('/', 1)[-1]}:{location.line}")
        location = location.inlined_at
    shown = ", inlined at ".join(places[:SHOWN_CALLS])
    return f"{shown}, and {len(places) - SHOWN_CALLS} more calls" if len(places) > SHOWN_CALLS else shown
