"""What threads are about to do in an execution that is drawn, for strategies."""

from __future__ import annotations

from collections import Counter

from .history import Histories
from .layout import (
    AT_EVENTS,
    AT_SEQUENCE,
    AT_THREADS,
    BEFORE,
    FRAME,
    HEADER,
    ISSUED,
    KIND,
    LAST,
    LOCATION,
    PENDING,
    RECORD,
    SIZE,
    STATE_NOW,
    THREAD,
    THREAD_RECORD,
    TOP,
    WRITE,
    Array,
)
from .operations import Barrier, Fence, Load, Location, Operation
from .pilot import Pilot, number_teams
from .program import Program
from .strategies import Turn
from .traces import Traces


def list_turns(memory: Array, histories: Histories) -> list[Turn] | None:
    """What each thread would do next in the top frame; None while an update is half done."""
    frame = HEADER + int(memory[TOP] * memory[FRAME])
    turns = []
    for thread in range(len(histories.program.threads)):
        there = frame + int(memory[AT_THREADS]) + THREAD_RECORD * thread
        if memory[there + PENDING]:
            return None
        state, issued = histories.states[memory[there + STATE_NOW]], int(memory[there + ISSUED])
        waiting = [operation for lane, operation in enumerate(state.operations) if not issued >> lane & 1]
        place = _count_events(memory, frame, int(memory[there + LAST]))
        operation = waiting[0] if waiting else None
        turns.append(Turn(thread, place, _locate(operation), operation is not None and not isinstance(operation, Load)))
    return turns


def find_last(memory: Array, histories: Histories) -> Turn | None:
    """What was done last in the top frame."""
    frame = HEADER + int(memory[TOP] * memory[FRAME])
    size = int(memory[frame + SIZE])
    if size == 0:
        return None
    event = int(memory[frame + memory[AT_SEQUENCE] + size - 1])
    here = frame + int(memory[AT_EVENTS] + event * memory[RECORD])
    location = histories.locations.items[memory[here + LOCATION]] if memory[here + KIND] <= WRITE else None
    return Turn(int(memory[here + THREAD]), size, location, bool(memory[here + KIND] == WRITE))


def _count_events(memory: Array, frame: int, event: int) -> int:
    """Events of a thread up to its last one."""
    count = 0
    while event >= 0:
        count += 1
        event = int(memory[frame + memory[AT_EVENTS] + event * memory[RECORD] + BEFORE])
    return count


def _locate(operation: Operation | None) -> Location | None:
    """What an operation accesses."""
    return None if operation is None or isinstance(operation, Fence | Barrier) else operation.location


def count_accesses(program: Program) -> list[dict[Location, int]]:
    """How often each thread accesses each location in one execution."""
    pilot = Pilot(Traces(program), number_teams(program))
    return [
        Counter(
            location
            for node, _ in zip(path, values, strict=False)
            for operation in node.operations
            if (location := _locate(operation)) is not None
        )
        for path, values in zip(pilot.paths, pilot.values, strict=True)
    ]
