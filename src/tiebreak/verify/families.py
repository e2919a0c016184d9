"""Families of scenarios: what ``verify`` runs on a merging backend, and for which property.

Every family is a generator of (scenario, schedule) pairs in a fixed order, so
that a larger effort extends a smaller one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tiebreak.backends.registry import PTX, form_of, make_backend, on_ptx_machine

from .scenario import CONTRACTS, STEP_FAULTS, Scenario

Plan = Iterator[tuple[Scenario, str]]

EPOCH_ENDS = (2**31 - 2, 2**63 - 3)
"""Epochs close to where a 32-bit and a 64-bit signed counter turn over."""


PTX_STRIDES = {"quick": 48, "default": 12, "deep": 1}
"""One of so many inputs runs on the PTX machine, per effort: each takes longer there than elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much to run.

    Attributes:
        seed: Seed of all inputs and schedules.
        preset: Order preset.
        ranks: World sizes.
        rounds: How often each shape is drawn anew.
        level: Name of the effort.
        stride: One of so many inputs is run.
        offset: The first of them.
    """

    seed: int = 0
    preset: str = "ieee"
    ranks: tuple[int, ...] = (2, 3, 4)
    rounds: int = 1
    level: str = "default"
    stride: int = 1
    offset: int = 0

    def on(self, backend: str) -> Effort:
        """The effort on a backend: targets of the PTX machine share the inputs out."""
        if not on_ptx_machine(backend):
            return self
        stride = PTX_STRIDES[self.level]
        return replace(self, stride=stride, offset=PTX.index(backend) % stride)

    def keeps(self, number: int) -> bool:
        """Whether the input of that number is run."""
        return number % self.stride == self.offset


@dataclass(frozen=True)
class Family:
    """Scenarios that are judged for one property, or for all merge properties.

    Attributes:
        property: Row of the summary table; empty for the merge properties.
        meaning: The property in one sentence.
        plan: Generates the scenarios for a backend and an effort.
        flags: Whether it needs device flags, so that the fallback is left out.
        schedules: Whether it needs schedules, so that the spec is left out.
        steps: Whether it counts steps of simulated ranks, so that GPUs are left out.
    """

    property: str
    meaning: str
    plan: Callable[[str, Effort], Plan]
    flags: bool = False
    schedules: bool = False
    steps: bool = False


def base_scenario(backend: str, **fields: Any) -> Scenario:
    """Return the default scenario of a backend, with some fields changed."""
    form = form_of(backend)
    if form == "all-gather":
        return Scenario(transport="all-gather", **fields)
    return Scenario(discipline=form, **fields)


def _schedules(seed: int) -> Iterator[str]:
    """Cycle through the strategies, each with seeds of its own."""
    for number in itertools.count(seed):
        yield from (f"random:{number}", f"pct:{number}:1:3", "round-robin", f"pct:{number}:1:6")


def plan_merges(backend: str, effort: Effort) -> Plan:
    """Small merges over world sizes, score kinds and schedules, in both lowerings and under both contracts."""
    schedules = _schedules(effort.seed)
    kinds = ("ties", "special", "plateau", "equal", "random", "neighbours", "zeros")
    lowerings = itertools.cycle(("triton-3.6", "triton-3.9"))
    # Of another period than the lowerings, so that all pairs occur.
    contracts = itertools.cycle(("order", "set", "order"))
    for number in range(effort.rounds):
        for ranks, kind in itertools.product(effort.ranks, kinds):
            rows = 1 + (number + ranks) % 3
            scenario = base_scenario(
                backend,
                ranks=ranks,
                rows=rows,
                k=(1, 3, 4)[number % 3],
                local=4,
                length=(5, 12, 23)[number % 3],
                kind=kind,
                preset=effort.preset,
                seed=effort.seed + number,
                epochs=3 if ranks < 4 else 2,
                lowering=next(lowerings),
                contract=next(contracts),
                starts=number % 4 == 3,
                residency=2 if number % 5 == 4 else 132,
            )
            yield scenario, next(schedules)


def plan_owners(backend: str, effort: Effort) -> Plan:
    """Merges with and without owners in turn: rows that do not divide, ranks that own none, eager and replayed."""
    schedules = _schedules(effort.seed)
    for number, ranks in itertools.product(range(effort.rounds), [ranks for ranks in effort.ranks if ranks > 1]):
        scenario = base_scenario(
            backend,
            ranks=ranks,
            rows=ranks + 1,
            row_counts=ranks + 1,
            owner_rows=2,
            k=2,
            local=2,
            length=12,
            preset=effort.preset,
            seed=effort.seed + number,
            epochs=4 if ranks < 4 else 2,
            contract=CONTRACTS[(number + ranks // 2) % 2],
            mode="eager" if (number + ranks) % 2 else "graph",
            data_points=ranks < 3,
        )
        yield scenario, next(schedules)


def plan_layouts(backend: str, effort: Effort) -> Plan:
    """Every public world size and interleave, with empty and unequal shards."""
    for ranks, interleave in itertools.product((1, 2, 3, 4, 8), (1, 2, 4, 64)):
        length = min(2 * ranks * interleave + 1, 160)
        yield (
            base_scenario(
                backend,
                ranks=ranks,
                interleave=interleave,
                rows=2,
                k=4,
                local=4,
                length=length,
                preset=effort.preset,
                seed=effort.seed,
                epochs=1,
                data_points=False,
            ),
            "default",
        )
    yield base_scenario(backend, ranks=3, rows=0, epochs=2, seed=effort.seed, preset=effort.preset), "round-robin"
    yield base_scenario(backend, ranks=2, length=1, rows=3, seed=effort.seed, preset=effort.preset), "round-robin"
    large = base_scenario(
        backend, ranks=2, interleave=2**24, length=12, kind="equal", rows=1, seed=effort.seed, preset=effort.preset
    )
    yield large, "default"


def plan_captured(backend: str, effort: Effort) -> Plan:
    """Rows of captured indexer scores through the whole exchange."""
    schedules = _schedules(effort.seed)
    for number, ranks in itertools.product(range(max(1, effort.rounds // 3)), effort.ranks):
        scenario = base_scenario(
            backend,
            ranks=ranks,
            kind="captured",
            rows=2,
            k=512,
            local=512,
            length=4096,
            preset=effort.preset,
            seed=effort.seed + number,
            epochs=1,
            data_points=False,
        )
        yield scenario, next(schedules)


def plan_replays(backend: str, effort: Effort) -> Plan:
    """One captured graph, replayed an odd and an even number of times with fresh data."""
    schedules = _schedules(effort.seed)
    for number, ranks, epochs in itertools.product(range(effort.rounds), effort.ranks[:2], (4, 5)):
        scenario = base_scenario(
            backend,
            ranks=ranks,
            epochs=epochs,
            mode="graph",
            rows=2,
            owner_rows=2 if number % 2 else 0,
            preset=effort.preset,
            seed=effort.seed + number,
            data_points=False,
        )
        yield scenario, next(schedules)


def plan_wraps(backend: str, effort: Effort) -> Plan:
    """Counters that start just below the end of a signed 32-bit and 64-bit range."""
    schedules = _schedules(effort.seed)
    for number, (epoch, ranks) in enumerate(itertools.product(EPOCH_ENDS, effort.ranks[:2])):
        scenario = base_scenario(
            backend,
            ranks=ranks,
            epochs=5,
            epoch=epoch,
            rows=1,
            owner_rows=number % 2,
            k=2,
            local=2,
            length=8,
            preset=effort.preset,
        )
        yield scenario, next(schedules)


def plan_faults(backend: str, effort: Effort) -> Plan:
    """A rank that dies, falls short, disagrees or cannot rendezvous; it takes two to notice."""
    schedules = _schedules(effort.seed)
    for fault in ("fewer-rows", "dead", "one-fewer", "geometry", "rendezvous"):
        for ranks in [ranks for ranks in effort.ranks if ranks > 1][:2]:
            for lead in range(2):
                scenario = base_scenario(
                    backend,
                    ranks=ranks,
                    fault=fault,
                    epochs=2 + lead,
                    rows=2,
                    owner_rows=2 * lead,
                    # With fewer rows than owners need a merge in one launch has other flags: then both time out.
                    launches="separate" if fault == "fewer-rows" and lead else "auto",
                    k=2,
                    local=2,
                    length=8,
                    preset=effort.preset,
                    seed=effort.seed + lead,
                )
                yield scenario, next(schedules)


MATRIX_STRIDES = {"quick": 199, "default": 101, "deep": 1}
"""One of so many faults of the matrix is run, per effort; primes, so that all kinds and ranks are met."""


def plan_fault_matrix(backend: str, effort: Effort) -> Plan:
    """Each rank leaves out each of its merges, and dies, is late or stalls before each of its steps."""
    whole = itertools.islice(_list_fault_matrix(backend, effort), effort.seed % MATRIX_STRIDES[effort.level], None)
    yield from itertools.islice(whole, 0, None, MATRIX_STRIDES[effort.level])


def _list_fault_matrix(backend: str, effort: Effort) -> Plan:
    for ranks in [ranks for ranks in effort.ranks if 2 <= ranks <= 3]:
        for sound in _list_sound(backend, ranks, effort):
            outcome = make_backend(backend).run(sound, "default")
            for error in filter(None, outcome.errors):
                raise error
            if MATRIX_STRIDES[effort.level] == 1:
                yield sound, "default"
            yield from _list_strikes(sound, outcome.rank_steps)


def _list_sound(backend: str, ranks: int, effort: Effort) -> Iterator[Scenario]:
    """The merges that faults strike: as separate kernels with and without owners, or compiled and in one launch."""
    compiled = on_ptx_machine(backend)
    for owner_rows in (0,) if compiled else (0, 1):
        yield base_scenario(
            backend,
            ranks=ranks,
            rows=1,
            owner_rows=owner_rows,
            k=2,
            local=2,
            length=8,
            mode="graph" if (ranks + owner_rows) % 2 else "eager",
            launches="fused" if compiled else "auto",
            contract="set" if compiled else "order",
            preset=effort.preset,
            seed=effort.seed,
        )


def _list_strikes(sound: Scenario, steps: Sequence[int]) -> Plan:
    """All faults of a scenario whose ranks take so many steps."""
    for rank in range(sound.ranks):
        for epoch in range(sound.epochs):
            yield replace(sound, fault="skips", fault_rank=rank, fault_step=epoch), "default"
        for step, fault in itertools.product(range(steps[rank]), STEP_FAULTS):
            yield replace(sound, fault=fault, fault_rank=rank, fault_step=step), "default"


FAMILIES = (
    Family("", "", plan_merges),
    Family("", "", plan_owners, flags=True),
    Family(
        "public-layouts",
        "every world size and interleave in public use, empty shards, no rows, ids above 2^24",
        plan_layouts,
    ),
    Family(
        "real-input", "captured indexer scores come out of the whole exchange as of the unsharded row", plan_captured
    ),
    Family(
        "graph-replay", "a captured merge replays correctly with fresh data every time", plan_replays, schedules=True
    ),
    Family("epoch-wrap", "counters survive the turn-over of their range", plan_wraps, flags=True, schedules=True),
    Family(
        "faults-named",
        "survivors of a fault end in the error that names it, with no ids returned",
        plan_faults,
        flags=True,
        schedules=True,
    ),
    Family(
        "fault-matrix",
        "a rank dies, is late, stalls or leaves a merge out, whichever and wherever: nobody hangs, no result is wrong",
        plan_fault_matrix,
        flags=True,
        schedules=True,
        steps=True,
    ),
)
