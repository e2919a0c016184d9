"""What a benchmark writes down, and its JSON form."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from tiebreak.errors import InputError

from .statistics import Statistics

SCHEMA_VERSION = 1
"""Raised when a field is renamed or removed."""

EMPTY_KERNEL = "empty kernel"
PACKED_COPY = "packed copy"
"""The two contenders that ratios are taken to; see ``contenders``."""

Benchmark = Literal["select", "exchange"]
Record = TypeVar("Record")


@dataclass(frozen=True)
class Method:
    """How launches are timed.

    Attributes:
        samples: Timed graph replays, at least 30.
        launches: Launches that one graph holds: 1, or a multiple of ``sets``.  A sample is the time of a replay
            divided by it, so that the latency of a graph launch counts ``1 / launches`` times.
        sets: Input sets in rotation, at least 4.
        seed: Seed of the inputs.
    """

    samples: int = 40
    launches: int = 80
    sets: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("samples", 30), ("launches", 1), ("sets", 4), ("seed", 0)):
            if getattr(self, name) < low:
                raise InputError(name, value=getattr(self, name), limit=f"must be at least {low}")
        if self.launches > 1 and self.launches % self.sets:
            raise InputError("launches", value=self.launches, limit=f"must be 1 or a multiple of the {self.sets} sets")

    def describe(self) -> str:
        """Say in one line what a time is."""
        if self.launches == 1:
            held = "one launch, so times include the latency of a graph launch"
        else:
            held = f"{self.launches} launches, times divided by them"
        return (
            f"median of {self.samples} graph replays between two events; a graph holds {held}; {self.sets} input sets"
        )


@dataclass(frozen=True)
class Machine:
    """What was measured on.

    Attributes:
        device: Name of the GPU.
        count: GPUs in use, one per rank.
        driver: Version of the driver, None if nvidia-smi cannot tell.
        sm_clock_mhz: Clock of the multiprocessors straight after the last timing.
        memory_clock_mhz: Clock of the memory straight after the last timing.
        versions: Of python, torch, cuda, nccl, triton, nvidia-cutlass-dsl and tiebreak; None for what is not there.
        commit: Commit of the checkout, None outside of one.
        date: Start, ISO 8601 in UTC.
    """

    device: str
    count: int
    driver: str | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    versions: dict[str, str | None]
    commit: str | None
    date: str


@dataclass(frozen=True)
class Shape:
    """Shape of one selection.

    Attributes:
        rows: Rows.
        candidates: Candidates N per row, of all ranks.
        k: Ids per row.
    """

    rows: int
    candidates: int
    k: int

    def __post_init__(self) -> None:
        for name in ("rows", "candidates", "k"):
            if getattr(self, name) < 1:
                raise InputError(name, value=getattr(self, name), limit="must be at least 1")
        if self.k > self.candidates:
            remedy = "library contenders cannot return more ids than there are candidates"
            raise InputError(
                "k", value=self.k, limit=f"must be at most the {self.candidates} candidates", remedy=remedy
            )


@dataclass(frozen=True)
class Measurement:
    """Time of one contender on one shape and kind of input.

    Attributes:
        benchmark: ``select`` or ``exchange``.
        contender: Name of the contender.
        contract: ``order``, ``set``, or ``-`` for what selects nothing.
        ours: Whether it is this package's.
        kind: Kind of input.
        shape: Shape of the selection.
        ranks: World size.
        time: Microseconds per launch; of the slowest rank.
    """

    benchmark: Benchmark
    contender: str
    contract: str
    ours: bool
    kind: str
    shape: Shape
    ranks: int
    time: Statistics


@dataclass(frozen=True)
class Rejection:
    """A contender that was not timed, because it was wrong or failed.

    Attributes:
        benchmark: ``select`` or ``exchange``.
        contender: Name of the contender.
        ours: Whether it is this package's.
        kind: Kind of input.
        shape: Shape of the selection.
        reason: The violation, or the exception.
    """

    benchmark: Benchmark
    contender: str
    ours: bool
    kind: str
    shape: Shape
    reason: str


@dataclass(frozen=True)
class ReplayCount:
    """Graph replays of one merge with fresh data each, on one rank.

    Attributes:
        contender: Name of the merge.
        rank: Rank.
        ranks: World size.
        exact: Replays whose whole output was as specified.
        total: All replays.
    """

    contender: str
    rank: int
    ranks: int
    exact: int
    total: int


@dataclass(frozen=True)
class Document:
    """One run.

    Attributes:
        machine: What was measured on.
        method: How launches were timed; None if nothing was timed.
        measurements: Times.
        rejections: What was not timed.
        replays: Counts of replays with fresh data.
    """

    machine: Machine
    method: Method | None
    measurements: tuple[Measurement, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    replays: tuple[ReplayCount, ...] = ()

    @property
    def exit_status(self) -> int:
        """1 if an output of this package was wrong, else 0."""
        wrong = any(rejection.ours for rejection in self.rejections)
        return int(wrong or any(count.exact < count.total for count in self.replays))


def encode_document(document: Document) -> str:
    """Return a document as JSON."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(document)}, indent=1, allow_nan=False) + "\n"


def decode_document(text: str) -> Document:
    """Return the document of a JSON text.

    Raises:
        InputError: It is no JSON, of another schema version, or lacks a field.
    """
    try:
        data = json.loads(text)
        version = data.pop("schema_version")
        if version != SCHEMA_VERSION:
            raise InputError("schema_version", value=version, limit=f"must be {SCHEMA_VERSION}", remedy="measure again")
        return Document(
            Machine(**data["machine"]),
            None if data["method"] is None else Method(**data["method"]),
            _decode_records(data["measurements"], _measurement),
            _decode_records(data["rejections"], _rejection),
            _decode_records(data["replays"], lambda item: ReplayCount(**item)),
        )
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError("benchmark file", limit=f"must be what --output wrote ({reason})") from error


def read_document(path: Path) -> Document:
    """Read a document.

    Raises:
        InputError: The file cannot be read, or is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("benchmark file", value=str(path), limit=f"must be readable: {error}") from error
    return decode_document(text)


def write_document(document: Document, path: Path) -> None:
    """Write a document.

    Raises:
        InputError: The file cannot be written.
    """
    require_writable(path)
    path.write_text(encode_document(document), encoding="utf-8")


def require_writable(path: Path) -> None:
    """See that a file can be written, before a long run rather than after it.

    Raises:
        InputError: It cannot.
    """
    existed = path.exists()
    try:
        path.open("a", encoding="utf-8").close()
        if not existed:
            path.unlink()
    except OSError as error:
        limit = f"must be a file that can be written: {error.strerror}"
        raise InputError("output", value=str(path), limit=limit, remedy="name another one") from error


def _decode_records(items: list[dict[str, Any]], decode: Callable[[dict[str, Any]], Record]) -> tuple[Record, ...]:
    return tuple(decode(item) for item in items)


def _measurement(item: dict[str, Any]) -> Measurement:
    return Measurement(**{**item, "shape": Shape(**item["shape"]), "time": Statistics(**item["time"])})


def _rejection(item: dict[str, Any]) -> Rejection:
    return Rejection(**{**item, "shape": Shape(**item["shape"])})
