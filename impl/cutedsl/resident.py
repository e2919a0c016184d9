"""The cut of a plain row, whose candidates stay in registers.

A row is plain if it fills the CTA's registers with finite scores and has no
padding.  Then scores compare as floats, which takes far fewer instructions than
words do: an SM has half as many integer units as floating-point units.

The first pass counts candidates by bins that divide the range of scores evenly,
which leaves a handful at the cut unless scores are tied.  Tied ones are counted
again by bins that divide the range of their ids evenly, and many others by bins
that divide the range of that bin.  A row for which that is not enough is left
to ``streamed``.
"""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, const_expr, range_constexpr, select_

from ..policy import ZeroPolicy
from ..specialization import LIST_CANDIDATES
from .candidates import ScoreRange, element_identity, element_word, settle_tile, word_score
from .cut import TIED, append, no_cut, rank_list
from .histogram import clear_bins, count_bin, find_bin, set_range, share_bounds, shared_bound
from .instructions import (
    any_thread,
    bits_float,
    count_shared,
    float_bits,
    largest_float,
    leading_zeros,
    least_float,
    magnified_distance,
    reverse_order,
    shift_right,
    store_shared_words,
    widen_members,
)

EXPONENT = 0x7F800000
POSITIVE_ZERO_WORD, NEGATIVE_ZERO_WORD = 2**31 - 1, -(2**31)
BIN_ZERO = 0x4B000000
"""Bits of 2^23: the bits of 2^23 + n are this plus n."""

ADDRESS_OF_ZERO = 4 * BIN_ZERO % 2**32

ROUNDS = 3
"""Times that the range at the cut is divided again before a row counts as too hard."""


@cute.jit
def find_resident_cut(row: Any, tile: Any, k: Int32) -> Any:
    """Find the cut of a plain row; returns whether it was found, and the cut.

    The loads of ``tile`` are under way.
    """
    layout, keep = row.layout, row.specialization.contract == "order"
    clear_bins(row, layout.histogram)
    store_shared_words(row.shared + layout.list_length, [Int32(0), Int32(0)], row.thread == 0)
    cute.arch.barrier()
    settle_tile(row, tile)
    solved = measure_row(row, tile)
    if const_expr(keep):
        # Sorting needs the bins, which a row without a cut does not count.
        solved = solved & (row.count > k)
    cut = no_cut(row.count)
    word, identity, position, twins, fullest = cut.word, cut.identity, cut.position, cut.twins, Int32(0)
    if solved & (row.count > k):
        need, members, place, unlisted_ties = k, row.count, Int32(0), Int32(TIED)
        if row.range.words[0] == row.range.words[1]:
            # One bin has them all; counting would only make every warp wait for that counter.
            fullest = row.count
            # All have read the bounds that the refinement overwrites.
            cute.arch.barrier()
        else:
            count_row(row, tile)
            cute.arch.barrier()
            found = find_bin(row, layout.histogram, k, keep)
            need, members, place = k - found.better, found.members, found.bin
            if const_expr(keep):
                fullest = found.fullest
        if members <= LIST_CANDIDATES:
            list_bin(row, tile, row.range, place, False)
            unlisted_ties = Int32(0)
        else:
            need, members = refine(row, tile, need, place, members)
        solved = members <= LIST_CANDIDATES
        if solved:
            words = rank_list(row, members, need)
            word, identity, position, twins = words[0], words[1], words[2], words[3] + unlisted_ties
    cut.word, cut.identity, cut.position, cut.twins, cut.fullest = word, identity, position, twins, fullest
    cut.total = select_(row.count > k, k, row.count)
    return solved, cut


@cute.jit
def measure_row(row: Any, tile: Any) -> Boolean:
    """Find out whether the row is plain, and the range of its scores if so.  One barrier."""
    best = worst = total = bits_float(tile.bits[0])
    for element in range_constexpr(1, 2 * tile.vectors):
        score = bits_float(tile.bits[element])
        best, worst, total = largest_float(best, score), least_float(worst, score), total + score
    # A sum that is not finite has a term that is not, or is at least worth the longer way.
    strange = (tile.signs < 0) | ((float_bits(total) & EXPONENT) == EXPONENT)
    share_bounds(row, [reverse_order(float_bits(best)), ~reverse_order(float_bits(worst))])
    plain = ~any_thread(strange)
    set_range(row, row.range, shared_bound(row, 0), ~shared_bound(row, 1), Boolean(True))
    # The scores may be too far apart for a scale.
    return plain & (row.range.words[2] != 0)


def distance_bits(tile: Any, divided: Any, element: int) -> Int32:
    """Bin of a candidate within a range, plus ``BIN_ZERO``."""
    return magnified_distance(tile.bits[element], divided.scores[0], divided.scores[2])


@cute.jit
def count_row(row: Any, tile: Any) -> None:
    """Count every candidate in its first-pass bin."""
    base = row.shared + (row.layout.histogram - ADDRESS_OF_ZERO)
    for element in range_constexpr(2 * tile.vectors):
        count_shared(base + distance_bits(tile, row.range, element) * 4)


