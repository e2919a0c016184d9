"""Kernels that an owner-sharded exchange has besides those of ``kernels_exchange``.

Every row has one owner, the rank that merges it.  In launch order:
``wait_writable``, ``pack`` into local memory, ``push_to_owners``, ``publish``,
``wait``, selection of the own rows, then ``return_ids``, ``publish_returned``,
``wait_returned``, ``collect``, and ``complete``.

Memory order.  As for the candidates: plain stores of ``return_ids``, a release
at system scope by a later kernel of the same stream, an acquire at system scope
by the reader's ``wait_returned``, and plain loads of a later kernel.

Returned ids need no second slot and no acknowledgement, under either
discipline: an owner returns the ids of an epoch after it acquired every peer's
``published`` of the same epoch, which a peer releases after its ``collect`` of
the previous one.  The inbox is read before ``complete`` as ever, so what keeps
its slots from being overwritten is unchanged, and merges with and without
owners may follow one another.
"""

import triton
import triton.language as tl

from .kernels_exchange import poll, slot_offset
from .kernels_state import ERROR_KIND, NO_ERROR, RETURN_TIMEOUT, current_epoch, has_failed, reached, record_error


@triton.jit(do_not_specialize=["owned_rows"])
def push_to_owners(
    packed: tl.tensor,
    peer_addresses: tl.tensor,
    state: tl.tensor,
    owned_rows: tl.tensor,
    slot_words: tl.tensor,
    world_size: tl.constexpr,
    rank: tl.constexpr,
    local_candidates: tl.constexpr,
    slots: tl.constexpr,
    inbox_offset: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Copy each row's candidates into the inbox of its owner.  Grid (rows, tiles of ``block`` words).

    ``packed`` holds this rank's candidates of all rows.  Row r belongs to rank
    ``r // owned_rows``, which keeps it as row ``r % owned_rows`` of its inbox.
    """
    if not has_failed(state):
        row = tl.program_id(0).to(tl.int64)
        word = tl.program_id(1) * block + tl.arange(0, block)
        inside = word < local_candidates * 2
        offset = slot_offset(current_epoch(state), slot_words, slots)
        offset += ((row % owned_rows) * world_size + rank) * (local_candidates * 2)
        remote = (tl.load(peer_addresses + row // owned_rows) + inbox_offset).to(tl.pointer_type(tl.int32))
        tl.store(
            remote + offset + word, tl.load(packed + row * (local_candidates * 2) + word, mask=inside), mask=inside
        )


@triton.jit(do_not_specialize=["first_row", "k"])
def return_ids(
    returned_ids: tl.tensor,
    peer_addresses: tl.tensor,
    state: tl.tensor,
    first_row: tl.tensor,
    k: tl.tensor,
    world_size: tl.constexpr,
    rank: tl.constexpr,
    returned_ids_offset: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Copy the ids of this rank's rows to every peer.  Grid (own rows, tiles of ``block`` slots, W - 1)."""
    if not has_failed(state):
        row = (first_row + tl.program_id(0)).to(tl.int64)
        slot = tl.program_id(1) * block + tl.arange(0, block)
        peer = (rank + 1 + tl.program_id(2)) % world_size
        inside = slot < k
        remote = (tl.load(peer_addresses + peer) + returned_ids_offset).to(tl.pointer_type(tl.int32))
        tl.store(remote + row * k + slot, tl.load(returned_ids + row * k + slot, mask=inside), mask=inside)


@triton.jit
def publish_returned(
    peer_addresses: tl.tensor, state: tl.tensor, rank: tl.constexpr, returned_offset: tl.constexpr
) -> None:
    """Release to one peer that this rank returned its ids of the epoch.  Grid (W,), own rank included."""
    if not has_failed(state):
        returned = (tl.load(peer_addresses + tl.program_id(0)) + returned_offset).to(tl.pointer_type(tl.int64))
        tl.atomic_xchg(returned + rank, current_epoch(state), sem="release", scope="sys")


@triton.jit(do_not_specialize=["max_polls"])
def wait_returned(returned: tl.tensor, state: tl.tensor, max_polls: tl.tensor) -> None:
    """Wait until one owner has returned its ids of the epoch.  Grid (W,), one program per owner."""
    owner = tl.program_id(0)
    # Another program of this launch may be recording its error: the read is atomic.
    failure = tl.atomic_add(state + ERROR_KIND, tl.cast(0, tl.int64), sem="relaxed", scope="gpu")
    if failure == NO_ERROR:
        epoch = current_epoch(state)
        observed = poll(returned + owner, epoch, max_polls)
        if not reached(observed, epoch):
            record_error(state, RETURN_TIMEOUT, owner, epoch, observed)


@triton.jit(do_not_specialize=["output_stride", "k"])
def collect(
    returned_ids: tl.tensor,
    output: tl.tensor,
    state: tl.tensor,
    output_stride: tl.tensor,
    k: tl.tensor,
    block: tl.constexpr,
) -> None:
    """Copy the ids of all rows to the output, -1 once an error is recorded.  Grid (rows, tiles of ``block`` slots)."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1) * block + tl.arange(0, block)
    live = tl.where(has_failed(state), 0, k)
    ids = tl.load(returned_ids + row * k + slot, mask=slot < live, other=-1)
    tl.store(output + row * output_stride + slot, ids, mask=slot < k)
