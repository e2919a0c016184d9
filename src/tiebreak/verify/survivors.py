"""Judges the ranks that are left when one dies, falls behind or leaves a merge out.

Whatever the step at which it happens, every rank ends, each of its results is exact or -1 throughout, none follows one
that is -1, and a rank with such a result ends in an error that names a rank which is missing or stopped itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tiebreak.backends import Ids, Outcome
from tiebreak.errors import PeerLostError, PeerTimeoutError
from tiebreak.spec import merge
from tiebreak.spec.layout import Layout

from .case import MergeCase, draw_cases
from .finding import Finding
from .scenario import Scenario


def judge_survivors(scenario: Scenario, outcome: Outcome) -> Iterator[Finding]:
    """Judge every rank but one that died."""
    expected = expect_results(scenario)
    for rank in range(scenario.ranks):
        if scenario.fault == "dies" and rank == scenario.fault_rank:
            continue
        skipped = scenario.fault == "skips" and rank == scenario.fault_rank
        yield from _judge_outputs(scenario, outcome, rank, expected, scenario.epochs - skipped)
        yield from _judge_error(scenario, outcome, rank)


def expect_results(scenario: Scenario) -> list[Ids]:
    """What each exchange returns if it succeeds.

    A rank that leaves a merge out offers its next candidates instead, and none in the last exchange: there nothing can
    be right.
    """
    cases = draw_cases(scenario)
    if scenario.fault != "skips":
        return [case.expected for case in cases]
    shifted = [number + (number >= scenario.fault_step) for number in range(len(cases) - 1)]
    nothing = np.empty((0, scenario.k), np.int32)
    return [*(_mix(scenario, cases, number, taken) for number, taken in enumerate(shifted)), nothing]


def _mix(scenario: Scenario, cases: list[MergeCase], number: int, taken: int) -> Ids:
    """Merge the candidates of one case with those that the faulty rank has of another."""
    chosen = [cases[taken if rank == scenario.fault_rank else number] for rank in range(scenario.ranks)]
    merge_all = merge.merge if scenario.contract == "order" else merge.merge_in_place
    starts = None
    if scenario.starts:
        starts = [case.row_starts[rank] for rank, case in enumerate(chosen) if case.row_starts is not None]
    scores = [case.scores[rank] for rank, case in enumerate(chosen)]
    indices = [case.local_indices[rank] for rank, case in enumerate(chosen)]
    layout = Layout(scenario.ranks, scenario.interleave)
    return np.asarray(merge_all(scores, indices, layout, scenario.k, scenario.preset, starts))


def _judge_outputs(
    scenario: Scenario, outcome: Outcome, rank: int, expected: list[Ids], wanted: int
) -> Iterator[Finding]:
    """Require results to be exact up to some exchange and -1 from there on, with an error at the end."""
    outputs, error = outcome.outputs[rank], outcome.errors[rank]
    failed = False
    for epoch, actual in enumerate(outputs):
        exact = actual.shape == expected[epoch].shape and bool((actual == expected[epoch]).all())
        empty = bool((actual == -1).all())
        if failed and not empty:
            yield Finding("exact-order", f"rank {rank} returned ids in epoch {epoch}, after an exchange that failed")
        elif not exact and not empty:
            yield Finding("exact-order", f"rank {rank}, epoch {epoch}: neither the result nor -1: {actual.tolist()}")
        failed = failed or (empty and not exact)
    if failed and error is None:
        yield Finding("progress", f"rank {rank} returned -1 and no error")
    if error is None and len(outputs) < wanted:
        yield Finding("progress", f"rank {rank} finished {len(outputs)} of {wanted} merges without an error")


def _judge_error(scenario: Scenario, outcome: Outcome, rank: int) -> Iterator[Finding]:
    """Require an error, if there is one, to name a rank that is missing or that stopped itself."""
    error = outcome.errors[rank]
    if isinstance(error, PeerTimeoutError):
        if error.peer != scenario.fault_rank and outcome.errors[error.peer] is None:
            yield Finding("progress", f"rank {rank} blames rank {error.peer}, which is well: {error}")
    elif error is not None and not isinstance(error, PeerLostError):
        yield Finding("progress", f"rank {rank} ended with {error!r}")
