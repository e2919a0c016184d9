"""Files from which an exploration goes on where it stopped."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import IO

import numpy as np

from tiebreak.errors import InputError, ReplayError

from .exploration import Exploration, Options
from .history import DISTINGUISH, Histories
from .judging import Check
from .layout import Shape
from .program import Program
from .refinement import Refinement

FORMAT = 4


def save(exploration: Exploration, path: Path) -> None:
    """Write a checkpoint; the file is replaced at once or not at all."""
    content, temporary = pack(exploration), path.with_suffix(".part")
    temporary.write_bytes(content)
    temporary.replace(path)


def pack(exploration: Exploration) -> bytes:
    """Where an exploration stands, as a file has it.

    Raises:
        InputError: It counts images by symmetry, which are not kept.
    """
    if exploration.orbits is not None:
        raise InputError("checkpoint", value=exploration.program.name, limit="of an exploration without symmetry")
    facts = {
        "format": FORMAT,
        "program": exploration.program.name,
        "digest": digest(exploration.histories),
        "options": asdict(exploration.options),
        "shape": asdict(exploration.shape),
        "seconds": exploration.seconds,
        "refinement": exploration.found.facts,
    }
    memory, shares = exploration.state
    file = io.BytesIO()
    np.savez_compressed(
        file,
        facts=np.frombuffer(json.dumps(facts).encode(), np.uint8),
        memory=memory,
        shares=shares,
        log=np.array(exploration.histories.log, np.int64).reshape(-1, 3),
    )
    return file.getvalue()


def resume(path: Path | IO[bytes], program: Program, check: Check | None = None) -> Exploration:
    """An exploration as it was when it was saved.

    Raises:
        ReplayError: The program is not the one of the checkpoint.
    """
    with np.load(path) as data:
        facts = json.loads(bytes(data["facts"]))
        arrays = {name: data[name] for name in ("memory", "shares", "log")}
    if facts["format"] != FORMAT or facts["program"] != program.name:
        raise ReplayError("checkpoint", value=facts["program"], limit=f"one of {program.name!r}, format {FORMAT}")
    refinement = Refinement.restore(facts["refinement"])
    exploration = Exploration(program, Options(**facts["options"]), check, refinement=refinement)
    for kind, index, value in arrays["log"].tolist():
        if kind == DISTINGUISH:
            exploration.histories.distinguish(index)
        else:
            exploration.histories.resolve(kind, index, value)
    if digest(exploration.histories) != facts["digest"]:
        raise ReplayError("checkpoint", value=facts["program"], limit="a program that still does the same")
    exploration.restore(Shape(**facts["shape"]), arrays["memory"], arrays["shares"], facts["seconds"])
    return exploration


def digest(histories: Histories) -> str:
    """Fingerprint of all that threads issued so far."""
    text = "\n".join(_describe(operation) for operation in histories.operations)
    return hashlib.sha256(text.encode()).hexdigest()


def _describe(operation: object) -> str:
    """An operation without the functions in it, whose addresses differ from run to run."""
    facts = {name: value for name, value in vars(operation).items() if not callable(value)}
    return f"{type(operation).__name__} {facts}"
