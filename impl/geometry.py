"""The geometry of a workspace, and how the ranks agree on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from tiebreak.errors import GeometryError, InputError

from .fabric import Fabric
from .kernels_state import LARGEST_ID
from .policy import resolve_policy

PROTOCOL_VERSION = 4
"""Version of the buffer layout and the flag protocol; ranks of different versions cannot exchange."""

LARGEST_TILE = 8192
"""Most candidates that a selection kernel sorts; 8 bytes each, so that they fit the shared memory of every target."""

Discipline = Literal["alternating", "acknowledged"]
Transport = Literal["auto", "symmetric", "all-gather"]
SelectionContract = Literal["order", "set"]
Implementation = Literal["auto", "cutedsl", "triton"]
Launches = Literal["auto", "fused", "separate"]

DISCIPLINES = ("alternating", "acknowledged")
TRANSPORTS = ("auto", "symmetric", "all-gather")
CONTRACTS = ("order", "set")
IMPLEMENTATIONS = ("auto", "cutedsl", "triton")
LAUNCHES = ("auto", "fused", "separate")
DTYPES = ("float32",)


LARGEST_FUSED_ROWS = 512
"""Most rows of a merge in one launch, however many CTAs a device holds: each takes memory for its packets."""


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """What all ranks must agree on before they exchange candidates.

    The constructor accepts anything: a wrong value on one rank must reach the
    other ranks, so ``agree`` is where it is reported.

    Attributes:
        max_rows: Largest number of rows of one merge.
        local_candidates: Candidates L that each rank contributes per row.
        k: Ids that a merge returns per row.
        interleave: Consecutive tokens that one rank owns.
        preset: Name of the total order, see ``policy.POLICIES``.
        discipline: How inbox slots are reused: two slots in turn
            (``alternating``), or one slot guarded by acknowledgements
            (``acknowledged``).
        transport: ``symmetric`` memory, ``all-gather``, or ``auto``: symmetric
            memory if every rank gets it.
        contract: Order of the ids: best first (``order``), or the order of
            candidate position, rank by rank (``set``), which is faster with cutedsl.
        implementation: Selection kernel: ``cutedsl``, ``triton``, or ``auto``:
            cutedsl on a GPU, triton under its interpreter.
        launches: Whether a merge is one kernel (``fused``) or one kernel per
            step (``separate``).  ``auto`` fuses where that is possible: through
            symmetric memory, with cutedsl, two slots in turn, at most 512 rows,
            and fewer than every rank's device holds CTAs at once.  ``fused`` is an error where
            no merge could be; one of more rows is separate all the same.
        owner_rows: Rows from which a merge through symmetric memory is
            owner-sharded: each rank merges its share of the rows and returns
            their ids; 0 for never.  Results are the same.  The default is an
            estimate for K = 2048 on H200: a second hop and four more launches
            cost about 6 us; moving and selecting half as much saves about
            0.02 us a row on 2 ranks, and more on more ranks.  It leaves decode
            batches of up to 256 rows at one hop.
        dtype: Type of the scores.
        first_epoch: Where the epoch counters start; any int64.
        version: Protocol version.
    """

    max_rows: int
    local_candidates: int
    k: int
    interleave: int = 1
    preset: str = "ieee"
    discipline: Discipline = "alternating"
    transport: Transport = "auto"
    contract: SelectionContract = "order"
    implementation: Implementation = "auto"
    launches: Launches = "auto"
    owner_rows: int = 512
    dtype: str = "float32"
    first_epoch: int = 0
    version: int = PROTOCOL_VERSION

    @property
    def slots(self) -> int:
        """Inbox slots of the discipline."""
        return 2 if self.discipline == "alternating" else 1

    def merges_by_owner(self, rows: int, world_size: int) -> bool:
        """Whether a merge of so many rows is owner-sharded; every rank says the same."""
        return world_size > 1 and 0 < self.owner_rows <= rows

    def count_unsharded_rows(self, world_size: int) -> int:
        """Return the most rows of a merge that is not owner-sharded."""
        return self.owner_rows - 1 if self.merges_by_owner(self.max_rows, world_size) else self.max_rows

    def count_packet_rows(self, world_size: int) -> int:
        """Return the most rows of a merge in one launch, as far as the geometry goes."""
        if self.discipline != "alternating" or self.launches == "separate":
            return 0
        return min(self.count_unsharded_rows(world_size), LARGEST_FUSED_ROWS)

    def validate(self, world_size: int) -> None:
        """Check every attribute.

        Raises:
            InputError: An attribute is outside its range; names the first.
        """
        for name in ("max_rows", "local_candidates", "k", "interleave"):
            check_integer(name, getattr(self, name), 1, LARGEST_ID.value)
        check_integer("first_epoch", self.first_epoch, -(2**63), 2**63 - 1)
        check_integer("owner_rows", self.owner_rows, 0, LARGEST_ID.value)
        check_integer("version", self.version, PROTOCOL_VERSION, PROTOCOL_VERSION)
        check_integer("interleave * world size", self.interleave * world_size, 1, LARGEST_ID.value)
        check_integer("local_candidates * world size", self.local_candidates * world_size, 1, LARGEST_ID.value)
        check_name("discipline", self.discipline, DISCIPLINES)
        check_name("transport", self.transport, TRANSPORTS)
        check_name("contract", self.contract, CONTRACTS)
        check_name("implementation", self.implementation, IMPLEMENTATIONS)
        check_name("launches", self.launches, LAUNCHES)
        check_name("dtype", self.dtype, DTYPES)
        resolve_policy(self.preset)
        check_integer("min(k, candidates)", min(self.k, self.local_candidates * world_size), 1, LARGEST_TILE)


def check_integer(name: str, value: object, low: int, high: int) -> None:
    """Check an integer's range.

    Raises:
        InputError: ``value`` is not an int, or the symbol of one, within ``low`` .. ``high``.
    """
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)) or not low <= value <= high:
        raise InputError(name, value=value, limit=f"must be an integer within {low}..{high}")


def check_name(name: str, value: object, known: tuple[str, ...]) -> None:
    """Check that a value is one of a few names.

    Raises:
        InputError: It is not.
    """
    if value not in known:
        raise InputError(name, value=value, limit=f"must be one of {', '.join(known)}")


def agree(fabric: Fabric, geometry: Geometry | Exception) -> Geometry:
    """Return the geometry if it is valid and the same on all ranks.

    Args:
        fabric: This rank's fabric.
        geometry: This rank's geometry; or the exception that kept this rank
            from having one, so that its peers hear of it.

    Raises:
        GeometryError: On every rank, with the same message, when any rank failed
            or any attribute differs; names the attribute, the ranks and the values.
    """
    reports = fabric.gather_objects(_report(fabric, geometry))
    failures = {rank: report for rank, report in enumerate(reports) if isinstance(report, str)}
    if failures:
        reasons = ", ".join(f"rank {rank} ({reason})" for rank, reason in failures.items())
        raise GeometryError(f"workspace geometry is invalid on {reasons}", remedy="correct it on every rank")
    differences = [name for name in reports[0] if len({report.get(name) for report in reports}) > 1]
    if differences or isinstance(geometry, Exception):
        raise GeometryError(
            "; ".join(_describe(name, reports) for name in differences),
            limit="a workspace has one geometry on all ranks",
            remedy="create it with the same arguments on every rank",
        )
    return geometry


def _report(fabric: Fabric, geometry: Geometry | Exception) -> dict[str, Any] | str:
    """Return this rank's attributes, or what is wrong with them."""
    if isinstance(geometry, Exception):
        return f"{type(geometry).__name__}: {geometry}"
    try:
        geometry.validate(fabric.world_size)
    except Exception as error:  # Arbitrary values may break a check in any way; the peers must hear of it.
        return f"{type(error).__name__}: {error}"
    return {**asdict(geometry), "world_size": fabric.world_size}


def _describe(name: str, reports: list[dict[str, Any]]) -> str:
    """Say which ranks have which value of an attribute."""
    ranks: dict[Any, list[int]] = {}
    for rank, report in enumerate(reports):
        ranks.setdefault(report.get(name), []).append(rank)
    values = ", ".join(f"{value!r} on ranks {owners}" for value, owners in ranks.items())
    return f"{name} differs: {values}"
