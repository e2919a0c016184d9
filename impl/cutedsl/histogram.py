"""Histograms in shared memory, and the bin in which the cut lies.

Bins count candidates from the best to the worst, so the bin of the cut is the
first whose inclusive prefix sum reaches the number of candidates needed.
"""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, const_expr, range_constexpr, select_

from .candidates import word_score
from .instructions import (
    add_lower_lane,
    count_shared,
    largest_unsigned,
    load_shared,
    load_shared_words,
    low_reciprocal,
    scaled_distance,
    shift_right,
    store_shared,
    store_shared_words,
    warp_largest_unsigned,
    warp_least_unsigned,
    warp_sum,
)

BANK_BITS, BANKS = 5, 32
"""Banks of shared memory, in which consecutive words lie."""

LARGEST_SPAN = 2.0**126
"""Range of scores from which on its reciprocal is not taken."""


class Found:
    """Where the cut lies.

    Attributes:
        bin: The bin.
        better: Candidates in better bins.
        members: Candidates in the bin.
        totals: Candidates that each warp counted, in the warp's lane; ``sum_totals`` adds them up.
        fullest: Candidates in the fullest bin, under contract ``order``.
    """

    bin: Int32
    better: Int32
    members: Int32
    totals: Int32
    fullest: Int32


@cute.jit
def clear_bins(row: Any, offset: int) -> None:
    """Clear four bins; all threads together clear all."""
    clear_counts(row.shared + offset + row.thread * 16)


def clear_counts(address: Int32) -> None:
    """Clear four counters."""
    zero = Int32(0)
    store_shared_words(address, [zero, zero, zero, zero])


@cute.jit
def count_bin(row: Any, offset: int, place: Int32, member: Boolean) -> None:
    """Count a candidate in its bin; others have a bin of their own, which is cheaper than a branch."""
    count_shared(row.shared + offset + select_(member, place, Int32(row.specialization.bins)) * 4)


def scatter(place: Int32) -> Int32:
    """Which counter counts a bin where all candidates are counted by id.

    Ids of one rank may have some bits in common, and the bins of a warp then lie
    in few banks of shared memory, unless higher bits take part in the choice.
    """
    return place ^ ((place >> BANK_BITS) & (BANKS - 1))


@cute.jit
def set_range(row: Any, divided: Any, best_word: Int32, worst_word: Int32, finite: Boolean) -> None:
    """Let bins divide a range of scores evenly, if it is not too large."""
    best, worst = word_score(best_word), word_score(worst_word)
    span = best - worst
    possible = select_(finite & (span < Float32(LARGEST_SPAN)), Int32(1), Int32(0))
    divided.words[0], divided.words[1], divided.words[2] = best_word, worst_word, possible
    divided.scores[0], divided.scores[1], divided.scores[2] = best, worst, low_reciprocal(span)


@cute.jit
def linear_bin(row: Any, word: Int32) -> Int32:
    """Bin of a word where bins divide the range of finite scores evenly."""
    words, scores = row.range.words, row.range.scores
    return scaled_distance(word, words[0], words[1], scores[0], scores[2], last_bin(row))


def last_bin(row: Any) -> float:
    """The last bin, by which shares of a range are multiplied."""
    return float(row.specialization.bins - 1)


@cute.jit
def leading_bin(row: Any, word: Int32) -> Int32:
    """Bin of a word by its leading bits."""
    return shift_right(word, Int32(33 - row.specialization.bins.bit_length()))


@cute.jit
def first_bin(row: Any, word: Int32) -> Int32:
    """Bin of a word in the first pass."""
    return select_(row.range.words[2] != 0, linear_bin(row, word), leading_bin(row, word))


@cute.jit
def find_bin(row: Any, need: Int32, keep: bool) -> Any:
    """Bin of the first pass in which the ``need``-th best candidate lies; all threads get the same answer.

    Two barriers.  With ``keep`` every bin is replaced by the number of
    candidates in better bins; otherwise the bins are clear again.
    """
    address = row.shared + row.layout.histogram + row.thread * 16
    return search_counts(row, address, load_shared_words(address, 4), need, keep)


