"""The speed to reach on one H200, and on two over NVLink, and whether a run reached it.

A target holds for the fastest contender of this package on a shape whose output
has a deterministic order: that of the contract ``order``, or that of ``set`` by
this package's selectors, the order of candidate position, which is the same in
every run and on every device.  Contract ``set`` alone would allow any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .model import EMPTY_KERNEL, PACKED_COPY, Benchmark, Document, Measurement, Shape

TIE_RATIO = 1.3
"""Most that tie-heavy or all-equal scores may cost, as a multiple of random ones."""

DETERMINISTIC_CONTRACTS = ("order", "set")
"""Contracts whose output, by this package's selectors, has one possible order."""

REPLAYS = 10_000
"""Graph replays with fresh data that must all be exact."""


@dataclass(frozen=True)
class Target:
    """A limit for one shape on random scores; reaching either limit is enough.

    Attributes:
        benchmark: ``select`` on one GPU or ``exchange`` on two.
        shape: Shape of the selection.
        microseconds: Most microseconds of the median.
        empty_ratio: Most multiples of the empty kernel, if there is such a limit.
        copy_ratio: Multiples of the packed copy that are hoped for, if any; never failed.
    """

    benchmark: Benchmark
    shape: Shape
    microseconds: float
    empty_ratio: float | None = None
    copy_ratio: float | None = None


TARGETS = (
    Target("select", Shape(16, 4096, 2048), 3.6, empty_ratio=3.2),
    Target("select", Shape(16, 8192, 2048), 5.0, empty_ratio=4.4),
    Target("select", Shape(16, 16384, 2048), 7.8, empty_ratio=6.8),
    Target("select", Shape(256, 4096, 2048), 5.7, copy_ratio=1.0),
    Target("select", Shape(256, 8192, 2048), 9.7, copy_ratio=1.0),
    Target("select", Shape(256, 16384, 2048), 15.7, copy_ratio=1.0),
    Target("exchange", Shape(16, 4096, 2048), 7.5),
    Target("exchange", Shape(64, 4096, 2048), 10.0),
    Target("exchange", Shape(256, 4096, 2048), 21.0),
)
EXCHANGE_RANKS = 2
"""Ranks that the targets of the exchange are for."""


@dataclass(frozen=True)
class Verdict:
    """One target beside what was measured.

    Attributes:
        subject: Shape and kind of input.
        contender: What was judged.
        limit: The limit in words.
        measured: The measurement in words.
        passed: Whether the limit was kept.
    """

    subject: str
    contender: str
    limit: str
    measured: str
    passed: bool


def judge(document: Document) -> list[Verdict]:
    """Judge every target that a run measured."""
    verdicts = list(_judge_speed(document))
    verdicts += _judge_ties(document)
    for count in document.replays:
        subject = f"replays with fresh data, rank {count.rank} of {count.ranks}"
        measured = f"{count.exact:,} of {count.total:,} exact"
        passed = count.exact == count.total >= REPLAYS
        verdicts.append(Verdict(subject, count.contender, f"all of {REPLAYS:,} exact", measured, passed))
    return verdicts


def baseline(document: Document, measurement: Measurement, contender: str) -> Measurement | None:
    """Return a contender's measurement on the same input, None if it was not measured."""
    return next((other for other in _peers(document, measurement) if other.contender == contender), None)


def random_baseline(document: Document, measurement: Measurement) -> Measurement | None:
    """Return the same contender's measurement on random scores of the same shape."""
    found = (
        other
        for other in document.measurements
        if (other.benchmark, other.shape, other.contender, other.ranks, other.kind)
        == (measurement.benchmark, measurement.shape, measurement.contender, measurement.ranks, "random")
    )
    return next(found, None)


def ratio(measurement: Measurement, base: Measurement | None) -> float | None:
    """Return the ratio of two medians, None where there is nothing to divide by."""
    return measurement.time.median / base.time.median if base is not None and base.time.median > 0 else None


def fastest(document: Document, benchmark: Benchmark, shape: Shape) -> Measurement | None:
    """Return this package's fastest measurement on random scores with output of a deterministic order."""
    ours = [
        measurement
        for measurement in document.measurements
        if measurement.ours
        and (measurement.benchmark, measurement.shape) == (benchmark, shape)
        and measurement.contract in DETERMINISTIC_CONTRACTS
        and measurement.kind == "random"
    ]
    return min(ours, key=lambda measurement: measurement.time.median, default=None)


def _judge_speed(document: Document) -> Iterator[Verdict]:
    for target in TARGETS:
        found = fastest(document, target.benchmark, target.shape)
        if found is None or (target.benchmark == "exchange" and found.ranks != EXCHANGE_RANKS):
            continue
        to_empty = ratio(found, baseline(document, found, EMPTY_KERNEL))
        to_copy = ratio(found, baseline(document, found, PACKED_COPY))
        limit, measured = f"{target.microseconds} us", f"{found.time.median:.2f} us"
        passed = found.time.median <= target.microseconds
        if target.empty_ratio is not None and to_empty is not None:
            limit += f" or {target.empty_ratio} x empty"
            measured += f", {to_empty:.2f} x empty"
            passed = passed or to_empty <= target.empty_ratio
        if target.copy_ratio is not None and to_copy is not None:
            limit += f" (stretch: {target.copy_ratio:.1f} x copy)"
            measured += f", {to_copy:.2f} x copy"
        yield Verdict(describe(found), found.contender, limit, measured, passed)


def _judge_ties(document: Document) -> Iterator[Verdict]:
    for measurement in document.measurements:
        best = fastest(document, measurement.benchmark, measurement.shape)
        if measurement.kind == "random" or best is None or measurement.contender != best.contender:
            continue
        found = ratio(measurement, best)
        if found is not None:
            measured = f"{found:.2f} x random"
            limit = f"{TIE_RATIO} x random"
            yield Verdict(describe(measurement), best.contender, limit, measured, found <= TIE_RATIO)


def describe(measurement: Measurement) -> str:
    """Name the benchmark, the shape and the kind of input of a measurement."""
    shape = measurement.shape
    return f"{measurement.benchmark}, {shape.rows} rows of {shape.candidates}, K {shape.k}, {measurement.kind}"


def _peers(document: Document, measurement: Measurement) -> Iterator[Measurement]:
    wanted = (measurement.benchmark, measurement.shape, measurement.kind, measurement.ranks)
    for other in document.measurements:
        if (other.benchmark, other.shape, other.kind, other.ranks) == wanted:
            yield other
