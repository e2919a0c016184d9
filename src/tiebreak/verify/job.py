"""One run of ``tiebreak verify``: plan, run, print, report."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import tiebreak
from tiebreak.backends.registry import default_names, expand_names, form_of, make_backend, on_device
from tiebreak.errors import InputError
from tiebreak.explore.fused import require_fused
from tiebreak.explore.mutation import (
    find_correct,
    list_correct,
    list_mutants,
    needs_compiler,
    run_correct,
    run_explored,
)
from tiebreak.inputs.captured import default_input, load_input
from tiebreak.mutants.catalogue import MUTANTS
from tiebreak.report.model import Cell, MutantResult, Proof, Report
from tiebreak.report.summary import print_summary
from tiebreak.report.writer import prepare_folder, write_report
from tiebreak.sim.explorer.verdicts import Verdict
from tiebreak.spec.order import resolve_preset
from tiebreak.target.job import run_target

from .captured import run_captured
from .families import Effort
from .judgement import judge
from .mutation import mutated_backend, run_mutant
from .runner import TaskResult, collect_cells, default_workers, plan_tasks, property_names, run_in_workers, run_task
from .scenario import parse_scenario

ROUNDS = {"quick": 1, "default": 2, "deep": 12}
"""Rounds per effort; the default takes about a minute and a half on two cores."""

TARGET_EXAMPLES = {"quick": 100, "default": 500, "deep": 20_000}
"""Drawn inputs of a target, per effort."""

RANKS = {"quick": (2,), "default": (2, 3, 4), "deep": (2, 3, 4, 8)}


@dataclass(frozen=True, kw_only=True)
class Request:
    """Command-line arguments of ``tiebreak verify``."""

    quick: bool = False
    deep: bool = False
    ranks: tuple[int, ...] = ()
    backends: tuple[str, ...] = ()
    preset: str = "ieee"
    seed: int = 0
    input: Path | None = None
    target: str | None = None
    contract: str = "order"
    replay_input: str | None = None
    mutants: bool = False
    only: tuple[str, ...] = ()
    workers: int | None = None
    report: Path | None = None

    @property
    def level(self) -> str:
        """Name of the effort: ``quick``, ``default`` or ``deep``.

        Raises:
            InputError: Both ``--quick`` and ``--deep`` were given.
        """
        if self.quick and self.deep:
            raise InputError("--quick with --deep", limit="they exclude each other", remedy="leave one out")
        return "quick" if self.quick else "deep" if self.deep else "default"

    def refuse_idle_options(self) -> None:
        """See that every option says something about this run.

        Raises:
            InputError: One has no effect beside the others.
        """
        idle = {
            "--replay-input": self.replay_input is not None and self.target is None,
            "--backend": bool(self.backends) and self.target is not None,
            "--ranks": bool(self.ranks) and self.target is not None,
            "--only": bool(self.only) and (self.target is not None or self.input is not None),
        }
        for name, given in idle.items():
            if given:
                raise InputError(
                    name,
                    limit="it has no effect in this run",
                    remedy="--replay-input goes with --target; --backend, --ranks and --only go without it, "
                    "and --only without --input",
                )

    def effort(self) -> Effort:
        """Return the effort that the arguments ask for.

        Raises:
            InputError: A world size is outside 1 to 16.
        """
        for ranks in self.ranks:
            if not 1 <= ranks <= 16:
                raise InputError(
                    "--ranks", value=ranks, limit="from 1 to 16 ranks", remedy="choose a size in that range"
                )
        return Effort(
            seed=self.seed,
            preset=resolve_preset(self.preset).name,
            ranks=self.ranks or RANKS[self.level],
            rounds=ROUNDS[self.level],
            level=self.level,
        )


def run_request(request: Request, console: Console) -> int:
    """Run a request, print its tables and write its report; return the exit status.

    Raises:
        TiebreakError: The request cannot be run.
    """
    started, begun = datetime.datetime.now(datetime.UTC), time.monotonic()
    request.refuse_idle_options()
    effort = request.effort()
    if request.report is not None:
        prepare_folder(request.report)
    if request.target is not None:
        cells, inputs = _run_target(request, request.target)
    else:
        default = default_names() if request.input is None else ("spec", "sim")
        backends = expand_names(request.backends or default)
        cells, inputs = _run_properties(request, effort, backends, console)
    mutants, proofs = _run_mutants(tuple(CHECKERS), request, console) if request.mutants else ([], [])
    return _conclude(request, started, begun, effort, cells, inputs, mutants, proofs, console)


def run_mutants_only(checker: str, request: Request, console: Console) -> int:
    """Run mutants and nothing else, print their table and write a report; return the exit status.

    Raises:
        InputError: There is no such checker.
    """
    started, begun = datetime.datetime.now(datetime.UTC), time.monotonic()
    if checker not in (*CHECKERS, "both"):
        raise InputError("--checker", value=checker, limit=f"one of {', '.join(CHECKERS)}, both")
    if request.report is not None:
        prepare_folder(request.report)
    checkers = tuple(CHECKERS) if checker == "both" else (checker,)
    mutants, proofs = _run_mutants(checkers, request, console)
    return _conclude(request, started, begun, request.effort(), [], [], mutants, proofs, console)


def _conclude(
    request: Request,
    started: datetime.datetime,
    begun: float,
    effort: Effort,
    cells: Sequence[Cell],
    inputs: Sequence[str],
    mutants: Sequence[MutantResult],
    proofs: Sequence[Proof],
    console: Console,
) -> int:
    """Print the tables of a run, write its report, and return the exit status."""
    clean = all(cell.result != "failed" for cell in cells) and all(mutant.killed for mutant in mutants)
    clean = clean and all(proof.verdict == Verdict.PROVED.value for proof in proofs)
    report = Report(
        tiebreak_version=tiebreak.__version__,
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - begun, 3),
        arguments=tuple(sys.argv[1:]),
        versions=package_versions(),
        seed=request.seed,
        preset=effort.preset,
        ranks=effort.ranks,
        cells=tuple(cells),
        mutants=tuple(mutants),
        proofs=tuple(proofs),
        inputs=tuple(inputs),
        exit_status=0 if clean else 1,
    )
    print_summary(report, console)
    if request.report is not None:
        write_report(report, request.report)
    return report.exit_status


def package_versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    versions = {"python": platform.python_version()}
    for name in ("numpy", "torch", "triton", "hypothesis"):
        versions[name] = importlib.metadata.version(name)
    return versions


def _run_properties(
    request: Request, effort: Effort, backends: Sequence[str], console: Console
) -> tuple[list[Cell], list[str]]:
    unknown = [name for name in request.only if name not in property_names()]
    if unknown:
        raise InputError(
            "--only", value=unknown[0], limit=f"properties are {', '.join(property_names())}", remedy="name one of them"
        )
    if request.input is not None:
        return run_captured(request.input, effort, [make_backend(name) for name in backends])
    tasks = plan_tasks(backends, effort, request.only)
    if not tasks:
        raise InputError(
            "--only",
            value=", ".join(request.only),
            limit=f"it says nothing about {', '.join(backends)}",
            remedy="choose other backends or properties",
        )
    workers = request.workers or default_workers()
    with _progress(console) as progress:
        bar = progress.add_task("properties", total=len(tasks))
        results: list[TaskResult] = []
        # One caller at a time shares the GPUs.
        for device, count in ((False, workers), (True, 1)):
            part = [task for task in tasks if on_device(task.backend) == device]
            results += run_in_workers(run_task, part, count, lambda: progress.advance(bar))
    return collect_cells(results, backends, request.only), ["drawn scenarios", str(default_input())]


def _run_target(request: Request, target: str) -> tuple[list[Cell], list[str]]:
    """Verify somebody else's selector instead of the backends."""
    captured = default_input() if request.input is None else load_input(request.input)
    cell = run_target(
        target,
        request.contract,
        request.preset,
        request.seed,
        TARGET_EXAMPLES[request.level],
        captured,
        request.replay_input,
    )
    inputs = [request.replay_input] if request.replay_input is not None else ["drawn inputs", str(captured)]
    return [cell], inputs


