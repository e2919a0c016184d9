"""Where the addresses of an access lie: state spaces, regions, bounds and alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from .access import AccessForm
from .executor_faults import fail, report
from .executor_windows import LOCAL_WINDOW, SHARED_WINDOW, split_cluster
from .memory import Addresses, Region
from .module import Instruction

if TYPE_CHECKING:
    from .executor_cta import Cta

Mask = npt.NDArray[np.bool_]
_ACTIONS = {"read": "reads", "write": "writes", "update": "updates", "copy": "copies"}


@dataclass(slots=True)
class Piece:
    """The part of an access that lies in one region.

    Attributes:
        space: ``shared``, ``global``, ``local`` or ``const``.
        owner: CTA whose shared memory it is, or -1.
        region: The region; every access lies in it.
        part: Which of the threads, or None for all.
        addresses: Addresses of those threads as observers see them.
        at: Addresses in the region.
    """

    space: Literal["shared", "global", "local", "const"]
    owner: int
    region: Region
    part: Mask | None
    addresses: Addresses
    at: Addresses

    def describe(self, at: int) -> str:
        """Return an address of the piece in words."""
        return f"{self.space} memory, {self.region.place(at)}"

    def check_written(self, cta: Cta, instruction: Instruction, threads: Addresses, form: AccessForm) -> None:
        """Report a read, by threads of this piece, of bytes that nothing was ever written to."""
        missing = self.region.find_missing(self.at, form.element_bytes, form.vector)
        if missing is not None:
            wrong = missing.any(axis=1)
            place = self.describe(int(self.at[wrong][0]))
            report(cta, "uninitialised", instruction, threads[wrong][:1], "reads", place, "nothing wrote it before")


def locate(
    cta: Cta, form: AccessForm, instruction: Instruction, threads: Addresses, addresses: Addresses
) -> list[Piece]:
    """Return the parts of an access; together they cover all threads.

    Raises:
        FindingError: An address is misaligned or out of bounds.
    """
    width = form.width
    bits = int(np.bitwise_or.reduce(addresses))
    if bits & (width - 1):
        wrong = int((addresses & (width - 1)).astype(bool).argmax())
        _fail_at(cta, "misaligned", form, instruction, threads, addresses, wrong, f"not a multiple of {width}")
    space = form.space
    if space == "shared":
        # The bits that occur are at least the largest address, and mostly show that it is in bounds.
        if bits >= 0 and (bits + width <= cta.shared.size or int(addresses.max()) + width <= cta.shared.size):
            return [Piece("shared", cta.position.cta, cta.shared, None, addresses, addresses)]
        return _locate_cluster(cta, form, instruction, threads, addresses)
    if space == "cluster":
        return _locate_cluster(cta, form, instruction, threads, addresses)
    if space == "local":
        return [_locate_local(cta, form, instruction, threads, addresses)]
    if space == "generic" and bits >= SHARED_WINDOW:
        return _locate_generic(cta, form, instruction, threads, addresses)
    return _locate_global(cta, form, instruction, threads, addresses)


def _locate_global(
    cta: Cta, form: AccessForm, instruction: Instruction, threads: Addresses, addresses: Addresses
) -> list[Piece]:
    groups, wrong = cta.launch.memory.split(addresses, form.width)
    if wrong >= 0:
        _fail_at(cta, "out-of-bounds", form, instruction, threads, addresses, wrong, "no memory there")
    space: Literal["const", "global"] = "const" if form.space in ("const", "param") else "global"
    pieces = []
    for region, part in groups:
        mine = addresses if part is None else addresses[part]
        if form.kind != "read" and not region.writable:
            _fail_at(cta, "out-of-bounds", form, instruction, threads, mine, 0, "read-only memory")
        pieces.append(Piece(space, -1, region, part, mine, mine))
    return pieces


def _locate_cluster(
    cta: Cta, form: AccessForm, instruction: Instruction, threads: Addresses, addresses: Addresses
) -> list[Piece]:
    owners, offsets = split_cluster(cta, addresses)
    pieces = []
    beyond = (owners >= len(cta.cluster)) | (offsets + form.width > cta.shared.size)
    if form.space == "shared":
        beyond |= owners != cta.cluster_rank
    if beyond.any():
        _fail_at(cta, "out-of-bounds", form, instruction, threads, addresses, int(beyond.argmax()), "beyond its end")
    for owner in np.unique(owners).tolist():
        part = owners == owner
        other = cta.cluster[owner]
        mine = offsets[part]
        pieces.append(Piece("shared", other.position.cta, other.shared, None if part.all() else part, mine, mine))
    return pieces


def _locate_local(
    cta: Cta, form: AccessForm, instruction: Instruction, threads: Addresses, addresses: Addresses
) -> Piece:
    beyond = (addresses < 0) | (addresses + form.width > cta.local_bytes)
    if beyond.any():
        _fail_at(cta, "out-of-bounds", form, instruction, threads, addresses, int(beyond.argmax()), "beyond its end")
    return Piece("local", -1, cta.local, None, addresses, addresses + threads * cta.local_bytes)


def _locate_generic(
    cta: Cta, form: AccessForm, instruction: Instruction, threads: Addresses, addresses: Addresses
) -> list[Piece]:
    local, shared = addresses >= LOCAL_WINDOW, (addresses >= SHARED_WINDOW) & (addresses < LOCAL_WINDOW)
    pieces: list[Piece] = []
    for part, window in ((shared, SHARED_WINDOW), (local, LOCAL_WINDOW), (~(shared | local), 0)):
        if not part.any():
            continue
        mine, at = threads[part], addresses[part] - window
        if window == SHARED_WINDOW:
            found = _locate_cluster(cta, form, instruction, mine, at)
        elif window == LOCAL_WINDOW:
            found = [_locate_local(cta, form, instruction, mine, at)]
        else:
            found = _locate_global(cta, form, instruction, mine, at)
        pieces += [_widen(piece, part) for piece in found]
    return pieces


def _widen(piece: Piece, part: Mask) -> Piece:
    """State which of all threads a piece is about, which says so among those of ``part``."""
    if piece.part is None:
        piece.part = None if part.all() else part
    else:
        whole = part.copy()
        whole[part] = piece.part
        piece.part = whole
    return piece


def _fail_at(
    cta: Cta,
    kind: Literal["misaligned", "out-of-bounds"],
    form: AccessForm,
    instruction: Instruction,
    threads: Addresses,
    addresses: Addresses,
    wrong: int,
    why: str,
) -> None:
    address = int(addresses[wrong])
    place = _describe(cta, form, address)
    fail(cta, kind, instruction, threads[wrong : wrong + 1], _ACTIONS[form.kind], place, f"{form.width} bytes: {why}")


def _describe(cta: Cta, form: AccessForm, address: int) -> str:
    if form.space in ("shared", "cluster") or SHARED_WINDOW <= address < LOCAL_WINDOW:
        return f"shared byte {address % SHARED_WINDOW} (of {cta.shared.size} bytes)"
    if form.space == "local" or address >= LOCAL_WINDOW:
        return f"local byte {address % LOCAL_WINDOW} (of {cta.local_bytes} bytes)"
    return f"address {address:#x}, {cta.launch.memory.place(address)}"
