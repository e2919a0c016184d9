"""The command line: ``tiebreak verify``, ``replay``, ``build``, ``ptx`` and ``bench``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tiebreak.bench.command import app as bench
from tiebreak.environment import prepare_interpreter
from tiebreak.errors import TiebreakError

prepare_interpreter()

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Verify the exact, deterministic global top-K across GPUs on simulated ranks.",
)
app.add_typer(bench, name="bench")

EXIT_CLEAN, EXIT_VIOLATION, EXIT_MISUSE = 0, 1, 2


@app.command()
def verify(
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run of well under a minute.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="A long run: every shape drawn many times.")] = False,
    ranks: Annotated[list[int] | None, typer.Option(help="World size; repeatable. Default: 2, 3 and 4.")] = None,
    backend: Annotated[list[str] | None, typer.Option(help="Repeatable. Default: spec, sim, ptx:sm_100a.")] = None,
    preset: Annotated[str, typer.Option(help="Order preset: ieee, torch, vllm-cutedsl or vllm-triton.")] = "ieee",
    seed: Annotated[int, typer.Option(help="Seed of every input and schedule.", min=0)] = 0,
    input: Annotated[Path | None, typer.Option(help="Captured scores or candidates, .npz or .safetensors.")] = None,
    target: Annotated[str | None, typer.Option(help="module:attribute of a selector (scores, ids, k) -> ids.")] = None,
    contract: Annotated[str, typer.Option(help="What the target promises: values, set or order.")] = "order",
    replay_input: Annotated[str | None, typer.Option(help="Run the target on this one input.")] = None,
    mutants: Annotated[bool, typer.Option("--mutants", help="Also require every seeded bug to be caught.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Property to run; repeatable. Default: all.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes. Default: one per core.", min=1)] = None,
    report: Annotated[Path | None, typer.Option(help="Folder for report.json, index.html and junit.xml.")] = None,
) -> None:
    """Run the properties over the backends; exit 0 clean, 1 violation, 2 misuse."""
    from tiebreak.verify.job import Request, run_request

    request = Request(
        quick=quick,
        deep=deep,
        ranks=tuple(ranks or ()),
        backends=tuple(backend or ()),
        preset=preset,
        seed=seed,
        input=input,
        target=target,
        contract=contract,
        replay_input=replay_input,
        mutants=mutants,
        only=tuple(only or ()),
        workers=workers,
        report=report,
    )
    raise typer.Exit(run_request(request, Console()))


@app.command()
def replay(
    scenario: Annotated[str, typer.Argument(help="Scenario, as a failure printed it.")],
    schedule: Annotated[str, typer.Option(help="Schedule, as a failure printed it, or another strategy.")] = "default",
    backend: Annotated[str, typer.Option(help="Backend that failed. Default: what the scenario belongs to.")] = "",
    mutant: Annotated[str, typer.Option(help="Name of the seeded bug to put in.")] = "",
) -> None:
    """Run one scenario under one schedule; exit 1 if it breaks a property again."""
    from tiebreak.verify.job import replay_scenario

    raise typer.Exit(replay_scenario(scenario, schedule, backend, mutant, Console()))


@app.command()
def build(
    out: Annotated[Path, typer.Option(help="Folder for the kernels.", file_okay=False)],
    arch: Annotated[str, typer.Option(help="Targets, separated by commas.")] = "sm_90a,sm_100a,sm_121a",
) -> None:
    """Compile the CuTeDSL kernels ahead of time, no GPU needed; exit 1 if one costs too much."""
    from tiebreak.build import build_kernels
    from tiebreak.console import open_console

    raise typer.Exit(build_kernels(arch, out, open_console()))


@app.command()
def litmus(
    files: Annotated[list[Path], typer.Argument(help="Litmus tests for PTX, or folders of them.")],
    model: Annotated[str, typer.Option(help="Memory model: sc, rc11 or ptx.")] = "ptx",
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects: file, holds, verdict.")] = False,
    iterations: Annotated[int, typer.Option(help="How often a loop may repeat with an effect.", min=0)] = 4,
    seconds: Annotated[float, typer.Option(help="Time for one file, then UNKNOWN.", min=0)] = 60.0,
) -> None:
    """Say whether the final conditions of litmus tests hold; exit 0 if every one was decided, 1 if not."""
    from tiebreak.litmus.command import run_litmus
    from tiebreak.sim.litmus.candidates import Limits

    raise typer.Exit(run_litmus(files, model, Limits(iterations, seconds), as_json, Console()))


@app.command()
def ptx(
    kernel: Annotated[str, typer.Argument(help="A .ptx file, or module:kernel of a Triton or CuTeDSL kernel.")],
    grid: Annotated[str, typer.Option(help="CTAs in x, y and z, separated by commas.")] = "1",
    block: Annotated[str, typer.Option(help="Threads of a CTA. Default: what the kernel requires.")] = "",
    args: Annotated[str, typer.Option(help="Arguments, separated by blanks; see tiebreak.ptx.arguments.")] = "",
    arch: Annotated[str, typer.Option(help="Target that a kernel is compiled for.")] = "sm_100a",
    entry: Annotated[str, typer.Option(help="Kernel of a file that has several.")] = "",
    shared: Annotated[int | None, typer.Option(help="Dynamic shared memory of a CTA, in bytes.", min=0)] = None,
    cluster: Annotated[int | None, typer.Option(help="CTAs of a cluster.", min=1)] = None,
    schedule: Annotated[
        str, typer.Option(help="Order of the warps: lockstep, ahead:WARP, random:SEED ...")
    ] = "lockstep",
    races: Annotated[bool, typer.Option(help="Look for races and for reads of memory that nothing wrote.")] = True,
) -> None:
    """Run a compiled kernel on a CPU, thread by thread; exit 1 if something is wrong with it."""
    from tiebreak.ptx.command import launch_from_text

    status = launch_from_text(
        kernel,
        Console(),
        grid=grid,
        block=block,
        arguments=args,
        architecture=arch,
        entry=entry,
        shared_bytes=shared,
        cluster=cluster,
        schedule=schedule,
        races=races,
    )
    raise typer.Exit(status)


@app.command()
def audit(
    kernel: Annotated[str, typer.Argument(help="As for ptx, or select-threads=128-vectors=1 ... for a selector.")],
    grid: Annotated[str, typer.Option(help="CTAs in x, y and z, separated by commas.")] = "1",
    block: Annotated[str, typer.Option(help="Threads of a CTA. Default: what the kernel requires.")] = "",
    args: Annotated[list[str] | None, typer.Option(help="Arguments of a launch, as for ptx; repeatable.")] = None,
    draws: Annotated[int, typer.Option(help="How often to draw random arrays without a seed.", min=1)] = 1,
    schedule: Annotated[list[str] | None, typer.Option(help="Order of the warps; repeatable.")] = None,
    outputs: Annotated[bool, typer.Option("--outputs", help="Also run without each, and compare what is written.")] = (
        False
    ),
    arch: Annotated[str, typer.Option(help="Target that a kernel is compiled for.")] = "sm_100a",
    entry: Annotated[str, typer.Option(help="Kernel of a file that has several.")] = "",
    shared: Annotated[int | None, typer.Option(help="Dynamic shared memory of a CTA, in bytes.", min=0)] = None,
    cluster: Annotated[int | None, typer.Option(help="CTAs of a cluster.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one object instead of a table.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Also exit 1 if something is redundant.")] = False,
) -> None:
    """Say which barriers, fences, acquires and releases of a kernel are needed; exit 1 if it has findings itself."""
    from tiebreak.ptx.audit_command import audit_from_text

    status = audit_from_text(
        kernel,
        Console(),
        grid=grid,
        block=block,
        arguments=args or [""],
        draws=draws,
        schedules=schedule or ["lockstep"],
        outputs=outputs,
        architecture=arch,
        entry=entry,
        shared_bytes=shared,
        cluster=cluster,
        as_json=as_json,
        strict=strict,
    )
    raise typer.Exit(status)


@app.command()
def zoo(
    kernel: Annotated[str, typer.Argument(help="Kernel to print in full. Default: all, as a table.")] = "",
    schedule: Annotated[str, typer.Option(help="Order of the warps, such as ahead:0.")] = "lockstep",
) -> None:
    """Run small correct and broken kernels on the PTX machine; exit 1 if one is judged wrongly."""
    from tiebreak.zoo.command import print_zoo

    raise typer.Exit(print_zoo(kernel, schedule, Console()))


@app.command()
def lowering(
    update: Annotated[bool, typer.Option("--update", help="Write what the installed compilers do instead.")] = False,
) -> None:
    """Audit what the installed compilers make of every flag operation; exit 1 if it is not what the manifest says."""
    from tiebreak.lowering.command import audit_lowering

    raise typer.Exit(audit_lowering(update, Console()))


@app.command()
def explore(
    program: Annotated[str, typer.Argument(help="A family of sim/explorer, or a protocol of sim/protocols.")],
    ranks: Annotated[int | None, typer.Option(help="World size, where the program has one.", min=1)] = None,
    epochs: Annotated[int | None, typer.Option(help="Exchanges, where the program has them.", min=1)] = None,
    set: Annotated[list[str] | None, typer.Option(help="name=value of another parameter; repeatable.")] = None,
    model: Annotated[str, typer.Option(help="Memory model: sc, rc11 or ptx.")] = "ptx",
    strategy: Annotated[
        str, typer.Option(help="exhaustive, or N executions drawn: random:N, pct:N, pct:N:DEPTH, pos:N, surw:N.")
    ] = "exhaustive",
    awaits: Annotated[str, typer.Option(help="distinct, or merged: all values that end a wait as one.")] = "distinct",
    arrivals: Annotated[
        str,
        typer.Option(help="distinct, or merged: orders in which CTAs of the fused merge finish, if they are alike."),
    ] = "merged",
    shard: Annotated[str, typer.Option(help="Part i of n of the search, as i/n; their counts add up.")] = "0/1",
    seconds: Annotated[float, typer.Option(help="Time limit.")] = float("inf"),
    seed: Annotated[int, typer.Option(help="Seed of random executions.", min=0)] = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="File to go on from, written on Ctrl-C.")] = None,
    report: Annotated[Path | None, typer.Option(help="Folder for the pictures of a failure.")] = None,
    mutant: Annotated[
        str, typer.Option(help="Mutant of the protocol or of the kernels; tiebreak mutants lists them.")
    ] = "",
    steps: Annotated[int, typer.Option(help="Operations after which a thread is cut short.", min=1)] = 100_000,
    shards: Annotated[
        int | None, typer.Option(help="Explore so many shards on all cores or a cluster; 0 for as many as suit.", min=0)
    ] = None,
    cluster: Annotated[str, typer.Option(help="Address of a Dask scheduler for the shards.")] = "",
    symmetry: Annotated[
        bool, typer.Option("--symmetry", help="Explore one order of interchangeable ranks, and count the others.")
    ] = False,
) -> None:
    """Explore all executions of a program; exit 0 if nothing is wrong, 1 if something is, 3 if that is not known."""
    from tiebreak.explore.command import ExploreRequest, run_exploration

    sizes = [f"{name}={value}" for name, value in (("ranks", ranks), ("epochs", epochs)) if value is not None]
    request = ExploreRequest(
        program=program,
        parameters=(*sizes, *(set or ())),
        model=model,
        strategy=strategy,
        awaits=awaits,
        arrivals=arrivals,
        shard=shard,
        seconds=seconds,
        seed=seed,
        checkpoint=checkpoint,
        report=report,
        mutant=mutant,
        steps=steps,
        shards=0 if shards is None and cluster else shards,
        cluster=cluster,
        symmetry=symmetry,
    )
    raise typer.Exit(run_exploration(request, Console()))


@app.command()
def mutants(
    checker: Annotated[str, typer.Option(help="simulator, explorer or both.")] = "both",
    workers: Annotated[int | None, typer.Option(help="Worker processes. Default: one per core.", min=1)] = None,
    report: Annotated[Path | None, typer.Option(help="Folder for report.json, index.html and junit.xml.")] = None,
) -> None:
    """Require every seeded bug to be caught, and say how long that takes; exit 1 if one survives."""
    from tiebreak.verify.job import Request, run_mutants_only

    raise typer.Exit(run_mutants_only(checker, Request(workers=workers, report=report), Console()))


def main() -> None:
    """Run the command line; errors of the user's making exit with 2."""
    try:
        app()
    except TiebreakError as error:
        print(f"tiebreak: {error}", file=sys.stderr)
        sys.exit(EXIT_MISUSE)
