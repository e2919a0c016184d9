"""Which final states a litmus program may end in under a memory model, and whether its condition holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
    search = CandidateSearch(program, limits)
    try:
        found = frozenset(_list_outcomes(program, model, search))
    except TimeLimitError:
        raise SimulationError(
            "outcomes", limit=f"took over {limits.seconds:g} s", remedy="allow more seconds"
        ) from None
    if search.bounded:
        what = f"a loop of {program.name or 'the program'}"
        raise SimulationError(what, limit=f"ran over {limits.iterations} times", remedy="allow more iterations")
    return found


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
    search = CandidateSearch(program, limits, registers_in(condition))
    try:
        for outcome in _list_outcomes(program, model, search):
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


def _list_outcomes(program: Program, model: str, search: CandidateSearch) -> Iterator[Outcome]:
    """Final states, each at least once."""
    if model not in _CONSISTENT:
        raise InputError("model", value=model, limit=f"must be one of {', '.join(MODELS)}", remedy="name one of them")
    seen: set[Outcome] = set()
    for group in _group(search):
        for outcome in _outcomes_of(program, model, group):
            if outcome not in seen:
                seen.add(outcome)
                yield outcome


def _group(search: CandidateSearch) -> Iterator[list[Candidate]]:
    """Candidates of the same events together: few at first, so that a witness shows early."""
    groups: dict[object, list[Candidate]] = {}
    waiting, batch = 0, _FIRST_BATCH
    for candidate in search:
        shape = tuple(replace(event, value=0, exists=1) for event in candidate.events)
        groups.setdefault(shape, []).append(candidate)
        waiting += 1
        if waiting >= batch:
            yield from groups.values()
            groups, waiting, batch = {}, 0, min(2 * batch, _LARGEST_BATCH)
    yield from groups.values()


def _outcomes_of(program: Program, model: str, group: list[Candidate]) -> Iterator[Outcome]:
    """Final states of candidates of the same events."""
    events = group[0].events
    reads_from = np.zeros((len(group), len(events), len(events)), bool)
    for index, candidate in enumerate(group):
        for read, write in candidate.reads_from.items():
            reads_from[index, write, read] = True
    for meetings in list_meetings(program, events):
        batch = _CONSISTENT[model](Skeleton(program, events, meetings), reads_from)
        for owner, coherence in zip(batch.owner, batch.coherence, strict=True):
            yield from _final_states(program, group[owner], coherence)


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
