"""Backends: what runs a merge or a selection that is to be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tiebreak.verify.scenario import Scenario

Ids = npt.NDArray[np.int32]
Packed = npt.NDArray[np.int32]


@dataclass
class Outcome:
    """What one execution of a scenario gave.

    Attributes:
        outputs: Per rank, per epoch: int32 [rows, k].  A rank that did not finish has fewer epochs.
        errors: Per rank, the exception that ended its host program, or None.
        violations: (property, message) pairs that the backend itself found.
        schedule: Text that replays the execution; ``-`` where there is no schedule.
        table: Events with one column per rank, or an empty string.
        steps: Scheduled steps.
        rank_steps: Scheduled steps of each rank.
        struck: Whether a fault that strikes at a step took it away or put it off.
    """

    outputs: list[list[Ids]]
    errors: list[BaseException | None]
    violations: list[tuple[str, str]] = field(default_factory=list)
    schedule: str = "-"
    table: str = ""
    steps: int = 0
    rank_steps: list[int] = field(default_factory=list)
    struck: bool = False


def collect_results(results: Sequence[tuple[list[Ids], BaseException | None]]) -> Outcome:
    """Return the outcome of ranks that ran on their own: the outputs of each, and what it ended with."""
    errors = [error for _, error in results]
    found = [("host-error", f"rank {rank}: {error}") for rank, error in enumerate(errors) if error is not None]
    return Outcome([outputs for outputs, _ in results], errors, found)


class Backend(Protocol):
    """Runs merges of all ranks, and selections of gathered candidates."""

    name: str

    def select(
        self,
        gathered: Packed,
        k: int,
        preset: str,
        arrangement: str,
        contract: str = "order",
        implementation: str = "auto",
    ) -> Ids:
        """Select from gathered candidates.

        Args:
            gathered: int32 [rows, candidates, 2] (``row-major``) or
                [world size, rows, candidates per rank, 2] (``rank-major`` and ``peers``).
            k: Slots per row.
            preset: Order preset.
            arrangement: ``row-major``, ``rank-major`` or ``peers`` (a table of per-rank buffers).
            contract: ``order`` (best first) or ``set`` (the same ids in the order of their
                candidates), -1 behind.
            implementation: Selection kernel, ``cutedsl`` or ``triton``; ``auto`` leaves it to the device.
        """

    def localise(self, ids: Ids, rank: int, world_size: int, interleave: int) -> tuple[Ids, Ids]:
        """Return the local positions of the ids that a rank owns, -1 behind, and how many there are per row."""

    def run(self, scenario: Scenario, schedule: str) -> Outcome:
        """Run all merges of a scenario on all ranks, under one schedule."""
