"""``tiebreak explore --shards``: one conclusion from shards on many workers."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

from tiebreak.errors import InputError
from tiebreak.sim.explorer.verdicts import Verdict

from .cluster import SHARDS_PER_WORKER, Cluster, Distribution, open_cluster
from .command import EXHAUSTIVE, PROGRESS_SECONDS, ExploreRequest, catch_interrupt, print_conclusion, show
from .shards import Subject, plan_shards
from .union import Union


def run_distributed(request: ExploreRequest, console: Console) -> int:
    """Explore all shards, print what follows; 0 if nothing is wrong, 1 if something is, 3 if that is not known.

    Raises:
        InputError: Other options do not go with shards.
        MissingBackendError: ``dask.distributed`` is not installed.
        WorkerError: The cluster does not answer, or a worker has other sources.
    """
    if request.strategy != EXHAUSTIVE or request.shard != ExploreRequest.shard or request.symmetry:
        raise InputError(
            "shards",
            value=request.shards,
            limit="of an exhaustive exploration without symmetry",
            remedy="leave the other option out",
        )
    with open_cluster(request.cluster) as cluster:
        union = _begin(request, cluster)
        with catch_interrupt() as is_stopped:
            Distribution(union, cluster.executor).run(request.seconds, is_stopped, _make_report(console, cluster))
    _keep(union, request)
    name = " ".join((request.program, *request.parameters, request.mutant)).rstrip()
    print_conclusion(name, request.model, union.conclusion, union.counts, console)
    console.print(_describe(union, cluster), highlight=False)
    if union.pictures is not None:
        show(union.pictures, request, console)
    verdict = union.conclusion.verdict
    return 1 if verdict is Verdict.FAILED else 3 if verdict in (Verdict.UNKNOWN, Verdict.UNSUPPORTED) else 0


def _begin(request: ExploreRequest, cluster: Cluster) -> Union:
    """No shards yet, or those of the checkpoint."""
    if request.checkpoint is not None and request.checkpoint.exists():
        return Union.resume(request.checkpoint, Subject.name(request), request.shards or 0)
    wanted = request.shards or SHARDS_PER_WORKER * max(1, cluster.workers)
    return Union(plan_shards(request, wanted, exactly=bool(request.shards)))


def _keep(union: Union, request: ExploreRequest) -> None:
    """Leave behind what there is to go on from, if anything is left to do."""
    if request.checkpoint is None:
        return
    if union.conclusion.verdict is Verdict.UNKNOWN:
        union.save(request.checkpoint)
    else:
        request.checkpoint.unlink(missing_ok=True)


def _make_report(console: Console, cluster: Cluster) -> Callable[[Union], None]:
    """What says now and then how far the shards have come."""
    said = [time.monotonic()]

    def report(union: Union) -> None:
        if time.monotonic() - said[0] >= PROGRESS_SECONDS:
            said[0] = time.monotonic()
            counts = union.counts
            console.print(
                f"{union.progress:.1%} done, {union.finished} of {union.plan.shards} shards on {cluster.workers} "
                f"workers, {counts.classes:,} classes, {counts.seconds:.0f} s"
            )

    return report


def _describe(union: Union, cluster: Cluster) -> str:
    """How the search was divided."""
    text = f"{union.finished} of {union.plan.shards} shards on {cluster.workers} workers"
    if dealt := max((part.dealt[0] for part in union.parts.values()), default=0):
        text += f", {dealt} parts of the search from decision {union.plan.split} on"
    return text + (f"; begun anew {union.rounds} times, as more was found out" if union.rounds else "")
