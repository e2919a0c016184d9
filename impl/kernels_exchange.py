"""Kernels of one exchange, in launch order.

``wait_writable`` (acknowledged discipline only), ``pack``, ``push``,
``publish``, ``wait``, then selection, then ``complete``.  Every rank writes
remote memory and polls local memory only.

Memory order.  The payload is written by plain stores of ``push``; ``publish``
is a later kernel of the same stream, so those stores happen before its release
at system scope, and the release is cumulative over them (PTX ISA, Memory
Consistency Model, causality order).  ``wait`` acquires at system scope, and the
selection is a later kernel again.  Triton before 3.9 puts no CTA barrier in
front of a release and none behind an acquire whose result is unused
(https://github.com/triton-lang/triton/pull/10816), so the barriers stand here.

Once an error is recorded, nothing is written to a peer any more: a rank that
gave up must not overwrite memory that a slow peer may still read.
"""

import triton
import triton.language as tl

from .kernels_state import (
    ACKNOWLEDGE_TIMEOUT,
    EPOCH,
    ERROR_KIND,
    INDEX_RANGE,
    LARGEST_ID,
    NO_ERROR,
    PUBLISH_TIMEOUT,
    ROW_MISMATCH,
    current_epoch,
    has_failed,
    reached,
    record_error,
)

NEGATIVE_INFINITY_BITS = tl.constexpr(-8388608)  # 0xFF800000, -inf as fp32


@triton.jit
def slot_offset(epoch: tl.tensor, slot_words: tl.tensor, slots: tl.constexpr) -> tl.tensor:
    """Offset of the inbox slot that holds an epoch, in words of int32."""
    slot = epoch & (slots - 1)
    return slot * slot_words


@triton.jit
def poll(flag: tl.tensor, target: tl.tensor, max_polls: tl.tensor) -> tl.tensor:
    """Read a local flag until it reaches a target, at most ``max_polls`` times.

    Returns the last value read.  The acquire covers the whole program.
    """
    observed = tl.atomic_add(flag, tl.cast(0, tl.int64), sem="acquire", scope="sys")
    remaining = tl.cast(max_polls, tl.int64) - 1
    while (not reached(observed, target)) & (remaining > 0):
        observed = tl.atomic_add(flag, tl.cast(0, tl.int64), sem="acquire", scope="sys")
        remaining -= 1
    tl.debug_barrier()
    return observed


@triton.jit(do_not_specialize=["max_polls"])
def wait_writable(acknowledged: tl.tensor, state: tl.tensor, max_polls: tl.tensor) -> None:
    """Wait until every peer has acknowledged the previous epoch.  Grid (W,), one program per peer."""
    peer = tl.program_id(0)
    # Another program of this launch may be recording its error: the read is atomic.
    failure = tl.atomic_add(state + ERROR_KIND, tl.cast(0, tl.int64), sem="relaxed", scope="gpu")
    if failure == NO_ERROR:
        target = current_epoch(state) - 1
        observed = poll(acknowledged + peer, target, max_polls)
        if not reached(observed, target):
            record_error(state, ACKNOWLEDGE_TIMEOUT, peer, target, observed)


