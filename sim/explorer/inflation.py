"""An execution of a program with settled locations left out, as one of the whole program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .execution import Event, EventKey, Execution
from .history import State
from .layout import ARRIVED, DEPARTED, READ, STARVED, WRITE
from .operations import Lanes, Location, Operation, Value
from .orders import Access, Ordered
from .settling import Settling, Walk


@dataclass(frozen=True)
class Inflated:
    """An execution of the whole program.

    Attributes:
        execution: The execution.
        numbers: Its number of each event of the search.
    """

    execution: Execution
    numbers: dict[int, int]


@dataclass
class _Draft:
    """An event, with the keys of others in place of their numbers.

    Attributes:
        event: What is known of it; its number is that of the search, or -1.
        source, partner: The write that it reads, if it is not the initial one; the other half of an update.
        earlier, arrivals: Writes before it; arrivals that a departure waits for.
    """

    event: Event
    source: EventKey | None = None
    partner: EventKey | None = None
    earlier: frozenset[EventKey] = frozenset()
    arrivals: frozenset[EventKey] = frozenset()

    @property
    def needs(self) -> set[EventKey]:
        """Events that come before it."""
        before = {self.source} if self.source is not None else set()
        if self.event.kind == WRITE and self.partner is not None:
            before.add(self.partner)
        return before | self.arrivals


def inflate(settling: Settling, walks: list[Walk], found: Execution, ordered: Ordered) -> Inflated:
    """Add the accesses of settled locations, and quiet barriers, to an execution of the search."""
    drafts = _draft(settling, walks, found, ordered)
    numbers = {key: number for number, key in enumerate(_arrange(drafts))}
    events = []
    for key, number in numbers.items():
        draft = drafts[key]
        source = draft.event.source
        events.append(
            replace(
                draft.event,
                number=number,
                key=key,
                source=source if draft.source is None else numbers[draft.source],
                earlier=frozenset(numbers[other] for other in draft.earlier if other in numbers),
                synchronised=frozenset(numbers[other] for other in draft.arrivals if other in numbers),
                partner=None if draft.partner is None else numbers[draft.partner],
            )
        )
    mapped = {drafts[key].event.number: number for key, number in numbers.items() if drafts[key].event.number >= 0}
    memories = tuple(_complete(settling, found, ordered))
    return Inflated(Execution(tuple(events), tuple(_state(walk) for walk in walks), memories), mapped)


def _draft(settling: Settling, walks: list[Walk], found: Execution, ordered: Ordered) -> dict[EventKey, _Draft]:
    """All events, thread by thread."""
    names = dict(_rename(walks, found))
    visible = {key: found.events[number] for number, key in names.items()}
    drafts: dict[EventKey, _Draft] = {}
    phases: dict[tuple[int, int], set[EventKey]] = defaultdict(set)
    departures: dict[EventKey, tuple[int, int]] = {}
    for walk in walks:
        for step in walk.steps:
            for lane, operation in enumerate(step.node.operations):
                here = walk.thread, step.block, lane
                departure = (walk.thread, step.block + 1, lane, DEPARTED)
                access = ordered.accesses.get(here)
                if lane in step.visible:
                    keys = [*((*here, kind) for kind in range(STARVED + 1)), departure]
                    drafts |= {key: _copy(visible[key], names) for key in keys if key in visible}
                elif access is not None:
                    drafts |= _describe(operation, access, ordered)
                else:
                    phase = settling.teams[walk.thread], step.phase
                    drafts |= {key: _Draft(_add(operation, key)) for key in ((*here, ARRIVED), departure)}
                    phases[phase].add((*here, ARRIVED))
                    departures[departure] = phase
    for departure, phase in departures.items():
        drafts[departure].arrivals = frozenset(phases[phase])
    return drafts


def _rename(walks: list[Walk], found: Execution) -> Iterator[tuple[int, EventKey]]:
    """The keys in the whole program of the events of the search, by their numbers there."""
    steps = {(walk.thread, step.low): step for walk in walks for step in walk.steps if step.visible}
    for event in found.events:
        thread, block, lane, kind = event.key
        later = kind == DEPARTED
        step = steps[thread, block - later]
        yield event.number, (thread, step.block + later, step.visible[lane], kind)


def _copy(event: Event, names: dict[int, EventKey]) -> _Draft:
    """An event of the search."""
    return _Draft(
        event,
        source=names[event.source] if event.source is not None and event.source >= 0 else None,
        partner=None if event.partner is None else names[event.partner],
        earlier=frozenset(names[number] for number in event.earlier),
        arrivals=frozenset(names[number] for number in event.synchronised),
    )


def _add(operation: Operation, key: EventKey, value: Value = None) -> Event:
    """An event that the search left out."""
    source = -1 if key[3] == READ else None
    return Event(-1, key, operation, value, source, False, frozenset(), frozenset(), None)


def _describe(operation: Operation, access: Access, ordered: Ordered) -> dict[EventKey, _Draft]:
    """Events of an access of a settled location."""
    read, write = (*access.name, READ), (*access.name, WRITE)
    drafts: dict[EventKey, _Draft] = {}
    if access.reads:
        source = ordered.sources[access.name]
        drafts[read] = _Draft(_add(operation, read, access.read), None if source is None else (*source, WRITE))
        drafts[read].partner = write if access.writes else None
    if access.writes:
        drafts[write] = _Draft(_add(operation, write, access.written), partner=read if access.reads else None)
        writes = ordered.writes[access.location]
        drafts[write].earlier = frozenset((*other.name, WRITE) for other in writes[: writes.index(access)])
    return drafts


def _arrange(drafts: dict[EventKey, _Draft]) -> list[EventKey]:
    """Keys in an order in which each event comes after what it needs."""
    blocks: dict[tuple[int, int], list[EventKey]] = defaultdict(list)
    for key in drafts:
        blocks[key[:2]].append(key)
    waiting: dict[int, list[list[EventKey]]] = defaultdict(list)
    for (thread, _), keys in blocks.items():
        waiting[thread].append(keys)
    done: dict[EventKey, None] = {}
    before = -1
    while before != len(done):
        before = len(done)
        for queue in waiting.values():
            while queue:
                ready = [key for key in queue[0] if drafts[key].needs & drafts.keys() <= done.keys()]
                done |= dict.fromkeys(ready)
                queue[0] = [key for key in queue[0] if key not in done]
                if queue[0] and not ready:
                    break
                if not queue[0]:
                    del queue[0]
    return list(done)


def _complete(settling: Settling, found: Execution, ordered: Ordered) -> Iterator[dict[Location, Value]]:
    """What memory may hold at the end."""
    settled = {
        location: writes[-1].written if writes else settling.program.initial_value(location)
        for location, writes in ordered.writes.items()
    }
    for memory in found.memories:
        yield {**settled, **memory}


def _state(walk: Walk) -> State:
    """Where a thread of the whole program is."""
    node, sent = walk.node, []
    place = node
    while place.parent is not None:
        sent.append(place.sent)
        place = place.parent
    lanes = isinstance(node.issued, Lanes)
    return State(walk.thread, tuple(reversed(sent)), node.operations, lanes, result=node.result, failure=node.failure)
