"""Runs scenarios under torchrun, one process per rank, where a launcher starts the processes.

::

    python -m torch.distributed.run --standalone --nproc-per-node=2 -m tiebreak.backends.torchrun SCENARIO...

Every rank runs every scenario; rank 0 judges and prints one line each.  The
exit status is 1 if a property was broken.  ``ranks`` of a scenario is replaced
by the number of processes.  ``pytest --backend cuda`` starts its own processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

os.environ["TRITON_INTERPRET"] = "0"  # Before triton is imported: compiled kernels only.

import torch

from tiebreak.errors import MissingBackendError
from tiebreak.verify.judgement import judge
from tiebreak.verify.scenario import parse_scenario

from . import collect_results
from .worker import open_fabric, run_rank


def main(texts: Sequence[str]) -> int:
    """Run the scenarios and return the exit status.

    Raises:
        MissingBackendError: This machine has fewer GPUs than processes.
    """
    index = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.device_count() <= index:
        raise MissingBackendError(
            f"GPU {index}", limit=f"torch sees {torch.cuda.device_count()}", remedy="start one process per GPU"
        )
    fabric = open_fabric(index, "env://")
    broken = 0
    for text in texts:
        scenario = replace(parse_scenario(text), ranks=fabric.world_size)
        results = fabric.gather_objects(run_rank(scenario, fabric))
        findings = judge(scenario, collect_results(results))
        broken += bool(findings)
        if fabric.rank == 0:
            verdict = "; ".join(f"{finding.property}: {finding.message}" for finding in findings) or "passed"
            print(f"{scenario.text()}: {verdict}", flush=True)
    fabric.gather_objects("done")
    return 1 if broken else 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # Destroying a group while a captured collective lives would wait for ever.
    os._exit(status)