@cute.jit
def find_digit(row: Any, need: Int32, scattered: Boolean) -> Any:
    """As ``find_bin``, of a later pass, whose counters may be scattered; they are clear again."""
    swap = select_(scattered, (row.thread >> (BANK_BITS - 2)) & (BANKS - 1), Int32(0))
    address = row.shared + row.layout.digits + (row.thread ^ (swap >> 2)) * 16
    counts = load_shared_words(address, 4)
    for bit in (1, 2):
        swapped = (swap & bit) != 0
        counts = [select_(swapped, counts[place ^ bit], counts[place]) for place in range(4)]
    return search_counts(row, address, counts, need, False)


@cute.jit
def search_counts(row: Any, address: Int32, counts: Any, need: Int32, keep: bool) -> Any:
    """Bin in which the ``need``-th best candidate lies; ``counts`` of this thread's bins are those at ``address``."""
    layout = row.layout
    if const_expr(not keep):
        clear_counts(address)
    mine = counts[0] + counts[1] + counts[2] + counts[3]
    warp_total = warp_sum(mine)
    store_shared(row.shared + layout.totals + row.warp * 4, warp_total, row.lane == 0)
    if const_expr(keep):
        fullest = largest_unsigned(largest_unsigned(counts[0], counts[1]), largest_unsigned(counts[2], counts[3]))
        store_shared(row.shared + layout.totals + 128 + row.warp * 4, warp_largest_unsigned(fullest), row.lane == 0)
    cute.arch.barrier()
    totals = warp_words(row, layout.totals)
    before = warp_sum(select_(row.lane < row.warp, totals, Int32(0)))
    if const_expr(keep):
        search_bins(row, counts, mine, before, need)
        store_starts(row, address, counts, mine, before)
    else:
        if (before < need) & (need <= before + warp_total):
            search_bins(row, counts, mine, before, need)
    found = Found()
    found.totals = totals
    if const_expr(keep):
        found.fullest = warp_largest_unsigned(warp_words(row, layout.totals + 128))
    cute.arch.barrier()
    words = load_shared_words(row.shared + layout.control, 4)
    found.bin, found.better, found.members = words[0], words[1], words[2]
    return found


@cute.jit
def share_bounds(row: Any, bounds: Any) -> None:
    """Write down the smallest of each bound over the warp."""
    # The reductions first, so that none waits until another one's result is stored.
    least = [warp_least_unsigned(bound) for bound in bounds]
    for place in range_constexpr(len(bounds)):
        address = row.shared + row.layout.bounds + 128 * place + row.warp * 4
        store_shared(address, least[place], row.lane == 0)


def sum_totals(found: Found) -> Int32:
    """Candidates counted."""
    return warp_sum(found.totals)


def shared_bounds(row: Any, *places: int) -> Any:
    """Smallest of each of some bounds over the CTA, after a barrier."""
    address = row.shared + row.layout.bounds + (row.lane % row.specialization.warps) * 4
    words = [load_shared(address + 128 * place) for place in places]
    return [warp_least_unsigned(word) for word in words]


def read_range(row: Any) -> Any:
    """Lowest and highest of a range whose bounds are shared as the lowest, and the complement of the highest."""
    low, high = shared_bounds(row, 0, 1)
    return low, ~high


@cute.jit
def warp_words(row: Any, offset: int) -> Int32:
    """One word of every warp, in the warp's lane; 0 in the other lanes."""
    word = load_shared(row.shared + offset + row.lane * 4)
    if const_expr(row.specialization.warps == 32):
        return word
    return select_(row.lane < row.specialization.warps, word, Int32(0))


@cute.jit
def lanes_before(mine: Int32, before: Int32) -> Int32:
    """``before`` plus the sum over lower lanes."""
    through = mine
    for step in range_constexpr(5):
        through = add_lower_lane(through, 1 << step)
    return before + through - mine


@cute.jit
def search_bins(row: Any, counts: Any, mine: Int32, before: Int32, need: Int32) -> None:
    """The one thread that has the bin of the cut writes it down."""
    start = lanes_before(mine, before)
    for place in range_constexpr(4):
        end = start + counts[place]
        words = [row.thread * 4 + place, start, counts[place], Int32(0)]
        store_shared_words(row.shared + row.layout.control, words, (start < need) & (need <= end))
        start = end


@cute.jit
def store_starts(row: Any, address: Int32, counts: Any, mine: Int32, before: Int32) -> None:
    """Replace this thread's bins by the number of candidates in better bins."""
    start = lanes_before(mine, before)
    starts = []
    for place in range_constexpr(4):
        starts.append(start)
        start = start + counts[place]
    store_shared_words(address, starts)