@triton.jit(do_not_specialize=["width", "scores_stride", "indices_stride"])
def pack(
    scores: tl.tensor,
    local_indices: tl.tensor,
    row_starts: tl.tensor,
    destination: tl.tensor,
    state: tl.tensor,
    width: tl.tensor,
    scores_stride: tl.tensor,
    indices_stride: tl.tensor,
    row_words: tl.tensor,
    slot_words: tl.tensor,
    world_size: tl.constexpr,
    rank: tl.constexpr,
    interleave: tl.constexpr,
    local_candidates: tl.constexpr,
    slots: tl.constexpr,
    has_row_starts: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Write this rank's candidates as pairs (fp32 bits, global id).  Grid (rows, tiles of ``block``).

    ``destination`` points at this rank's slice of row 0; a row's slices are
    ``row_words`` apart.  Index -1 becomes (-inf, -1).  An index whose column
    lies outside the shard, or whose global id does not fit int32, becomes
    padding too, and is recorded as an error: the selection of this rank fails.
    """
    row = tl.program_id(0).to(tl.int64)
    candidate = tl.program_id(1) * block + tl.arange(0, block)
    inside = candidate < local_candidates
    epoch = current_epoch(state)
    local_index = tl.load(local_indices + row * indices_stride + candidate, mask=inside, other=-1).to(tl.int64)
    column = local_index
    if has_row_starts:
        column += tl.load(row_starts + row)
    period = world_size * interleave
    global_id = (local_index // interleave) * period + rank * interleave + local_index % interleave
    chosen = local_index >= 0
    usable = chosen & (column >= 0) & (column < width) & (global_id <= LARGEST_ID)
    bits = tl.load(scores + row * scores_stride + column, mask=usable, other=0.0).to(tl.int32, bitcast=True)
    words = destination + slot_offset(epoch, slot_words, slots) + row * row_words + candidate * 2
    tl.store(words, tl.where(usable, bits, NEGATIVE_INFINITY_BITS), mask=inside)
    tl.store(words + 1, tl.where(usable, global_id, -1).to(tl.int32), mask=inside)
    offender = tl.max(tl.where(chosen & (usable == 0), local_index, -1), axis=0)
    if offender >= 0:
        record_error(state, INDEX_RANGE, row, epoch, offender)


@triton.jit
def push(
    inbox: tl.tensor,
    peer_addresses: tl.tensor,
    state: tl.tensor,
    slot_words: tl.tensor,
    world_size: tl.constexpr,
    rank: tl.constexpr,
    local_candidates: tl.constexpr,
    slots: tl.constexpr,
    inbox_offset: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Copy this rank's slice into every peer's inbox.  Grid (rows, tiles of ``block`` words, W - 1)."""
    if not has_failed(state):
        row = tl.program_id(0).to(tl.int64)
        word = tl.program_id(1) * block + tl.arange(0, block)
        peer = (rank + 1 + tl.program_id(2)) % world_size
        inside = word < local_candidates * 2
        offset = slot_offset(current_epoch(state), slot_words, slots)
        offset += (row * world_size + rank) * (local_candidates * 2)
        remote = (tl.load(peer_addresses + peer) + inbox_offset).to(tl.pointer_type(tl.int32))
        tl.store(remote + offset + word, tl.load(inbox + offset + word, mask=inside), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def publish(
    peer_addresses: tl.tensor,
    state: tl.tensor,
    rows: tl.tensor,
    world_size: tl.constexpr,
    rank: tl.constexpr,
    published_offset: tl.constexpr,
    rows_offset: tl.constexpr,
) -> None:
    """Tell one peer the number of rows, then release the epoch to it.  Grid (W,), own rank included."""
    if not has_failed(state):
        epoch = current_epoch(state)
        base = tl.load(peer_addresses + tl.program_id(0))
        row_counts = (base + rows_offset).to(tl.pointer_type(tl.int64))
        tl.store(row_counts + (epoch & 1) * world_size + rank, tl.cast(rows, tl.int64))
        tl.debug_barrier()
        published = (base + published_offset).to(tl.pointer_type(tl.int64))
        tl.atomic_xchg(published + rank, epoch, sem="release", scope="sys")


@triton.jit(do_not_specialize=["rows", "max_polls"])
def wait(
    published: tl.tensor,
    published_rows: tl.tensor,
    state: tl.tensor,
    rows: tl.tensor,
    max_polls: tl.tensor,
    world_size: tl.constexpr,
) -> None:
    """Wait for one source's epoch and compare its number of rows.  Grid (W,), one program per source."""
    source = tl.program_id(0)
    failure = tl.atomic_add(state + ERROR_KIND, tl.cast(0, tl.int64), sem="relaxed", scope="gpu")
    if failure == NO_ERROR:
        epoch = current_epoch(state)
        observed = poll(published + source, epoch, max_polls)
        if reached(observed, epoch):
            peer_rows = tl.load(published_rows + (epoch & 1) * world_size + source)
            if peer_rows != rows:
                record_error(state, ROW_MISMATCH, source, epoch, peer_rows)
        else:
            record_error(state, PUBLISH_TIMEOUT, source, epoch, observed)


@triton.jit
def complete(
    peer_addresses: tl.tensor,
    state: tl.tensor,
    world_size: tl.constexpr,
    rank: tl.constexpr,
    acknowledged_offset: tl.constexpr,
    acknowledges: tl.constexpr,
) -> None:
    """Acknowledge the epoch to every rank, then advance the own counter.  Grid (1,).

    A kernel of its own, and the last one: all earlier kernels of the exchange
    read the counter, and one program alone may advance it.
    """
    if not has_failed(state):
        epoch = current_epoch(state)
        if acknowledges:
            for peer in range(world_size):
                acknowledged = (tl.load(peer_addresses + peer) + acknowledged_offset).to(tl.pointer_type(tl.int64))
                tl.atomic_xchg(acknowledged + rank, epoch, sem="release", scope="sys")
        # Every lane has read the counter before one of them advances it.
        tl.debug_barrier()
        tl.store(state + EPOCH, epoch)
