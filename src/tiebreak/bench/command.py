"""``tiebreak bench``: time this package's selection and exchange beside others, on this machine's GPUs."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from tiebreak.console import open_console
from tiebreak.errors import TiebreakError

from .group import run_on_ranks
from .inputs import KINDS, check_kinds
from .machine import describe_machine, require_gpu
from .model import (
    Document,
    Measurement,
    Method,
    Rejection,
    ReplayCount,
    Shape,
    read_document,
    require_writable,
    write_document,
)
from .plot import require_plotting, write_plot
from .table import describe_measurement, print_document

if TYPE_CHECKING:
    from tiebreak.impl.torch_fabric import TorchFabric

EXIT_MISUSE = 2

SELECT_ROWS, SELECT_CANDIDATES = (16, 64, 256), (4096, 8192, 16384)
EXCHANGE_ROWS = (1, 16, 64, 256, 1024)
REPLAY_ROWS = (1, 16, 64)
K = 2048
"""Default shapes; every rank of an exchange offers ``K`` candidates."""


class SelectByDefault(TyperGroup):
    """A group whose command is ``select`` unless another one is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``select`` in front of arguments that name no command."""
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["select", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=SelectByDefault,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Time selection and exchange on this machine's GPUs, each output checked before. Default command: select.",
)

Samples = Annotated[int, typer.Option(help="Timed graph replays, at least 30.")]
Launches = Annotated[int, typer.Option(help="Launches per graph; 1 includes the latency of a graph launch.")]
Sets = Annotated[int, typer.Option(help="Input sets in rotation, at least 4.")]
Seed = Annotated[int, typer.Option(help="Seed of the inputs.")]
Rows = Annotated[list[int] | None, typer.Option(help="Rows; repeatable.")]
Kinds = Annotated[list[str] | None, typer.Option(help="random, tie-heavy or all-equal; repeatable.")]
Merges = Annotated[list[str] | None, typer.Option(help="Merge to run; repeatable. Default: all.")]
Output = Annotated[Path | None, typer.Option(help="JSON file to write.")]
Plot = Annotated[Path | None, typer.Option(help="Plot to write, for example times.svg; needs matplotlib.")]


@app.command("select")
def bench_select(
    rows: Rows = None,
    candidates: Annotated[list[int] | None, typer.Option(help="Candidates per row; repeatable.")] = None,
    k: Annotated[int, typer.Option(help="Ids per row.")] = K,
    kind: Kinds = None,
    contender: Annotated[list[str] | None, typer.Option(help="Selector; repeatable. Default: all.")] = None,
    samples: Samples = Method.samples,
    launches: Launches = Method.launches,
    sets: Sets = Method.sets,
    seed: Seed = Method.seed,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Time the selection of gathered candidates on one GPU; exit 1 if an output of this package is wrong."""
    method = Method(samples, launches, sets, seed)
    shapes = [Shape(row, width, k) for row in rows or SELECT_ROWS for width in candidates or SELECT_CANDIDATES]
    kinds = check_kinds(kind or KINDS)
    _require_outputs(output, plot)
    require_gpu()
    from . import contenders, selection

    results = selection.run_selection(shapes, kinds, contenders.choose(contender or ()), method)
    document = _collect(results, method, count=1, output=output, shows=True)
    _present(document, plot)
    raise typer.Exit(document.exit_status)


