"""Selection: the K best candidates of each row, by the total order.

The total order is score descending, then lowest id.  A candidate becomes one
int64 key that is larger when the candidate is better::

    key = score word << 31 | (2^31 - 1 - id)      padding: -1

where the score word is the order-preserving image of the fp32 bits in 32 bits.
Keys are distinct for distinct (score class, id), so comparing keys decides
everything, and the id is recovered from the key.

Tiles of candidates stream through a bitonic network (Batcher, Sorting networks
and their applications, 1968): each tile is sorted the other way round, so the
lane-wise maximum with the best so far holds the best of both and is bitonic.

Ids in the order of candidate position take a second pass over the tiles: the
k-th best key is the cut, and prefix sums give a slot to every candidate above
it and to the first ones equal to it (Blelloch, Prefix sums and their
applications, 1990, section 1.3, split).
"""

import triton
import triton.language as tl

from .kernels_exchange import slot_offset
from .kernels_state import LARGEST_ID, current_epoch, has_failed

NAN_FIRST = tl.constexpr(1)
NAN_BITS = tl.constexpr(2)
ZERO_EQUAL = tl.constexpr(0)

NEAREST_ZERO = tl.constexpr(-2147483648)  # 0x80000000, -0.0 as fp32
INFINITY_BITS = tl.constexpr(0x7F800000)
WORD_MASK = tl.constexpr(0xFFFFFFFF)


@triton.jit
def score_word(bits: tl.tensor, nan: tl.constexpr, zero: tl.constexpr) -> tl.tensor:
    """Order-preserving image of fp32 bits (int32) as an int64 within 0..2^32-1."""
    wide = bits.to(tl.int64)
    word = tl.where(wide < 0, ~wide & WORD_MASK, wide + 0x80000000)
    if zero == ZERO_EQUAL:
        word = tl.where(bits == NEAREST_ZERO, 0x80000000, word)
    if nan != NAN_BITS:
        is_nan = (wide & 0x7FFFFFFF) > INFINITY_BITS
        word = tl.where(is_nan, WORD_MASK if nan == NAN_FIRST else 0, word)
    return word


