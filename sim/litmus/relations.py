"""Binary relations over the events of many executions at once.

A relation is a Boolean array [..., events, events]; leading axes stand for different executions of the same events.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Relation: TypeAlias = NDArray[np.bool_]


def compose(*relations: Relation) -> Relation:
    """Composition of relations, from left to right."""
    result = relations[0]
    for relation in relations[1:]:
        result = np.matmul(result.astype(np.float32), relation.astype(np.float32)) > 0
    return result


def close(relation: Relation) -> Relation:
    """Transitive closure (Warshall)."""
    result = relation.copy()
    for middle in range(result.shape[-1]):
        result |= result[..., :, middle, None] & result[..., None, middle, :]
    return result


def reverse(relation: Relation) -> Relation:
    """Converse."""
    return np.swapaxes(relation, -1, -2)


def optional(relation: Relation) -> Relation:
    """Reflexive closure."""
    return relation | np.eye(relation.shape[-1], dtype=bool)


def restrict(first: NDArray[np.bool_], relation: Relation, second: NDArray[np.bool_]) -> Relation:
    """The part of a relation from events in one set [..., events] to events in another."""
    return relation & first[..., :, None] & second[..., None, :]


def is_reflexive(relation: Relation) -> NDArray[np.bool_]:
    """Whether some event is related to itself: [...]."""
    return np.asarray(np.diagonal(relation, axis1=-2, axis2=-1).any(axis=-1))


def is_cyclic(relation: Relation) -> NDArray[np.bool_]:
    """Whether a relation has a cycle: [...]."""
    return is_reflexive(close(relation))


def is_inhabited(relation: Relation) -> NDArray[np.bool_]:
    """Whether any two events are related: [...]."""
    return np.asarray(relation.any(axis=(-2, -1)))
