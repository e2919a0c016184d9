"""Which final states a litmus program may end in under a memory model, and whether its condition holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias, get_args

import numpy as np

from tiebreak.errors import InputError, SimulationError, UnsupportedOperationError
from tiebreak.sim.litmus import ptx, rc11, sc
from tiebreak.sim.litmus.barriers import list_meetings
from tiebreak.sim.litmus.candidates import Candidate, CandidateSearch, Limits, TimeLimitError, locations_of
from tiebreak.sim.litmus.coherence import Batch
from tiebreak.sim.litmus.conditions import holds, registers_in
from tiebreak.sim.litmus.program import Address, Program, Value
from tiebreak.sim.litmus.relations import Relation
from tiebreak.sim.litmus.skeleton import Skeleton
from tiebreak.sim.litmus.threads import Event

Model: TypeAlias = Literal["sc", "rc11", "ptx"]

MODELS: tuple[Model, ...] = get_args(Model)

Outcome: TypeAlias = tuple[tuple[str, Value], ...]
"""A final state: ``("P0:r1", 1)`` for registers and ``("x", 1)`` for locations, sorted by name."""

_CONSISTENT: dict[str, Callable[[Skeleton, Relation], Batch]] = {
    "sc": sc.find_consistent,
    "rc11": rc11.find_consistent,
    "ptx": ptx.find_consistent,
}

DEFAULT_LIMITS = Limits()

_FIRST_BATCH, _LARGEST_BATCH = 8, 512


@dataclass(frozen=True)
class Verdict:
    """What is known of a condition.

    Attributes:
        holds: Whether it holds as written; None if that is not known.
        verdict: PROVED, FAILED, BOUNDED(k), UNKNOWN(reason) or UNSUPPORTED(operation).
        witness: A final state that decides it, or None.
    """

    holds: bool | None
    verdict: str
    witness: Outcome | None = None


def outcomes(program: Program, model: str = "ptx", limits: Limits = DEFAULT_LIMITS) -> frozenset[Outcome]:
    """Every final state that a program may end in.

    Args:
        program: The program; its condition plays no part.
        model: ``sc``, ``rc11`` or ``ptx``.
        limits: What the search may cost.

    Returns:
        Final states; executions in which a thread never ends have none.

    Raises:
        InputError: There is no such model.
        SimulationError: A limit was hit, so that final states may be missing.
        UnsupportedOperationError: The program does something that the model does not define.
    """
    batches = _all_batches(program, model, limits)
    return frozenset(outcome for group, batch in batches for outcome in _outcomes_of(program, group, batch))


def count_executions(program: Program, model: str = "rc11", limits: Limits = DEFAULT_LIMITS) -> int:
    """Count the execution graphs of a program: different events, reads-from or coherence orders.

    Under ``sc`` and ``rc11`` coherence is total per location; this is what stateless model checkers count.  Under
    ``ptx`` only what is forced of it counts, once for every order of the ``fence.sc`` operations.

    Args:
        program: The program.
        model: ``sc``, ``rc11`` or ``ptx``.
        limits: What the search may cost.

    Raises:
        InputError: There is no such model.
        SimulationError: A limit was hit.
    """
    return sum(len(batch) for _, batch in _all_batches(program, model, limits))


def decide(program: Program, model: str = "ptx", limits: Limits = DEFAULT_LIMITS) -> Verdict:
    """Say whether a program's condition holds.

    Args:
        program: A program with a condition.
        model: ``sc``, ``rc11`` or ``ptx``.
        limits: What the search may cost.

    Raises:
        InputError: There is no such model, or no condition.
    """
    condition = program.condition
    if condition is None:
        raise InputError(
            "condition", value=None, limit="is missing", remedy="end the program with exists, ~exists or forall"
        )
    sought = condition.quantifier != "forall"
    search = _make_search(program, model, limits, registers_in(condition))
    try:
        for group, batch in _list_batches(program, model, search):
            for outcome in _outcomes_of(program, group, batch):
                state = dict(outcome)
                counts = condition.filter is None or holds(condition.filter, state)
                if counts and holds(condition.formula, state) == sought:
                    proved = condition.quantifier == "exists"
                    return Verdict(proved, "PROVED" if proved else "FAILED", outcome)
    except TimeLimitError:
        return Verdict(None, f"UNKNOWN(no answer within {limits.seconds:g} s)")
    except UnsupportedOperationError as error:
        return Verdict(None, f"UNSUPPORTED({error.operation})")
    unseen = condition.quantifier != "exists"
    if search.bounded:
        return Verdict(unseen, f"BOUNDED({limits.iterations})")
    return Verdict(unseen, "PROVED" if unseen else "FAILED")


def _make_search(
    program: Program, model: str, limits: Limits, observed: dict[str, frozenset[str]] | None = None
) -> CandidateSearch:
    """A search that drops what the model forbids before all reads are answered.

    The axioms forbid more with every event, so what they forbid of a part they forbid of the whole.  Barriers are left
    out of the part: what they order is not known before all have arrived.
    """
    if model not in _CONSISTENT:
        raise InputError("model", value=model, limit=f"must be one of {', '.join(MODELS)}", remedy="name one of them")

    def accept(events: Sequence[Event], choices: Sequence[Mapping[int, int]]) -> Collection[int]:
        skeleton = Skeleton(program, events, np.zeros((len(events), len(events)), bool))
        batch = _CONSISTENT[model](skeleton, _as_relation(choices, len(events)))
        return {int(owner) for owner in batch.owner}

    return CandidateSearch(program, limits, observed, accept)


def _as_relation(choices: Sequence[Mapping[int, int]], size: int) -> Relation:
    """Reads-from of several executions as relations: [executions, events, events]."""
    reads_from = np.zeros((len(choices), size, size), bool)
    for index, choice in enumerate(choices):
        for read, write in choice.items():
            reads_from[index, write, read] = True
    return reads_from


def _all_batches(program: Program, model: str, limits: Limits) -> Iterator[tuple[list[Candidate], Batch]]:
    """What ``_list_batches`` lists; an error if that is not all there is."""
    search = _make_search(program, model, limits)
    what = program.name or "the program"
    try:
        yield from _list_batches(program, model, search)
    except TimeLimitError:
        limit = f"took over {limits.seconds:g} s"
        raise SimulationError(what, limit=limit, remedy="allow more seconds") from None
    if search.bounded:
        limit = f"has a loop that ran over {limits.iterations} times"
        raise SimulationError(what, limit=limit, remedy="allow more iterations")


def _list_batches(program: Program, model: str, search: CandidateSearch) -> Iterator[tuple[list[Candidate], Batch]]:
    """Candidates of the same events, and their consistent executions."""
    for group in _group(search):
        events = group[0].events
        reads_from = _as_relation([candidate.reads_from for candidate in group], len(events))
        for meetings in list_meetings(program, events):
            yield group, _CONSISTENT[model](Skeleton(program, events, meetings), reads_from)


def _group(search: CandidateSearch) -> Iterator[list[Candidate]]:
    """Candidates of the same events together: few at first, so that a witness shows early."""
    groups: dict[object, list[Candidate]] = {}
    waiting, batch = 0, _FIRST_BATCH
    for candidate in search:
        shape = tuple(event.shape for event in candidate.events)
        groups.setdefault(shape, []).append(candidate)
        waiting += 1
        if waiting >= batch:
            yield from groups.values()
            groups, waiting, batch = {}, 0, min(2 * batch, _LARGEST_BATCH)
    yield from groups.values()


def _outcomes_of(program: Program, group: list[Candidate], batch: Batch) -> Iterator[Outcome]:
    """Final states of executions, each once in a batch."""
    seen: set[Outcome] = set()
    for owner, coherence in zip(batch.owner, batch.coherence, strict=True):
        for outcome in _final_states(program, group[owner], coherence):
            if outcome not in seen:
                seen.add(outcome)
                yield outcome


def _final_states(program: Program, candidate: Candidate, coherence: Relation) -> Iterator[Outcome]:
    """Final states of an execution: a location holds the value of any write that no other comes after."""
    last: dict[str, set[Value]] = {name: set() for name in locations_of(program)}
    for event in candidate.events:
        if event.kind == "write" and not coherence[event.number].any():
            assert isinstance(event.address, Address)
            assert isinstance(event.value, int | Address)
            last[program.physical(event.address.location)].add(event.value)
    registers = [(f"{thread}:{name}", value) for (thread, name), value in candidate.registers.items()]
    for values in product(*last.values()):
        yield tuple(sorted([*registers, *zip(last, values, strict=True)], key=lambda entry: entry[0]))
