"""``tiebreak ptx``: one launch on the PTX machine from the command line."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
from rich.console import Console

from tiebreak.errors import InputError
from tiebreak.sim.ptx.fidelity import summarise_runs

from .arguments import Argument, Placed, parse_argument
from .launch import Launched, Prepared, prepare
from .targets import find_target, is_triton_kernel

EXIT_CLEAN, EXIT_FINDINGS = 0, 1
SHOWN_ELEMENTS = 8


def parse_arguments(text: str) -> tuple[list[Argument], dict[str, Argument]]:
    """Arguments by position and by name, from words separated by blanks; see ``tiebreak.ptx.arguments``.

    Raises:
        InputError: A word states no argument.
    """
    positional: list[Argument] = []
    named: dict[str, Argument] = {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if equals and name.isidentifier():
            named[name] = parse_argument(value)
        else:
            positional.append(parse_argument(word))
    return positional, named


def parse_shape(text: str, name: str) -> tuple[int, ...]:
    """One to three numbers separated by commas.

    Raises:
        InputError: Something else.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(name, value=text, limit="must be one to three numbers, separated by commas") from error


def prepare_from_text(
    target: str,
    *,
    grid: str,
    block: str = "",
    arguments: str = "",
    architecture: str = "sm_100a",
    entry: str = "",
    shared_bytes: int | None = None,
    cluster: int | None = None,
    schedule: str = "lockstep",
) -> Prepared:
    """A launch as the command line states it.

    Raises:
        TiebreakError: What was asked for cannot be.
    """
    positional, named = parse_arguments(arguments)
    kernel = find_target(target, architecture, entry)
    if is_triton_kernel(kernel):
        # Triton reads types and alignment off its arguments.
        positional = [_as_array(each) for each in positional]
        named = {name: _as_array(each) for name, each in named.items()}
    return prepare(
        kernel,
        parse_shape(grid, "grid"),
        positional,
        named,
        architecture=architecture,
        block=parse_shape(block, "block") if block else None,
        shared_bytes=shared_bytes,
        cluster=cluster,
        schedule=schedule,
    )


def launch_from_text(target: str, console: Console, *, races: bool = True, **options: Any) -> int:
    """Launch and print outputs, findings and what ran; returns the exit status: 1 with findings.

    Args:
        target: The kernel.
        console: Where to print.
        races: Whether to look for races, and for reads of memory that nothing wrote.
        options: See ``prepare_from_text``.

    Raises:
        TiebreakError: What was asked for cannot be.
    """
    prepared = prepare_from_text(target, **options)
    before = [each.array.copy() if isinstance(each, Placed) else None for each in prepared.arguments]
    launched = prepared.run(races=races)
    _print_arrays(console, prepared, before)
    _print_outcome(console, launched)
    return EXIT_FINDINGS if launched.findings else EXIT_CLEAN


def _as_array(argument: Argument) -> Any:
    if not isinstance(argument, Placed):
        return argument
    if argument.offset:
        raise InputError("argument", value=argument.offset, limit="Triton kernels take whole arrays here")
    return argument.array


def _print_arrays(console: Console, prepared: Prepared, before: list[Any]) -> None:
    for parameter, argument, old in zip(prepared.code.kernel.parameters, prepared.arguments, before, strict=True):
        if isinstance(argument, Placed) and not np.array_equal(argument.array.view(np.uint8), old.view(np.uint8)):
            text = np.array2string(argument.array, threshold=SHOWN_ELEMENTS, edgeitems=SHOWN_ELEMENTS // 2)
            console.print(f"{parameter.name} {argument.array.dtype} {argument.array.shape}\n{text}", markup=False)


def _print_outcome(console: Console, launched: Launched) -> None:
    for finding in launched.findings:
        console.print(str(finding), markup=False, soft_wrap=True)
    if launched.report is not None:
        summary = summarise_runs(launched.report.instructions, launched.code.kernel)
        console.print(summary.describe(), markup=False, highlight=False)
        rate = f"{launched.report.thread_instructions:,} thread-instructions in {launched.report.seconds:.2f} s"
        console.print(rate, markup=False)
    console.print(f"{launched.code.name}: findings: {len(launched.findings)}", markup=False)