@triton.jit
def exchange_lanes(keys: tl.tensor, falling: tl.tensor, size: tl.constexpr, distance: tl.constexpr) -> tl.tensor:
    """Order the keys of each pair of lanes that lie ``distance`` apart."""
    pairs = tl.reshape(keys, [size // (2 * distance), 2, distance])
    # The sum of a pair less the own key is the other key, also when the sum wraps.
    other = tl.reshape(tl.sum(pairs, axis=1, keep_dims=True) - pairs, [size])
    first = (tl.arange(0, size) & distance) == 0
    return tl.where(first == falling, tl.maximum(keys, other), tl.minimum(keys, other))


@triton.jit
def merge_runs(keys: tl.tensor, falling: tl.tensor, size: tl.constexpr, stage: tl.constexpr) -> tl.tensor:
    """Sort each bitonic run of 2^stage keys, falling where ``falling`` holds."""
    for step in tl.static_range(stage):
        keys = exchange_lanes(keys, falling, size, 1 << (stage - 1 - step))
    return keys


@triton.jit
def sort_rising(keys: tl.tensor, size: tl.constexpr, stages: tl.constexpr) -> tl.tensor:
    """Sort 2^stages keys, smallest first."""
    for stage in tl.static_range(1, stages + 1):
        # Bit ``stages`` of a lane is never set: the last stage rises everywhere.
        keys = merge_runs(keys, ((tl.arange(0, size) >> stage) & 1) == 1, size, stage)
    return keys


@triton.jit
def read_keys(
    candidates: tl.tensor,
    row: tl.tensor,
    index: tl.tensor,
    count: tl.tensor,
    source_candidates: tl.tensor,
    source_words: tl.tensor,
    row_words: tl.tensor,
    from_peers: tl.constexpr,
    nan: tl.constexpr,
    zero: tl.constexpr,
) -> tl.tensor:
    """Keys of candidates ``index`` of a row; padding beyond ``count`` and for negative ids."""
    inside = index < count
    source = (index // source_candidates).to(tl.int64)
    offset = row * row_words + (index % source_candidates) * 2
    if from_peers:
        base = tl.load(candidates + source, mask=inside, other=0).to(tl.pointer_type(tl.int32))
        words = base + offset
    else:
        words = candidates + source * source_words + offset
    bits = tl.load(words, mask=inside, other=0)
    identity = tl.load(words + 1, mask=inside, other=-1).to(tl.int64)
    key = (score_word(bits, nan, zero) << 31) | (LARGEST_ID - identity)
    return tl.where(identity < 0, -1, key)


@triton.jit
def read_ids(keys: tl.tensor) -> tl.tensor:
    """Ids of keys, -1 for padding."""
    return tl.where(keys < 0, -1, LARGEST_ID - (keys & LARGEST_ID)).to(tl.int32)


@triton.jit
def store_by_position(
    candidates: tl.tensor,
    target: tl.tensor,
    best: tl.tensor,
    row: tl.tensor,
    live: tl.tensor,
    count: tl.tensor,
    source_candidates: tl.tensor,
    source_words: tl.tensor,
    row_words: tl.tensor,
    k: tl.tensor,
    from_peers: tl.constexpr,
    nan: tl.constexpr,
    zero: tl.constexpr,
    size: tl.constexpr,
) -> tl.tensor:
    """Store the ids of the k best candidates of a row in the order of their positions; return how many there are.

    ``best`` holds the best keys in falling order, the first k of them or all.
    """
    lane = tl.arange(0, size)
    # With fewer than k valid candidates the cut is the least key that one can have: all are selected.
    cut = tl.maximum(tl.sum(tl.where(lane == k - 1, best, 0), axis=0), 0)
    most_equal = k - tl.sum((best > cut).to(tl.int32), axis=0)
    above = tl.cast(0, tl.int32)
    equal = tl.cast(0, tl.int32)
    for start in range(0, live, size):
        keys = read_keys(
            candidates, row, start + lane, count, source_candidates, source_words, row_words, from_peers, nan, zero
        )
        is_above = keys > cut
        is_equal = keys == cut
        equal_so_far = equal + tl.cumsum(is_equal.to(tl.int32), axis=0)
        slot = above + tl.cumsum(is_above.to(tl.int32), axis=0) + tl.minimum(equal_so_far, most_equal) - 1
        selected = is_above | (is_equal & (equal_so_far <= most_equal))
        tl.store(target + slot, read_ids(keys), mask=selected)
        above += tl.sum(is_above.to(tl.int32), axis=0)
        equal += tl.sum(is_equal.to(tl.int32), axis=0)
    return above + tl.minimum(equal, most_equal)


@triton.jit(do_not_specialize=["count", "source_candidates", "source_words", "row_words", "output_stride", "k"])
def select(
    candidates: tl.tensor,
    output: tl.tensor,
    state: tl.tensor,
    count: tl.tensor,
    source_candidates: tl.tensor,
    source_words: tl.tensor,
    row_words: tl.tensor,
    slot_words: tl.tensor,
    output_stride: tl.tensor,
    k: tl.tensor,
    from_peers: tl.constexpr,
    slots: tl.constexpr,
    has_state: tl.constexpr,
    nan: tl.constexpr,
    zero: tl.constexpr,
    size: tl.constexpr,
    stages: tl.constexpr,
    by_position: tl.constexpr,
) -> None:
    """Write the ids of the k best candidates of each row, -1 in unused slots.  Grid (rows,).

    They stand best first, or with ``by_position`` in the order of the
    candidates, of which the first of equal ones are selected.

    Candidate i of a row comes from source ``i // source_candidates``.  With
    ``from_peers`` the argument ``candidates`` is an int64 table of addresses,
    one per source, else sources lie ``source_words`` apart; a source's rows lie
    ``row_words`` apart.  ``size`` = 2^stages is at least min(k, count).  Writes
    -1 everywhere once an error is recorded.
    """
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, size)
    best = tl.full((size,), -1, tl.int64)
    live = count
    if has_state:
        candidates += slot_offset(current_epoch(state), slot_words, slots)
        live = tl.where(has_failed(state), 0, count)
    for start in range(0, live, size):
        keys = read_keys(
            candidates, row, start + lane, count, source_candidates, source_words, row_words, from_peers, nan, zero
        )
        best = tl.maximum(best, sort_rising(keys, size, stages))
        best = merge_runs(best, lane >= 0, size, stages)
    target = output + row * output_stride
    if by_position:
        filled = store_by_position(
            candidates,
            target,
            best,
            row,
            live,
            count,
            source_candidates,
            source_words,
            row_words,
            k,
            from_peers,
            nan,
            zero,
            size,
        )
    else:
        tl.store(target + lane, read_ids(best), mask=lane < k)
        filled = size
    for start in range(filled, k, size):
        tl.store(target + start + lane, tl.full((size,), -1, tl.int32), mask=start + lane < k)
