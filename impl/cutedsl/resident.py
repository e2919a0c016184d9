"""The cut of a plain row, whose candidates stay in registers.

A row is plain if it fills the CTA's registers with finite scores and has no
padding.  Then scores compare as floats, which takes far fewer instructions than
words do: an SM has half as many integer units as floating-point units.

The first pass counts candidates by bins that divide a sampled range of scores
evenly, which leaves a handful at the cut unless scores are tied.  Many at the
cut are counted again, tied ones by the leading bits of their ids, others by bins
that divide the range of that bin.  A row for which that is not enough is left
to ``streamed``.
"""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, const_expr, range_constexpr, select_

from ..policy import ZeroPolicy
from ..specialization import LIST_CANDIDATES
from .candidates import (
    CANDIDATE_BYTES,
    WARP_CANDIDATES,
    ScoreRange,
    candidate_address,
    element_identity,
    element_word,
    fetch,
    score_word,
    settle_vector,
    word_score,
)
from .cut import LARGEST_ID, TIED, append_entry, no_cut, rank_list
from .histogram import (
    clear_bins,
    count_bin,
    find_bin,
    find_digit,
    last_bin,
    read_range,
    scatter,
    set_range,
    share_bounds,
    shared_bounds,
    sum_totals,
)
from .instructions import (
    any_thread,
    bits_float,
    count_equal,
    count_shared,
    float_bits,
    largest_float,
    largest_unsigned,
    leading_zeros,
    least_float,
    least_unsigned,
    magnified_distance,
    mark,
    prefetch_bytes,
    reverse_order,
    shift_right,
    store_shared_words,
    unsigned,
    widen_scores,
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
    if const_expr(keep):
        clear_bins(row, layout.digits)
    store_shared_words(row.shared + layout.list_length, [Int32(0), Int32(0)], row.thread == 0)
    solved, uniform = count_plain_row(row, tile)
    if const_expr(keep):
        # Sorting needs the starts of the bins, which are not known of a row without a cut.
        solved = solved & (row.count > k)
    cut = no_cut(row.count)
    word, identity, position, twins, fullest = cut.word, cut.identity, cut.position, cut.twins, Int32(0)
    if solved & (row.count > k):
        need, members, place, unlisted_ties = k, row.count, Int32(0), Int32(TIED)
        if uniform:
            fullest = row.count
        else:
            found = find_bin(row, k, keep)
            need, members, place = k - found.better, found.members, found.bin
            if const_expr(keep):
                fullest = found.fullest
        if members <= LIST_CANDIDATES:
            list_bin(row, tile, row.range, place, False)
            unlisted_ties = Int32(0)
        else:
            need, members = refine(row, tile, need, place, members, uniform)
        solved = members <= LIST_CANDIDATES
        if solved:
            words = rank_list(row, members, need)
            word, identity, position, twins = words[0], words[1], words[2], words[3] + unlisted_ties
    cut.word, cut.identity, cut.position, cut.twins, cut.fullest = word, identity, position, twins, fullest
    cut.total = select_(row.count > k, k, row.count)
    return solved, cut


@cute.jit
def count_plain_row(row: Any, tile: Any) -> Any:
    """Count the candidates in the bins of a sampled range, as their loads arrive.  Two barriers.

    Returns whether the row is plain, as far as bins can tell, and whether it
    has one score.  Then its ids are counted instead: in the bins of scores every
    warp would wait for one counter.
    """
    signs = sample_row(row, tile)
    uniform = row.range.words[0] == row.range.words[1]
    strange, total = Boolean(False), Float32(0.0)
    if uniform:
        strange, signs = count_uniform_row(row, tile, signs)
        total = row.range.scores[0]
    else:
        total, signs = count_row(row, tile, signs)
    prefetch_share(row, tile)
    # A sum that is not finite has a term that is not, or is at least worth the longer way.
    strange = strange | (signs < 0) | ((float_bits(total) & EXPONENT) == EXPONENT)
    plain = ~any_thread(strange)
    # The scores may be too far apart for a reciprocal.
    return plain & (row.range.words[2] != 0), uniform


@cute.jit
def prefetch_share(row: Any, tile: Any) -> None:
    """Bring this warp's share of a later row into the L2 cache.

    Not before its own candidates are there, which would have to wait in line with that.
    """
    if const_expr(row.ahead is not None):
        index, _, _ = cute.arch.block_idx()
        rows, _, _ = cute.arch.grid_dim()
        share = WARP_CANDIDATES * CANDIDATE_BYTES * tile.vectors
        source = row.base + Int64(row.ahead) * row.row_bytes + Int64(row.warp * share)
        prefetch_bytes(source, share, (row.lane == 0) & (row.ahead > 0) & (index + row.ahead < rows))


@cute.jit
def sample_row(row: Any, tile: Any) -> Int32:
    """Take the range of every thread's first scores for the row's, and the largest of their ids.  One barrier.

    Returns a negative number if any of those ids is.
    """
    signs, identity = Int32(0), Int32(0)
    best = worst = bits_float(tile.pairs[0][0])
    for vector in range_constexpr(count_sampled(row, tile)):
        signs = signs | settle_vector(tile, vector)
        for element in range_constexpr(2 * vector, 2 * vector + 2):
            score = bits_float(tile.bits[element])
            best, worst = largest_float(best, score), least_float(worst, score)
            identity = largest_unsigned(identity, element_identity(tile, element))
    share_bounds(row, [reverse_order(float_bits(best)), ~reverse_order(float_bits(worst)), ~identity])
    cute.arch.barrier()
    best_word, worst_word = read_range(row)
    set_range(row, row.range, best_word, worst_word, Boolean(True))
    return signs


def count_sampled(row: Any, tile: Any) -> int:
    """Vectors of each thread that are sampled: all where sorting needs small bins; what lies beyond fills the last."""
    return int(tile.vectors) if row.specialization.contract == "order" else 1


def distance_bits(row: Any, tile: Any, divided: Any, element: int) -> Int32:
    """Bin of a candidate within a range, plus ``BIN_ZERO``."""
    return magnified_distance(tile.bits[element], divided.scores[0], divided.scores[2], last_bin(row))


@cute.jit
def count_row(row: Any, tile: Any, signs: Int32) -> Any:
    """Count every candidate in its first-pass bin, and settle all but the first vector.

    Returns the scores' sum, and ``signs`` with those of the ids.
    """
    base = row.shared + (row.layout.histogram - ADDRESS_OF_ZERO)
    total = Float32(0.0)
    for vector in range_constexpr(tile.vectors):
        if const_expr(vector >= count_sampled(row, tile)):
            signs = signs | settle_vector(tile, vector)
        for element in range_constexpr(2 * vector, 2 * vector + 2):
            total = total + bits_float(tile.bits[element])
            count_shared(base + distance_bits(row, tile, row.range, element) * 4)
    return total, signs


@cute.jit
def count_uniform_row(row: Any, tile: Any, signs: Int32) -> Any:
    """Count every candidate by id, and settle all but what was sampled.

    Returns whether any score is another than the sampled ones, and ``signs``
    with those of the ids.
    """
    base, places = row.shared + row.layout.digits, sampled_places(row)
    strange, score = Boolean(False), float_bits(row.range.scores[0])
    for vector in range_constexpr(tile.vectors):
        if const_expr(vector >= count_sampled(row, tile)):
            signs = signs | settle_vector(tile, vector)
        for element in range_constexpr(2 * vector, 2 * vector + 2):
            strange = strange | (tile.bits[element] != score)
            count_shared(base + scatter(identity_bin(row, tile, element, places)) * 4)
    return strange, signs


@cute.jit
def refine(row: Any, tile: Any, need: Int32, place: Int32, members: Int32, uniform: Boolean) -> Any:
    """List the candidates at the cut where too many share a first-pass bin.

    Mostly they have one score.  If the sampled ones have, candidates of that
    score are counted by id, unless they have been; the bins are those of the
    sampled ids.  Returns how many candidates of the last bin are needed, and how
    many it has; they are listed unless they are too many.
    """
    places, bins = sampled_places(row), row.specialization.bins
    best_word, tied = row.range.words[0], uniform
    if ~uniform:
        best_word, tied = find_tied_word(row, tile, place)
        if tied:
            count_score(row, tile, best_word, places)
            cute.arch.barrier()
    worst_word, low, high = best_word, Int32(0), Int32(LARGEST_ID)
    if tied:
        found = find_digit(row, need, uniform)
        tied = sum_totals(found) == members
        if tied:
            need, members, low = need - found.better, found.members, found.bin << places
            high = select_(found.bin == bins - 1, high, low + ((Int32(1) << places) - 1))
            if members <= LIST_CANDIDATES:
                list_ties(row, tile, best_word, low, high)
    if ~tied:
        # All have read the bounds that are written next.
        cute.arch.barrier()
        measure_bin(row, tile, row.range, place, False)
        cute.arch.barrier()
        best_word, worst_word = read_range(row)
        need, members, best_word, worst_word = refine_scores(row, tile, best_word, worst_word, need, members)
    if (members > LIST_CANDIDATES) & (best_word == worst_word):
        # All have read the bounds that are written next.
        cute.arch.barrier()
        need, members = refine_ties(row, tile, best_word, low, high, need, members)
    return need, members


@cute.jit
def find_tied_word(row: Any, tile: Any, place: Int32) -> Any:
    """Word of the sampled candidates in a first-pass bin, and whether they have one.  One barrier."""
    bounds = [Int32(-1), Int32(-1)]
    for element in range_constexpr(2):
        word = element_word(row, tile, element)
        member = distance_bits(row, tile, row.range, element) == place + BIN_ZERO
        bounds[0] = least_unsigned(bounds[0], select_(member, word, Int32(-1)))
        bounds[1] = least_unsigned(bounds[1], select_(member, ~word, Int32(-1)))
    share_bounds(row, bounds)
    cute.arch.barrier()
    best_word, worst_word = read_range(row)
    tied = best_word == worst_word
    if const_expr(row.specialization.zero == ZeroPolicy.BITS):
        # Candidates of a score are counted as floats, which do not tell the zeros apart.
        tied = tied & (word_score(best_word) != Float32(0.0))
    return best_word, tied


@cute.jit
def count_score(row: Any, tile: Any, word: Int32, places: Int32) -> None:
    """Count the candidates of one score by id."""
    counters, bins = row.shared + row.layout.digits, row.specialization.bins
    score = word_score(word)
    for element in range_constexpr(2 * tile.vectors):
        count_equal(tile.bits[element], score, element_identity(tile, element), places, counters, bins)


@cute.jit
def refine_scores(row: Any, tile: Any, best_word: Int32, worst_word: Int32, need: Int32, members: Int32) -> Any:
    """Divide the range of scores at the cut until few candidates share a bin, or one score is left."""
    divided, rounds = ScoreRange(), Int32(0)
    while (members > LIST_CANDIDATES) & (best_word != worst_word) & (rounds < ROUNDS):
        set_range(row, divided, best_word, worst_word, Boolean(True))
        count_within(row, tile, divided)
        cute.arch.barrier()
        found = find_digit(row, need, Boolean(False))
        need, members, rounds = need - found.better, found.members, rounds + 1
        if members <= LIST_CANDIDATES:
            list_bin(row, tile, divided, found.bin, True)
        else:
            measure_bin(row, tile, divided, found.bin, True)
            cute.arch.barrier()
            best_word, worst_word = read_range(row)
    return need, members, best_word, worst_word


@cute.jit
def refine_ties(row: Any, tile: Any, word: Int32, low: Int32, high: Int32, need: Int32, members: Int32) -> Any:
    """Divide the range of ids of one score at the cut until few candidates share a bin."""
    rounds = Int32(0)
    while (members > LIST_CANDIDATES) & (rounds < ROUNDS):
        measure_ties(row, tile, word, low, high)
        cute.arch.barrier()
        low, high = read_range(row)
        places = identity_places(row, high - low)
        count_ties(row, tile, word, low, high, places)
        cute.arch.barrier()
        found = find_digit(row, need, Boolean(False))
        need, members, rounds = need - found.better, found.members, rounds + 1
        low = low + (found.bin << places)
        high = low + ((Int32(1) << places) - 1)
        if members <= LIST_CANDIDATES:
            list_ties(row, tile, word, low, high)
    return need, members


def sampled_places(row: Any) -> Int32:
    """Places by which ids are shifted to make bins of those that were sampled."""
    return identity_places(row, ~shared_bounds(row, 2)[0])


def identity_bin(row: Any, tile: Any, element: int, places: Int32) -> Int32:
    """Bin of a candidate's id; what is larger than the sampled ones is in the last."""
    digit = shift_right(element_identity(tile, element), places)
    return least_unsigned(digit, Int32(row.specialization.bins - 1))


@cute.jit
def identity_places(row: Any, high: Int32) -> Int32:
    """Places by which ids up to ``high`` are shifted to make bins."""
    places = Int32(33 - row.specialization.bins.bit_length()) - leading_zeros(high)
    return select_(places < 0, Int32(0), places)


@cute.jit
def measure_bin(row: Any, tile: Any, divided: Any, place: Int32, bounded: bool) -> None:
    """Write down the range of words of the candidates in a bin; ``bounded`` if some lie outside its range."""
    bounds = [Float32(float("inf")), Float32(float("-inf"))]
    for element in range_constexpr(2 * tile.vectors):
        bits = distance_bits(row, tile, divided, element)
        if const_expr(bounded):
            bits = select_(is_within(tile, divided, element), bits, Int32(0))
        bounds = widen_scores(bounds, bits, place + BIN_ZERO, tile.bits[element])
    share_scores(row, bounds)


@cute.jit
def share_scores(row: Any, bounds: Any) -> None:
    """Write down a range of scores, the lowest first, as words."""
    worst, best = reverse_order(float_bits(bounds[0])), reverse_order(float_bits(bounds[1]))
    # Floats do not tell the zeros apart: a range that ends in one takes in both, as far as the preset does.
    best = select_(best == NEGATIVE_ZERO_WORD, Int32(POSITIVE_ZERO_WORD), best)
    last = NEGATIVE_ZERO_WORD if row.specialization.zero == ZeroPolicy.BITS else POSITIVE_ZERO_WORD
    zero = (worst == NEGATIVE_ZERO_WORD) | (worst == POSITIVE_ZERO_WORD)
    worst = select_(zero, Int32(last), worst)
    share_bounds(row, [best, ~worst])


@cute.jit
def measure_ties(row: Any, tile: Any, word: Int32, low: Int32, high: Int32) -> None:
    """Write down the range of ids, within a range, of the candidates of one score."""
    bounds = [Int32(-1), Int32(-1)]
    score = word_score(word)
    for element in range_constexpr(2 * tile.vectors):
        identity, member = element_identity(tile, element), is_tied(row, tile, element, score, word, low, high)
        bounds[0] = least_unsigned(bounds[0], select_(member, identity, Int32(-1)))
        bounds[1] = least_unsigned(bounds[1], select_(member, ~identity, Int32(-1)))
    share_bounds(row, bounds)


@cute.jit
def count_ties(row: Any, tile: Any, word: Int32, low: Int32, high: Int32, places: Int32) -> None:
    """Count the candidates of one score by id."""
    score = word_score(word)
    for element in range_constexpr(2 * tile.vectors):
        digit = shift_right(element_identity(tile, element) - low, places)
        count_bin(row, row.layout.digits, digit, is_tied(row, tile, element, score, word, low, high))


@cute.jit
def list_ties(row: Any, tile: Any, word: Int32, low: Int32, high: Int32) -> None:
    """List the candidates of one score whose ids lie within a range."""
    score = word_score(word)
    list_members(row, tile, lambda element: is_tied(row, tile, element, score, word, low, high))


def is_tied(row: Any, tile: Any, element: int, score: Float32, word: Int32, low: Int32, high: Int32) -> Boolean:
    """Whether a candidate's word is that of ``score``, and its id lies within a range."""
    inside = unsigned(element_identity(tile, element) - low) <= unsigned(high - low)
    return inside & is_twin(row, tile, element, score, word)


def is_within(tile: Any, divided: Any, element: int) -> Boolean:
    """Whether a candidate's score lies within a range."""
    score = bits_float(tile.bits[element])
    return (score <= divided.scores[0]) & (score >= divided.scores[1])


@cute.jit
def count_within(row: Any, tile: Any, divided: Any) -> None:
    """Count the candidates within a range in its bins."""
    for element in range_constexpr(2 * tile.vectors):
        place = distance_bits(row, tile, divided, element) - BIN_ZERO
        count_bin(row, row.layout.digits, place, is_within(tile, divided, element))


@cute.jit
def list_bin(row: Any, tile: Any, divided: Any, place: Int32, bounded: bool) -> None:
    """List the candidates in a bin; ``bounded`` if some lie outside its range."""

    def is_listed(element: int) -> Boolean:
        inside = distance_bits(row, tile, divided, element) == place + BIN_ZERO
        return inside & is_within(tile, divided, element) if bounded else inside

    list_members(row, tile, is_listed)


@cute.jit
def list_members(row: Any, tile: Any, is_listed: Any) -> None:
    """Append candidates to the list.

    Few threads have one.  They read it again, since no register can be named
    by a number that is not known before.
    """
    left = Int32(0)
    for element in range_constexpr(2 * tile.vectors):
        left = mark(left, is_listed(element), 1 << element)
    while left != 0:
        element = Int32(31) - leading_zeros(left)
        left = left ^ (Int32(1) << element)
        position = tile.position + (element >> 1) * WARP_CANDIDATES + (element & 1)
        words = fetch(row, candidate_address(row, position), 1)
        append_entry(row, score_word(row.specialization, words[0], words[1]), words[1], position)
    # The votes that follow are slow where the lanes of a warp have not come together again.
    cute.arch.sync_warp()


def is_twin(row: Any, tile: Any, element: int, score: Float32, word: Int32) -> Boolean:
    """Whether a candidate's word is that of ``score``."""
    if row.specialization.zero == ZeroPolicy.BITS:
        return element_word(row, tile, element) == word
    return bits_float(tile.bits[element]) == score
