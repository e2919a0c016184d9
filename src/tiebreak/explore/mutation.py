"""Mutants in the explorer: broken protocols, mutated Triton kernels of the exchange, and edited PTX of the fused merge.

Each must fail, in a way that its rule explains, where the correct one is proved.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeAlias

from tiebreak.errors import InputError
from tiebreak.mutants.catalogue import MUTANTS
from tiebreak.mutants.loader import load_mutated
from tiebreak.mutants.protocols import PROTOCOL_MUTANTS, PROTOCOLS
from tiebreak.report import model
from tiebreak.sim.explorer.counterexample import Counterexample, explain
from tiebreak.sim.explorer.exploration import Exploration, Options
from tiebreak.sim.explorer.judging import Check, Failure
from tiebreak.sim.explorer.program import Program
from tiebreak.verify.scenario import Scenario

from .fused import FUSED, FUSED_MUTANTS, FUSED_VARIANTS, PAIRS, open_fused
from .merges import open_merge
from .pictures import draw_diagram
from .shortest import FAILURES, FEW, find_failures
from .table import draw_table

OPTIONS = Options("ptx", merge_awaits=True, races=True)
MERGE = "merge"
"""What a mutant of kernels has before its name."""

PAIRED = ("fused-packets-torn", "packets-one-by-one")
"""Mutants and variants of the fused merge that are about packets of which two travel at a time."""

REPLAYED = ("epochs=2", "mode=graph")
"""Parameters of a fused merge that is replayed."""

Opened: TypeAlias = AbstractContextManager[tuple[Program, Check | None]]

KERNEL_MUTANTS = (
    "no-wait-before-overwrite",
    "acknowledged-one-too-early",
    "acknowledge-before-select",
    "publish-before-push",
    "no-wait-for-publish",
    "one-buffer-where-two-are-needed",
    "relaxed-publish",
    "relaxed-wait",
    "relaxed-acknowledge",
    "gpu-scope-publish",
    "gpu-scope-wait",
    "equality-wait",
    "plain-comparison-at-wrap",
    "row-counts-in-one-slot",
    "returned-published-before-ids",
    "no-wait-for-returned",
    "returned-of-the-epoch-before",
    "relaxed-returned",
    "gpu-scope-returned",
    "cta-scope-returned",
)
"""Mutants of the source that an exploration can show: their hosts launch the same kernels as without the mutation."""


def list_mutants() -> list[str]:
    """Names of all mutants, with what they belong to."""
    kernels = (f"{MERGE}/{name}" for name in KERNEL_MUTANTS)
    return [*PROTOCOL_MUTANTS, *kernels, *(f"{FUSED}/{name}" for name in FUSED_MUTANTS)]


def list_correct() -> list[str]:
    """Names of what they are mutants of, and of variants of the fused merge."""
    kernels = dict.fromkeys(_shrink(MUTANTS[name].scenario).text() for name in KERNEL_MUTANTS)
    return [*PROTOCOLS, *kernels, *_FUSED_CORRECT]


def needs_compiler(names: Iterable[str]) -> bool:
    """Whether some of these, mutants or correct, are of the fused merge."""
    return any(name.partition("/")[0] == FUSED for name in names)


def find_correct(name: str) -> str:
    """What a mutant is a mutant of."""
    if name in PROTOCOL_MUTANTS:
        return PROTOCOL_MUTANTS[name].protocol.name
    if needs_compiler([name]):
        return _name_fused(_list_sizes(_find_fused(name)))
    return _shrink(MUTANTS[_find_kernels(name)].scenario).text()


def run_correct(name: str) -> model.Proof:
    """Explore what mutants are mutants of."""
    from tiebreak.verify.scenario import parse_scenario

    started = time.monotonic()
    if name in PROTOCOLS:
        opened: Opened = _open_protocol(PROTOCOLS[name].program)
    else:
        opened = open_fused(*_FUSED_CORRECT[name]) if needs_compiler([name]) else open_merge(parse_scenario(name))
    with opened as (program, check):
        exploration = Exploration(program, OPTIONS, check)
        exploration.run()
    seconds = round(time.monotonic() - started, 3)
    classes = exploration.counts.classes
    return model.Proof(name=name, verdict=str(exploration.conclusion), classes=classes, seconds=seconds)


def run_explored(name: str) -> model.MutantResult:
    """Explore a mutant, and draw its shortest counterexample."""
    started = time.monotonic()
    wanted, (rule, source) = _expect(name), _describe(name)
    with open_mutant(name) as (program, check):
        enough = FEW if needs_compiler([name]) else FAILURES
        exploration = find_failures(program, replace(OPTIONS, steps=find_steps(name)), check, enough=enough)
        failures = [failure for failure in exploration.failures if kind_of(failure) in wanted]
        example = explain(program, *failures) if failures else None
        drawn = _draw(program, example) if example is not None else None
    message = example.failure.message if example else f"{exploration.conclusion}, and not {' or '.join(wanted)}"
    return model.MutantResult(
        name=name,
        rule=rule,
        source=source,
        killed=drawn is not None and drawn.replayed == drawn.attempts,
        property=kind_of(example.failure) if example else "",
        schedule="",
        replay=_replay(name) if example else "",
        message=message,
        checker="explorer",
        seconds=round(time.monotonic() - started, 3),
        counterexample=drawn,
    )


@contextlib.contextmanager
def open_mutant(name: str) -> Iterator[tuple[Program, Check | None]]:
    """The program of a mutant, and what must hold of its executions.

    Raises:
        InputError: There is no such mutant.
    """
    if name in PROTOCOL_MUTANTS:
        yield PROTOCOL_MUTANTS[name].changed.program, None
        return
    if needs_compiler([name]):
        bare = _find_fused(name)
        with open_fused(_list_sizes(bare), bare) as opened:
            yield opened
        return
    mutant = MUTANTS[_find_kernels(name)]
    with open_merge(_shrink(mutant.scenario), load_mutated(mutant.name, mutant.edits)) as opened:
        yield opened


def kind_of(failure: Failure) -> str:
    """Kind of a failure: its property, or of what concerns progress what the message begins with."""
    return failure.message.partition(":")[0] if failure.property == "progress" else failure.property


@contextlib.contextmanager
def _open_protocol(program: Program) -> Iterator[tuple[Program, Check | None]]:
    yield program, None


def _find_kernels(name: str) -> str:
    """Name of a mutant of kernels without what stands before it."""
    owner, _, bare = name.partition("/")
    if owner != MERGE or bare not in KERNEL_MUTANTS:
        raise InputError("mutant", value=name, limit=f"one of {', '.join(list_mutants())}")
    return bare


def _find_fused(name: str) -> str:
    """Name of a mutant of the fused merge without what stands before it."""
    _, _, bare = name.partition("/")
    if bare not in FUSED_MUTANTS:
        raise InputError("mutant", value=name, limit=f"one of {', '.join(list_mutants())}")
    return bare


def _list_sizes(bare: str) -> tuple[str, ...]:
    """Parameters of the smallest fused merge that a mutant or a variant is one of."""
    if bare in PAIRED:
        return "epochs=1", *PAIRS
    replayed = bare in FUSED_MUTANTS and FUSED_MUTANTS[bare].scenario.mode == "graph"
    return REPLAYED if replayed else ("epochs=1",)


def _name_fused(parameters: tuple[str, ...], variant: str = "") -> str:
    """Name of a correct fused merge."""
    return "/".join((FUSED, *filter(None, (variant, ",".join(parameters)))))


_FUSED_CORRECT: dict[str, tuple[tuple[str, ...], str]] = {
    _name_fused(parameters, variant): (parameters, variant)
    for parameters, variant in (
        (("epochs=1",), ""),
        (("epochs=2",), ""),
        (REPLAYED, ""),
        (("epochs=1", *PAIRS), ""),
        *((_list_sizes(variant), variant) for variant in FUSED_VARIANTS),
    )
}
"""Parameters and variant of each correct fused merge."""


def _shrink(scenario: Scenario) -> Scenario:
    """The smallest scenario with the same flags."""
    return replace(scenario, k=1, local=1, length=2 if scenario.owner_rows else 1)


def _expect(name: str) -> tuple[str, ...]:
    """Kinds of failure of which one must be found."""
    if name in PROTOCOL_MUTANTS:
        return PROTOCOL_MUTANTS[name].failures
    return ("race", "check") if needs_compiler([name]) else ("race", "check", "lost signal")


def _describe(name: str) -> tuple[str, str]:
    """Rule and source of a mutant."""
    if needs_compiler([name]):
        edit = FUSED_MUTANTS[_find_fused(name)]
        return edit.rule, edit.source
    mutant = PROTOCOL_MUTANTS[name] if name in PROTOCOL_MUTANTS else MUTANTS[_find_kernels(name)]
    return mutant.rule, mutant.source


def find_steps(name: str) -> int:
    """After how many blocks of operations threads of a mutant are cut short."""
    return PROTOCOL_MUTANTS[name].steps if name in PROTOCOL_MUTANTS else OPTIONS.steps


def _replay(name: str) -> str:
    """The command that shows a mutant."""
    owner, _, bare = name.partition("/")
    steps = f" --steps {find_steps(name)}" if find_steps(name) != OPTIONS.steps else ""
    sizes = "".join(f" --set {size}" for size in _list_sizes(bare)) if owner == FUSED else ""
    return f"tiebreak explore {owner} --mutant {bare} --awaits merged{steps}{sizes}"


def _draw(program: Program, example: Counterexample) -> model.Counterexample:
    """A counterexample for reports."""
    return model.Counterexample(
        switches=example.switches,
        events=len(example.schedule),
        candidates=example.candidates,
        replayed=example.replayed,
        attempts=example.attempts,
        table=draw_table(program, example),
        diagram=draw_diagram(program, example),
    )
