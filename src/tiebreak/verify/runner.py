"""Runs families, checks and mutants in worker processes, and collects their cells."""

from __future__ import annotations

import functools
import multiprocessing
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TypeVar

from tiebreak.backends import Outcome
from tiebreak.backends.registry import form_of, make_backend, on_device, on_ptx_machine
from tiebreak.backends.simulated import SimulatedBackend
from tiebreak.report.model import Cell, Failure
from tiebreak.report.model import Result as Verdict
from tiebreak.sim.histories import Histories

from .checks import CHECKS, Check, Trial
from .command import replay_command
from .families import FAMILIES, Effort, Family
from .finding import Finding
from .judgement import MERGE_PROPERTIES, judge
from .scenario import Scenario
from .shrinking import Failing, Shrinker
from .strikes import Strikes, find_vacuous, join_strikes

Given = TypeVar("Given")
Result = TypeVar("Result")

CHUNK = 6
"""Scenarios per task: enough to pay for the hand-over, few enough to share out evenly."""


@dataclass(frozen=True)
class Task:
    """A piece of work for a worker: some scenarios of a family, or one check."""

    backend: str
    family: int = -1
    check: int = -1
    effort: Effort = field(default_factory=Effort)
    jobs: tuple[tuple[Scenario, str], ...] = ()


@dataclass
class TaskResult:
    """What a task found: executions, inputs, strikes of faults and failures by property."""

    backend: str
    executions: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, set[str]] = field(default_factory=dict)
    strikes: dict[str, Strikes] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, properties: Iterable[str], label: str) -> None:
        """Count one execution of an input for each property."""
        for name in properties:
            self.executions[name] = self.executions.get(name, 0) + 1
            self.inputs.setdefault(name, set()).add(label)


def plan_tasks(backends: Sequence[str], effort: Effort, only: Sequence[str] = ()) -> list[Task]:
    """Return all tasks of a run, or those that say something about the properties ``only``."""
    tasks: list[Task] = []
    kernels = {next((backend for backend in backends if backend != "spec" and not on_ptx_machine(backend)), "")}
    kernels.update(backend for backend in backends if on_ptx_machine(backend))
    for backend in backends:
        share = effort.on(backend)
        for index, check in enumerate(CHECKS):
            wanted = not only or check.property in only
            if wanted and (backend == "spec" or (backend in kernels and not check.spec_only)):
                tasks.append(Task(backend, check=index, effort=share))
        for index, family in enumerate(FAMILIES):
            names = judged_properties(family, backend)
            if applies(family, backend) and (not only or any(name in only for name in names)):
                jobs = [job for number, job in enumerate(family.plan(backend, share)) if share.keeps(number)]
                chunks = [tuple(jobs[start : start + CHUNK]) for start in range(0, len(jobs), CHUNK)]
                tasks.extend(Task(backend, family=index, effort=share, jobs=chunk) for chunk in chunks)
    return tasks


def applies(family: Family, backend: str) -> bool:
    """Tell whether a family says anything about a backend."""
    if backend == "spec":
        return not (family.schedules or family.flags)
    if family.steps and on_device(backend):
        return False
    return not (family.flags and form_of(backend) == "all-gather")


def judged_properties(family: Family, backend: str) -> list[str]:
    """Return the properties that a family is judged by.

    The spec has neither memory nor schedules, and nobody watches the memory of a GPU.
    """
    if family.property:
        return [family.property]
    if backend == "spec":
        return ["exact-order", "agreement"]
    return ["exact-order", "agreement", "progress"] if on_device(backend) else list(MERGE_PROPERTIES)


def run_task(task: Task) -> TaskResult:
    """Run one task in this process."""
    started = time.monotonic()
    result = TaskResult(task.backend)
    if task.check >= 0:
        _run_check(CHECKS[task.check], task, result)
    else:
        _run_family(FAMILIES[task.family], task, result)
    result.seconds = time.monotonic() - started
    return result


def _run_check(check: Check, task: Task, result: TaskResult) -> None:
    backend = make_backend(task.backend)
    for trial in check.run(backend, task.effort):
        result.count([check.property], trial.label)
        if trial.message:
            result.failures.append(_check_failure(check, task, trial))
            return


