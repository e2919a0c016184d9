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
    "row_counts": 1, "owner_rows": 0,
}  # fmt: skip
CONTRACTS = ("order", "set")
IMPLEMENTATIONS = ("auto", "cutedsl", "triton")
LAUNCHES = ("auto", "fused", "separate")
FAULTS = ("none", "fewer-rows", "dead", "one-fewer", "rendezvous", "geometry")


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
            another k).
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


def parse_scenario(text: str) -> Scenario:
    """Return the scenario that ``Scenario.text`` wrote.

    Raises:
        InputError: A part is not ``field=value``, or the value does not fit the field.
    """
    return parse_fields(Scenario, text)
