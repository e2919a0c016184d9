"""Scenarios: one merge problem on simulated ranks, as one line of text.

A scenario names everything about an execution but the schedule, so that a
scenario and a schedule replay it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiebreak.errors import InputError

from .case import Recipe
from .text import parse_fields

TRANSPORTS = ("auto", "symmetric", "all-gather")
DISCIPLINES = ("alternating", "acknowledged")
MODES = ("eager", "graph")
LEAST = {
    "ranks": 1, "interleave": 1, "rows": 0, "k": 1, "local": 1, "length": 1, "epochs": 1, "residency": 1, "skew": 0,
    "row_counts": 1, "owner_rows": 0, "fault_rank": 0, "fault_step": 0,
}  # fmt: skip
CONTRACTS = ("order", "set")
IMPLEMENTATIONS = ("auto", "cutedsl", "triton")
LAUNCHES = ("auto", "fused", "separate")
STEP_FAULTS = ("dies", "late", "stalled")
FAULTS = ("none", "fewer-rows", "dead", "one-fewer", "rendezvous", "geometry", "skips", *STEP_FAULTS)


@dataclass(frozen=True, kw_only=True)
class Scenario(Recipe):
    """A recipe and how to run it.

    Attributes:
        transport: ``symmetric`` (device flags), ``all-gather`` (the fallback), or
            ``auto`` (flags where every rank gets symmetric memory, nothing for one rank).
        discipline: How inbox slots are reused, ``alternating`` or ``acknowledged``.
        lowering: Lowering profile of the simulated compiler.
        mode: ``eager`` launches every epoch; ``graph`` captures once and replays.
        fault: What goes wrong on the last rank: ``none``; ``fewer-rows`` (it
            merges one row fewer in the last epoch); ``dead`` (it stops before the
            last epoch); ``one-fewer`` (it takes part in one merge fewer and goes
            on); ``rendezvous`` (its rendezvous fails); ``geometry`` (it asks for
            another k).  Or on any rank: ``skips`` (it leaves out one of its merges), and on
            simulated ranks ``dies``, ``late`` and ``stalled``, see ``sim.faults``.
        fault_rank: Rank on which any of the latter goes wrong.
        fault_step: Merge that it leaves out, or step of that rank before which it dies or waits.
        epoch: Epoch that the device counters start from.
        residency: Programs of one device that can run at a time.
        data_points: Whether plain accesses to shared memory are scheduling points.
        skew: Longest time in microseconds by which a real GPU holds a rank back before a
            merge; every rank and merge draws its own.  Simulated ranks have schedules for that.
        implementation: Selection kernel, ``cutedsl`` or ``triton``; ``auto`` leaves it to the device.
        launches: Whether a merge is one kernel (``fused``) or one kernel per step
            (``separate``); ``auto`` fuses where that is possible, which it is not on
            simulated ranks: there ``fused`` is an error.
        owner_rows: Rows from which a merge is owner-sharded, 0 for never.
    """

    transport: str = "auto"
    discipline: str = "alternating"
    lowering: str = "triton-3.6"
    mode: str = "eager"
    fault: str = "none"
    fault_rank: int = 0
    fault_step: int = 0
    epoch: int = 0
    residency: int = 132
    data_points: bool = True
    skew: int = 0
    implementation: str = "auto"
    launches: str = "auto"
    owner_rows: int = 512

    @property
    def form(self) -> str:
        """Last part of the names of the backends that the transport and the discipline belong to."""
        return "all-gather" if self.transport == "all-gather" else self.discipline

    @property
    def backend(self) -> str:
        """Name of the simulated backend that the transport and the discipline belong to."""
        return f"sim:{self.form}"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("transport", TRANSPORTS),
            ("discipline", DISCIPLINES),
            ("mode", MODES),
            ("fault", FAULTS),
            ("contract", CONTRACTS),
            ("implementation", IMPLEMENTATIONS),
            ("launches", LAUNCHES),
        ):
            if getattr(self, name) not in allowed:
                raise InputError(
                    name, value=getattr(self, name), limit=f"one of {', '.join(allowed)}", remedy="name one of them"
                )
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise InputError(
                    name, value=getattr(self, name), limit=f"at least {least}", remedy="choose a larger one"
                )
        if self.row_counts > self.rows + 1:
            raise InputError(
                "row_counts", value=self.row_counts, limit=f"at most {self.rows + 1}", remedy="merge more rows"
            )
        if self.fault != "none" and self.ranks < 2:
            raise InputError("fault", value=self.fault, limit="needs a second rank", remedy="use 2 ranks or more")
        self._check_place_of_fault()

    def _check_place_of_fault(self) -> None:
        """Check that the fault has a place exactly if it can have one."""
        placed = self.fault in (*STEP_FAULTS, "skips")
        if not placed and (self.fault_rank or self.fault_step):
            limit = f"fault {self.fault} has no rank and no step of its own"
            raise InputError("fault_rank or fault_step", limit=limit, remedy="leave it out, or name another fault")
        for name, value, end in (
            ("fault_rank", self.fault_rank, self.ranks),
            ("fault_step", self.fault_step, self.epochs if self.fault == "skips" else None),
        ):
            if placed and end is not None and value >= end:
                raise InputError(name, value=value, limit=f"must be below {end}", remedy="choose a smaller one")


def parse_scenario(text: str) -> Scenario:
    """Return the scenario that ``Scenario.text`` wrote.

    Raises:
        InputError: A part is not ``field=value``, or the value does not fit the field.
    """
    return parse_fields(Scenario, text)
