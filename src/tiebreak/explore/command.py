"""``tiebreak explore``: all executions of a program of the catalogue, or of the kernels of a merge."""

from __future__ import annotations

import contextlib
import inspect
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from tiebreak.errors import InputError
from tiebreak.mutants.protocols import PROTOCOLS
from tiebreak.sim.explorer.anchors import choose_anchor
from tiebreak.sim.explorer.checkpoint import resume, save
from tiebreak.sim.explorer.exploration import Exploration, Options
from tiebreak.sim.explorer.families import FAMILIES
from tiebreak.sim.explorer.judging import Check
from tiebreak.sim.explorer.models import find_model
from tiebreak.sim.explorer.program import Program
from tiebreak.sim.explorer.sampling import count_accesses
from tiebreak.sim.explorer.strategies import STRATEGIES
from tiebreak.sim.explorer.verdicts import Conclusion, Counts, Verdict
from tiebreak.sim.protocols.protocol import Protocol

from .pictures import Pictures, draw
from .shortest import FAILURES, FEW, find_counterexample

PROGRESS_SECONDS = 5.0
FUSED = "fused"
EXHAUSTIVE = "exhaustive"
SMALLEST_MERGE = "rows=1,k=1,local=1,length=1"
"""Sizes of a merge: a protocol has the same executions with more candidates, and each has more events."""


@dataclass(frozen=True)
class ExploreRequest:
    """What the command line asked for.

    Attributes:
        program: Name in ``FAMILIES`` or ``PROTOCOLS``, ``merge`` for the Triton kernels of a scenario,
            or ``fused`` for the fused merge as it is compiled.
        parameters: ``name=value`` of the program's parameters, or of the scenario's.
        model: Memory model.
        strategy: ``exhaustive``, or ``random``, ``pct``, ``pos`` or ``surw`` and ``:N`` executions.
        awaits: ``distinct`` or ``merged``.
        arrivals: Likewise, of the orders in which CTAs of the fused merge finish; samples tell them apart.
        shard: ``i/n``.
        seconds: Time limit.
        seed: Of random executions.
        checkpoint: File to go on from, and to leave behind.
        report: Folder for pictures of a failure.
        mutant: Name of a mutant of the protocol or of the kernels.
        steps: Blocks of operations after which a thread is cut short.
        shards: How many shards to explore on a cluster, 0 for as many as suit it; None for no cluster.
        cluster: Address of a Dask scheduler; empty for workers of this machine.
        symmetry: Whether to explore one order of interchangeable threads only, see ``sim.explorer.twins``.
    """

    program: str
    parameters: tuple[str, ...] = ()
    model: str = "ptx"
    strategy: str = EXHAUSTIVE
    awaits: str = "distinct"
    arrivals: str = "merged"
    shard: str = "0/1"
    seconds: float = float("inf")
    seed: int = 0
    checkpoint: Path | None = None
    report: Path | None = None
    mutant: str = ""
    steps: int = Options.steps
    shards: int | None = None
    cluster: str = ""
    symmetry: bool = False

    @property
    def enough_failures(self) -> int:
        """How many failures are compared for the shortest counterexample."""
        return FEW if self.program == FUSED else FAILURES

    def build_program(self) -> Program:
        """The program with its parameters.

        Raises:
            InputError: There is no such program or parameter.
        """
        known: dict[str, Callable[..., Any]] = dict(FAMILIES)
        known.update({name: protocol.resize for name, protocol in PROTOCOLS.items()})
        if self.program not in known:
            raise InputError("program", value=self.program, limit=f"merge, fused, or one of {', '.join(known)}")
        wanted = inspect.signature(known[self.program]).parameters
        arguments: dict[str, object] = {}
        for parameter in self.parameters:
            name, _, value = parameter.partition("=")
            if name not in wanted:
                raise InputError("parameter", value=name, limit=f"one of {', '.join(wanted) or 'none'}")
            arguments[name] = _read(value)
        missing = [name for name, entry in wanted.items() if entry.default is entry.empty and name not in arguments]
        if missing:
            raise InputError("parameters", value=self.parameters, limit=f"{self.program} needs {', '.join(missing)}")
        built: Protocol | Program = known[self.program](**arguments)
        return built.program if isinstance(built, Protocol) else built

    @contextlib.contextmanager
    def open(self) -> Iterator[tuple[Program, Check | None]]:
        """The program, and what must hold of its executions."""
        if self.program == FUSED:
            from .fused import open_fused

            take_turns = _is_merged("arrivals", self.arrivals) and self.strategy == EXHAUSTIVE
            with open_fused(self.parameters, self.mutant, take_turns=take_turns) as opened:
                yield opened
            return
        if self.mutant:
            from .mutation import open_mutant

            if self.parameters:
                raise InputError("parameters", value=self.parameters, limit="a mutant has sizes of its own")
            with open_mutant(f"{self.program}/{self.mutant}") as opened:
                yield opened
            return
        if self.program != "merge":
            yield self.build_program(), None
            return
        from tiebreak.verify.scenario import parse_scenario

        from .merges import open_merge

        with open_merge(parse_scenario(",".join((SMALLEST_MERGE, *self.parameters)))) as opened:
            yield opened

    def build_options(self) -> Options:
        """Options of the exploration.

        Raises:
            InputError: One has a wrong form.
        """
        part, _, whole = self.shard.partition("/")
        if not (part.isdecimal() and whole.isdecimal()):
            raise InputError("shard", value=self.shard, limit="of the form i/n")
        return Options(
            model=self.model,
            merge_awaits=_is_merged("awaits", self.awaits),
            shard=int(part),
            shards=int(whole),
            steps=self.steps,
            races=True,
            # Of kernels nearly everything is in order, and nothing but the flags is left to the search.
            settle=self.program == "merge",
        )