@cute.jit
def refine(row: Any, tile: Any, need: Int32, place: Int32, members: Int32) -> Any:
    """List the candidates at the cut where too many share a bin.

    Scores that are equal are told apart by bins that divide the range of their
    ids; others by bins that divide their range, again and again.  Returns how
    many candidates of the last bin are needed, and how many it has; they are
    listed unless they are too many.
    """
    measure_bin(row, tile, row.range, place, False)
    clear_bins(row, row.layout.digits)
    cute.arch.barrier()
    best_word, worst_word = shared_bound(row, 0), ~shared_bound(row, 1)
    low, high = shared_bound(row, 2), ~shared_bound(row, 3)
    spare_bits = 33 - row.specialization.bins.bit_length()
    if best_word == worst_word:
        places = Int32(spare_bits) - leading_zeros(high - low)
        places = select_(places < 0, Int32(0), places)
        count_ties(row, tile, best_word, low, places)
        cute.arch.barrier()
        found = find_bin(row, row.layout.digits, need, False)
        need, members = need - found.better, found.members
        if members <= LIST_CANDIDATES:
            list_ties(row, tile, best_word, low + (found.bin << places), places)
    else:
        divided, rounds = ScoreRange(), Int32(0)
        while (members > LIST_CANDIDATES) & (rounds < ROUNDS):
            set_range(row, divided, best_word, worst_word, Boolean(True))
            count_within(row, tile, divided)
            cute.arch.barrier()
            found = find_bin(row, row.layout.digits, need, False)
            need, members, rounds = need - found.better, found.members, rounds + 1
            if members <= LIST_CANDIDATES:
                list_bin(row, tile, divided, found.bin, True)
            else:
                measure_bin(row, tile, divided, found.bin, True)
                clear_bins(row, row.layout.digits)
                cute.arch.barrier()
                best_word, worst_word = shared_bound(row, 0), ~shared_bound(row, 1)
    return need, members


def is_within(tile: Any, divided: Any, element: int) -> Boolean:
    """Whether a candidate's score lies within a range."""
    score = bits_float(tile.bits[element])
    return (score <= divided.scores[0]) & (score >= divided.scores[1])


@cute.jit
def count_within(row: Any, tile: Any, divided: Any) -> None:
    """Count the candidates within a range in its bins."""
    for element in range_constexpr(2 * tile.vectors):
        place = distance_bits(tile, divided, element) - BIN_ZERO
        count_bin(row, row.layout.digits, place, is_within(tile, divided, element))


@cute.jit
def list_bin(row: Any, tile: Any, divided: Any, place: Int32, bounded: bool) -> None:
    """List the candidates in a bin; ``bounded`` if some lie outside its range."""

    def is_listed(element: int) -> Boolean:
        inside = distance_bits(tile, divided, element) == place + BIN_ZERO
        return inside & is_within(tile, divided, element) if bounded else inside

    list_members(row, tile, is_listed)


@cute.jit
def list_ties(row: Any, tile: Any, word: Int32, low: Int32, places: Int32) -> None:
    """List the candidates of one score whose ids lie in a bin."""
    score = word_score(word)

    def is_listed(element: int) -> Boolean:
        inside = shift_right(element_identity(row, tile, element) - low, places) == 0
        return inside & is_twin(row, tile, element, score, word)

    list_members(row, tile, is_listed)


@cute.jit
def list_members(row: Any, tile: Any, is_listed: Any) -> None:
    """Append candidates to the list.  Few warps have one: the branch saves what follows."""
    some = is_listed(0)
    for element in range_constexpr(1, 2 * tile.vectors):
        some = some | is_listed(element)
    if cute.arch.vote_any_sync(some):
        for element in range_constexpr(2 * tile.vectors):
            append(row, tile, element, is_listed(element))
    # The votes that follow are slow where the lanes of a warp have not come together again.
    cute.arch.sync_warp()


@cute.jit
def measure_bin(row: Any, tile: Any, divided: Any, place: Int32, bounded: bool) -> None:
    """Write down the ranges of words and ids of the candidates in a bin; ``bounded`` as in ``list_bin``."""
    bounds = [Float32(float("inf")), Float32(float("-inf")), Int32(-1), Int32(0)]
    for element in range_constexpr(2 * tile.vectors):
        identity = element_identity(row, tile, element)
        bits = distance_bits(tile, divided, element)
        if const_expr(bounded):
            bits = select_(is_within(tile, divided, element), bits, Int32(0))
        bounds = widen_members(bounds, bits, place + BIN_ZERO, tile.bits[element], identity)
    worst, best = reverse_order(float_bits(bounds[0])), reverse_order(float_bits(bounds[1]))
    # Floats do not tell the zeros apart: a range that ends in one takes in both, as far as the preset does.
    best = select_(best == NEGATIVE_ZERO_WORD, Int32(POSITIVE_ZERO_WORD), best)
    last = NEGATIVE_ZERO_WORD if row.specialization.zero == ZeroPolicy.BITS else POSITIVE_ZERO_WORD
    zero = (worst == NEGATIVE_ZERO_WORD) | (worst == POSITIVE_ZERO_WORD)
    worst = select_(zero, Int32(last), worst)
    share_bounds(row, [best, ~worst, bounds[2], ~bounds[3]])


def is_twin(row: Any, tile: Any, element: int, score: Float32, word: Int32) -> Boolean:
    """Whether a candidate's word is that of ``score``."""
    if row.specialization.zero == ZeroPolicy.BITS:
        return element_word(row, tile, element) == word
    return bits_float(tile.bits[element]) == score


@cute.jit
def count_ties(row: Any, tile: Any, word: Int32, low: Int32, places: Int32) -> None:
    """Count the candidates of one score by id."""
    score = word_score(word)
    for element in range_constexpr(2 * tile.vectors):
        digit = shift_right(element_identity(row, tile, element) - low, places)
        count_bin(row, row.layout.digits, digit, is_twin(row, tile, element, score, word))
