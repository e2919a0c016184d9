"""``tiebreak litmus``: whether the conditions of litmus tests hold under a memory model."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tiebreak.errors import InputError, UnsupportedOperationError
from tiebreak.sim.litmus.candidates import Limits
from tiebreak.sim.litmus.evaluation import MODELS, Outcome, Verdict, decide
from tiebreak.sim.litmus.reader import parse

EXIT_ANSWERED, EXIT_UNANSWERED = 0, 1


@dataclass(frozen=True)
class Answer:
    """What was found out about a file.

    Attributes:
        file: The file, as it was named.
        result: Whether the condition holds.
        seconds: Time it took.
    """

    file: Path
    result: Verdict
    seconds: float


def run_litmus(files: Sequence[Path], model: str, limits: Limits, as_json: bool, console: Console) -> int:
    """Check files and print what was found.

    Args:
        files: Litmus tests; a folder stands for the ``.litmus`` files in it and below.
        model: ``sc``, ``rc11`` or ``ptx``.
        limits: What each file may cost.
        as_json: Print JSON and nothing else.
        console: Where to print.

    Returns:
        0 if every condition was decided, 1 if not.

    Raises:
        InputError: There is no such model, or a file cannot be read.
        LitmusSyntaxError: A file is not a litmus test.
    """
    if model not in MODELS:
        raise InputError("model", value=model, limit=f"must be one of {', '.join(MODELS)}", remedy="name one of them")
    answers = [check_file(file, model, limits) for file in list_files(files)]
    if as_json:
        print(json.dumps([_as_object(answer) for answer in answers], indent=2))
    else:
        console.print(_as_table(answers, model))
    return EXIT_ANSWERED if all(answer.result.holds is not None for answer in answers) else EXIT_UNANSWERED


def list_files(files: Sequence[Path]) -> list[Path]:
    """Files, and the litmus tests in and below folders.

    Raises:
        InputError: A path does not exist, or a folder has no litmus tests.
    """
    found: list[Path] = []
    for path in files:
        inside = sorted(path.rglob("*.litmus")) if path.is_dir() else [path]
        if not inside or not all(file.is_file() for file in inside):
            raise InputError("file", value=str(path), limit="is no litmus test and no folder of any", remedy="name one")
        found.extend(inside)
    return found


def check_file(file: Path, model: str, limits: Limits) -> Answer:
    """Check one file."""
    begin = time.monotonic()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "file", value=str(file), limit=f"cannot be read: {error}", remedy="name a text file"
        ) from error
    try:
        result = decide(parse(text, str(file)), model, limits)
    except UnsupportedOperationError as error:
        result = Verdict(None, f"UNSUPPORTED({error.operation})")
    return Answer(file, result, time.monotonic() - begin)


def _as_object(answer: Answer) -> dict[str, object]:
    return {
        "file": str(answer.file),
        "holds": answer.result.holds,
        "verdict": answer.result.verdict,
        "witness": None if answer.result.witness is None else _show(answer.result.witness),
        "seconds": round(answer.seconds, 3),
    }


def _show(outcome: Outcome) -> dict[str, str | int]:
    return {name: value if isinstance(value, int) else f"&{value.location}" for name, value in outcome}


def _as_table(answers: Sequence[Answer], model: str) -> Table:
    table = Table(title=f"Conditions under {model}", title_justify="left")
    for heading in ("file", "holds", "verdict", "final state that decides it"):
        table.add_column(heading, overflow="fold")
    for answer in answers:
        holds = {True: "yes", False: "no", None: "?"}[answer.result.holds]
        state = _show(answer.result.witness or ())
        shown = " ".join(f"{name}={value}" for name, value in state.items())
        table.add_row(str(answer.file), holds, answer.result.verdict, shown)
    return table
