"""The program of a worker process that owns a GPU: ``python -m tiebreak.backends.worker``.

``streams`` runs all ranks of a scenario on one device; ``processes`` is one
rank of a group with one process per GPU.
"""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tiebreak.verify.case import draw_cases
from tiebreak.verify.scenario import Scenario

from . import Ids, Packed
from .device import MAX_POLLS, DeviceFabric
from .host import HostProgram, Implementation, launch_localisation, launch_selection
from .pool import portable_error, serve
from .streams import StreamFabric, StreamWorld

_new_stream: Callable[[], torch.cuda.Stream] = torch.cuda.Stream
GROUP_TIMEOUT = datetime.timedelta(seconds=120)

Result = tuple[list[Ids], BaseException | None]
"""Outputs of a rank, and what it ended with."""


class StreamWorker:
    """Runs selections, and scenarios with every rank on a stream of the current device."""

    def __init__(self) -> None:
        self._implementation = Implementation()
        self._device = torch.device("cuda", torch.cuda.current_device())
        self._streams: list[torch.cuda.Stream] = []

    def select(self, gathered: Packed, k: int, preset: str, arrangement: str, contract: str) -> Ids:
        """Select from gathered candidates; see ``Backend.select``."""

        def launch(fabric: StreamFabric) -> list[torch.Tensor]:
            return [launch_selection(self._implementation, fabric, gathered, k, preset, arrangement, contract)]

        return self._run_alone(launch)[0]

    def localise(self, ids: Ids, rank: int, world_size: int, interleave: int) -> tuple[Ids, Ids]:
        """Localise selected ids; see ``Backend.localise``."""

        def launch(fabric: StreamFabric) -> list[torch.Tensor]:
            return launch_localisation(self._implementation, fabric, ids, rank, world_size, interleave)

        local, counts = self._run_alone(launch)
        return local, counts

    def run(self, scenario: Scenario) -> list[Result]:
        """Run a scenario; return the results of all ranks."""
        world = self._world(scenario.ranks)
        cases = draw_cases(scenario)
        outputs: list[list[Ids]] = [[] for _ in range(scenario.ranks)]
        programs = []
        for rank in range(scenario.ranks):
            program = HostProgram(self._implementation, scenario, cases, outputs[rank], MAX_POLLS)
            programs.append(_with_fault(program, scenario))
        errors = world.run(programs)
        return [(outputs[rank], error and portable_error(error)) for rank, error in enumerate(errors)]

    def _world(self, ranks: int) -> StreamWorld:
        """Return a world of ranks; streams are kept, so that no later one shares a queue with them."""
        while len(self._streams) < ranks:
            self._streams.append(_new_stream())
        return StreamWorld(self._device, self._streams[:ranks])

    def _run_alone(self, launch: Any) -> list[Ids]:
        """Run launches of one rank, and return the tensors they leave."""
        results: list[Ids] = []

        def program(fabric: StreamFabric) -> None:
            results.extend(tensor.cpu().numpy() for tensor in launch(fabric))

        (error,) = self._world(1).run([program])
        if error is not None:
            raise error
        return results


class ProcessWorker:
    """Runs this process's rank of scenarios."""

    def __init__(self, fabric: DeviceFabric) -> None:
        self._fabric = fabric

    def run(self, scenario: Scenario) -> Result:
        """Run a scenario; return this rank's result."""
        return run_rank(scenario, self._fabric)


def open_fabric(device_index: int, init_method: str, rank: int = -1, world_size: int = -1) -> DeviceFabric:
    """Join the process group and return this process's fabric.

    Args:
        device_index: Index of this process's GPU.
        init_method: How the processes find one another, see ``init_process_group``.
        rank: This rank, where ``init_method`` does not say.
        world_size: Number of processes, where ``init_method`` does not say.
    """
    device = torch.device("cuda", device_index)
    torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl", init_method=init_method, rank=rank, world_size=world_size, device_id=device, timeout=GROUP_TIMEOUT
    )
    # The default stream cannot be captured.
    torch.cuda.set_stream(_new_stream())
    return DeviceFabric()


def run_rank(scenario: Scenario, fabric: DeviceFabric) -> Result:
    """Run a scenario on the rank of a process."""
    outputs: list[Ids] = []
    program = HostProgram(Implementation(), scenario, draw_cases(scenario), outputs, MAX_POLLS)
    try:
        _with_fault(program, scenario)(fabric)
    except Exception as error:  # Whatever it is, the judge must hear of it.
        return outputs, portable_error(error)
    return outputs, None


def _with_fault(program: HostProgram, scenario: Scenario) -> Any:
    """Return a program whose rendezvous fails where the scenario says so."""

    def run(fabric: StreamFabric | DeviceFabric) -> None:
        fabric.fails_rendezvous = scenario.fault == "rendezvous" and fabric.rank == scenario.ranks - 1
        program(fabric)

    return run


def main(arguments: list[str]) -> None:
    """Serve one pool until it closes."""
    descriptor, index, placement, *rest = arguments
    if placement == "streams":
        serve(int(descriptor), StreamWorker())
    else:
        world_size, store = rest
        serve(int(descriptor), ProcessWorker(open_fabric(int(index), f"file://{store}", int(index), int(world_size))))


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    # Destroying a group while a captured collective lives would wait for ever.
    os._exit(0)