def _check_failure(check: Check, task: Task, trial: Trial) -> Failure:
    effort = task.effort
    words = ["tiebreak", "verify", "--backend", task.backend, "--only", check.property]
    words += ["--preset", effort.preset, "--seed", str(effort.seed)]
    words += [f"--{effort.level}"] if effort.level != "default" else []
    words += [word for rank in effort.ranks for word in ("--ranks", str(rank))]
    return Failure(
        property=check.property,
        backend=task.backend,
        message=f"{trial.label}: {trial.message}",
        schedule="",
        table="",
        replay=shlex.join(words),
    )


@functools.cache
def _keep_histories() -> Histories:
    """What programs did in the executions of this process in which faults strike: mostly the same as in others."""
    return Histories()


def _run_family(family: Family, task: Task, result: TaskResult) -> None:
    backend = make_backend(task.backend)
    if family.steps and isinstance(backend, SimulatedBackend):
        backend = SimulatedBackend(task.backend, session=_keep_histories().open)
    properties = judged_properties(family, task.backend)
    for scenario, schedule in task.jobs:
        outcome = backend.run(scenario, schedule)
        result.count(properties, scenario.text())
        findings = judge(scenario, outcome)
        if family.steps:
            result.strikes.setdefault(family.property, Strikes()).note(scenario, outcome, findings)
        if findings and not result.failures:
            result.failures.append(_explain(family, task.backend, backend, scenario, schedule, outcome, findings[0]))
        # Where faults strike all are counted, also those that nobody explains.
        if findings and not family.steps:
            return


def _explain(
    family: Family,
    name: str,
    backend: object,
    scenario: Scenario,
    schedule: str,
    outcome: Outcome,
    finding: Finding,
) -> Failure:
    """Shrink a failing execution and describe it."""
    failing = Failing(scenario, outcome, finding)
    if isinstance(backend, SimulatedBackend):
        failing = Shrinker(backend).shrink(failing, schedule)
    message = failing.finding.message
    return Failure(
        property=family.property or failing.finding.property,
        backend=name,
        message=f"{failing.finding.property}: {message}" if family.property else message,
        schedule=failing.outcome.schedule,
        table=failing.outcome.table,
        replay=replay_command(failing.scenario, failing.outcome.schedule, name),
    )


def run_in_workers(
    work: Callable[[Given], Result], given: Sequence[Given], workers: int, progress: Callable[[], None]
) -> Iterator[Result]:
    """Run ``work`` on every item in worker processes; yield results as they come."""
    if workers == 1:
        for item in given:
            yield work(item)
            progress()
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = [pool.submit(work, item) for item in given]
        try:
            for future in as_completed(futures):
                yield future.result()
                progress()
        finally:
            pool.shutdown(cancel_futures=True)


def default_workers() -> int:
    """Return the number of worker processes: one per core that this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


def collect_cells(results: Sequence[TaskResult], backends: Sequence[str], only: Sequence[str]) -> list[Cell]:
    """Merge task results into one cell per property and backend, in table order."""
    cells = []
    for name in property_names():
        if only and name not in only:
            continue
        for backend in backends:
            cells.append(_collect(name, backend, [result for result in results if result.backend == backend]))
    return cells


def property_names() -> list[str]:
    """Return all properties in table order."""
    names = [check.property for check in CHECKS] + list(MERGE_PROPERTIES) + [family.property for family in FAMILIES]
    return [name for name in dict.fromkeys(names) if name]


def _collect(name: str, backend: str, results: Sequence[TaskResult]) -> Cell:
    executions = sum(result.executions.get(name, 0) for result in results)
    inputs = set().union(*(result.inputs.get(name, set()) for result in results)) if results else set()
    failures = [failure for result in results for failure in result.failures if failure.property == name]
    seconds = sum(result.seconds for result in results if name in result.executions)
    strikes = join_strikes(result.strikes[name] for result in results if name in result.strikes)
    if missed := find_vacuous(strikes.counts()):
        failures.append(_vacuous_failure(name, backend, missed))
    verdict: Verdict = "failed" if failures else "passed" if executions else "not applicable"
    return Cell(
        property=name,
        backend=backend,
        executions=executions,
        inputs=len(inputs),
        result=verdict,
        seconds=round(seconds, 3),
        failures=tuple(failures),
        ends=dict(sorted(strikes.ends.items())),
        faults=strikes.counts(),
    )


def _vacuous_failure(name: str, backend: str, missed: str) -> Failure:
    """A run whose faults struck at fewer places than there are."""
    replay = shlex.join(["tiebreak", "verify", "--deep", "--backend", backend, "--only", name])
    return Failure(property=name, backend=backend, message=missed, schedule="", table="", replay=replay)
