"""A whole merge in one launch: pack, push, publish, wait, select, complete.

Every row is one message per rank: its candidates, then a flag that releases
them.  A CTA sends its row, then waits for the peers' and selects.  It waits for
CTAs of other ranks, so no rank may launch more of them than it holds at once;
then all are sending or have sent before any waits for long.

Memory order.  The threads of a CTA store a row's candidates to the peers; the
barrier orders those stores before the release of the flag at system scope by
one thread, and the release is cumulative over them.  The thread that acquires
the flag is ordered before all reads of the row by the next barrier (PTX ISA,
Memory Consistency Model, causality order).

Slots.  The inbox has two, used in turn.  A rank sends epoch n + 2 into the slot
of n after its own kernel n + 1 has ended, which had acquired a flag of n + 1 of
every peer; and a peer releases that in its kernel n + 1, which starts after its
kernel n has read the slot.  Row 0 has a flag also in a merge of no rows, so
every exchange has one.  A flag that is ahead, since a fast peer has begun n + 1,
is as good: what it released for n came before.

Once an error is recorded, no CTA sends any more, and the last one to finish
writes -1 over all that was selected.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint32, range_constexpr, select_

from ..specialization import SelectorSpecialization
from .candidates import CANDIDATE_BYTES
from .instructions import (
    acquire_flag,
    any_thread,
    arrive,
    claim_word,
    load_long,
    load_word,
    peek_word,
    release_flag,
    store_long,
    store_word,
    store_words,
)
from .selector import open_row, select_row

NEGATIVE_INFINITY = -8388608
"""0xFF800000, -inf as fp32; the score of padding."""

ERROR_KIND, FINISHED = 8, 56
"""Byte offsets in the state: kind of the error, whose record follows; CTAs that have finished."""

FAILED_CTA = 2**32
"""What a CTA that knows of an error adds to the counter of finished CTAs, besides 1."""

PUBLISH_TIMEOUT, ROW_MISMATCH, INDEX_RANGE = 1, 3, 4
LARGEST_ID = 2**31 - 1
PAIRS_AT_ONCE = 1024
"""Pairs of candidates whose loads a CTA issues before it uses the first: 2048 candidates of a rank in one go."""


class Exchange:
    """What the CTAs of a merge know: the parameters of ``FusedMerge.merge``, and what follows from them.

    Attributes:
        thread, threads: This thread, and how many the CTA has.
        epoch: Number of the exchange.
        next_peer: Address of the buffer of the next rank.
        flag_peer: Address of the buffer of the rank that this thread releases rows to.
        slot: Offset of its inbox slot in a buffer.
        row_bytes: Distance of two rows of the inbox.
    """

    thread: Int32
    threads: int
    epoch: Int64
    next_peer: Int64
    flag_peer: Int64
    slot: Int64
    row_bytes: Int64

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
    ("inbox", Int64),
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
        inbox: Int64,
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
        """Merge one row per CTA.  Grid (rows,), at least 1 and no more than the device holds at once.

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
            slot_bytes: Distance of two inbox slots.
            max_polls: Polls of one flag before a peer counts as missing.
            inbox: Offset of the inbox in a buffer.
            arrived: Offset of the flags int64 [rows, W].
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
        distances = (scores_stride, indices_stride, output_stride, slot_bytes, max_polls, inbox, arrived, arrived_rows)
        numbers = (rows, width, local_candidates, world_size, rank, interleave, k)
        this = Exchange(tuple(name for name, _ in PARAMETERS), (*addresses, *distances, *numbers))
        thread, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        cute.arch.griddepcontrol_wait()
        this.thread, this.threads = thread, self.specialization.threads
        # Read before they are needed, so that no store to a peer waits for its address.
        this.next_peer = load_long(peers + Int64((rank + 1) % world_size) * 8)
        this.flag_peer = load_long(peers + Int64(select_(thread < world_size, thread, Int32(0))) * 8)
        this.epoch = load_long(state) + 1
        this.slot = inbox + (this.epoch & Int64(1)) * slot_bytes
        this.row_bytes = Int64(world_size * local_candidates) * CANDIDATE_BYTES
        send_row(self.specialization, this, row)
        failed = wait_row(this, row)
        # A merge of no rows sends and awaits the flag of row 0 all the same.
        if row < rows:
            merge_row(self.specialization, this, row, failed)
        finish(this, failed)


