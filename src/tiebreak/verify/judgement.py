"""Judges one execution of a scenario: which properties it broke, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tiebreak.backends import Outcome
from tiebreak.errors import GeometryError, PeerError, PeerTimeoutError, RowMismatchError
from tiebreak.spec.contracts import Contract, check_agreement

from .case import MergeCase, draw_cases
from .finding import Finding
from .scenario import Scenario
from .survivors import judge_survivors

MERGE_PROPERTIES: dict[str, str] = {
    "exact-order": "every rank returns the k best ids, best first, padded with -1",
    "agreement": "all ranks return the same rows in every epoch",
    "race-free": "conflicting accesses are ordered by happens-before at sufficient scope",
    "initialised-memory": "no kernel reads memory that nothing wrote",
    "in-bounds": "no kernel leaves its allocations",
    "progress": "every execution ends, without deadlock, livelock or error",
}
"""Properties that every fault-free execution of a merge is judged by."""

_BACKEND_PROPERTIES = {
    "race": "race-free",
    "uninitialised-read": "initialised-memory",
    "out-of-bounds": "in-bounds",
}


def judge(scenario: Scenario, outcome: Outcome) -> list[Finding]:
    """Return the findings of an execution; an empty list is a pass.

    A fault changes what is right: the survivors must end in the error that
    names it, and nothing but that error counts as progress.
    """
    judges: dict[str, Callable[[Scenario, Outcome], Iterator[Finding]]] = {
        "none": _judge_results,
        "rendezvous": _judge_results,
        "geometry": _judge_geometry,
        "fewer-rows": _judge_rows,
        "dead": _judge_timeout,
        "one-fewer": _judge_timeout,
        "late": _judge_results,
        **dict.fromkeys(("dies", "stalled", "skips"), judge_survivors),
    }
    expected = ("host-error",) if scenario.fault not in ("none", "rendezvous", "late") else ()
    findings = [
        Finding(_BACKEND_PROPERTIES.get(name, "progress"), message)
        for name, message in outcome.violations
        if name not in expected
    ]
    if not findings:
        findings.extend(judges[scenario.fault](scenario, outcome))
    return findings


def _judge_results(scenario: Scenario, outcome: Outcome) -> Iterator[Finding]:
    """Compare every rank and epoch with the oracle, and the ranks with one another."""
    cases = draw_cases(scenario)
    for rank, outputs in enumerate(outcome.outputs):
        if len(outputs) != len(cases):
            yield Finding("progress", f"rank {rank} finished {len(outputs)} of {len(cases)} merges")
            return
    for epoch, case in enumerate(cases):
        rows = [outputs[epoch] for outputs in outcome.outputs]
        for violation in check_agreement(rows, Contract.ORDER):
            yield Finding("agreement", f"epoch {epoch}: {violation.message}")
        yield from _compare(epoch, case, rows)


def _compare(
    epoch: int, case: MergeCase, rows: list[np.ndarray[tuple[int, ...], np.dtype[np.int32]]]
) -> Iterator[Finding]:
    for rank, actual in enumerate(rows):
        wrong = np.flatnonzero((actual != case.expected).any(axis=1)) if case.expected.size else np.zeros(0, dtype=int)
        if actual.shape != case.expected.shape:
            yield Finding("exact-order", f"rank {rank} returned shape {actual.shape}, not {case.expected.shape}")
        elif wrong.size:
            row = int(wrong[0])
            both = f"expected {case.expected[row].tolist()}, got {actual[row].tolist()}"
            yield Finding("exact-order", f"rank {rank}, epoch {epoch}, row {row}: {both}")


def _judge_geometry(scenario: Scenario, outcome: Outcome) -> Iterator[Finding]:
    """Require the same GeometryError on every rank."""
    for rank, error in enumerate(outcome.errors):
        if not isinstance(error, GeometryError):
            yield Finding("progress", f"ranks disagree on k, but rank {rank} ended with {error!r}")
    if len({str(error) for error in outcome.errors}) > 1:
        yield Finding("agreement", f"the ranks report different errors: {[str(error) for error in outcome.errors]}")


def _judge_rows(scenario: Scenario, outcome: Outcome) -> Iterator[Finding]:
    """Require the row mismatch to be named on every rank that can see it."""
    yield from _judge_peer_errors(scenario, outcome, RowMismatchError, range(scenario.ranks))


def _judge_timeout(scenario: Scenario, outcome: Outcome) -> Iterator[Finding]:
    """Require the survivors to name the rank that is missing."""
    yield from _judge_peer_errors(scenario, outcome, PeerTimeoutError, range(scenario.ranks - 1))


def _judge_peer_errors(scenario: Scenario, outcome: Outcome, kind: type[PeerError], ranks: range) -> Iterator[Finding]:
    faulty = scenario.ranks - 1
    for rank in ranks:
        error = outcome.errors[rank]
        if not isinstance(error, kind):
            yield Finding("progress", f"rank {rank} should end with {kind.__name__}, but ended with {error!r}")
        elif rank != faulty and error.peer != faulty:
            yield Finding("progress", f"rank {rank} blames rank {error.peer}, but rank {faulty} is at fault: {error}")
        if len(outcome.outputs[rank]) == scenario.epochs and (outcome.outputs[rank][-1] != -1).any():
            yield Finding("exact-order", f"rank {rank} returned ids from an exchange that failed")
