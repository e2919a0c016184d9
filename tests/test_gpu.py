"""Merges on real GPUs: the host program of the simulated ranks, one process per GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

SCENARIOS = [
    f"rows=5,k=7,local=7,length=40,kind={kind},epochs=6,mode={mode},{transport}"
    for kind in ("ties", "special")
    for mode in ("eager", "graph")
    for transport in ("transport=symmetric", "transport=symmetric,discipline=acknowledged", "transport=all-gather")
]
LARGE = [
    "rows=16,k=2048,local=2048,length=9000,kind=captured,epochs=2,transport=symmetric",
    "rows=16,k=2048,local=2048,length=9000,kind=random,epochs=2,mode=graph,transport=symmetric,discipline=acknowledged",
    "rows=3,k=16,local=16,length=8,kind=equal,interleave=16777216",
    "rows=0,epochs=3",
    "rows=4,length=1,epochs=3",
    "epochs=8,epoch=9223372036854775804,transport=symmetric",
    "epochs=301,mode=graph,rows=2,transport=symmetric",
]
FAULTS = ["fault=fewer-rows,rows=3", "fault=dead", "fault=geometry", "fault=dead,discipline=acknowledged"]


@pytest.mark.gpu
def test_merges_on_this_machines_gpus() -> None:
    count = torch.cuda.device_count()
    assert count > 0, "the gpu environment was asked for on a machine without a GPU"
    scenarios = SCENARIOS + LARGE + (FAULTS if count > 1 else [])
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    command = [*launcher, "-m", "tiebreak.backends.torchrun", *scenarios]
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environment)
    passed = [line for line in result.stdout.splitlines() if line.endswith(": passed")]
    assert (result.returncode, len(passed)) == (0, len(scenarios)), result.stdout + result.stderr
