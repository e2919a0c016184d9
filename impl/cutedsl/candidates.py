"""The candidates of one row, as the threads of a CTA hold them.

Each warp owns consecutive candidates, so that "earlier position" means lower
warp, then lower vector, then lower lane.  A vector is a pair of neighbouring
candidates; the vectors of a warp's lanes lie next to each other, which makes
the loads of a warp one run of memory.

A candidate is a score word and an id.  The word orders scores: smaller, as an
unsigned number, is better.  Padding has the worst word and id -1.

In memory a candidate is a score's bits and an id.  One that came from another
rank in a packet has the packet's phase in place of its id's sign, and padding
is a score that candidates do not have (see ``merge``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint32, const_expr, range_constexpr, select_

from ..policy import NanPolicy, ZeroPolicy
from ..specialization import SelectorSpecialization, SharedLayout
from .instructions import (
    bits_float,
    hidden,
    high_product,
    load_candidate,
    load_long,
    load_packets,
    load_pairs,
    reverse_order,
)

WORST_WORD = -1
NEGATIVE_ZERO = -(2**31)
INFINITY = 0x7F800000
MAGNITUDE = 0x7FFFFFFF
CANDIDATE_BYTES = 8
STREAMED_VECTORS = 2
"""Vectors of a tile where the row is read again in every pass."""

PADDING_BITS, PADDING_ID = -1, 2**31 - 1
"""Score bits and id of padding in a packet."""

WARP_CANDIDATES = 64
"""Candidates that one vector of every lane of a warp holds."""


class ScoreRange:
    """A range of scores that bins divide evenly.

    Attributes:
        words: Best and worst word, and whether bins divide the range; registers.
        scores: Best and worst score, and the reciprocal of their distance; registers.
    """

    def __init__(self) -> None:
        self.words, self.scores = cute.make_rmem_tensor(3, Int32), cute.make_rmem_tensor(3, Float32)


class Row:
    """What the threads of a CTA know of their row.

    Attributes:
        specialization: What is fixed at compile time.
        layout: Shared memory of the CTA.
        thread, lane, warp: Where this thread stands.
        shared: Address of the shared memory.
        base: Address of the row's first candidate; with ``peers`` the offset in each source.
        table: Address of the sources' addresses.
        source_bytes, source_candidates, source_magic: Distance and size of a source, and its reciprocal.
        count: Candidates of the row.
        warp_vectors: Vectors per lane of each warp's share.
        tiles: Tiles of the share, where the row is read again in every pass.
        range: What first-pass bins divide evenly, see ``ScoreRange``.
        packed: Whether candidates lie in packets, all of which have arrived.
        ahead: Distance of the row to bring into the L2 cache, 0 for none; None where nothing is brought there.
        row_bytes: Distance of two rows.
    """

    packed: bool = False
    ahead: Any = None
    row_bytes: Int64
    count: Int32
    base: Int64
    table: Int64
    source_bytes: Int64
    source_candidates: Int32
    source_magic: Int32
    warp_vectors: Int32
    tiles: Int32
    output: Int64

    def __init__(self, specialization: SelectorSpecialization, thread: Int32, shared: Int32) -> None:
        self.specialization = specialization
        self.layout = SharedLayout(specialization)
        self.thread, self.lane, self.warp = thread, thread & 31, thread >> 5
        self.shared = shared
        self.range = ScoreRange()


class Tile:
    """Candidates that one thread holds in registers.

    Attributes:
        position: Position of its first candidate in the row.
        bits: fp32 bits of the scores, a register array; the output may replace them.
        pairs: The vectors as they were read; each has a score's bits, its id, and the same of the next candidate.
        vectors: Vectors of the tile.
    """

    position: Int32
    bits: Any
    pairs: list[list[Int32]]
    vectors: int


@cute.jit
def read_tile(row: Any, first_vector: Int32) -> Any:
    """Issue the loads of one tile of a row that is read again in every pass."""
    tile = Tile()
    tile.vectors = STREAMED_VECTORS
    tile.position = ((row.warp * row.warp_vectors + first_vector) * 32 + row.lane) * 2
    tile.pairs = [read_pair(row, tile.position, first_vector, vector) for vector in range(tile.vectors)]
    tile.bits = cute.make_rmem_tensor(2 * tile.vectors, Int32)
    return tile


@cute.jit
def read_full_tile(row: Any) -> Any:
    """Issue the loads of a row that fills the CTA's registers."""
    tile = place_full_tile(row)
    tile.pairs = [read_full_pair(row, tile.position, vector) for vector in range(tile.vectors)]
    return tile


@cute.jit
def place_full_tile(row: Any) -> Any:
    """Return a tile of a row that fills the CTA's registers, without what it holds."""
    tile = Tile()
    tile.vectors = row.specialization.vectors
    tile.position = ((row.warp * tile.vectors) * 32 + row.lane) * 2
    tile.bits = cute.make_rmem_tensor(2 * tile.vectors, Int32)
    return tile


@cute.jit
def settle_tile(row: Any, tile: Any) -> None:
    """Distribute what was read.  Waits for the loads."""
    for vector in range_constexpr(tile.vectors):
        settle_vector(tile, vector)


