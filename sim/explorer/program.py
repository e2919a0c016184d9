"""Programs: threads that issue operations, and where each of them runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tiebreak.errors import InputError

from .operations import Lanes, Location, Operation, Value

if TYPE_CHECKING:
    from .execution import Execution

MAXIMUM_LANES = 62
"""Operations that may be unordered at once: their states are bits of one word."""

Body = Callable[[], Generator[Operation | Lanes, Any, Any]]
"""A thread: yields operations, is sent what each of them read (a tuple for lanes), and returns its result."""


@dataclass(frozen=True)
class Thread:
    """One thread.

    Attributes:
        body: Makes a fresh run of the thread.  Deterministic: what it yields
            next depends only on the values that it was sent.
        name: For people.
        cta: CTA on its GPU.
        gpu: GPU, which is a rank's device.
        team: Threads of one team take part in the same barriers, all of them
            and in one order; None for a thread of which that is not known.
    """

    body: Body
    name: str = ""
    cta: int = 0
    gpu: int = 0
    team: Hashable | None = None


Renaming = Callable[[Mapping[int, int], Any], Any]
"""What a location or a value becomes when threads are permuted: of each thread the one in whose place it comes."""


def keep(places: Mapping[int, int], thing: Any) -> Any:
    """The renaming that renames nothing."""
    return thing


@dataclass(frozen=True)
class Symmetry:
    """Threads that may be permuted, as the author of a program states; ``symmetry`` checks it.

    Attributes:
        threads: Their numbers.
        rename_location: What locations become.
        rename_value: What values become.
    """

    threads: tuple[int, ...]
    rename_location: Renaming = keep
    rename_value: Renaming = keep


@dataclass(frozen=True)
class Program:
    """Threads over one memory.

    Attributes:
        threads: At least one.
        initial: Values that locations start with; 0 where none is named.
        name: For people.
        confirm: Called with what makes an execution of each class, and whether
            it is complete and right.  Raises ``UnsettledError`` if threads
            left out what they must not, which they then do no more.
        symmetry: Which threads may be permuted.
    """

    threads: tuple[Thread, ...]
    initial: Mapping[Location, Value] = field(default_factory=dict)
    name: str = "program"
    confirm: Callable[[Callable[[], Execution], bool], None] | None = None
    symmetry: Symmetry | None = None

    def __post_init__(self) -> None:
        if not self.threads:
            raise InputError("threads", value=self.threads, limit="a program has at least one")

    def initial_value(self, location: Location) -> Value:
        """Value of a location before anybody writes it."""
        return self.initial.get(location, 0)


def parallel(
    name: str, *bodies: Body, initial: Mapping[Location, Value] | None = None, symmetry: Symmetry | None = None
) -> Program:
    """A program whose threads run on a GPU each."""
    threads = tuple(Thread(body, f"T{index}", gpu=index) for index, body in enumerate(bodies))
    return Program(threads, initial or {}, name, symmetry=symmetry)
