"""The selector: the K best candidates of every row, one CTA per row.

Barrier intervals of a plain row by position: clear and sample; count; warp
totals; bin of the cut; list of its candidates; cut; selected per warp; gather;
write.
"""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint32, const_expr, select_

from ..specialization import SelectorSpecialization
from .candidates import STREAMED_VECTORS, WARP_CANDIDATES, Row, read_full_tile
from .instructions import hidden_address, load_long
from .output import write_resident, write_streamed
from .resident import find_resident_cut
from .sorting import write_by_rank
from .streamed import find_streamed_cut


class Selector:
    """A selector of one specialisation, as ``cute.compile`` takes it."""

    def __init__(self, specialization: SelectorSpecialization) -> None:
        self.specialization = specialization

    @cute.jit
    def __call__(
        self,
        rows: Int32,
        candidates: Int64,
        output: Int64,
        state: Int64,
        source_bytes: Int64,
        row_bytes: Int64,
        slot_bytes: Int64,
        output_stride: Int64,
        count: Int32,
        source_candidates: Int32,
        source_magic: Int32,
        slots: Int32,
        k: Int32,
        ahead: Int32,
    ) -> None:
        """Launch the kernel for ``rows`` rows."""
        self.select(
            candidates,
            output,
            state,
            source_bytes,
            row_bytes,
            slot_bytes,
            output_stride,
            count,
            source_candidates,
            source_magic,
            slots,
            k,
            ahead,
        ).launch(
            grid=[rows, 1, 1],
            block=[self.specialization.threads, 1, 1],
            smem=self.specialization.shared_bytes,
            min_blocks_per_mp=self.specialization.minimum_ctas,
            # Named so that the compiler does not ask a device for its shared memory.
            preferred_smem_carveout=100,
        )

    @cute.kernel
    def select(
        self,
        candidates: Int64,
        output: Int64,
        state: Int64,
        source_bytes: Int64,
        row_bytes: Int64,
        slot_bytes: Int64,
        output_stride: Int64,
        count: Int32,
        source_candidates: Int32,
        source_magic: Int32,
        slots: Int32,
        k: Int32,
        ahead: Int32,
    ) -> None:
        """Select from one row.  Grid (rows,).

        Args:
            candidates: Address of the candidates, or of the sources' addresses.
            output: Address of int32 [rows, k].
            state: Address of the exchange's state, if there is one.
            source_bytes: Distance of two sources.
            row_bytes: Distance of two rows of one source.
            slot_bytes: Distance of two inbox slots.
            output_stride: Distance of two output rows, in words.
            count: Candidates of a row, at least 1.
            source_candidates: Candidates of a row from one source.
            source_magic: Floor of 2^32 / ``source_candidates``, plus 1.
            slots: Inbox slots.
            k: Ids of a row.
            ahead: Distance of the row whose candidates to bring into the L2 cache, 0 for none.
        """
        index, _, _ = cute.arch.block_idx()
        # The launch may overlap the end of the kernel that wrote the candidates.
        cute.arch.griddepcontrol_wait()
        row = open_row(self.specialization, output + Int64(index) * output_stride * 4)
        row.count = count
        offset = Int64(index) * row_bytes
        if const_expr(self.specialization.stateful):
            offset = offset + ((load_long(state) + 1) & Int64(slots - 1)) * slot_bytes
            row.count = select_(load_long(state + 8) != 0, Int32(0), count)
        row.base = offset if const_expr(self.specialization.sources == "peers") else candidates + offset
        if const_expr(self.specialization.prefetches):
            row.ahead, row.row_bytes = ahead, row_bytes
        row.table, row.source_bytes = candidates, source_bytes
        row.source_candidates, row.source_magic = source_candidates, source_magic
        select_row(row, k)


def open_row(specialization: SelectorSpecialization, output: Int64) -> Row:
    """Return what a thread knows before it reads; the ids of the row go to ``output``."""
    thread, _, _ = cute.arch.thread_idx()
    row = Row(specialization, thread, Int32(cute.arch.get_dyn_smem(Int32, alignment=16).toint()))
    row.output = hidden_address(output)
    return row


@cute.jit
def select_row(row: Any, k: Int32) -> None:
    """Select from a row whose candidates may be read."""
    if const_expr(row.specialization.streamed):
        select_streamed(row, k)
    else:
        solved = Boolean(False)
        if row.count == row.specialization.capacity:
            solved = select_resident(row, read_full_tile(row), k)
        if ~solved:
            select_streamed(row, k)


@cute.jit
def select_resident(row: Any, tile: Any, k: Int32) -> Boolean:
    """Select from a row that fills the CTA's registers; returns whether it could."""
    solved, cut = find_resident_cut(row, tile, k)
    if solved:
        if const_expr(row.specialization.contract == "order"):
            write_by_rank(row, tile, cut, k)
        else:
            write_resident(row, tile, cut, k)
    return solved


@cute.jit
def select_streamed(row: Any, k: Int32) -> None:
    """Select from a row that is read again in every pass."""
    span = WARP_CANDIDATES * row.specialization.warps
    row.warp_vectors = Int32(Uint32(row.count + (span - 1)) // Uint32(span))
    row.tiles = Int32(Uint32(row.warp_vectors + (STREAMED_VECTORS - 1)) // Uint32(STREAMED_VECTORS))
    cut = find_streamed_cut(row, k)
    if const_expr(row.specialization.contract == "order"):
        write_by_rank(row, None, cut, k)
    else:
        write_streamed(row, cut, k)


def compile_selector(specialization: SelectorSpecialization, options: str) -> Any:
    """Compile a selector.

    Args:
        specialization: What to compile.
        options: Options of ``cute.compile``.
    """
    word, address = Int32(1), Int64(0)
    return cute.compile(Selector(specialization), word, *[address] * 7, *[word] * 6, options=options)
