"""A whole merge in one launch: pack, send, wait, select, complete.

Every candidate is a message of its own, a *packet* of 64 bits: score, id, and a
phase in place of the id's sign, which differs from that of what lay there
before.  A CTA sends the packets of its row to every rank, then polls those of
all ranks until the phases are the new ones, and selects.  So nothing waits for
stores to be performed, and no flag follows them: a candidate may be used as soon
as it is there.  CTAs wait for CTAs of other ranks, so no rank may launch more of
them than it holds at once; then all are sending or have sent before any waits
for long.

Memory order.  A packet is stored and polled by one strong access of 64 bits, of
a vector each element of which is one (PTX ISA, Memory Consistency Model, vector
data types), and carries all that its reader needs, so relaxed order is enough.
Whoever reads it again does so by a strong access behind a barrier behind the
poll: coherence does not let it read anything older.

Phases.  The number of times that a row of an inbox slot has been used lies in
``uses``, and its parity is the phase.  Ranks merge the same rows in every
exchange, so they agree on it.

Slots.  There are two, used in turn.  A CTA more than there are rows releases a
flag to every peer, and acquires theirs, so a merge of no rows is an exchange
too.  A rank sends epoch n + 2 into the slot of n after its own kernel n + 1 has
ended, which had acquired the flag of n + 1 of every peer; and a peer releases
that in its kernel n + 1, which starts after its kernel n has read the slot.  A
flag that is ahead, since a fast peer has begun n + 1, is as good.

Once an error is recorded, no CTA sends any more, and the last one to finish
writes -1 over all that was selected.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint32, const_expr, range_constexpr, select_

from ..policy import NanPolicy
from ..specialization import SelectorSpecialization
from .candidates import (
    CANDIDATE_BYTES,
    PADDING_BITS,
    PADDING_ID,
    WARP_CANDIDATES,
    place_full_tile,
)
from .instructions import (
    acquire_flag,
    any_thread,
    arrive,
    claim_word,
    load_long,
    load_packets,
    load_word,
    peek_word,
    release_flag,
    store_long,
    store_packets,
    store_word,
)
from .selector import open_row, select_resident, select_streamed

ERROR_KIND, FINISHED = 8, 56
"""Byte offsets in the state: kind of the error, whose record follows; CTAs that have finished."""

FAILED_CTA = 2**32
"""What a CTA that knows of an error adds to the counter of finished CTAs, besides 1."""

PUBLISH_TIMEOUT, ROW_MISMATCH, INDEX_RANGE = 1, 3, 4
LARGEST_ID = 2**31 - 1
PAIRS_AT_ONCE = 1024
"""Pairs of candidates whose loads a CTA issues before it uses the first: 2048 candidates of a rank in one go."""

POLLS_PER_PEEK = 64
"""Polls of packets after which a thread looks whether another has recorded an error; a power of two."""


class Exchange:
    """What the CTAs of a merge know: the parameters of ``FusedMerge.merge``, and what follows from them.

    Attributes:
        thread, threads: This thread, and how many the CTA has.
        epoch: Number of the exchange.
        next_peer: Address of the buffer of the next rank.
        row_offset: Offset of the row's packets in a buffer.
        row_uses: Times that they have been used, with this one.
        phase: Phase of the row's packets, in the place where they have it.
    """

    thread: Int32
    threads: int
    epoch: Int64
    next_peer: Int64
    row_offset: Int64
    row_uses: Int32
    phase: Int32

    def __init__(self, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        for name, value in zip(names, values, strict=True):
            setattr(self, name, value)


PARAMETERS: tuple[tuple[str, type], ...] = (
    ("scores", Int64),
    ("local_indices", Int64),
    ("row_starts", Int64),
    ("peers", Int64),
    ("buffer", Int64),
    ("state", Int64),
    ("output", Int64),
    ("scores_stride", Int64),
    ("indices_stride", Int64),
    ("output_stride", Int64),
    ("slot_bytes", Int64),
    ("max_polls", Int64),
    ("packets", Int64),
    ("uses", Int64),
    ("arrived", Int64),
    ("arrived_rows", Int64),
    ("rows", Int32),
    ("width", Int32),
    ("local_candidates", Int32),
    ("world_size", Int32),
    ("rank", Int32),
    ("interleave", Int32),
    ("k", Int32),
)
"""Parameters of the kernel, in order: addresses, strides in elements, distances and offsets in bytes, numbers."""


class FusedMerge:
    """A merge of one specialisation, as ``cute.compile`` takes it."""

    def __init__(self, specialization: SelectorSpecialization) -> None:
        self.specialization = specialization

    @cute.jit
    def __call__(self, ctas: Int32, *values: Any) -> None:
        """Launch the kernel."""
        self.merge(*values).launch(
            grid=[ctas, 1, 1],
            block=[self.specialization.threads, 1, 1],
            smem=self.specialization.shared_bytes,
            min_blocks_per_mp=self.specialization.minimum_ctas,
            preferred_smem_carveout=100,
        )

    @cute.kernel
    def merge(
        self,
        scores: Int64,
        local_indices: Int64,
        row_starts: Int64,
        peers: Int64,
        buffer: Int64,
        state: Int64,
        output: Int64,
        scores_stride: Int64,
        indices_stride: Int64,
        output_stride: Int64,
        slot_bytes: Int64,
        max_polls: Int64,
        packets: Int64,
        uses: Int64,
        arrived: Int64,
        arrived_rows: Int64,
        rows: Int32,
        width: Int32,
        local_candidates: Int32,
        world_size: Int32,
        rank: Int32,
        interleave: Int32,
        k: Int32,
    ) -> None:
        """Merge one row per CTA.  Grid (rows + 1,), no more than the device holds at once.

        Args:
            scores: Address of fp32 [rows, width].
            local_indices: Address of int32 [rows, L].
            row_starts: Address of int32 [rows], or 0.
            peers: Address of int64 [W]: address of each rank's buffer.
            buffer: Address of this rank's buffer.
            state: Address of the exchange's state.
            output: Address of int32 [rows, k].
            scores_stride: Distance of two rows of scores.
            indices_stride: Distance of two rows of indices.
            output_stride: Distance of two rows of the output.
            slot_bytes: Distance of two slots of packets.
            max_polls: Polls of a flag, or of packets, before a peer counts as missing.
            packets: Offset of the packets in a buffer.
            uses: Offset of the numbers of uses int32 [rows, 2].
            arrived: Offset of the flags int64 [W].
            arrived_rows: Offset of the numbers of rows int64 [2, W].
            rows: Rows of this merge.
            width: Columns of the scores.
            local_candidates: Candidates L of each rank.
            world_size: Number of ranks W.
            rank: This rank.
            interleave: Consecutive tokens that one rank owns.
            k: Ids of a row.
        """
        addresses = (scores, local_indices, row_starts, peers, buffer, state, output)
        distances = (scores_stride, indices_stride, output_stride, slot_bytes, max_polls)
        offsets = (packets, uses, arrived, arrived_rows)
        numbers = (rows, width, local_candidates, world_size, rank, interleave, k)
        this = Exchange(tuple(name for name, _ in PARAMETERS), (*addresses, *distances, *offsets, *numbers))
        thread, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        cute.arch.griddepcontrol_wait()
        this.thread, this.threads = thread, self.specialization.threads
        # Read before they are needed, so that no store to a peer waits for its address.
        this.next_peer = load_long(peers + Int64((rank + 1) % world_size) * 8)
        this.epoch = load_long(state) + 1
        failed = Boolean(False)
        if row < rows:
            failed = merge_row(self.specialization, this, row)
        if row >= rows:
            failed = meet_peers(this)
        finish(this, failed)


@cute.jit
def find_row(this: Any, row: Int32) -> None:
    """Find where the packets of a row lie, and their phase."""
    row_bytes = Int64(this.world_size * this.local_candidates) * CANDIDATE_BYTES
    uses = load_long(this.buffer + this.uses + Int64(row) * 8)
    odd = (this.epoch & 1) != 0
    this.row_offset = this.packets + select_(odd, this.slot_bytes, Int64(0)) + Int64(row) * row_bytes
    this.row_uses = select_(odd, Int32(uses >> 32), Int32(uses)) + 1
    this.phase = this.row_uses << 31


@cute.jit
def merge_row(specialization: SelectorSpecialization, this: Any, index: Int32) -> Boolean:
    """Send a row, wait for it and select from it; returns whether the exchange has failed."""
    find_row(this, index)
    wrong = send_row(specialization, this, index)
    row = open_row(specialization, this.output + Int64(index) * this.output_stride * 4)
    row.packed, row.base = True, this.buffer + this.row_offset
    row.count = this.world_size * this.local_candidates
    failed, solved = Boolean(False), Boolean(False)
    if row.count == specialization.capacity:
        tile, late = await_tile(this, row)
        failed = any_thread(late | wrong)
        solved = failed
        if ~failed:
            solved = select_resident(row, tile, this.k)
    else:
        failed = any_thread(await_row(this, row) | wrong)
        solved = failed
    if ~solved:
        select_streamed(row, this.k)
    # All have read it, and the next kernel will.  A merge that failed may have sent nothing, and keeps its epoch.
    place = this.buffer + this.uses + Int64(index) * 8 + (this.epoch & 1) * 4
    store_word(place, this.row_uses, (this.thread == 0) & ~failed)
    return failed


@cute.jit
def send_row(specialization: SelectorSpecialization, this: Any, row: Int32) -> Boolean:
    """Pack this rank's candidates of a row and send them to every rank; returns whether some were not sent."""
    vector = 2 if specialization.paired else 1
    vectors = this.local_candidates // vector
    first_column = load_word(this.row_starts + Int64(row) * 4, 0, this.row_starts != 0)
    offender = cute.make_rmem_tensor(1, Int32)
    offender[0] = Int32(-1)
    failed = peek_word(this.state + ERROR_KIND) != 0
    step = max(this.threads, PAIRS_AT_ONCE)
    for first in cutlass.range(this.thread, vectors, step, unroll=1):
        send_vectors(specialization, this, row, first_column, first, vectors, failed, offender)
    if offender[0] >= 0:
        record_error(this, INDEX_RANGE, Int64(row), Int64(offender[0]))
    return failed | (offender[0] >= 0)


