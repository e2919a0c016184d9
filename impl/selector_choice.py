"""Which selector serves a call: what the tables hold, and what limits them.

A row that fills its CTA's registers is read once; any other is read again in
every pass, so the best selector for a row is the one that the row fills.  What
every warp does for the row as a whole favours few warps with many candidates
each; with many rows several CTAs of a multiprocessor overlap what they wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from .geometry import SelectionContract
from .kernel_binary import SHARED_LIMIT
from .policy import Policy
from .specialization import CANDIDATES_PER_VECTOR, SelectorSpecialization

Shape = SelectorSpecialization
"""A selector as far as its size goes; the call says the rest."""

FEW_SMALL = (
    Shape(threads=128, vectors=1),
    Shape(threads=256, vectors=1),
    Shape(threads=512, vectors=1),
    Shape(threads=512, vectors=2),
)
MANY_SMALL = (
    Shape(threads=128, vectors=1, minimum_ctas=8),
    Shape(threads=128, vectors=2, minimum_ctas=8),
    Shape(threads=128, vectors=4, minimum_ctas=8),
    Shape(threads=256, vectors=4, minimum_ctas=4),
)

FEW_ROWS: Mapping[SelectionContract, tuple[Shape, ...]] = MappingProxyType(
    {
        "set": (
            *FEW_SMALL,
            Shape(threads=512, vectors=4),
            Shape(threads=512, vectors=8),
            Shape(threads=512, vectors=16),
        ),
        "order": (
            *FEW_SMALL,
            Shape(threads=1024, vectors=2),
            Shape(threads=1024, vectors=4),
            Shape(threads=1024, vectors=8),
        ),
    }
)
"""Shapes for at most as many rows as there are multiprocessors, by capacity: 256 to 16384.

Sorting needs bins, of which a CTA has four per thread.
"""

MANY_ROWS: Mapping[SelectionContract, tuple[Shape, ...]] = MappingProxyType(
    {
        "set": (
            *MANY_SMALL,
            Shape(threads=256, vectors=8, minimum_ctas=3),
            Shape(threads=256, vectors=16, minimum_ctas=2),
            Shape(threads=512, vectors=16),
        ),
        "order": (
            *MANY_SMALL,
            Shape(threads=512, vectors=4, minimum_ctas=2),
            Shape(threads=512, vectors=8, minimum_ctas=2),
            Shape(threads=1024, vectors=8),
        ),
    }
)
"""Shapes for more rows, by capacity: 256 to 16384."""

STREAMED = Shape(threads=512, vectors=8, streamed=True)
"""Shape for any number of candidates."""

MOST_VECTORS = 8
"""Vectors of a thread in shapes outside the tables."""

FEW_ROWS_THREADS, MANY_ROWS_THREADS = (1024, 512, 256, 128), (512, 256, 128, 1024)
"""Sizes of a CTA outside the tables, preferred first."""

RESIDENT_THREADS = 1024
"""Threads of a multiprocessor that share its registers, outside the tables and with more rows."""

SMALLEST_SLOTS = 256
LARGEST_ROW = 2**30
"""Most candidates of a row: positions are int32, and those of the last tile go beyond the row."""


@lru_cache(maxsize=4096)
def choose_specialization(
    *,
    rows: int,
    count: int,
    k: int,
    contract: SelectionContract,
    policy: Policy,
    multiprocessors: int,
    sources: str = "one",
    source_candidates: int = 0,
    paired: bool = False,
    stateful: bool = False,
) -> SelectorSpecialization:
    """Return the selector for a call that has passed ``check_selection``.

    Args:
        rows: Rows, at least 1.
        count: Candidates of a row, at least 1.
        k: Ids of a row.
        contract: Order of the output.
        policy: Total order.
        multiprocessors: Multiprocessors of the device.
        sources: How candidates are found.
        source_candidates: Candidates of a row from one source.
        paired: Whether candidates can be read two at a time.
        stateful: Whether an exchange's epoch chooses the inbox slot.
    """
    served: dict[str, Any] = {
        "contract": contract,
        "slots": count_slots(min(k, count)) if contract == "order" else 0,
        "nan": policy.nan,
        "zero": policy.zero,
        "paired": paired,
        "sources": sources,
        "stateful": stateful,
    }
    # The reciprocal that finds a candidate's source has no word for one candidate per source; a streamed row divides.
    shapes = () if sources != "one" and source_candidates == 1 else list_shapes(count, rows > multiprocessors, contract)
    choices = (replace(shape, **served) for shape in shapes)
    fitting = (choice for choice in choices if choice.shared_bytes <= SHARED_LIMIT)
    return next(fitting, replace(STREAMED, **served))


def count_slots(selected: int) -> int:
    """Return the slots in which so many candidates are sorted: a power of two."""
    return max(SMALLEST_SLOTS, 1 << (selected - 1).bit_length())


def list_shapes(count: int, many: bool, contract: SelectionContract) -> Iterator[SelectorSpecialization]:
    """Yield the shapes that hold ``count`` candidates, preferred first: those that they fill, then by capacity."""
    table = (MANY_ROWS if many else FEW_ROWS)[contract]
    yield from (shape for shape in table if shape.capacity == count)
    for threads in MANY_ROWS_THREADS if many else FEW_ROWS_THREADS:
        vectors, rest = divmod(count, threads * CANDIDATES_PER_VECTOR)
        if rest == 0 and 1 <= vectors <= MOST_VECTORS:
            ctas = max(1, RESIDENT_THREADS // threads) if many else 1
            yield SelectorSpecialization(threads=threads, vectors=vectors, minimum_ctas=ctas)
    yield from (shape for shape in table if shape.capacity > count)