@app.command("exchange")
def bench_exchange(
    rows: Rows = None,
    candidates: Annotated[int, typer.Option(help="Candidates per row that each rank offers.")] = K,
    k: Annotated[int, typer.Option(help="Ids per row.")] = K,
    kind: Kinds = None,
    merge: Merges = None,
    samples: Samples = Method.samples,
    launches: Launches = Method.launches,
    sets: Sets = Method.sets,
    seed: Seed = Method.seed,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Time exchange and selection under torchrun, one process per GPU; exit 1 if an output of ours is wrong."""
    method = Method(samples, launches, sets, seed)
    kinds = check_kinds(kind or ["random"])
    _require_outputs(output, plot)

    def body(fabric: TorchFabric) -> int:
        from . import exchange, merges

        shapes = [Shape(row, candidates * fabric.world_size, k) for row in rows or EXCHANGE_ROWS]
        results = exchange.run_exchange(fabric, shapes, kinds, merges.exchanges(merge or ()), method)
        leads = fabric.rank == 0
        document = _collect(results, method, fabric.world_size, output if leads else None, shows=leads)
        if leads:
            _present(document, plot)
        return document.exit_status

    run_on_ranks(body)


@app.command("replay")
def bench_replay(
    rows: Rows = None,
    candidates: Annotated[int, typer.Option(help="Candidates per row that each rank offers.")] = K,
    k: Annotated[int, typer.Option(help="Ids per row.")] = K,
    merge: Merges = None,
    replays: Annotated[int, typer.Option(help="Graph replays per merge, each with fresh data.", min=1)] = 10_000,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Count exact graph replays with fresh data under torchrun; exit 1 unless all are exact on all ranks."""
    _require_outputs(output, None)

    def body(fabric: TorchFabric) -> int:
        from . import exactness, merges

        start = datetime.datetime.now(datetime.UTC)
        shapes = [Shape(row, candidates * fabric.world_size, k) for row in rows or REPLAY_ROWS]
        counts: list[ReplayCount] = []
        for name, options in merges.choose_merges(merge or ()).items():
            counts += exactness.count_exact_replays(fabric, name, options, shapes, replays, seed)
            _show(fabric.rank == 0, f"{name}: {_describe_counts(counts[-fabric.world_size :])}")
        document = Document(describe_machine(fabric.world_size, start), None, replays=tuple(counts))
        if fabric.rank == 0:
            _present(document, None)
            if output is not None:
                write_document(document, output)
        return document.exit_status

    run_on_ranks(body)


@app.command("ptx")
def bench_ptx(
    candidates: Annotated[int, typer.Option(help="Candidates of the row.")] = 4096,
    k: Annotated[int, typer.Option(help="Ids to select.")] = K,
    kind: Kinds = None,
    arch: Annotated[str, typer.Option(help="Target to compile for.")] = "sm_100a",
    samples: Annotated[int, typer.Option(help="Timed executions per kind.", min=1)] = 10,
    seed: Seed = Method.seed,
) -> None:
    """Time the PTX machine on one row of the CuTeDSL selector, on one core; needs no GPU."""
    from .ptx import measure_machine

    console = open_console()
    table = Table("scores", "races", "thread-instructions", "ms", "million per second")
    for speed in measure_machine(candidates, k, check_kinds(kind or KINDS), arch, samples, seed):
        table.add_row(
            speed.kind,
            "looked for" if speed.races else "not looked for",
            f"{speed.thread_instructions:,}",
            f"{speed.seconds * 1e3:.1f}",
            f"{speed.rate / 1e6:.1f}",
        )
    console.print(table)


@app.command("show")
def bench_show(
    file: Annotated[Path, typer.Argument(help="JSON file that --output wrote.")],
    plot: Plot = None,
) -> None:
    """Print, and plot if asked to, what an earlier run wrote; needs no GPU."""
    document = read_document(file)
    _present(document, plot)


def main() -> None:
    """Run the command line; errors of the user's making exit with 2."""
    try:
        app(prog_name="tiebreak bench")
    except TiebreakError as error:
        print(f"tiebreak: {error}", file=sys.stderr)
        sys.exit(EXIT_MISUSE)


def _require_outputs(output: Path | None, plot: Path | None) -> None:
    """See that results can be written, before a long run."""
    if output is not None:
        require_writable(output)
    if plot is not None:
        require_plotting(plot)


def _collect(
    results: Iterable[Measurement | Rejection], method: Method, count: int, output: Path | None, shows: bool
) -> Document:
    """Run a benchmark to its end; the file holds what was measured so far, also if the run is cut short."""
    start = datetime.datetime.now(datetime.UTC)
    measurements: list[Measurement] = []
    rejections: list[Rejection] = []
    shape: Shape | None = None

    def build() -> Document:
        return Document(describe_machine(count, start), method, tuple(measurements), tuple(rejections))

    for result in results:
        if output is not None and shape is not None and result.shape != shape:
            write_document(build(), output)
        shape = result.shape
        if isinstance(result, Measurement):
            measurements.append(result)
            _show(shows, describe_measurement(result))
        else:
            rejections.append(result)
            _show(shows, f"{result.contender} rejected: {result.reason}")
    document = build()
    if output is not None:
        write_document(document, output)
    return document


def _present(document: Document, plot: Path | None) -> None:
    """Print a document, and plot it if asked to."""
    print_document(document, open_console())
    if plot is not None:
        write_plot(document, plot)


def _describe_counts(counts: list[ReplayCount]) -> str:
    return ", ".join(f"rank {count.rank} {count.exact:,} of {count.total:,} exact" for count in counts)


def _show(shows: bool, line: str) -> None:
    """Print one line of progress."""
    if shows:
        print(line, file=sys.stderr, flush=True)
