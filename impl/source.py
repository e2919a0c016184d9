"""Where the candidates of a selection lie in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

WORD_BYTES = 4
CANDIDATE_BYTES = 8
PAIR_BYTES = 16


@dataclass(frozen=True)
class Source:
    """Where the candidates of a row lie.

    Attributes:
        address: Address of the first candidate, or of the table of addresses.
        kind: ``one`` buffer, ``strided`` sources, or ``peers`` by table.
        candidates: Candidates of one source per row.
        source_bytes: Distance of two sources.
        row_bytes: Distance of two rows of one source.
        paired: Whether every pair of candidates starts on a multiple of 16 bytes.
        state: Address of the exchange's state, 0 without one.
        slots: Inbox slots.
        slot_bytes: Distance of two inbox slots.
    """

    address: int
    kind: str
    candidates: int
    source_bytes: int
    row_bytes: int
    paired: bool
    state: int = 0
    slots: int = 1
    slot_bytes: int = 0


def locate_source(
    candidates: torch.Tensor,
    *,
    count: int,
    source_candidates: int,
    source_words: int,
    row_words: int,
    from_peers: bool,
    aligned: bool,
    state: torch.Tensor | None,
    slots: int,
    slot_words: int,
) -> Source:
    """Return where the candidates lie; the arguments are those of ``launch_select``.

    Sources that follow one another in every row are one buffer.
    """
    follows = source_words == 2 * source_candidates or source_candidates == count
    kind = "peers" if from_peers else "one" if follows else "strided"
    distances = [WORD_BYTES * words for words in (source_words, row_words, slot_words)]
    run = CANDIDATE_BYTES * (count if kind == "one" else source_candidates)
    steps = [run, *(distances if kind == "strided" else distances[1:])]
    starts_aligned = aligned if from_peers else candidates.data_ptr() % PAIR_BYTES == 0
    return Source(
        address=candidates.data_ptr(),
        kind=kind,
        candidates=source_candidates,
        source_bytes=distances[0],
        row_bytes=distances[1],
        paired=starts_aligned and all(step % PAIR_BYTES == 0 for step in steps),
        state=0 if state is None else state.data_ptr(),
        slots=slots,
        slot_bytes=distances[2],
    )