def _run_mutants(checkers: Sequence[str], request: Request, console: Console) -> tuple[list[MutantResult], list[Proof]]:
    """Run the mutants of some checkers, and what those of the explorer are compared with.

    Raises:
        MissingBackendError: Some are of compiled kernels that are not there.
    """
    if "explorer" in checkers and needs_compiler((*CHECKERS["explorer"][0], *list_correct())):
        require_fused()
    workers = request.workers or default_workers()
    results: dict[tuple[str, str], MutantResult] = {}
    proofs: list[Proof] = []
    with _progress(console) as progress:
        for checker in checkers:
            names, work = CHECKERS[checker]
            bar = progress.add_task(f"{checker}", total=len(names))
            for result in run_in_workers(work, names, workers, functools.partial(progress.advance, bar)):
                results[checker, result.name] = result
        if "explorer" in checkers:
            bar = progress.add_task("proofs", total=len(list_correct()))
            proofs += run_in_workers(run_correct, list_correct(), workers, functools.partial(progress.advance, bar))
    proved = {proof.name for proof in proofs if proof.verdict == Verdict.PROVED.value}
    ordered = [results[checker, name] for checker in checkers for name in CHECKERS[checker][0]]
    judged = [result if result.checker == "simulator" or find_correct(result.name) in proved else
              msgspec.structs.replace(result, killed=False, message="the correct protocol is not proved")
              for result in ordered]  # fmt: skip
    return judged, sorted(proofs, key=lambda proof: list_correct().index(proof.name))


CHECKERS: dict[str, tuple[list[str], Callable[[str], MutantResult]]] = {
    "simulator": (list(MUTANTS), run_mutant),
    "explorer": (list_mutants(), run_explored),
}
"""The mutants of each checker, and what looks for one."""


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def replay_scenario(text: str, schedule: str, backend: str, mutant: str, console: Console) -> int:
    """Run one scenario under one schedule, print what happened, return 1 if it broke a property.

    An empty ``backend`` stands for the simulated one that the scenario belongs to.

    Raises:
        TiebreakError: The scenario, schedule, backend or mutant is malformed or unknown.
    """
    scenario = parse_scenario(text)
    if mutant and mutant not in MUTANTS:
        raise InputError("mutant", value=mutant, limit=f"mutants are {', '.join(MUTANTS)}", remedy="name one of them")
    if backend not in ("", "spec") and form_of(backend) != scenario.form:
        raise InputError(
            "--backend",
            value=backend,
            limit=f"the scenario belongs to {scenario.backend} and other backends of that transport",
            remedy="leave the option out, or change the scenario's transport or discipline",
        )
    runner = mutated_backend(MUTANTS[mutant]) if mutant else make_backend(backend or scenario.backend)
    outcome = runner.run(scenario, schedule)
    if outcome.table:
        console.print(outcome.table, markup=False, highlight=False, soft_wrap=True)
    findings = judge(scenario, outcome)
    for finding in findings:
        console.print(f"{finding.property}: {finding.message}", markup=False, highlight=False, soft_wrap=True)
    if not findings:
        console.print(f"no property broken in {outcome.steps} steps")
    return 1 if findings else 0
