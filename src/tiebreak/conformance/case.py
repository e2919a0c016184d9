"""A conformance case: a snippet of PTX, and the operands that each thread runs it on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tiebreak.sim.ptx.form import storage_of

SOURCE_NAMES = "abcuvwxy"
DESTINATION_NAMES = "defg"


@dataclass(frozen=True)
class Case:
    """A snippet of PTX to run on a device and on the CPU.

    Attributes:
        text: Instructions.  Sources are ``a b c u v w x y``, destinations ``d e f g``; ``p`` is an address, and ``s``
            that of 16 bytes per thread of shared memory.
        sources: Type of each source.
        domains: How operands of each source are drawn (see ``operands``); the type itself for most.
        destinations: Type of each destination.
        kind: ``thread``: every thread runs it on operands of its own.  ``warp``: the same, a full warp or a part of it
            together.  ``sequence``: one thread runs it over and over on one cell of memory, ``p``.  ``load``: ``p`` is
            the address of 32 bytes per thread.  ``store``: ``p`` is the address of 32 bytes of results per thread.
        count: Threads, or repetitions of a sequence.
        target: Lowest target that has the instruction: ``sm_90`` or ``sm_100a``.
        space: State space of the cell of a sequence, ``global`` or ``shared``.
        approximate: Whether results are bounded and not fixed by the PTX ISA.
    """

    text: str
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    domains: tuple[str, ...] = ()
    kind: Literal["thread", "warp", "sequence", "load", "store"] = "thread"
    count: int = 256
    target: str = "sm_90"
    space: str = "global"
    approximate: bool = False

    @property
    def name(self) -> str:
        """What tells the case from all others: its text, and where its operands come from if that is special."""
        special = self.kind == "sequence" or any(":" in domain for domain in self.domains)
        return f"{self.text} {','.join(self.domains)}" if special else self.text

    @property
    def drawn_from(self) -> tuple[str, ...]:
        """Domain of each source."""
        return self.domains or self.sources

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes of each destination's register; a predicate has one."""
        return tuple(1 if kind == "pred" else max(width_of(kind), 2) for kind in self.destinations)


def width_of(kind: str) -> int:
    """Bytes of a value in the storage of its type; a predicate has one."""
    return {"bool": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8}[storage_of(kind)]


def register_type(kind: str) -> str:
    """Type of a register that holds values of a type."""
    return "pred" if kind == "pred" else f"b{max(8 * width_of(kind), 16)}"
