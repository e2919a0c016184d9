"""Output in the order of candidate position: count, scan, indexed store.

No thread waits for a shared counter, and every id has the slot that its
position gives it, on every run and every device.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, range_constexpr, select_

from ..policy import ZeroPolicy
from .candidates import WORST_WORD, each_tile, element_identity, element_position, element_word, word_score
from .cut import TIED, TWIN
from .histogram import warp_words
from .instructions import (
    add_above,
    add_lower_lane,
    bits_float,
    float_bits,
    last_lane,
    load_shared,
    load_shared_words,
    raise_tie,
    select_byte,
    stage_above,
    store_above,
    store_shared,
    store_word,
    store_words,
    sum_bytes,
    unsigned,
    warp_sum,
)

POSITIVE_INFINITY = 0x7F800000
NEGATIVE_ZERO_WORD = -(2**31)


@cute.jit
def write_resident(row: Any, tile: Any, cut: Any, k: Int32) -> None:
    """Write the selected ids of a plain row in the order of their positions, then -1.  Two barriers, or one."""
    threshold = word_score(cut.word)
    # Floats do not tell the zeros apart, so a zero counts as tied where the preset does.
    zero = Boolean(row.specialization.zero == ZeroPolicy.BITS) & (threshold == Float32(0.0))
    tied = (cut.twins >= TIED) | zero
    if tied:
        choose_ties(row, tile, cut, threshold)
    else:
        # The next smaller number, which lets the cut itself exceed it; without a cut, what all exceed.
        below = select_(threshold == Float32(0.0), Int32(NEGATIVE_ZERO_WORD + 1), cut.word + 1)
        threshold = select_(cut.word == WORST_WORD, Float32(float("-inf")), word_score(below))
    slots, mine = scan_counts(pack_counts(tile, threshold))
    base = place_warp(row, mine)
    # All lanes have one threshold, which the assembler cannot tell: it would keep every predicate of the count.
    threshold = bits_float(last_lane(float_bits(threshold)))
    if cut.total <= row.layout.staged_ids:
        stage_chosen(row, tile, threshold, slots, base)
        cute.arch.barrier()
        copy_staged(row, cut.total)
    else:
        write_chosen(row, tile, threshold, slots, base)
    fill_unused(row, cut.total, k)


@cute.jit
def stage_chosen(row: Any, tile: Any, threshold: Float32, slots: Any, base: Int32) -> None:
    """Put the selected ids of a plain row into their slots in shared memory, from slot ``base`` on."""
    for vector in range_constexpr(tile.vectors):
        first, packed = slots[vector // 4]
        address = row.shared + row.layout.staged + (base + first) * 4 + select_byte(packed, vector % 4) * 4
        stage_above(
            address,
            threshold,
            [tile.bits[2 * vector], tile.bits[2 * vector + 1]],
            [element_identity(tile, 2 * vector), element_identity(tile, 2 * vector + 1)],
        )


@cute.jit
def copy_staged(row: Any, total: Int32) -> None:
    """Copy ``total`` ids from shared memory to the output, four at a time where the output's alignment allows."""
    staged = row.shared + row.layout.staged
    full = select_((row.output & Int64(15)) == 0, total & ~3, Int32(0))
    for slot in cutlass.range(row.thread * 4, full, row.specialization.threads * 4, unroll=1):
        store_words(row.output + Int64(slot) * 4, load_shared_words(staged + slot * 4, 4))
    for slot in cutlass.range(full + row.thread, total, row.specialization.threads, unroll=1):
        store_word(row.output + Int64(slot) * 4, load_shared(staged + slot * 4))


@cute.jit
def write_streamed(row: Any, cut: Any, k: Int32) -> None:
    """Write the selected ids of any row in the order of their positions, then -1.  One barrier."""
    base = cute.make_rmem_tensor(1, Int32)
    base[0] = Int32(0)
    each_tile(row, count_chosen, cut, base)
    base[0] = place_warp(row, base[0])
    each_tile(row, write_tile, cut, base)
    fill_unused(row, cut.total, k)


@cute.jit
def place_warp(row: Any, mine: Int32) -> Int32:
    """First slot of the warp, which has ``mine``.  One barrier."""
    store_shared(row.shared + row.layout.chosen + row.warp * 4, mine, row.lane == 0)
    cute.arch.barrier()
    return warp_sum(select_(row.lane < row.warp, warp_words(row, row.layout.chosen), Int32(0)))


