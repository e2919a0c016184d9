"""Real GPUs as a backend: compiled kernels, in worker processes that live between tests.

``processes`` is one process per GPU, with torch symmetric memory and NCCL;
``streams`` is one process in which every rank is a stream of one device.
Without either in its name a backend takes processes where there are enough
GPUs, and streams elsewhere and for one rank.

The calling process needs neither a GPU context nor compiled kernels, so
simulated and real ranks can be judged side by side.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tiebreak.errors import InputError, MissingBackendError, WorkerError

from . import Ids, Outcome, Packed, collect_results
from .host import SIMULATED_FAULTS
from .pool import WorkerPool

if TYPE_CHECKING:
    from tiebreak.verify.scenario import Scenario

PLACEMENTS = ("processes", "streams")

TIMEOUT = 240.0
"""Seconds for one request: far beyond any kernel, but the first ones compile."""

EPOCH_TIMEOUT = 0.02
"""Further seconds per merge of a scenario."""

_ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",
    "TRITON_INTERPRET": "0",
    "TRITON_DEFAULT_FP_FUSION": "0",
    # Not every system can make multicast objects, and nothing here needs them.
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    # All ranks are on this host.
    "GLOO_SOCKET_IFNAME": "lo",
}
_STREAMS_ENVIRONMENT = {**_ENVIRONMENT, "CUDA_MODULE_LOADING": "EAGER", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}

_POOLS: dict[tuple[str, int], WorkerPool] = {}
"""Pools by placement and number of processes."""

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
"""Where the processes of each group find one another, until this process ends."""


class CudaBackend:
    """Runs the implementation on this machine's GPUs.

    Args:
        name: ``cuda:TRANSPORT`` or ``cuda:PLACEMENT:TRANSPORT``.
    """

    def __init__(self, name: str = "cuda:alternating") -> None:
        self.name = name
        words = name.split(":")
        self._placement = words[1] if words[1] in PLACEMENTS else ""

    def select(
        self,
        gathered: Packed,
        k: int,
        preset: str,
        arrangement: str,
        contract: str = "order",
        implementation: str = "auto",
    ) -> Ids:
        """Select on the first GPU; see ``Backend.select``.

        Raises:
            TiebreakError: What the selection raised.
            WorkerError: The worker died or did not answer in time.
        """
        ids: Ids = self._ask("select", gathered, k, preset, arrangement, contract, implementation)
        return ids

    def localise(self, ids: Ids, rank: int, world_size: int, interleave: int) -> tuple[Ids, Ids]:
        """Localise on the first GPU; see ``Backend.localise``.

        Raises:
            TiebreakError: What the localisation raised.
            WorkerError: The worker died or did not answer in time.
        """
        local, counts = self._ask("localise", ids, rank, world_size, interleave)
        return local, counts

    def _ask(self, method: str, *arguments: Any) -> Any:
        (answer,) = obtain_pool("streams", 1).request(method, *arguments, timeout=TIMEOUT)
        return answer

    def run(self, scenario: Scenario, schedule: str) -> Outcome:
        """Run all merges of a scenario.  The hardware schedules; ``schedule`` is not used.

        A pool that died or was late is reported as a broken property, so that
        the failure shows how to run the scenario again.

        Raises:
            MissingBackendError: Processes were asked for, and there are fewer GPUs than ranks.
            InputError: The scenario has a fault of simulated ranks.
        """
        if scenario.fault in SIMULATED_FAULTS:
            limit = "only simulated ranks can have it"
            raise InputError("fault", value=scenario.fault, limit=limit, remedy="take a backend of simulated ranks")
        placement = self._place(scenario.ranks)
        pool = obtain_pool(placement, 1 if placement == "streams" else scenario.ranks)
        timeout = TIMEOUT + scenario.epochs * EPOCH_TIMEOUT
        try:
            answers = pool.request("run", _without_fallback(scenario), "-", timeout=timeout)
        except WorkerError as error:
            pool.close()
            return _failed(scenario, error)
        outcome: Outcome = answers[0] if placement == "streams" else collect_results(answers)
        if outcome.violations and scenario.fault == "none":
            # Ranks that ended at different places may be out of step, and a device error stays.
            pool.close()
        return outcome

    def _place(self, ranks: int) -> str:
        """Return where ranks run."""
        count = count_devices()
        if self._placement == "processes" and ranks > count:
            raise MissingBackendError(
                f"{ranks} GPUs", limit=f"torch sees {count}", remedy="take fewer ranks, or the backend cuda:streams"
            )
        return self._placement or ("processes" if 1 < ranks <= count else "streams")


def _without_fallback(scenario: Scenario) -> Scenario:
    """Require symmetric memory where the scenario would do without: the fallback has a backend of its own."""
    if scenario.transport == "auto" and scenario.fault != "rendezvous" and scenario.ranks > 1:
        return replace(scenario, transport="symmetric")
    return scenario


def _failed(scenario: Scenario, error: WorkerError) -> Outcome:
    """Return the outcome of a scenario that the pool did not survive."""
    return Outcome([[] for _ in range(scenario.ranks)], [error] * scenario.ranks, [("worker", str(error))])


def count_devices() -> int:
    """Return the number of GPUs that torch sees."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def require_device() -> None:
    """Check that there is a GPU.

    Raises:
        MissingBackendError: torch sees none.
    """
    if count_devices() == 0:
        raise MissingBackendError(
            "a CUDA device",
            limit="the cuda backends run on GPUs, and torch sees none",
            remedy="run on a machine with a GPU, or choose the backend sim",
        )


def obtain_pool(placement: str, size: int) -> WorkerPool:
    """Return the live pool of a placement, started anew if it ended.

    Raises:
        InputError: The placement is unknown.
    """
    if placement not in PLACEMENTS:
        raise InputError("placement", value=placement, limit=f"one of {', '.join(PLACEMENTS)}", remedy="name one")
    pool = _POOLS.get((placement, size))
    if pool is None or not pool.alive:
        if pool is not None:
            pool.close()
        pool = _POOLS[placement, size] = _start_pool(placement, size)
    return pool


def _start_pool(placement: str, size: int) -> WorkerPool:
    """Start the workers of a placement."""
    module = "tiebreak.backends.worker"
    if placement == "streams":
        return WorkerPool(module, size, ["streams"], _STREAMS_ENVIRONMENT)
    folder = tempfile.TemporaryDirectory(prefix="tiebreak-")
    _FOLDERS.append(folder)
    return WorkerPool(module, size, ["processes", str(size), os.path.join(folder.name, "store")], _ENVIRONMENT)


@atexit.register
def close_pools() -> None:
    """Kill every worker.  Idempotent."""
    for pool in _POOLS.values():
        pool.close()
    _POOLS.clear()