@cute.jit
def send_vectors(
    specialization: SelectorSpecialization,
    this: Any,
    row: Int32,
    first_column: Int32,
    first: Int32,
    vectors: Int32,
    failed: Boolean,
    offender: Any,
) -> None:
    """Pack and send a few vectors of candidates of a row; none behind a wrong index, for which peers wait in vain."""
    turns, vector = max(1, PAIRS_AT_ONCE // this.threads), 2 if specialization.paired else 1
    places = [first + this.threads * turn for turn in range(turns)]
    indices = []
    for turn in range_constexpr(turns):
        address = this.local_indices + (Int64(row) * this.indices_stride + Int64(places[turn]) * vector) * 4
        indices.append([load_word(address + 4 * each, -1, places[turn] < vectors) for each in range(vector)])
    packed = [[pack(specialization, this, row, first_column, index, offender) for index in group] for group in indices]
    slice_start = this.row_offset + Int64(this.rank * this.local_candidates) * CANDIDATE_BYTES
    usable = ~failed & (offender[0] < 0)
    for turn in range_constexpr(turns):
        words = [word for candidate in packed[turn] for word in candidate]
        offset = slice_start + Int64(places[turn]) * (vector * CANDIDATE_BYTES)
        sent = (places[turn] < vectors) & usable
        store_packets(this.next_peer + offset, words, sent)
        store_packets(this.buffer + offset, words, sent & (this.world_size > 1))
        for distance in cutlass.range(2, this.world_size, unroll=1):
            peer = (this.rank + distance) % this.world_size
            store_packets(load_long(this.peers + Int64(peer) * 8) + offset, words, sent)


@cute.jit
def pack(
    specialization: SelectorSpecialization, this: Any, row: Int32, first_column: Int32, index: Int32, offender: Any
) -> Any:
    """Words of a packet with the score and global id of a local index; padding for -1."""
    column = Int64(index) + Int64(first_column)
    turn = Int32(Uint32(index) // Uint32(this.interleave))
    identity = Int64(turn) * Int64(this.world_size * this.interleave)
    identity = identity + Int64(this.rank * this.interleave + (index - turn * this.interleave))
    chosen = index >= 0
    usable = chosen & (column >= 0) & (column < Int64(this.width)) & (identity <= LARGEST_ID)
    address = this.scores + (Int64(row) * this.scores_stride + column) * 4
    bits = load_word(address, PADDING_BITS, usable)
    if const_expr(specialization.nan == NanPolicy.BITS):
        # The one candidate that would be taken for padding.
        usable = usable & ((bits != PADDING_BITS) | (identity != PADDING_ID))
    else:
        # Another NaN is as good.
        bits = select_(usable & (bits == PADDING_BITS), Int32(PADDING_BITS - 1), bits)
    offender[0] = select_(chosen & ~usable, index, offender[0])
    return [bits, select_(usable, Int32(identity), Int32(PADDING_ID)) | this.phase]


@cute.jit
def await_tile(this: Any, row: Any) -> Any:
    """Poll the packets that fill this thread's registers; returns them, and whether some did not come."""
    tile, vectors = place_full_tile(row), row.specialization.vectors
    words = cute.make_rmem_tensor(4 * vectors, Int32)
    start = row.base + Int64(tile.position) * CANDIDATE_BYTES
    left = this.max_polls
    if const_expr(row.specialization.minimum_ctas > 1):
        # Where many rows wait, polls of everything would get in the way of what they wait for.
        left = poll_vectors(this, row, start, words, vectors - 1, left)
    poll_vectors(this, row, start, words, 0, left)
    missing = Int32(-1)
    for place in range_constexpr(1, 4 * vectors, 2):
        words[place] = words[place] ^ this.phase
        missing = select_(words[place] < 0, tile.position + WARP_CANDIDATES * (place // 4), missing)
    tile.pairs = [[words[4 * vector + place] for place in range(4)] for vector in range(vectors)]
    return tile, report_missing(this, missing)


@cute.jit
def poll_vectors(this: Any, row: Any, start: Int64, words: Any, first: int, left: Int64) -> Int64:
    """Poll this thread's vectors from ``first`` on until all packets have arrived; returns how many polls are left."""
    waits, left = Boolean(True), select_(left > 0, left, Int64(1))
    while waits & (left > 0):
        signs = Int32(0)
        for vector in range_constexpr(first, row.specialization.vectors):
            packets = load_vector(row, start, WARP_CANDIDATES * CANDIDATE_BYTES * vector)
            for place in range_constexpr(4):
                words[4 * vector + place] = packets[place]
            signs = signs | (packets[1] ^ this.phase) | (packets[3] ^ this.phase)
        waits, left = signs < 0, spend_poll(this, left)
    return left


@cute.jit
def load_vector(row: Any, start: Int64, offset: int) -> Any:
    """Words of two neighbouring packets."""
    if const_expr(row.specialization.paired):
        return load_packets(start, offset, 2)
    return load_packets(start, offset, 1) + load_packets(start, offset + CANDIDATE_BYTES, 1)


@cute.jit
def await_row(this: Any, row: Any) -> Boolean:
    """Poll the packets of a row that does not fill the CTA's registers; returns whether some did not come."""
    missing, left = Int32(-1), this.max_polls
    for place in cutlass.range(this.thread, row.count, this.threads, unroll=1):
        sign, left = Int32(-1), select_(left > 0, left, Int64(1))
        while (sign < 0) & (left > 0):
            sign = load_packets(row.base + Int64(place) * CANDIDATE_BYTES, 0, 1)[1] ^ this.phase
            left = spend_poll(this, left)
        missing = select_(sign < 0, place, missing)
    return report_missing(this, missing)


@cute.jit
def spend_poll(this: Any, left: Int64) -> Int64:
    """Polls that are left after one more, none once an error is recorded."""
    left = left - 1
    if (Int32(left) & (POLLS_PER_PEEK - 1)) == 0:
        left = select_(peek_word(this.state + ERROR_KIND) != 0, Int64(0), left)
    return left


@cute.jit
def report_missing(this: Any, position: Int32) -> Boolean:
    """Record that the packet at a position did not come, unless it is negative; returns whether it was not."""
    missing = position >= 0
    if missing:
        source = Int32(Uint32(position) // Uint32(this.local_candidates))
        record_error(this, PUBLISH_TIMEOUT, Int64(source), this.epoch - 1)
    return missing


@cute.jit
def meet_peers(this: Any) -> Boolean:
    """Release this exchange's flag to every rank, and await theirs; returns whether it has failed.  One barrier."""
    late = peek_word(this.state + ERROR_KIND) != 0
    if this.thread < this.world_size:
        if ~late:
            publish(this, this.thread)
        late = late | ~await_source(this, this.thread)
    return any_thread(late | (peek_word(this.state + ERROR_KIND) != 0))


@cute.jit
def publish(this: Any, peer: Int32) -> None:
    """Release the exchange, and its number of rows, to a rank."""
    base = load_long(this.peers + Int64(peer) * 8)
    place = (this.epoch & 1) * Int64(this.world_size) + Int64(this.rank)
    store_long(base + this.arrived_rows + place * 8, Int64(this.rows))
    release_flag(base + this.arrived + Int64(this.rank) * 8, this.epoch)


@cute.jit
def await_source(this: Any, source: Int32) -> Boolean:
    """Poll the flag of one rank; returns whether it came, and records an error if not, or if its rows are others."""
    flag = this.buffer + this.arrived + Int64(source) * 8
    observed, left = acquire_flag(flag), this.max_polls - 1
    while (observed - this.epoch < 0) & (left > 0):
        observed, left = acquire_flag(flag), spend_poll(this, left)
    arrived = observed - this.epoch >= 0
    if arrived:
        place = (this.epoch & 1) * Int64(this.world_size) + Int64(source)
        peer_rows = load_long(this.buffer + this.arrived_rows + place * 8)
        if peer_rows != Int64(this.rows):
            record_error(this, ROW_MISMATCH, Int64(source), peer_rows)
    else:
        record_error(this, PUBLISH_TIMEOUT, Int64(source), observed)
    return arrived


@cute.jit
def record_error(this: Any, kind: int, subject: Int64, observed: Int64) -> None:
    """Write the error record unless there is one: the first error wins."""
    if claim_word(this.state + ERROR_KIND, Int64(kind)) == 0:
        store_long(this.state + 16, subject)
        store_long(this.state + 24, this.epoch)
        store_long(this.state + 32, observed)


@cute.jit
def finish(this: Any, failed: Boolean) -> None:
    """The last CTA to finish advances the epoch, or writes -1 everywhere if the exchange has failed.  One barrier."""
    ctas, _, _ = cute.arch.grid_dim()
    cute.arch.barrier()
    if this.thread == 0:
        settle(this, ctas, failed)


@cute.jit
def settle(this: Any, ctas: Int32, failed: Boolean) -> None:
    """Count this CTA as finished, and end the exchange if it is the last.

    The counter's high word counts the CTAs that know of an error: who recorded
    one does, so the last CTA need not read the record.
    """
    before = arrive(this.state + FINISHED, select_(failed, Int64(FAILED_CTA + 1), Int64(1)))
    if Int32(before) == ctas - 1:
        store_long(this.state + FINISHED, Int64(0))
        if failed | (before >= FAILED_CTA):
            # One thread will do: nobody waits for a result that is lost.
            for row in cutlass.range(0, this.rows, unroll=1):
                for slot in cutlass.range(0, this.k, unroll=1):
                    store_word(this.output + (Int64(row) * this.output_stride + Int64(slot)) * 4, Int32(-1))
        else:
            store_long(this.state, this.epoch)


def compile_merge(specialization: SelectorSpecialization, options: str) -> Any:
    """Compile a merge.

    Args:
        specialization: What to compile.
        options: Options of ``cute.compile``.
    """
    values = [kind(1) for _, kind in PARAMETERS]
    return cute.compile(FusedMerge(specialization), Int32(1), *values, options=options)
