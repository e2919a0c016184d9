"""A hash table from (what is asked, number, value) to an integer, for compiled code."""

from __future__ import annotations

import numpy as np

from .compiled import compiled, entry
from .layout import Array

EMPTY = -1
ABSENT = -(1 << 40)
"""Result of a look-up of what was never entered."""


@compiled
def _slot(keys: Array, key: int) -> int:
    """Place of a key, or the empty place where it belongs."""
    mask = len(keys) - 1
    place = ((key * 0x9E3779B1) >> 7) & mask
    while keys[place] != EMPTY and keys[place] != key:
        place = (place + 1) & mask
    return place


@compiled
def look_up(keys: Array, results: Array, kind: int, index: int, value: int) -> int:
    """What was entered, or ``ABSENT``."""
    key = (index * 3 + kind) << 31 | value
    place = _slot(keys, key)
    if keys[place] == EMPTY:
        return ABSENT
    return results[place]


@entry
def insert(keys: Array, results: Array, kind: int, index: int, value: int, result: int) -> None:
    """Enter a result; there must be room."""
    key = (index * 3 + kind) << 31 | value
    place = _slot(keys, key)
    keys[place] = key
    results[place] = result


@entry
def _refill(keys: Array, results: Array, old_keys: Array, old_results: Array) -> None:
    """Enter all of another table."""
    for index in range(len(old_keys)):
        if old_keys[index] != EMPTY:
            place = _slot(keys, old_keys[index])
            keys[place] = old_keys[index]
            results[place] = old_results[index]


def make_table(old: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
    """An empty table, or one of twice the size with the same content."""
    size = 1024 if old is None else 2 * len(old[0])
    table = np.full(size, EMPTY, np.int64), np.zeros(size, np.int64)
    if old is not None:
        _refill(*table, *old)
    return table