@cute.jit
def send_row(specialization: SelectorSpecialization, this: Any, row: Int32) -> None:
    """Pack this rank's candidates of a row into every rank's inbox, and release them to the peers.  Two barriers."""
    vector = 2 if specialization.paired else 1
    vectors = select_(row < this.rows, this.local_candidates // vector, Int32(0))
    row_start = load_word(this.row_starts + Int64(row) * 4, 0, (this.row_starts != 0) & (row < this.rows))
    offender = cute.make_rmem_tensor(1, Int32)
    offender[0] = Int32(-1)
    failed = peek_word(this.state + ERROR_KIND) != 0
    step = max(this.threads, PAIRS_AT_ONCE)
    for first in cutlass.range(this.thread, vectors, step, unroll=1):
        send_vectors(this, row, row_start, first, vectors, vector, failed, offender)
    # Peers must not take a row with a wrong index for a good one.
    wrong = any_thread((offender[0] >= 0) | failed)
    if offender[0] >= 0:
        record_error(this, INDEX_RANGE, Int64(row), Int64(offender[0]))
    if ~wrong & (this.thread < this.world_size):
        publish_row(this, row)


@cute.jit
def send_vectors(
    this: Any, row: Int32, row_start: Int32, first: Int32, vectors: Int32, vector: int, failed: Boolean, offender: Any
) -> None:
    """Pack and send a few vectors of candidates of a row."""
    turns = max(1, PAIRS_AT_ONCE // this.threads)
    places = [first + this.threads * turn for turn in range(turns)]
    indices = []
    for turn in range_constexpr(turns):
        address = this.local_indices + (Int64(row) * this.indices_stride + Int64(places[turn]) * vector) * 4
        indices.append([load_word(address + 4 * each, -1, places[turn] < vectors) for each in range(vector)])
    packed = [[pack(this, row, row_start, index, offender) for index in group] for group in indices]
    slice_offset = this.slot + Int64(row) * this.row_bytes
    slice_offset = slice_offset + Int64(this.rank * this.local_candidates) * CANDIDATE_BYTES
    for turn in range_constexpr(turns):
        words = [word for candidate in packed[turn] for word in candidate]
        offset = slice_offset + Int64(places[turn]) * (vector * CANDIDATE_BYTES)
        sent = (places[turn] < vectors) & ~failed
        store_words(this.next_peer + offset, words, sent)
        store_words(this.buffer + offset, words, sent & (this.world_size > 1))
        for distance in cutlass.range(2, this.world_size, unroll=1):
            peer = (this.rank + distance) % this.world_size
            store_words(load_long(this.peers + Int64(peer) * 8) + offset, words, sent)


@cute.jit
def pack(this: Any, row: Int32, row_start: Int32, index: Int32, offender: Any) -> Any:
    """fp32 bits and global id of a local index; padding for -1 and for an index outside the shard."""
    column = Int64(index) + Int64(row_start)
    turn = Int32(Uint32(index) // Uint32(this.interleave))
    identity = Int64(turn) * Int64(this.world_size * this.interleave)
    identity = identity + Int64(this.rank * this.interleave + (index - turn * this.interleave))
    chosen = index >= 0
    usable = chosen & (column >= 0) & (column < Int64(this.width)) & (identity <= LARGEST_ID)
    address = this.scores + (Int64(row) * this.scores_stride + column) * 4
    bits = load_word(address, NEGATIVE_INFINITY, usable)
    offender[0] = select_(chosen & ~usable, index, offender[0])
    return [bits, select_(usable, Int32(identity), Int32(-1))]


@cute.jit
def publish_row(this: Any, row: Int32) -> None:
    """Release a row to the peer of this thread; with row 0 also the number of rows."""
    base = this.flag_peer
    place = Int64((Int32(this.epoch) & 1) * this.world_size + this.rank)
    store_long(base + this.arrived_rows + place * 8, Int64(this.rows), row == 0)
    release_flag(base + this.arrived + Int64(row * this.world_size + this.rank) * 8, this.epoch)


@cute.jit
def wait_row(this: Any, row: Int32) -> Boolean:
    """Wait until every peer has sent a row; returns whether the exchange has failed.  One barrier, at the end."""
    late = Boolean(False)
    if this.thread < this.world_size:
        late = ~await_source(this, row, this.thread)
    return any_thread(late | (peek_word(this.state + ERROR_KIND) != 0))


@cute.jit
def await_source(this: Any, row: Int32, source: Int32) -> Boolean:
    """Poll a row's flag of one source; returns whether it came, and records an error if not."""
    flag = this.buffer + this.arrived + Int64(row * this.world_size + source) * 8
    observed = acquire_flag(flag)
    left = this.max_polls - 1
    failed = Boolean(False)
    while (observed - this.epoch < 0) & (left > 0) & ~failed:
        observed = acquire_flag(flag)
        left = left - 1
        failed = peek_word(this.state + ERROR_KIND) != 0
    arrived = observed - this.epoch >= 0
    if arrived:
        if row == 0:
            place = Int64((Int32(this.epoch) & 1) * this.world_size + source)
            peer_rows = load_long(this.buffer + this.arrived_rows + place * 8)
            if peer_rows != Int64(this.rows):
                record_error(this, ROW_MISMATCH, Int64(source), peer_rows)
    elif ~failed:
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
def merge_row(specialization: SelectorSpecialization, this: Any, index: Int32, failed: Boolean) -> None:
    """Select from a row that has arrived; nothing if the exchange has failed."""
    row = open_row(specialization)
    row.count = select_(failed, Int32(0), this.world_size * this.local_candidates)
    row.base = this.buffer + this.slot + Int64(index) * this.row_bytes
    row.table, row.source_bytes, row.source_candidates, row.source_magic = row.base, Int64(0), Int32(1), Int32(0)
    select_row(row, this.k, this.output + Int64(index) * this.output_stride * 4)


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
