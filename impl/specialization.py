"""Specialisations of the CuTeDSL selector: what is fixed when a kernel is compiled.

One kernel serves every number of rows, every K and every number of candidates
up to its capacity; beyond the largest capacity a streamed kernel reads the
candidates again in every pass.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from .geometry import SelectionContract
from .policy import NanPolicy, ZeroPolicy

LIST_CANDIDATES = 64
"""Candidates at the cut that are ranked against each other instead of counted once more."""

STAGED_IDS = 4096
"""Ids selected by position that are gathered in shared memory, to be written in one go."""

BINS_PER_THREAD = 4
CANDIDATES_PER_VECTOR = 2


@dataclass(frozen=True, kw_only=True)
class SelectorSpecialization:
    """What one compiled selector is made for.

    Attributes:
        threads: Threads of the CTA that selects one row, a power of two within 128..1024.
        vectors: Pairs of candidates that one thread holds in registers; a streamed
            kernel holds them for one tile at a time.
        streamed: Whether rows may exceed ``capacity``.
        minimum_ctas: CTAs that must fit one multiprocessor; bounds the registers.
        contract: Order of the output.
        slots: Slots of the sorted output, a power of two; 0 for contract ``set``.
        nan: Where NaN goes.
        zero: Whether the zeros are one value.
        paired: Whether candidates can be read two at a time: all counts and
            distances are even and addresses are multiples of 16 bytes.
        sources: How candidates are found: ``one`` buffer, ``strided`` sources, or
            ``peers`` by a table of addresses.
        stateful: Whether an exchange's epoch chooses the inbox slot.
    """

    threads: int
    vectors: int
    streamed: bool = False
    minimum_ctas: int = 1
    contract: SelectionContract = "set"
    slots: int = 0
    nan: NanPolicy = NanPolicy.LAST
    zero: ZeroPolicy = ZeroPolicy.EQUAL
    paired: bool = True
    sources: str = "one"
    stateful: bool = False

    @property
    def name(self) -> str:
        """Name of the kernel, distinct for distinct specialisations."""
        parts = [f"{field.name}={_text(getattr(self, field.name))}" for field in fields(self)]
        return "select-" + "-".join(parts)

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.threads // 32

    @property
    def capacity(self) -> int:
        """Candidates that the CTA's registers hold."""
        return self.threads * self.vectors * CANDIDATES_PER_VECTOR

    @property
    def bins(self) -> int:
        """Bins of a histogram."""
        return self.threads * BINS_PER_THREAD

    @property
    def prefetches(self) -> bool:
        """Whether a CTA prefetches for one that follows it; several on one multiprocessor cover for each other."""
        return self.sources == "one" and self.paired and self.minimum_ctas == 1

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA in bytes; see ``SharedLayout``."""
        return SharedLayout(self).byte_count


@dataclass(frozen=True)
class SharedLayout:
    """Byte offsets of the parts of a CTA's shared memory."""

    specialization: SelectorSpecialization

    @property
    def histogram(self) -> int:
        """Counters of the first pass; under contract ``order``, later the bins' first slots."""
        return 0

    @property
    def digits(self) -> int:
        """Counters of later passes."""
        return self._counter_bytes if self.specialization.contract == "order" else 0

    @property
    def _counter_bytes(self) -> int:
        """Bytes of a histogram, with a bin for what is not counted."""
        return 4 * self.specialization.bins + 16

    @property
    def totals(self) -> int:
        """Two words of every warp: its candidates, and its fullest bin."""
        return self.digits + self._counter_bytes

    @property
    def chosen(self) -> int:
        """One word of every warp: its selected candidates."""
        return self.totals + 4 * 2 * 32

    @property
    def control(self) -> int:
        """Bin of the cut, better candidates, and its candidates."""
        return self.chosen + 4 * 32

    @property
    def cut(self) -> int:
        """Word, id and position of the cut, and whether it is repeated."""
        return self.control + 16

    @property
    def bounds(self) -> int:
        """Four words of every warp: bounds of scores, words and ids."""
        return self.cut + 16

    @property
    def list_length(self) -> int:
        """Candidates in the list."""
        return self.bounds + 4 * 4 * 32

    @property
    def sorted_length(self) -> int:
        """Selected candidates that have a slot, where bins give them none."""
        return self.list_length + 4

    @property
    def list(self) -> int:
        """Candidates at the cut, four words each."""
        return self.sorted_length + 12

    @property
    def sorted(self) -> int:
        """Selected candidates, word and id, by slot."""
        return self.list + 16 * LIST_CANDIDATES

    @property
    def staged(self) -> int:
        """Ids that are selected by position, by slot."""
        return self.sorted + 8 * self.specialization.slots

    @property
    def staged_ids(self) -> int:
        """Most ids that are gathered before they are written."""
        specialization = self.specialization
        stages = specialization.contract == "set" and not specialization.streamed
        return min(specialization.capacity, STAGED_IDS) if stages else 0

    @property
    def byte_count(self) -> int:
        """Size of the whole."""
        return self.staged + 4 * self.staged_ids


def _text(value: object) -> str:
    """Return a value as it appears in a kernel's name."""
    return str(int(value)) if isinstance(value, int) else str(value)
