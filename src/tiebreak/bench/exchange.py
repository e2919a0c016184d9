"""The benchmark of the exchange with the selection behind it, one process per GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from tiebreak.impl.agreement import attempt
from tiebreak.impl.fabric import Fabric

from .checking import find_violation, poison_outputs
from .contenders import Launch
from .inputs import InputSet
from .merges import Exchange, Prepare, RankInput, act_together, upload
from .model import Measurement, Method, Rejection, Shape
from .selection import draw_sets
from .statistics import Statistics
from .timing import capture_graphs, replay_once, time_graphs


def run_exchange(
    fabric: Fabric, shapes: Sequence[Shape], kinds: Sequence[str], contenders: Sequence[Exchange], method: Method
) -> Iterator[Measurement | Rejection]:
    """Check and time every contender on every shape and kind of input.  Collective.

    Every rank yields the same: a contender that is wrong on one rank is rejected
    on all, and the time is that of the slowest rank.

    Raises:
        InputError: An unknown kind of input.
    """
    for shape in shapes:
        for kind in kinds:
            inputs = draw_sets(kind, shape, fabric.world_size, method)
            uploaded = [upload(drawn, fabric) for drawn in inputs]
            for contender in contenders:
                yield _measure(fabric, contender, shape, kind, inputs, uploaded, method)


def _measure(
    fabric: Fabric,
    contender: Exchange,
    shape: Shape,
    kind: str,
    inputs: Sequence[InputSet],
    uploaded: list[RankInput],
    method: Method,
) -> Measurement | Rejection:
    """Set up, check and time one contender; give everything back."""

    def run() -> Statistics | str:
        with contender.open(fabric, shape) as prepare:
            return _check_and_time(fabric, contender, prepare, inputs, uploaded, method)

    result, failures = attempt(fabric, run)
    if result is None or failures or isinstance(result, str):
        reason = result if isinstance(result, str) else _join(failures)
        return Rejection("exchange", contender.name, contender.ours, kind, shape, reason)
    contract = "-" if contender.contract is None else contender.contract.value
    return Measurement("exchange", contender.name, contract, contender.ours, kind, shape, fabric.world_size, result)


def _check_and_time(
    fabric: Fabric,
    contender: Exchange,
    prepare: Prepare,
    inputs: Sequence[InputSet],
    uploaded: list[RankInput],
    method: Method,
) -> Statistics | str:
    """Return the time on the slowest rank, or what is wrong on any."""

    def capture() -> tuple[list[Launch], list[torch.cuda.CUDAGraph]]:
        launches = prepare(uploaded)
        return launches, capture_graphs(launches, method)

    def poison() -> None:
        poison_outputs(launches)
        fabric.synchronize()

    def replay() -> None:
        replay_once(graphs)
        fabric.synchronize()

    launches, graphs = act_together(fabric, "capture", capture)
    # Peers write into outputs: all are poisoned before anybody replays, and all replayed before anybody looks.
    act_together(fabric, "poisoning", poison)
    act_together(fabric, "replay", replay)
    violation = act_together(fabric, "check", lambda: find_violation(launches, inputs, contender.contract))
    reasons = fabric.gather_objects(violation)
    if any(reasons):
        return _join(dict(enumerate(reasons)))
    time = act_together(fabric, "timing", lambda: time_graphs(graphs, method, meet=lambda: fabric.gather_objects(None)))
    times: list[Statistics] = fabric.gather_objects(time)
    return max(times, key=lambda time: time.median)


def _join(reasons: dict[int, str]) -> str:
    return "; ".join(f"rank {rank}: {reason}" for rank, reason in reasons.items() if reason)
