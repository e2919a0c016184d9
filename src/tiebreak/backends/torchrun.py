"""Runs scenarios on real GPUs, one process per rank, with the host program of the simulated ranks.

::

    python -m torch.distributed.run --standalone --nproc-per-node=2 -m tiebreak.backends.torchrun SCENARIO...

Every rank runs every scenario; rank 0 judges and prints one line each.  The
exit status is 1 if a property was broken.  ``ranks`` of a scenario is replaced
by the number of processes.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"  # Before triton is imported: compiled kernels only.

import torch
import torch.distributed as dist

from tiebreak.backends import Ids, Outcome
from tiebreak.backends.host import HostProgram, Implementation
from tiebreak.errors import MissingBackendError
from tiebreak.impl.torch_fabric import TorchFabric
from tiebreak.verify.case import draw_cases
from tiebreak.verify.judgement import judge
from tiebreak.verify.scenario import Scenario, parse_scenario

MAX_POLLS = 2_000_000
"""Bound of a wait: far beyond any skew between ranks here, a few seconds for a dead one."""


class DeviceFabric(TorchFabric):
    """A torch fabric with what host programs need besides."""

    def upload(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Return a copy in device memory."""
        return tensor.to(self.device)

    def write(self, target: torch.Tensor, values: torch.Tensor) -> None:
        """Overwrite device memory."""
        target.copy_(values)

    def name_regions(self, tensor: torch.Tensor, regions: dict[int, str]) -> None:
        """Do nothing: no report here names addresses."""

    def warm_up(self, launch: Callable[[], Any]) -> None:
        """Launch once, so that nothing is compiled or loaded during capture."""
        launch()
        self.synchronize()

    @contextlib.contextmanager
    def capture(self) -> Iterator[torch.cuda.CUDAGraph]:
        """Record launches into a CUDA graph."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            yield graph

    def replay(self, graph: torch.cuda.CUDAGraph) -> None:
        """Launch a graph."""
        graph.replay()


def run_scenario(scenario: Scenario, fabric: DeviceFabric) -> Outcome:
    """Run one scenario on all ranks; every rank returns the outcome of all."""
    outputs: list[Ids] = []
    program = HostProgram(Implementation(), scenario, draw_cases(scenario), outputs, MAX_POLLS)
    error: BaseException | None = None
    try:
        program(fabric)
    except Exception as raised:
        error = raised
    results = fabric.gather_objects((outputs, error))
    return Outcome([result for result, _ in results], [raised for _, raised in results])


def main(texts: Sequence[str]) -> int:
    """Run the scenarios and return the exit status.

    Raises:
        MissingBackendError: This machine has fewer GPUs than processes.
    """
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.device_count() <= rank:
        raise MissingBackendError(
            f"GPU {rank}", limit=f"torch sees {torch.cuda.device_count()}", remedy="start one process per GPU"
        )
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=120))
    fabric = DeviceFabric()
    broken = 0
    for text in texts:
        scenario = replace(parse_scenario(text), ranks=fabric.world_size)
        outcome = run_scenario(scenario, fabric)
        findings = judge(scenario, outcome)
        broken += bool(findings)
        if rank == 0:
            verdict = "; ".join(f"{finding.property}: {finding.message}" for finding in findings) or "passed"
            print(f"{scenario.text()}: {verdict}", flush=True)
    fabric.gather_objects("done")
    return 1 if broken else 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # Destroying a group while a captured collective lives would wait for ever.
    os._exit(status)
