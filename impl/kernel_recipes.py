"""The CuTeDSL kernels that are built ahead of time.

The number of kernels is a product of what a selector is specialised for, most
of which nobody calls.  These are built:

* for the shapes of the tables that hold 2048 candidates or more, and for
  streamed rows, with the default preset, from one buffer, read in pairs: every
  output;
* for the shapes of 4096 candidates or more, with one of these instead: an
  exchange's inbox, or sources of an all-gather, with and without an exchange,
  or of peers: by position, and the 2048 best in order;
* for the same shapes, with another preset, or without pairs: the 2048 best in
  order;
* merges in one launch of 2, 4 and 8 ranks that offer as many candidates as are
  selected, 512, 1024 or 2048, with the default preset: every output.

What else a call needs is compiled at its first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from .fused import merge_recipe, merge_specialization
from .geometry import Geometry, SelectionContract
from .kernel_binary import KernelRecipe
from .policy import POLICIES
from .selector import selector_recipe
from .selector_choice import FEW_ROWS, MANY_ROWS, STREAMED
from .specialization import SelectorSpecialization

SMALLEST_CAPACITY, SMALLEST_VARIED_CAPACITY = 2048, 4096
SLOTS = (512, 1024, 2048, 4096)
BY_POSITION: dict[str, Any] = {"contract": "set", "slots": 0}
BEST_2048: dict[str, Any] = {"contract": "order", "slots": 2048}
SOURCES: tuple[dict[str, Any], ...] = (
    {"stateful": True},
    {"sources": "strided"},
    {"sources": "strided", "stateful": True},
    {"sources": "peers"},
)
MERGE_WORLD_SIZES, MERGE_LENGTHS = (2, 4, 8), (512, 1024, 2048)


def list_recipes(architecture: str) -> list[KernelRecipe]:
    """Return how every kernel is made for one architecture, such as ``sm_90a``."""
    selectors = [selector_recipe(specialization, architecture) for specialization in standard_specializations()]
    return selectors + [merge_recipe(specialization, architecture) for specialization in standard_merges()]


def list_representatives(architecture: str) -> list[KernelRecipe]:
    """Return how a few kernels are made.

    Selectors by position of 4096 candidates of few rows, and of 8192 and 16384 of
    many; the 2048 best in order of 4096 and 16384 candidates; a streamed one by
    position; and the merges of the 2048 best of 2 ranks: few rows in order, many
    by position.
    """
    sorting = [FEW_ROWS["order"][-3], FEW_ROWS["order"][-1]]
    chosen = [replace(shape, **BEST_2048) for shape in sorting]
    by_position = [FEW_ROWS["set"][-3], *MANY_ROWS["set"][-2:]]
    chosen += [replace(shape, **BY_POSITION) for shape in by_position]
    selectors = [selector_recipe(each, architecture) for each in (*chosen, replace(STREAMED, **BY_POSITION))]
    merges = (_specialize_merge(2, 2048, "order", False), _specialize_merge(2, 2048, "set", True))
    return selectors + [merge_recipe(each, architecture) for each in merges]


def list_standard_shapes(capacity: int, contract: SelectionContract) -> list[SelectorSpecialization]:
    """Return the shapes of a contract's tables that hold at least ``capacity`` candidates."""
    shapes = (*FEW_ROWS[contract], *MANY_ROWS[contract])
    return list(dict.fromkeys(shape for shape in shapes if shape.capacity >= capacity))


def standard_specializations() -> list[SelectorSpecialization]:
    """Return every selector that is built ahead of time."""
    return list(dict.fromkeys((*_list_outputs(), *_list_variations())))


def standard_merges() -> list[SelectorSpecialization]:
    """Return the selectors of all merges in one launch that are built ahead of time."""
    contracts: tuple[SelectionContract, ...] = ("set", "order")
    calls = product(MERGE_WORLD_SIZES, MERGE_LENGTHS, contracts, (False, True))
    return list(dict.fromkeys(_specialize_merge(*call) for call in calls))


def _specialize_merge(world_size: int, length: int, contract: SelectionContract, many: bool) -> SelectorSpecialization:
    """Return the selector of a merge of as many candidates of each rank as are selected.

    Args:
        world_size: Number of ranks.
        length: Candidates of each rank, and ids of a row.
        contract: Order of the output.
        many: Whether there are more rows than multiprocessors.
    """
    rows = 2 if many else 1
    geometry = Geometry(max_rows=rows, local_candidates=length, k=length, contract=contract)
    return merge_specialization(geometry, world_size, rows, multiprocessors=1)


def _list_outputs() -> Iterator[SelectorSpecialization]:
    """Yield every output of every shape, but for more slots than candidates."""
    for shape in (*list_standard_shapes(SMALLEST_CAPACITY, "set"), STREAMED):
        yield replace(shape, **BY_POSITION)
    for shape in (*list_standard_shapes(SMALLEST_CAPACITY, "order"), STREAMED):
        for slots in SLOTS:
            if shape.streamed or slots <= shape.capacity:
                yield replace(shape, contract="order", slots=slots)


def _list_variations() -> Iterator[SelectorSpecialization]:
    """Yield the other sources, presets and alignments."""
    others = list(dict.fromkeys(POLICIES.values()))[1:]
    presets: list[dict[str, Any]] = [{"nan": policy.nan, "zero": policy.zero} for policy in others]
    for shape in list_standard_shapes(SMALLEST_VARIED_CAPACITY, "set"):
        yield from (replace(shape, **sources, **BY_POSITION) for sources in SOURCES)
    for shape in list_standard_shapes(SMALLEST_VARIED_CAPACITY, "order"):
        others_in_order = (*SOURCES, *presets, {"paired": False})
        yield from (replace(shape, **other, **BEST_2048) for other in others_in_order)
