"""What an execution tells whoever watches it: accesses and synchronisation, many threads at a time.

The executor calls an ``Observer`` for every access and every edge, before the
access takes effect, in the order of the execution.  The race detector is an
observer, and so is the memory model of several ranks.

Threads are numbered inside their CTA (``tid.x + ntid.x * (tid.y + ntid.y * tid.z)``),
CTAs inside their launch in the same way.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .findings import Finding
from .module import Instruction, Kernel

Threads: TypeAlias = npt.NDArray[np.int64]
"""Numbers of distinct threads of one CTA, ascending."""

Addresses: TypeAlias = npt.NDArray[np.int64]
"""One address per thread."""

Order: TypeAlias = Literal["weak", "relaxed", "acquire", "release", "acq_rel", "volatile"]
Scope: TypeAlias = Literal["cta", "cluster", "gpu", "sys"]
Kind: TypeAlias = Literal["read", "write", "update"]
"""``update`` is an atomic read-modify-write (``atom`` and ``red``)."""


@dataclass(frozen=True, slots=True)
class Position:
    """A CTA of a launch.

    Attributes:
        rank: Rank whose device runs it.
        launch: Number of the launch on that device.
        cta: Number of the CTA in its launch.
        cluster: Number of its cluster in its launch.
        threads: Threads of the CTA.
    """

    rank: int
    launch: int
    cta: int
    cluster: int
    threads: int


@dataclass(frozen=True, slots=True)
class Access:
    """One memory instruction as some threads of one CTA perform it together.

    Attributes:
        position: CTA of the threads.
        instruction: The instruction.
        space: Resolved state space; a generic address has been resolved.
        kind: What it does.
        threads: Threads that perform it.
        addresses: Offset in the shared window of ``owner``, or address in global memory, of each thread.
        width: Bytes that each thread touches, all elements of a vector together.
        order: Memory order; ``weak`` for plain accesses, and for atomics as the instruction says (default ``relaxed``).
        scope: Scope of an access that is not weak, else None.
        owner: CTA whose shared memory it is, for ``space`` shared; -1 otherwise.
        proxy: ``generic`` or ``async``.
        elements: Elements of equal width that it consists of.  Elements at the ends of a vector load that nothing uses
            are left out.
        values: What a plain write stores, one array of bits per element of the vector; empty for other accesses.

    Arrays may be views of registers: an observer that keeps addresses or values copies them.  ``threads`` is never
    changed afterwards.
    """

    position: Position
    instruction: Instruction
    space: Literal["shared", "global"]
    kind: Kind
    threads: Threads
    addresses: Addresses
    width: int
    order: Order
    scope: Scope | None
    owner: int
    proxy: str = "generic"
    values: tuple[npt.NDArray[np.generic], ...] = ()
    elements: int = 1


class Observer(Protocol):
    """Watches one or more launches."""

    def begin(self, position: Position, kernel: Kernel) -> None:
        """A CTA starts."""

    def access(self, access: Access) -> None:
        """Some threads access memory; nothing has been read or written yet."""

    def synchronise(self, position: Position, threads: Threads, instruction: Instruction, scope: str) -> None:
        """A barrier completed: what each of ``threads`` did before is ordered before what each does next.

        ``scope`` is ``warp`` (``bar.warp.sync``), ``cta`` (``bar``, ``barrier``) or ``cluster``
        (``barrier.cluster``, reported once per CTA of the cluster, then joined by ``join_cluster``).
        """

    def join_cluster(self, positions: tuple[Position, ...], instruction: Instruction) -> None:
        """A cluster barrier completed for all these CTAs."""

    def release(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """Threads arrive somewhere without waiting (``bar.arrive``): what each did before goes with ``token``."""

    def acquire(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """What was released with ``token`` so far is ordered before what each of ``threads`` does next.

        A wait for copies is an ``acquire`` of what nothing releases: copies are accesses when they are performed.
        A ``bar.sync`` that completes with the help of ``bar.arrive`` is a ``synchronise`` of the threads that
        waited and an ``acquire`` of the token of this phase of the barrier.
        """

    def fence(self, position: Position, threads: Threads, instruction: Instruction, order: str, scope: Scope) -> None:
        """Threads perform a fence; ``order`` is ``acq_rel`` or ``sc``, or ``proxy`` for a proxy fence."""

    def end(self, position: Position) -> None:
        """Every thread of a CTA exited."""

    def report(self, finding: Finding) -> None:
        """The executor found something wrong that does not end the execution."""
