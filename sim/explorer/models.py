"""The memory models that the explorer knows, and what it does not produce under each."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from tiebreak.errors import InputError

from .layout import PTX, RC11, SEQUENTIAL
from .operations import Lanes, Load, Operation, Store
from .program import Body, Program, parallel


@dataclass(frozen=True)
class Limit:
    """Executions that a model allows and the explorer does not produce.

    Attributes:
        name: What they are called.
        reason: Why they are left out, and why verdicts stand all the same.
        program: A program with such an execution.
        results: What its threads would return in it.
    """

    name: str
    reason: str
    program: Program
    results: tuple[object, ...]


@dataclass(frozen=True)
class Model:
    """A memory model.

    Attributes:
        name: Name on the command line.
        title: What it is, with its source.
        code: Number in the compiled search.
        limits: What is not produced.
    """

    name: str
    title: str
    code: int
    limits: tuple[Limit, ...] = ()


def _load_buffering() -> Program:
    """Two threads that read one location and then write the other."""

    def body(read: str, write: str) -> Body:
        def run() -> Generator[Operation | Lanes, Any, Any]:
            value = yield Load(read)
            yield Store(write, 1)
            return value

        return run

    return parallel("LB", body("x", "y"), body("y", "x"))


LOAD_BUFFERING = Limit(
    name="load buffering",
    reason=(
        "an execution is built in an order in which every read comes after the write that it reads, so program order "
        "and reads-from have no cycle together (RC11 demands that; PTX forbids it only along dependencies). A program "
        "whose accesses are ordered by release and acquire, or that has no data race in the executions that are "
        "produced, has no other ones"
    ),
    program=_load_buffering(),
    results=(1, 1),
)

MODELS = {
    model.name: model
    for model in (
        Model("sc", "sequential consistency (Lamport, 1979)", SEQUENTIAL),
        Model("rc11", "RC11 (Lahav et al., PLDI 2017); scopes are ignored", RC11),
        Model("ptx", "PTX (Lustig et al., ASPLOS 2019), for the generic proxy", PTX, (LOAD_BUFFERING,)),
    )
}


def find_model(name: str) -> Model:
    """Look a model up.

    Raises:
        InputError: There is no model of this name.
    """
    if name not in MODELS:
        raise InputError("memory model", value=name, limit=f"one of {', '.join(MODELS)}")
    return MODELS[name]
