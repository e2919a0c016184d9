"""Runs compiled kernels under compute-sanitizer and under Triton's GSan.

::

    python -m tiebreak.backends.sanitize memcheck racecheck synccheck gsan

runs the program below once per tool, and fails on any report of any severity.
``python -m tiebreak.backends.sanitize`` alone runs the program without a tool:
small selections that reach every kind of selection kernel, a localisation, and
merges of a rank with itself, all held against the spec.

* memcheck, racecheck and synccheck are tools of compute-sanitizer: accesses out
  of bounds or misaligned, hazards in shared memory, and misused barriers
  (https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer).
* gsan is Triton's detector of races in global memory, from 3.9 on
  (https://github.com/triton-lang/triton/pull/9493).  It instruments Triton
  kernels and cannot see how the host orders streams, so everything here runs
  on one stream; races between ranks are what simulated ranks are for.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

from tiebreak.errors import InputError, MissingBackendError
from tiebreak.verify.differential import ARRANGEMENTS, Selection, compare_with_spec
from tiebreak.verify.judgement import judge
from tiebreak.verify.scenario import CONTRACTS, Scenario

from . import Backend

SUMMARIES = {
    "memcheck": r"ERROR SUMMARY: 0 errors",
    "synccheck": r"ERROR SUMMARY: 0 errors",
    "racecheck": r"RACECHECK SUMMARY: 0 hazards displayed \(0 errors, 0 warnings\)",
}
"""What each tool of compute-sanitizer prints last when it has nothing to report."""

GSAN = "gsan"
COUNTS = (0, 1, 100, 1000, 2049, 4096, 8192, 16_384, 20_000)
SLOTS = (1, 64, 2048, 4096)
PRESETS = ("ieee", "torch", "vllm-cutedsl", "vllm-triton")


def plan_selections(implementations: Sequence[str]) -> Iterator[Selection]:
    """Yield selections of every size, contract and arrangement, with presets, kinds and parities in turn."""
    presets, kinds = itertools.cycle(PRESETS), itertools.cycle(("random", "equal", "ties", "special", "digits"))
    rows = itertools.cycle((2, 1, 150, 3))
    for implementation, count, k in itertools.product(implementations, COUNTS, SLOTS):
        for contract, arrangement in itertools.product(CONTRACTS, ARRANGEMENTS):
            ranks = 1 if arrangement == "row-major" else 3
            yield Selection(
                ranks=ranks,
                rows=next(rows) if count <= 4096 else 2,
                local=count // ranks,
                k=k,
                preset=next(presets),
                contract=contract,
                arrangement=arrangement,
                implementation=implementation,
                kind=next(kinds),
                padding=10,
            )


def plan_merges(implementations: Sequence[str]) -> Iterator[Scenario]:
    """Yield merges of a rank with itself, through all kernels of the exchange."""
    for implementation, discipline in itertools.product(implementations, ("alternating", "acknowledged")):
        yield Scenario(
            ranks=1, rows=3, transport="symmetric", discipline=discipline, implementation=implementation, epochs=3
        )


def run_program(backend: Backend, implementations: Sequence[str]) -> int:
    """Run everything on a backend; return the number of wrong results."""
    wrong = [
        f"selection {selection.text()}: {message}"
        for selection in plan_selections(implementations)
        if (message := compare_with_spec(backend, selection))
    ]
    for scenario in plan_merges(implementations):
        wrong += [f"merge {scenario.text()}: {one.message}" for one in judge(scenario, backend.run(scenario, "-"))]
    for line in wrong:
        print(line, flush=True)
    return len(wrong)


def run_tool(tool: str, implementations: Sequence[str]) -> int:
    """Run the program under a tool; return 0 if there was no report and every result was right.

    GSan instruments Triton kernels only, whatever the implementations.

    Raises:
        InputError: The tool is unknown.
        MissingBackendError: It is not installed.
    """
    if tool == GSAN:
        require_gsan()
        return subprocess.run(_program(["triton"], "--instrument"), check=False).returncode
    if tool not in SUMMARIES:
        raise InputError("tool", value=tool, limit=f"one of {', '.join((*SUMMARIES, GSAN))}", remedy="name one")
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        raise MissingBackendError(
            "compute-sanitizer", limit="not on the PATH", remedy="add the bin folder of a CUDA toolkit"
        )
    command = [sanitizer, "--tool", tool, "--error-exitcode", "1", *_program(implementations)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout, flush=True)
    return int(done.returncode != 0 or re.search(SUMMARIES[tool], done.stdout) is None)


def _compile_kernels() -> None:
    """Have kernels compiled in this process; called before triton is imported."""
    os.environ["TRITON_INTERPRET"] = "0"


def _open_device() -> Backend:
    """Return this process's GPU as a backend, with compiled kernels."""
    _compile_kernels()
    from .local import StreamBackend

    return StreamBackend()


def _program(implementations: Sequence[str], *options: str) -> list[str]:
    chosen = [word for name in implementations for word in ("--implementation", name)]
    return [sys.executable, "-m", "tiebreak.backends.sanitize", *chosen, *options]


def require_gsan() -> None:
    """Check that the installed Triton has GSan.

    Raises:
        MissingBackendError: It does not.
    """
    if importlib.util.find_spec("triton.experimental.gsan") is None:
        version = importlib.metadata.version("triton")
        raise MissingBackendError("GSan", limit=f"Triton {version} has none", remedy="install Triton 3.9 or later")


@contextlib.contextmanager
def instrument() -> Iterator[None]:
    """Compile Triton kernels with GSan, and allocate memory that it watches."""
    require_gsan()
    _compile_kernels()
    import torch
    import triton
    from triton.experimental.gsan import create_mem_pool

    triton.knobs.compilation.instrumentation_mode = GSAN
    with torch.cuda.use_mem_pool(create_mem_pool()):
        yield


def main(arguments: Sequence[str]) -> int:
    """Run tools one after the other, or the program itself; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tiebreak.backends.sanitize", description=__doc__.split("\n")[0])
    parser.add_argument("tools", nargs="*", help=f"{', '.join(SUMMARIES)} or {GSAN}; none runs the program alone")
    parser.add_argument("--implementation", action="append", help="cutedsl or triton; repeatable, default both")
    parser.add_argument("--instrument", action="store_true", help="instrument the program with GSan")
    given = parser.parse_args(arguments)
    implementations = given.implementation or ["cutedsl", "triton"]
    if not given.tools:
        with instrument() if given.instrument else contextlib.nullcontext():
            return int(run_program(_open_device(), implementations) > 0)
    failed = [tool for tool in given.tools if run_tool(tool, implementations) != 0]
    print(f"reports or wrong results under: {', '.join(failed) or 'none'}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
