"""What a benchmark runs on, and what must be there for it."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from tiebreak import __version__
from tiebreak.errors import MissingBackendError

from .model import Machine


def require_gpu() -> None:
    """Prepare this process for compiled kernels; call it before Triton is imported.

    Raises:
        MissingBackendError: There is no GPU.
    """
    # Kernels, and those of Triton's own library, read it when they are decorated.
    os.environ["TRITON_INTERPRET"] = "0"
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")
    import torch

    if not torch.cuda.is_available():
        raise MissingBackendError(
            "a CUDA device", limit="torch sees none", remedy="run benchmarks on a machine with a GPU"
        )


def describe_machine(count: int, date: datetime.datetime) -> Machine:
    """Describe the current device; call it straight after the last timing, while clocks are up.

    Args:
        count: GPUs in use.
        date: Start of the run, with a time zone.
    """
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    driver, sm_clock, memory_clock = query_driver(f"GPU-{properties.uuid}")
    return Machine(
        device=properties.name,
        count=count,
        driver=driver,
        sm_clock_mhz=None if sm_clock is None else int(sm_clock),
        memory_clock_mhz=None if memory_clock is None else int(memory_clock),
        versions=collect_versions(torch),
        commit=read_commit(),
        date=date.astimezone(datetime.UTC).isoformat(timespec="seconds"),
    )


def query_driver(device: str) -> tuple[str | None, str | None, str | None]:
    """Return the driver's version and the clocks of the multiprocessors and the memory, None for what is unknown."""
    fields = "driver_version,clocks.sm,clocks.mem"
    command = ["nvidia-smi", f"--id={device}", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    answer = _run(command) or ""
    values = [value.strip() for value in answer.split(",")]
    if len(values) != 3:
        return None, None, None
    driver, *clocks = values
    sm_clock, memory_clock = (clock if clock.isdecimal() else None for clock in clocks)
    return driver, sm_clock, memory_clock


def collect_versions(torch: Any) -> dict[str, str | None]:
    """Return the versions of everything that decides what is compiled and launched."""
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else None
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": nccl,
        "triton": _installed("triton"),
        "nvidia-cutlass-dsl": _installed("nvidia-cutlass-dsl"),
        "tiebreak": __version__,
    }


def read_commit() -> str | None:
    """Return the commit of the checkout that this module lies in, None outside of one."""
    return _run(["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"])


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _run(command: list[str]) -> str | None:
    """Return what a program prints, None if it is not there or fails."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