def _is_merged(option: str, value: str) -> bool:
    """Whether an option says ``merged``."""
    if value not in ("distinct", "merged"):
        raise InputError(option, value=value, limit="distinct or merged")
    return value == "merged"


def _read(text: str) -> object:
    """A parameter's value."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdecimal() else text


def run_exploration(request: ExploreRequest, console: Console) -> int:
    """Explore, print what was found; 0 if nothing is wrong, 1 if something is, 3 if that is not known."""
    if request.shards is not None:
        from .distributed import run_distributed

        return run_distributed(request, console)
    with request.open() as (program, check):
        exploration = _begin(request, program, check)
        if request.strategy == EXHAUSTIVE:
            _run(exploration, request, console)
        else:
            _sample(exploration, request)
        print_conclusion(program.name, request.model, exploration.conclusion, exploration.counts, console)
        if exploration.orbits is not None and exploration.finished:
            console.print(exploration.orbits.describe(), highlight=False)
        if exploration.failures:
            failures = exploration.failures
            example = find_counterexample(program, exploration.options, check, failures, request.enough_failures)
            show(draw(program, example), request, console)
    verdict = exploration.conclusion.verdict
    if verdict is Verdict.FAILED:
        return 1
    whole = verdict is not Verdict.UNKNOWN or (exploration.finished and exploration.options.shards > 1)
    return 0 if whole and verdict is not Verdict.UNSUPPORTED else 3


def _sample(exploration: Exploration, request: ExploreRequest) -> None:
    """Draw executions by the strategy that was asked for.

    Raises:
        InputError: There is no such strategy.
    """
    name, number, *depth = request.strategy.split(":") + [""] * (":" not in request.strategy)
    wrong = not number.isdecimal() or (depth and (name != "pct" or len(depth) > 1 or not depth[0].isdecimal()))
    if wrong or name not in ("random", *STRATEGIES):
        known = ", ".join(f"{strategy}:N" for strategy in ("random", *STRATEGIES))
        raise InputError("strategy", value=request.strategy, limit=f"exhaustive, {known} or pct:N:DEPTH")
    explored = exploration.histories.program
    strategy = STRATEGIES[name](lambda: count_accesses(explored), *map(int, depth)) if name in STRATEGIES else None
    exploration.sample(int(number), request.seed, strategy)


def _begin(request: ExploreRequest, program: Program, check: Check | None) -> Exploration:
    """A new exploration, or the one of the checkpoint."""
    options = request.build_options()
    if request.symmetry:
        if request.checkpoint is not None or options.shards > 1:
            raise InputError("symmetry", value=program.name, limit="without a checkpoint, and not of shards")
        options = replace(options, symmetry=str(choose_anchor(program, options)))
    if request.checkpoint is not None and request.checkpoint.exists():
        return resume(request.checkpoint, program, check)
    return Exploration(program, options, check)


def _run(exploration: Exploration, request: ExploreRequest, console: Console) -> None:
    """Explore until the end, Ctrl-C or the time limit, saying how far it is."""
    left = request.seconds
    with catch_interrupt() as is_stopped:
        while not exploration.finished and not is_stopped() and left > 0 and not exploration.unsupported:
            started = exploration.seconds
            exploration.run(min(left, PROGRESS_SECONDS), pause=is_stopped)
            left -= exploration.seconds - started
            if not exploration.finished:
                console.print(
                    f"{exploration.progress:.1%} done, {exploration.counts.classes:,} classes of about "
                    f"{exploration.estimate:,.0f}, {exploration.seconds:.0f} s"
                )
    if request.checkpoint is not None:
        if exploration.finished:
            request.checkpoint.unlink(missing_ok=True)
        else:
            save(exploration, request.checkpoint)


@contextlib.contextmanager
def catch_interrupt() -> Iterator[Callable[[], bool]]:
    """Take note of Ctrl-C instead of raising; yields what tells whether it came."""
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: bool(stopped)
    finally:
        signal.signal(signal.SIGINT, before)


def print_conclusion(name: str, model: str, conclusion: Conclusion, counts: Counts, console: Console) -> None:
    """Print the verdict, what was counted, and the limits of the model."""
    found = find_model(model)
    console.print(f"{name} under {found.title}: {conclusion}", highlight=False)
    rate = counts.classes / counts.seconds if counts.seconds else 0.0
    console.print(
        f"complete {counts.complete:,}, waiting for ever {counts.stuck:,}, cut short {counts.cut:,}, blocked "
        f"{counts.blocked:,}; {counts.runs:,} runs of threads; {rate:,.0f} classes/s"
    )
    for limit in found.limits:
        console.print(f"not produced: {limit.name}", highlight=False)


def show(pictures: Pictures, request: ExploreRequest, console: Console) -> None:
    """Print a counterexample, and write its pictures."""
    console.print(pictures.table, highlight=False, markup=False, soft_wrap=True)
    if request.report is not None:
        pictures.write(request.report)