@cute.jit
def settle_vector(tile: Any, vector: int) -> Int32:
    """Take the scores of a vector over.  Waits for its load; returns a negative number if any id is."""
    words = tile.pairs[vector]
    tile.bits[2 * vector] = words[0]
    tile.bits[2 * vector + 1] = words[2]
    return words[1] | words[3]


@cute.jit
def read_pair(row: Any, first_position: Int32, first_vector: Int32, vector: int) -> Any:
    """Bits and id of two neighbouring candidates; id -1 beyond the warp's share or the row."""
    position = hidden(first_position) + WARP_CANDIDATES * vector
    limit = select_(first_vector + vector < row.warp_vectors, row.count, Int32(0))
    inside = [position + element < limit for element in range(2)]
    places = [select_(inside[element], position + element, Int32(0)) for element in range(2)]
    if const_expr(row.specialization.paired):
        return fetch(row, candidate_address(row, places[0]), 2, inside[0])
    first = fetch(row, candidate_address(row, places[0]), 1, inside[0])
    return first + fetch(row, candidate_address(row, places[1]), 1, inside[1])


@cute.jit
def fetch(row: Any, address: Int64, count: int, inside: Boolean | None = None) -> Any:
    """Bits and id of one candidate or two neighbouring ones; ids are -1 where ``inside`` is false."""
    if const_expr(not row.packed):
        return load_pairs(address, 0, inside) if count == 2 else load_candidate(address, 0, inside)
    words = load_packets(address, 0, count)
    for place in range_constexpr(1, 2 * count, 2):
        identity = words[place] & PADDING_ID
        padding = (words[place - 1] == PADDING_BITS) & (identity == PADDING_ID)
        if const_expr(inside is not None):
            padding = padding | ~Boolean(inside)
        words[place] = select_(padding, Int32(-1), identity)
    return words


@cute.jit
def read_full_pair(row: Any, first_position: Int32, vector: int) -> Any:
    """As ``read_pair``, where the row fills the CTA's registers."""
    if const_expr(row.specialization.sources == "one"):
        start = row.base + Int64(hidden(first_position)) * CANDIDATE_BYTES
        offset = WARP_CANDIDATES * CANDIDATE_BYTES * vector
        if const_expr(row.specialization.paired):
            return load_pairs(start, offset)
        return load_candidate(start, offset) + load_candidate(start, offset + CANDIDATE_BYTES)
    position = hidden(first_position) + WARP_CANDIDATES * vector
    if const_expr(row.specialization.paired):
        return load_pairs(candidate_address(row, position), 0)
    first = load_candidate(candidate_address(row, position), 0)
    return first + load_candidate(candidate_address(row, position + 1), 0)


@cute.jit
def candidate_address(row: Any, position: Int32) -> Int64:
    """Address of a candidate."""
    if const_expr(row.specialization.sources == "one"):
        return row.base + Int64(position) * CANDIDATE_BYTES
    if const_expr(row.specialization.streamed):
        # The reciprocal is exact for as many candidates as registers hold.
        source = Int32(Uint32(position) // Uint32(row.source_candidates))
    else:
        source = high_product(position, row.source_magic)
    within = Int64(position - source * row.source_candidates) * CANDIDATE_BYTES
    if const_expr(row.specialization.sources == "peers"):
        return load_long(row.table + Int64(source) * 8) + row.base + within
    return row.base + Int64(source) * row.source_bytes + within


@cute.jit
def score_word(specialization: SelectorSpecialization, bits: Int32, identity: Int32) -> Int32:
    """Word of a score under the preset, or the worst one for padding."""
    if const_expr(specialization.zero == ZeroPolicy.EQUAL):
        bits = select_(bits == NEGATIVE_ZERO, Int32(0), bits)
    word = reverse_order(bits)
    if const_expr(specialization.nan != NanPolicy.BITS):
        is_nan = (bits & MAGNITUDE) > INFINITY
        word = select_(is_nan, Int32(WORST_WORD if specialization.nan == NanPolicy.LAST else 0), word)
    return select_(identity < 0, Int32(WORST_WORD), word)


@cute.jit
def each_tile(row: Any, body: cutlass.Constexpr[Callable[..., None]], *arguments: Any) -> None:
    """Read the row tile by tile and call ``body(row, tile, *arguments)`` for each."""
    for index in cutlass.range(row.tiles, unroll=1):
        tile = read_tile(row, index * STREAMED_VECTORS)
        settle_tile(row, tile)
        body(row, tile, *arguments)


def element_position(tile: Any, element: int) -> Int32:
    """Position of a tile's candidate in the row."""
    return hidden(tile.position) + (WARP_CANDIDATES * (element // 2) + element % 2)


def element_identity(tile: Any, element: int) -> Int32:
    """Id of a tile's candidate."""
    return hidden(tile.pairs[element // 2][2 * (element % 2) + 1])


@cute.jit
def element_word(row: Any, tile: Any, element: int) -> Int32:
    """Score word of a tile's candidate."""
    return score_word(row.specialization, hidden(tile.bits[element]), element_identity(tile, element))


def is_valid(row: Any, tile: Any, element: int) -> Boolean:
    """Whether a tile's candidate is no padding."""
    return element_identity(tile, element) >= 0


def word_score(word: Int32) -> Any:
    """Score of a word, fp32."""
    return bits_float(reverse_order(word))
