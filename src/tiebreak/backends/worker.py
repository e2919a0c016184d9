"""The program of a worker process that owns a GPU: ``python -m tiebreak.backends.worker``.

``streams`` runs all ranks of a scenario on one device; ``processes`` is one
rank of a group with one process per GPU.
"""

from __future__ import annotations

import datetime
import os
import sys

import torch
import torch.distributed as dist

from tiebreak.verify.case import draw_cases
from tiebreak.verify.scenario import Scenario

from . import Ids
from .device import DeviceFabric, choose_max_polls
from .host import HostProgram, Implementation
from .local import StreamBackend, bind_program, new_stream
from .pool import portable_error, serve

GROUP_TIMEOUT = datetime.timedelta(seconds=120)

Result = tuple[list[Ids], BaseException | None]
"""Outputs of a rank, and what it ended with."""


class ProcessWorker:
    """Runs this process's rank of scenarios."""

    def __init__(self, fabric: DeviceFabric) -> None:
        self._fabric = fabric

    def run(self, scenario: Scenario, schedule: str) -> Result:
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
    torch.cuda.set_stream(new_stream())
    return DeviceFabric()


def run_rank(scenario: Scenario, fabric: DeviceFabric) -> Result:
    """Run a scenario on the rank of a process."""
    outputs: list[Ids] = []
    program = HostProgram(Implementation(), scenario, draw_cases(scenario), outputs, choose_max_polls(scenario))
    try:
        bind_program(program, scenario)(fabric)
    except Exception as error:  # Whatever it is, the judge must hear of it.
        return outputs, portable_error(error)
    return outputs, None


def main(arguments: list[str]) -> None:
    """Serve one pool until it closes."""
    descriptor, index, placement, *rest = arguments
    if placement == "streams":
        serve(int(descriptor), StreamBackend())
    else:
        world_size, store = rest
        serve(int(descriptor), ProcessWorker(open_fabric(int(index), f"file://{store}", int(index), int(world_size))))


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    # Destroying a group while a captured collective lives would wait for ever.
    os._exit(0)
