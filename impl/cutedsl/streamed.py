"""The cut of any row, which is read again in every pass.

Serves rows that are longer than the CTA's registers, have padding, infinities
or NaN, or whose ties are hard to tell apart.  Candidates are counted by score
word, then by the bits in which those at the cut still differ: word, id, and at
last position.
"""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Boolean, Int32, Uint32, const_expr, range_constexpr, select_

from ..specialization import LIST_CANDIDATES
from .candidates import each_tile, element_identity, element_position, element_word, is_valid
from .cut import append, no_cut, rank_list
from .histogram import (
    clear_bins,
    count_bin,
    find_bin,
    find_digit,
    first_bin,
    set_range,
    share_bounds,
    shared_bounds,
    sum_totals,
)
from .instructions import leading_zeros, least_unsigned, load_shared, shift_right, store_shared_words, unsigned

BEST_FINITE_WORD = 0x00800000
WORST_FINITE_WORD = 0xFF7FFFFF - 2**32
FINITE_SPAN = 0xFEFFFFFF
NO_BOUND = -1


@cute.jit
def find_streamed_cut(row: Any, k: Int32) -> Any:
    """Find the cut of a row; all threads get the same answer."""
    layout, keep = row.layout, row.specialization.contract == "order"
    # Before this barrier another way to the cut may have been tried.
    cute.arch.barrier()
    clear_bins(row, layout.histogram)
    if const_expr(keep):
        clear_bins(row, layout.digits)
    store_shared_words(row.shared + layout.list_length, [Int32(0), Int32(0)], row.thread == 0)
    measure_scores(row)
    each_tile(row, count_first)
    cute.arch.barrier()
    found = find_bin(row, k, keep)
    total = sum_totals(found)
    cut = no_cut(select_(total > k, k, total))
    word, identity, position = cut.word, cut.identity, cut.position
    if total > k:
        state = cute.make_rmem_tensor(6, Int32)
        state[4] = Int32(0)
        state[5] = row.count - 1
        need = narrow(row, state, k - found.better, found.bin, found.members)
        each_tile(row, list_interval, state)
        cute.arch.barrier()
        words = rank_list(row, load_shared(row.shared + layout.list_length), need)
        word, identity, position = words[0], words[1], words[2]
    cut.word, cut.identity, cut.position = word, identity, position
    if const_expr(keep):
        cut.fullest = found.fullest
    return cut


@cute.jit
def count_first(row: Any, tile: Any) -> None:
    """Count every candidate of a tile in its first-pass bin."""
    for element in range_constexpr(2 * tile.vectors):
        place = first_bin(row, element_word(row, tile, element))
        count_bin(row, row.layout.histogram, place, is_valid(row, tile, element))


@cute.jit
def measure_scores(row: Any) -> None:
    """Find the range of finite scores, and how bins divide it.  One barrier."""
    bounds = cute.make_rmem_tensor(2, Int32)
    bounds[0] = Int32(NO_BOUND)
    bounds[1] = Int32(NO_BOUND)
    each_tile(row, bound_scores, bounds)
    share_bounds(row, [bounds[0], bounds[1]])
    cute.arch.barrier()
    best, worst = shared_bounds(row, 0, 1)
    finite = unsigned(best) <= Uint32(FINITE_SPAN)
    set_range(row, row.range, best + BEST_FINITE_WORD, Int32(WORST_FINITE_WORD) - worst, finite)


@cute.jit
def bound_scores(row: Any, tile: Any, bounds: Any) -> None:
    """Lower the distances of a tile's finite scores from the best and the worst finite number.

    Other scores are farther away than any finite one, since the distance wraps.
    """
    best, worst = bounds[0], bounds[1]
    for element in range_constexpr(2 * tile.vectors):
        word = element_word(row, tile, element)
        best = least_unsigned(best, word - BEST_FINITE_WORD)
        worst = least_unsigned(worst, Int32(WORST_FINITE_WORD) - word)
    bounds[0] = best
    bounds[1] = worst


