"""The cut: the worst candidate that is still selected.

Every candidate is selected that is not worse than the cut by (score word, id,
position).  Once few candidates are left that may be the cut, they are listed
and ranked against each other.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, range_constexpr, select_

from ..specialization import LIST_CANDIDATES
from .candidates import WORST_WORD, element_identity, element_position, element_word
from .instructions import (
    add_shared,
    count_ahead,
    count_bits,
    lane_word,
    lanes_where,
    leading_zeros,
    load_shared_words,
    shift_right,
    store_shared,
    store_shared_words,
    take_slot,
    unsigned,
    warp_sum,
)

LARGEST_ID = 2**31 - 1
SHORT_LIST, SHORT_LIST_STEP = 32, 4
"""Candidates in a list that one warp ranks by itself, and how many it compares at a time."""

LIST_PARTS = LIST_CANDIDATES // 32
TIED, TWIN = 1 << 8, 1 << 16
"""Units of an entry's count in which ties of the word, and of word and id, are counted."""


class Cut:
    """The cut, and what the output needs besides.

    Attributes:
        word, identity, position: The worst candidate that is selected.
        twins: Counts of other candidates with the cut's word (from ``TIED`` on), and id besides (``TWIN``).
        total: Candidates selected.
        fullest: Candidates in the fullest bin, under contract ``order``.
    """

    word: Int32
    identity: Int32
    position: Int32
    twins: Int32
    total: Int32
    fullest: Int32


@cute.jit
def no_cut(total: Int32) -> Any:
    """The cut where all ``total`` candidates are selected."""
    cut = Cut()
    cut.word, cut.identity, cut.position = Int32(WORST_WORD), Int32(LARGEST_ID), Int32(LARGEST_ID)
    cut.twins, cut.total = Int32(0), total
    return cut


@cute.jit
def append(row: Any, tile: Any, element: int, member: Boolean) -> None:
    """Append a candidate to the list, whose order does not matter."""
    identity, position = element_identity(tile, element), element_position(tile, element)
    append_entry(row, element_word(row, tile, element), identity, position, member)


@cute.jit
def append_entry(row: Any, word: Int32, identity: Int32, position: Int32, member: Boolean | None = None) -> None:
    """Append a candidate, as its word, id and position, to the list, unless ``member`` is false."""
    slot = take_slot(row.shared + row.layout.list_length, member)
    # Word by word: four words at once would need four registers in a row.
    entry = row.shared + row.layout.list + slot * 16
    store_shared(entry, word, member)
    store_shared(entry + 4, identity, member)
    store_shared(entry + 8, position, member)
    store_shared(entry + 12, Int32(0), member)


@cute.jit
def rank_list(row: Any, members: Int32, need: Int32) -> Any:
    """Make the ``need``-th best of the list the cut, and return its words.  Two barriers, or four.

    The last word counts the candidates ahead of it, those of the same word, and
    those of the same word and id.
    """
    cut = row.shared + row.layout.cut
    cute.arch.barrier()
    if (row.warp == 0) & (members <= SHORT_LIST):
        rank_short_list(row, members, need)
    cute.arch.barrier()
    words = load_shared_words(cut, 4)
    if (members > SHORT_LIST) | (words[3] < 0):
        words = rank_long_list(row, members, need)
    return words


@cute.jit
def rank_short_list(row: Any, members: Int32, need: Int32) -> None:
    """Rank a list that the lanes of this warp hold; the last word is -1 unless one candidate has the cut's rank.

    That of equal candidates, of which some only are selected, is the same.
    """
    inside = row.lane < members
    own = load_shared_words(row.shared + row.layout.list + select_(inside, row.lane, Int32(0)) * 16, 4)
    word, identity = select_(inside, own[0], Int32(WORST_WORD)), select_(inside, own[1], Int32(LARGEST_ID))
    ahead = Int32(0)
    for first in cutlass.range(0, members, SHORT_LIST_STEP, unroll=1):
        # Shuffles run in the order in which they are written, and what uses one waits for it.
        rivals = [[lane_word(each, first + step) for each in (word, identity)] for step in range(SHORT_LIST_STEP)]
        for rival in range_constexpr(SHORT_LIST_STEP):
            ahead = count_ahead(ahead, rivals[rival], [word, identity])
    chosen = inside & (ahead == need - 1)
    lanes = lanes_where(chosen)
    ties = count_bits(lanes_where(inside & (word == lane_word(word, Int32(31) - leading_zeros(lanes))))) - 1
    counts = select_(count_bits(lanes) == 1, ties * TIED, Int32(-1))
    # One lane writes, whether none was chosen or several.
    writer = select_(lanes == 0, Int32(0), Int32(31) - leading_zeros(lanes))
    store_shared_words(row.shared + row.layout.cut, [own[0], own[1], own[2], counts], row.lane == writer)


@cute.jit
def rank_long_list(row: Any, members: Int32, need: Int32) -> Any:
    """Rank a list of up to ``LIST_CANDIDATES``.  Two barriers.

    A warp compares one candidate with 32 others at a time; the last word of an
    entry becomes its counts.
    """
    entries, cut = row.shared + row.layout.list, row.shared + row.layout.cut
    for first in cutlass.range(0, members * LIST_PARTS, row.specialization.warps, unroll=1):
        task = first + row.warp
        index, rival = shift_right(task, Int32(LIST_PARTS.bit_length() - 1)), (task % LIST_PARTS) * 32 + row.lane
        own = load_shared_words(entries + select_(index < members, index, Int32(0)) * 16, 4)
        other = load_shared_words(entries + rival * 16, 4)
        tied = other[0] == own[0]
        score = select_(precedes(other, own), Int32(1), Int32(0)) + select_(tied, Int32(TIED), Int32(0))
        score = score + select_(tied & (other[1] == own[1]), Int32(TWIN), Int32(0))
        # One lane adds for all: counters that many lanes add to take them one by one.
        score = warp_sum(select_((rival < members) & (rival != index), score, Int32(0)))
        add_shared(entries + index * 16 + 12, score, (row.lane == 0) & (score != 0) & (index < members))
    cute.arch.barrier()
    if row.thread < members:
        words = load_shared_words(entries + row.thread * 16, 4)
        store_shared_words(cut, words, (words[3] & (TIED - 1)) == need - 1)
    cute.arch.barrier()
    return load_shared_words(cut, 4)


@cute.jit
def precedes(first: Any, second: Any) -> Boolean:
    """Whether one candidate, as (word, id, position), is better than another."""
    earlier = (first[1] == second[1]) & (first[2] < second[2])
    earlier = (first[0] == second[0]) & ((first[1] < second[1]) | earlier)
    return (unsigned(first[0]) < unsigned(second[0])) | earlier
