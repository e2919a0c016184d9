"""What an exploration concludes, and how far that goes."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """Kinds of conclusion; only ``PROVED`` may be called exhaustive."""

    PROVED = "PROVED"
    """All classes of executions were seen, no bound was hit, and none breaks a property."""
    BOUNDED = "BOUNDED"
    """Likewise, but threads were cut short after so many steps."""
    SAMPLED = "SAMPLED"
    """None of so many executions drawn at random breaks a property."""
    FAILED = "FAILED"
    """An execution breaks a property."""
    UNKNOWN = "UNKNOWN"
    """The exploration did not come to an end."""
    UNSUPPORTED = "UNSUPPORTED"
    """The program does something that has no meaning here."""


@dataclass(frozen=True)
class Conclusion:
    """A verdict with what it depends on.

    Attributes:
        verdict: Kind of conclusion.
        detail: The bound, the number of samples, the reason or the operation.
    """

    verdict: Verdict
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.verdict.value}({self.detail})" if self.detail else self.verdict.value


@dataclass(frozen=True)
class Counts:
    """What an exploration counted.

    Attributes:
        complete: Classes in which every thread ends.
        stuck: Classes in which a thread waits for ever.
        cut: Classes in which a thread was cut short.
        blocked: Executions that were explored and led to no class.
        redundant: Classes that had been seen before, where that is compared.
        rejected: Steps that the model forbids, taken back at once.
        steps: Steps of the search.
        runs: Times that a thread of the program was run.
        seconds: Time it took.
    """

    complete: int
    stuck: int
    cut: int
    blocked: int
    redundant: int
    rejected: int
    steps: int
    runs: int
    seconds: float

    @property
    def classes(self) -> int:
        """Classes that were seen."""
        return self.complete + self.stuck + self.cut
