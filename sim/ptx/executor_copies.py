"""Asynchronous copies: ``cp.async`` and ``cp.async.bulk`` (PTX ISA, "Asynchronous Copy").

A copy is performed when it has to be complete, as late as it may be; what uses
its destination earlier finds memory that nothing wrote, or old values.
Observers are told of its accesses twice, when it is issued and when it is
performed, since it may touch memory at any time between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from .access import AccessForm
from .executor_faults import make_actor, report, report_race
from .executor_location import Piece, locate
from .memory import Array
from .module import Instruction
from .observation import Access

if TYPE_CHECKING:
    from .executor_cta import Cta

Index = npt.NDArray[np.int64]
Direction = Literal["read", "write"]
_DIRECTIONS: tuple[Direction, Direction] = ("read", "write")
UNCOMMITTED = np.iinfo(np.int64).max
MBARRIER_BYTES = 8


@dataclass(frozen=True)
class Copy:
    """A copy that some threads issued together.

    Attributes:
        instruction: The instruction.
        form: What it touches; its vector is as long as alignment demands.
        threads: Threads that issued it.
        targets: Address that each writes.
        sources: Address that each reads.
        size: Bytes that each writes.
        taken: Bytes that each reads; the others are zero.
        group: Number of the group that each thread committed it to.
        bulk: Whether it is a bulk copy, whose groups are counted apart.
        signal: CTA and offset of the mbarrier that counts its bytes, or None.
    """

    instruction: Instruction
    form: AccessForm
    threads: Index
    targets: Index
    sources: Index
    size: int
    taken: Index
    group: Index
    bulk: bool
    signal: tuple[Cta, int] | None = None

    def select(self, chosen: Array) -> Copy:
        """Return the part of it that some of its threads issued."""
        return replace(
            self, threads=self.threads[chosen], targets=self.targets[chosen], sources=self.sources[chosen],
            taken=self.taken[chosen], group=self.group[chosen],
        )  # fmt: skip


class Copies:
    """Copies of a CTA that are not performed yet.

    Args:
        cta: The CTA.
    """

    def __init__(self, cta: Cta) -> None:
        self._cta = cta
        self._pending: list[Copy] = []
        self._committed = {bulk: np.zeros(len(cta.alive), np.int64) for bulk in (False, True)}
        self._reported: set[tuple[int, int]] = set()

    @property
    def in_flight(self) -> bool:
        """Whether there are any."""
        return bool(self._pending)

    def issue(self, copy: Copy) -> None:
        """Take a copy that is to be performed later."""
        self._pending.append(copy)
        self._announce(copy)
        if copy.signal is not None and self._cta.observer is not None:
            owner, offset = copy.signal
            access = Access(
                self._cta.position, copy.instruction, "shared", "update", copy.threads,
                np.full(len(copy.threads), offset), MBARRIER_BYTES, "relaxed", "cluster", owner.position.cta, "async",
            )  # fmt: skip
            self._cta.observer.access(access)

    def judge(self, access: Access) -> None:
        """Report an access of what a copy in flight writes, or a write of what it reads: no barrier orders the two."""
        for copy in self._pending:
            pair = copy.instruction.index, access.instruction.index
            if pair in self._reported:
                continue
            for direction in _DIRECTIONS if access.kind != "read" else _DIRECTIONS[1:]:
                for piece, rows in self._locate(copy, direction):
                    if (piece.space, piece.owner) == (access.space, access.owner):
                        self._compare(copy, copy.threads[rows], piece.addresses, access)

    def _compare(self, copy: Copy, threads: Index, addresses: Index, access: Access) -> None:
        """Report the first thread of an access that touches bytes of a copy."""
        order = np.argsort(addresses, kind="stable")
        near = np.searchsorted(addresses, access.addresses + access.width, sorter=order) - 1
        below = addresses[order[near]]
        meets = (near >= 0) & (below + copy.size > access.addresses) & (below < access.addresses + access.width)
        if meets.any():
            first = int(meets.argmax())
            issuer = make_actor(self._cta, copy.instruction, int(threads[order[near[first]]]), "copies")
            actor = make_actor(self._cta, access.instruction, int(access.threads[first]), f"{access.kind}s")
            place = f"{access.space} byte {int(access.addresses[first])}"
            report_race(self._cta, (issuer, actor), place, "the copy was issued and not waited for")
            self._reported.add((copy.instruction.index, access.instruction.index))

    def commit(self, threads: Index, *, bulk: bool) -> None:
        """Close the group of what each thread issued since it last did."""
        counts = self._committed[bulk]
        for place, copy in enumerate(self._pending):
            mine = np.isin(copy.threads, threads) & (copy.group == UNCOMMITTED)
            if copy.bulk == bulk and copy.signal is None and mine.any():
                self._pending[place] = replace(copy, group=np.where(mine, counts[copy.threads], copy.group))
        counts[threads] += 1

    def wait(self, threads: Index, left: int, *, bulk: bool) -> None:
        """Perform what threads committed, but for the last ``left`` groups of each."""
        newest = self._committed[bulk] - left
        self._perform(lambda copy: np.isin(copy.threads, threads) & (copy.group < newest[copy.threads]), bulk)

    def wait_all(self, threads: Index, *, bulk: bool = False) -> None:
        """Perform all that threads issued."""
        self._perform(lambda copy: np.isin(copy.threads, threads), bulk)

    def complete(self, owner: Cta, offset: int) -> None:
        """Perform the copies that an mbarrier counts."""
        signal = (owner, offset)
        self._perform(lambda copy: np.full(len(copy.threads), copy.signal == signal), True)

    def finish(self) -> None:
        """Perform all that is left, as the CTA ends: its shared memory is gone before bulk copies are complete."""
        for copy in self._pending:
            if copy.bulk:
                missing = "nothing waits for the copy before the CTA ends"
                report(self._cta, "race", copy.instruction, copy.threads[:1], "copies", "shared memory", missing)
        for bulk in (False, True):
            self._perform(lambda copy: np.ones(len(copy.threads), bool), bulk)

    def _perform(self, choose: Any, bulk: bool) -> None:
        pending, self._pending = self._pending, []
        for copy in pending:
            chosen = choose(copy) if copy.bulk == bulk else np.zeros(len(copy.threads), bool)
            if not chosen.all():
                self._pending.append(copy.select(~chosen))
            if chosen.any():
                self._move(copy.select(chosen))

    def _move(self, copy: Copy) -> None:
        cta = self._cta
        self._announce(copy)
        data = np.zeros((len(copy.threads), copy.size), np.uint8)
        columns = np.arange(copy.size)
        for piece, rows in self._locate(copy, "read"):
            inside = columns < copy.taken[rows][:, None]
            at = (piece.at - piece.region.start)[:, None] + columns
            data[rows] = np.where(inside, piece.region.view(np.uint8).take(np.where(inside, at, 0)), 0)
        for piece, rows in self._locate(copy, "write"):
            at = (piece.at - piece.region.start)[:, None] + columns
            piece.region.view(np.uint8)[at] = data[rows]
            piece.region.mark((piece.at[:, None] + columns).reshape(-1), 1, 1)
        cta.launch.version += 1
        if copy.signal is not None:
            owner, offset = copy.signal
            owner.mbarriers.complete_bytes(cta, copy.threads, copy.instruction, offset, copy.size)

    def _announce(self, copy: Copy) -> None:
        cta = self._cta
        for direction in _DIRECTIONS:
            for piece, rows in self._locate(copy, direction):
                if piece.space not in ("shared", "global"):
                    continue
                access = Access(
                    cta.position, copy.instruction, piece.space, direction,
                    copy.threads[rows], piece.addresses, copy.size, "weak", None, piece.owner,
                    "async" if copy.bulk else "generic",
                )  # fmt: skip
                if cta.launch.gate is not None and piece.space == "global":
                    cta.launch.gate(access, ())
                if cta.observer is not None:
                    cta.observer.access(access)

    def _locate(self, copy: Copy, direction: Direction) -> list[tuple[Piece, Index]]:
        """Pieces of one side of a copy, each with the rows of its threads."""
        rows = np.arange(len(copy.threads)) if direction == "write" else copy.taken.nonzero()[0]
        if not len(rows):
            return []
        addresses = (copy.targets if direction == "write" else copy.sources)[rows]
        space = copy.form.space if direction == "write" else copy.form.source_space
        form = replace(copy.form, space=space, kind=direction)
        threads = copy.threads[rows]
        if copy.size > form.width:
            locate(self._cta, form, copy.instruction, threads, addresses + (copy.size - form.width))
        pieces = locate(self._cta, form, copy.instruction, threads, addresses)
        return [(piece, rows if piece.part is None else rows[piece.part]) for piece in pieces]