@cute.jit
def narrow(row: Any, state: Any, need: Int32, place: Int32, members: Int32) -> Int32:
    """Narrow the range of words, ids and positions at the cut until few candidates are left in it.

    ``state`` holds the lowest and highest of each.  Returns how many of the
    candidates left are needed.
    """
    share_tiles(row, measure_bin, place)
    cute.arch.barrier()
    adopt_ranges(row, state)
    spare_bits = 33 - row.specialization.bins.bit_length()
    while members > LIST_CANDIDATES:
        level = select_(state[0] != state[1], Int32(0), select_(state[2] != state[3], Int32(1), Int32(2)))
        low = select_(level == 0, state[0], select_(level == 1, state[2], state[4]))
        high = select_(level == 0, state[1], select_(level == 1, state[3], state[5]))
        places = Int32(spare_bits) - leading_zeros(high - low)
        places = select_(places < 0, Int32(0), places)
        each_tile(row, count_digits, state, level, low, places)
        cute.arch.barrier()
        found = find_digit(row, need, Boolean(False))
        need = need - found.better
        members = found.members
        low = low + (found.bin << places)
        high = low + ((Int32(1) << places) - 1)
        for other in range_constexpr(3):
            state[2 * other] = select_(level == other, low, state[2 * other])
            state[2 * other + 1] = select_(level == other, high, state[2 * other + 1])
        if members > LIST_CANDIDATES:
            share_tiles(row, measure_interval, state)
            cute.arch.barrier()
            adopt_ranges(row, state)
    return need


@cute.jit
def measure_bin(row: Any, tile: Any, place: Int32, ranges: Any) -> None:
    """Lower the ranges of words and ids by a tile's candidates in a first-pass bin."""
    for element in range_constexpr(2 * tile.vectors):
        word = element_word(row, tile, element)
        member = (first_bin(row, word) == place) & is_valid(row, tile, element)
        widen(ranges, word, element_identity(tile, element), member)


@cute.jit
def measure_interval(row: Any, tile: Any, state: Any, ranges: Any) -> None:
    """Lower the ranges by a tile's candidates within ``state``."""
    for element in range_constexpr(2 * tile.vectors):
        word, identity = element_word(row, tile, element), element_identity(tile, element)
        widen(ranges, word, identity, is_member(tile, element, word, identity, state))


@cute.jit
def share_tiles(row: Any, body: Any, *arguments: Any) -> None:
    """Write down the ranges of the candidates that ``body`` takes in."""
    ranges = cute.make_rmem_tensor(4, Int32)
    for place in range_constexpr(4):
        ranges[place] = Int32(NO_BOUND)
    each_tile(row, body, *arguments, ranges)
    share_bounds(row, [ranges[0], ranges[1], ranges[2], ranges[3]])


@cute.jit
def widen(ranges: Any, word: Int32, identity: Int32, member: Boolean) -> None:
    """Lowest word, complement of the highest, and the same of the ids."""
    values = [word, ~word, identity, ~identity]
    for place in range_constexpr(4):
        ranges[place] = least_unsigned(ranges[place], select_(member, values[place], Int32(NO_BOUND)))


@cute.jit
def adopt_ranges(row: Any, state: Any) -> None:
    """Take over the CTA's ranges of words and ids."""
    low, high, first, last = shared_bounds(row, 0, 1, 2, 3)
    state[0], state[1], state[2], state[3] = low, ~high, first, ~last


@cute.jit
def is_member(tile: Any, element: int, word: Int32, identity: Int32, state: Any) -> Boolean:
    """Whether a candidate lies within ``state``."""
    inside = identity >= 0
    values = [word, identity, element_position(tile, element)]
    for place in range_constexpr(3):
        low, high = state[2 * place], state[2 * place + 1]
        inside = inside & (unsigned(values[place] - low) <= unsigned(high - low))
    return inside


@cute.jit
def count_digits(row: Any, tile: Any, state: Any, level: Int32, low: Int32, places: Int32) -> None:
    """Count a tile's candidates within ``state`` by what they differ in."""
    for element in range_constexpr(2 * tile.vectors):
        word, identity = element_word(row, tile, element), element_identity(tile, element)
        value = select_(level == 0, word, select_(level == 1, identity, element_position(tile, element)))
        member = is_member(tile, element, word, identity, state)
        count_bin(row, row.layout.digits, shift_right(value - low, places), member)


@cute.jit
def list_interval(row: Any, tile: Any, state: Any) -> None:
    """Append a tile's candidates within ``state`` to the list."""
    for element in range_constexpr(2 * tile.vectors):
        word, identity = element_word(row, tile, element), element_identity(tile, element)
        append(row, tile, element, is_member(tile, element, word, identity, state))