@cute.jit
def choose_ties(row: Any, tile: Any, cut: Any, threshold: Float32) -> None:
    """Raise the scores of the selected candidates among those that tie with the cut."""
    if (cut.twins >= TWIN) | Boolean(row.specialization.zero == ZeroPolicy.BITS):
        choose_by_word(row, tile, cut, threshold)
    else:
        raise_ties(row, tile, threshold, cut.identity)


@cute.jit
def raise_ties(row: Any, tile: Any, threshold: Float32, last: Int32) -> None:
    """Raise the scores of the candidates that tie with the cut and have no larger id."""
    for element in range_constexpr(2 * tile.vectors):
        tile.bits[element] = raise_tie(tile.bits[element], threshold, element_identity(tile, element), last)


@cute.jit
def choose_by_word(row: Any, tile: Any, cut: Any, threshold: Float32) -> None:
    """Replace the scores of selected candidates by infinity, and of others by ``threshold``."""
    for element in range_constexpr(2 * tile.vectors):
        chosen = is_chosen(row, tile, element, cut)
        tile.bits[element] = select_(chosen, Int32(POSITIVE_INFINITY), float_bits(threshold))


@cute.jit
def is_chosen(row: Any, tile: Any, element: int, cut: Any) -> Boolean:
    """Whether a candidate is not worse than the cut."""
    word, identity = element_word(row, tile, element), element_identity(tile, element)
    same = (identity == cut.identity) & (element_position(tile, element) <= cut.position)
    kept = (word == cut.word) & ((identity < cut.identity) | same)
    return (identity >= 0) & (kept | (unsigned(word) < unsigned(cut.word)))


@cute.jit
def pack_counts(tile: Any, threshold: Float32) -> Any:
    """Selected candidates per vector of a tile, one byte each."""
    words = [Int32(0) for _ in range(-(-tile.vectors // 4))]
    for element in range_constexpr(2 * tile.vectors):
        vector = element // 2
        words[vector // 4] = add_above(words[vector // 4], 1 << (8 * (vector % 4)), tile.bits[element], threshold)
    return words


@cute.jit
def scan_counts(words: Any) -> Any:
    """Slots of this thread's vectors within the warp's, one byte each from a word's first slot; and the warp's total.

    Four vectors of 64 candidates make at most 192 + 62 slots ahead of the last
    one, so bytes do not overflow.
    """
    through = list(words)
    # Step by step, since shuffles run in the order in which they are written.
    for step in range_constexpr(5):
        through = [add_lower_lane(word, 1 << step) for word in through]
    totals = [last_lane(word) for word in through]
    slots, first = [], Int32(0)
    for word in range_constexpr(len(words)):
        slots.append((first, through[word] - words[word] + ((totals[word] * 0x01010101) << 8)))
        first = sum_bytes(totals[word], first)
    return slots, first


@cute.jit
def count_chosen(row: Any, tile: Any, cut: Any, base: Any) -> None:
    """Add the warp's selected candidates of a tile to ``base``."""
    choose_by_word(row, tile, cut, Float32(0.0))
    _, total = scan_counts(pack_counts(tile, Float32(0.0)))
    base[0] = base[0] + total


@cute.jit
def write_tile(row: Any, tile: Any, cut: Any, base: Any) -> None:
    """Write the selected candidates of a tile from slot ``base`` on, and advance it."""
    threshold = Float32(0.0)
    choose_by_word(row, tile, cut, threshold)
    slots, total = scan_counts(pack_counts(tile, threshold))
    write_chosen(row, tile, threshold, slots, base[0])
    base[0] = base[0] + total


@cute.jit
def write_chosen(row: Any, tile: Any, threshold: Float32, slots: Any, base: Int32) -> None:
    """Write the selected candidates of a tile from slot ``base`` on."""
    for vector in range_constexpr(tile.vectors):
        first, packed = slots[vector // 4]
        address = row.output + Int64(base + first) * 4
        store_above(
            address,
            select_byte(packed, vector % 4),
            threshold,
            [tile.bits[2 * vector], tile.bits[2 * vector + 1]],
            [element_identity(tile, 2 * vector), element_identity(tile, 2 * vector + 1)],
        )


@cute.jit
def choose_vector(row: Any, tile: Any, vector: int, cut: Any) -> Any:
    """1 for each of two candidates that is selected, else 0."""
    flags = [is_chosen(row, tile, 2 * vector + element, cut) for element in range(2)]
    return [select_(flag, Int32(1), Int32(0)) for flag in flags]


@cute.jit
def fill_unused(row: Any, first: Int32, k: Int32) -> None:
    """Write -1 to the slots from ``first`` on."""
    for slot in cutlass.range(first + row.thread, k, row.specialization.threads, unroll=1):
        store_word(row.output + Int64(slot) * 4, Int32(-1))
