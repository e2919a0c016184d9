"""How the barriers of a candidate execution complete, and what that orders.

Without a quorum the k-th arrivals of all threads of the CTA that name the barrier meet (PTX ISA, "Parallel
Synchronization and Communication Instructions: barrier").  With one, that many arrivals complete the barrier, and who
arrives later passes at once and is ordered after them: the reading of the public litmus suite, in which a barrier
completes once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import TypeAlias

import numpy as np

from tiebreak.errors import UnsupportedOperationError
from tiebreak.sim.litmus.program import Barrier, Program, Register
from tiebreak.sim.litmus.relations import Relation, is_cyclic
from tiebreak.sim.litmus.threads import Event

_Name: TypeAlias = tuple[object, ...]


@dataclass(frozen=True)
class _Meeting:
    """Arrivals of which some complete a barrier."""

    arrivals: tuple[Event, ...]
    completing: tuple[Event, ...]


def list_meetings(program: Program, events: Sequence[Event]) -> Iterator[Relation]:
    """What the barriers order, [events, events], in each way in which all of them complete.

    An execution in which a thread waits for ever at a barrier has none.

    Raises:
        UnsupportedOperationError: Barriers are used in a way that the models do not define.
    """
    groups: dict[_Name, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind == "barrier":
            groups[(program.threads[event.thread].placement.domain("cta"), event.barrier)].append(event)
    choices = [_complete(program, name, group) for name, group in groups.items()]
    for choice in product(*choices):
        meetings = [meeting for group in choice for meeting in group]
        if not _is_deadlocked(meetings, len(events)):
            yield _order(meetings, len(events))


def _complete(program: Program, name: _Name, group: list[Event]) -> list[list[_Meeting]]:
    """The ways in which one barrier completes: each a list of meetings; no way, if someone waits for ever."""
    if all(event.quorum is None for event in group):
        return _complete_phases(program, name, group)
    if len({event.thread for event in group}) < len(group) or len({event.quorum for event in group}) > 1:
        raise UnsupportedOperationError("barrier with a quorum that a thread reaches twice, or with several quorums")
    quorum = group[0].quorum
    if not isinstance(quorum, int) or quorum < 1:
        raise UnsupportedOperationError(f"barrier with quorum {quorum!r}")
    if len(group) < quorum:
        return [[]] if not any(event.waits for event in group) else []
    return [[_Meeting(tuple(group), completing)] for completing in combinations(group, quorum)]


def _complete_phases(program: Program, name: _Name, group: list[Event]) -> list[list[_Meeting]]:
    arrivals: dict[int, list[Event]] = defaultdict(list)
    for event in group:
        arrivals[event.thread].append(event)
    expected = {index for index in range(len(program.threads)) if _names(program, index, name)} | set(arrivals)
    meetings = []
    for phase in range(max(map(len, arrivals.values()))):
        present = tuple(arrivals[thread][phase] for thread in sorted(arrivals) if phase < len(arrivals[thread]))
        if {event.thread for event in present} >= expected or not expected:
            meetings.append(_Meeting(present, present))
        elif any(event.waits for event in present):
            return []
    return [meetings]


def _names(program: Program, index: int, name: _Name) -> bool:
    """Whether a thread of the CTA has an instruction that names this very barrier."""
    thread = program.threads[index]
    keys = [step.key for step in thread.instructions if isinstance(step, Barrier)]
    fixed = [key for key in keys if not any(isinstance(part, Register) for part in key)]
    return any((thread.placement.domain("cta"), key) == name for key in fixed)


def _order(meetings: list[_Meeting], size: int) -> Relation:
    relation = np.zeros((size, size), bool)
    for meeting in meetings:
        for first in meeting.completing:
            for second in meeting.arrivals:
                relation[first.number, second.number] = second.waits and first is not second
    return relation


def _is_deadlocked(meetings: list[_Meeting], size: int) -> bool:
    """Whether barriers wait for one another: a thread reaches one only after another one has let it go."""
    order = np.zeros((len(meetings), len(meetings)), bool)
    for earlier, later in product(range(len(meetings)), repeat=2):
        order[earlier, later] = any(
            first.waits and first.thread == second.thread and first.number < second.number
            for first in meetings[earlier].arrivals
            for second in meetings[later].completing
        )
    return bool(is_cyclic(order))
