"""Output in the total order: best first.

The first pass has counted the candidates of every bin, so a selected candidate
knows between which slots it belongs.  Where bins are small, it counts the
better ones of its own bin; elsewhere a bitonic network sorts everything
(Batcher, Sorting networks and their applications, 1968).
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, const_expr, range_constexpr, select_

from .candidates import WORST_WORD, each_tile, element_identity, element_word
from .cut import LARGEST_ID, precedes
from .histogram import first_bin
from .instructions import (
    load_shared,
    load_shared_words,
    store_shared_words,
    store_word,
    take_slot,
    unsigned,
)
from .output import choose_vector, fill_unused

SMALL_BIN = 32
"""Candidates in a bin up to which they are ranked against each other."""


@cute.jit
def write_by_rank(row: Any, tile: Any, cut: Any, k: Int32) -> None:
    """Write the selected ids of a row best first, then -1; ``tile`` is None if the row is read again."""
    spread = unsigned(cut.fullest) <= SMALL_BIN
    if const_expr(tile is None):
        each_tile(row, scatter, cut, spread)
    else:
        scatter(row, tile, cut, spread)
    cute.arch.barrier()
    if spread:
        rank_in_bins(row, cut)
    else:
        sort_slots(row, cut)
    fill_unused(row, cut.total, k)


@cute.jit
def scatter(row: Any, tile: Any, cut: Any, spread: Boolean) -> None:
    """Put the selected candidates of a tile into slots: of their bin, or anywhere."""
    for vector in range_constexpr(tile.vectors):
        flags = choose_vector(row, tile, vector, cut)
        for element in range_constexpr(2):
            place = 2 * vector + element
            word, identity = element_word(row, tile, place), element_identity(tile, place)
            chosen = flags[element] != 0
            counter = row.shared + row.layout.histogram + first_bin(row, word) * 4
            slot = take_slot(select_(spread, counter, row.shared + row.layout.sorted_length), chosen)
            store_shared_words(row.shared + row.layout.sorted + slot * 8, [word, identity], chosen)


@cute.jit
def rank_in_bins(row: Any, cut: Any) -> None:
    """Each selected candidate counts the better ones of its bin, and so finds its slot.

    ``scatter`` has advanced each bin's first slot to the first of the next bin.
    """
    entries, starts = row.shared + row.layout.sorted, row.shared + row.layout.histogram
    for slot in cutlass.range(row.thread, cut.total, row.specialization.threads, unroll=1):
        own = load_shared_words(entries + slot * 8, 2)
        home = first_bin(row, own[0])
        end = load_shared(starts + home * 4)
        start = load_shared(starts + select_(home > 0, home - 1, Int32(0)) * 4)
        start = select_(home > 0, start, Int32(0))
        place = start
        for rival in cutlass.range(start, end, unroll=1):
            other = load_shared_words(entries + rival * 8, 2)
            ahead = precedes([*other, rival], [*own, slot])
            place = place + select_(ahead, Int32(1), Int32(0))
        store_word(row.output + Int64(place) * 4, own[1])


@cute.jit
def sort_slots(row: Any, cut: Any) -> None:
    """Sort all slots by a bitonic network, and write them."""
    slots, threads = row.specialization.slots, row.specialization.threads
    entries = row.shared + row.layout.sorted
    for slot in cutlass.range(cut.total + row.thread, slots, threads, unroll=1):
        store_shared_words(entries + slot * 8, [Int32(WORST_WORD), Int32(LARGEST_ID)])
    cute.arch.barrier()
    for stage in range_constexpr(1, slots.bit_length()):
        for step in range_constexpr(stage):
            distance = 1 << (stage - 1 - step)
            for pair in cutlass.range(row.thread, slots // 2, threads, unroll=1):
                order_pair(row, pair, distance, (1 << stage) & (slots - 1))
            # At distances of at least as many slots as there are threads, a slot belongs to one thread in every step.
            if const_expr(distance < 2 * threads):
                cute.arch.barrier()
    for slot in cutlass.range(row.thread, cut.total, threads, unroll=1):
        store_word(row.output + Int64(slot) * 4, load_shared_words(entries + slot * 8, 2)[1])


@cute.jit
def order_pair(row: Any, pair: Int32, distance: int, falling: int) -> None:
    """Order two slots ``distance`` apart, the other way round where bit ``falling`` of the slot is set."""
    low = ((pair & ~(distance - 1)) << 1) | (pair & (distance - 1))
    addresses = [row.shared + row.layout.sorted + place * 8 for place in (low, low + distance)]
    first, second = [load_shared_words(address, 2) for address in addresses]
    swap = precedes([*second, Int32(0)], [*first, Int32(0)]) == ((low & falling) == 0)
    store_shared_words(addresses[0], second, swap)
    store_shared_words(addresses[1], first, swap)
