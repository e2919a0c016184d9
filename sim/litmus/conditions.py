"""Conditions on final states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tiebreak.sim.litmus.program import Address, Compare, Condition, Every, Formula, Not, Value
from tiebreak.sim.litmus.values import compare


def holds(formula: Formula, state: Mapping[str, Value]) -> bool:
    """Whether a formula is true of a final state; what the state does not name is 0."""
    if isinstance(formula, Compare):
        left, right = _value(formula.left, state), _value(formula.right, state)
        return compare(formula.comparison, left, right)
    if isinstance(formula, Not):
        return not holds(formula.inner, state)
    results = (holds(part, state) for part in formula.parts)
    return all(results) if isinstance(formula, Every) else any(results)


def comparisons(formula: Formula) -> Iterator[Compare]:
    """Every comparison in a formula."""
    if isinstance(formula, Compare):
        yield formula
    elif isinstance(formula, Not):
        yield from comparisons(formula.inner)
    else:
        for part in formula.parts:
            yield from comparisons(part)


def registers_in(condition: Condition) -> dict[str, frozenset[str]]:
    """Registers that a condition names, by thread."""
    names: dict[str, set[str]] = defaultdict(set)
    for side in _sides(condition):
        if isinstance(side, tuple):
            names[side[0]].add(side[1])
    return {thread: frozenset(registers) for thread, registers in names.items()}


def locations_in(condition: Condition) -> Iterator[str]:
    """Locations that a condition names."""
    for side in _sides(condition):
        if isinstance(side, str):
            yield side
        elif isinstance(side, Address):
            yield side.location


def _sides(condition: Condition) -> Iterator[tuple[str, str] | str | Value]:
    for formula in (condition.formula, condition.filter):
        if formula is not None:
            for comparison in comparisons(formula):
                yield from (comparison.left, comparison.right)


def _value(side: tuple[str, str] | str | Value, state: Mapping[str, Value]) -> Value:
    if isinstance(side, tuple):
        return state.get(":".join(side), 0)
    return state.get(side, 0) if isinstance(side, str) else side
