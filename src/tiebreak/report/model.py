"""The record of one verification run, and its documented JSON form.

``report.json`` is exactly one ``Report``.  ``schema()`` states its JSON Schema
(draft 2020-12); the copy in ``report.schema.json`` is the published one, and
readers can rely on ``schema_version``: it grows when a field is renamed or
removed, not when one is added.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from tiebreak.errors import InputError

SCHEMA_VERSION: Final = 1
"""Version of the form that ``encode_report`` writes."""

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Result = Literal["passed", "failed", "not applicable"]


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One violation, with all that is needed to see it again.

    Attributes:
        property: Name of the property that was violated.
        backend: Backend that violated it.
        message: What was observed and what was expected.
        schedule: Schedule string of the failing execution; empty if none.
        table: One column per rank, rows in execution order; empty if none.
        replay: Command line that reproduces the failure.
    """

    property: str
    backend: str
    message: str
    schedule: str
    table: str
    replay: str


class FaultCount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Executions in which a rank fails at some step, for one kind of fault.

    Attributes:
        fault: Kind of fault.
        scenarios: Executions; each has another rank, step or shape.
        struck: Executions in which the fault took a step or a merge away, or put it off.
        places: Steps, or merges, at which it must strike: all those of the executions without a fault, or, of a
            sample, as many as were run.
        hangs: Executions that did not end by themselves.
        wrong: Executions in which a rank returned ids that are not the result.
    """

    fault: str
    scenarios: Count
    struck: Count
    places: Count
    hangs: Count
    wrong: Count


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One property on one backend.

    Attributes:
        property: Name of the property.
        backend: Name of the backend.
        executions: Number of executions (one input under one schedule each).
        inputs: Number of different inputs among them.
        result: "passed", "failed" or "not applicable".
        seconds: Wall time spent.
        failures: The violations; empty unless ``result`` is "failed".
        ends: For faults at every step: how often a rank beside the faulty one ended in which way, by fault.
        faults: For faults at every step: how many there were of each kind, and what went wrong.
    """

    property: str
    backend: str
    executions: Count
    inputs: Count
    result: Result
    seconds: Seconds
    failures: tuple[Failure, ...] = ()
    ends: dict[str, Count] = msgspec.field(default_factory=dict)
    faults: tuple[FaultCount, ...] = ()


class Counterexample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The execution by which the explorer killed a mutant.

    Attributes:
        switches: Changes from one thread to another in its schedule.
        events: Events of the schedule, all of which the failure depends on.
        candidates: Failures of which it is the one with the fewest switches, and of those with the fewest events.
        replayed: How often, of ``attempts``, executing the schedule again ended in the same failure.
        attempts: How often that was tried.
        table: One column per thread, rows in the order of the schedule.
        diagram: Space-time diagram, as SVG; the missing edge is red.
    """

    switches: Count
    events: Count
    candidates: Count
    replayed: Count
    attempts: Count
    table: str
    diagram: str


class MutantResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One seeded bug, and what became of it.

    Attributes:
        name: Name of the mutant.
        rule: The rule of the protocol or the order that the mutant breaks.
        killed: Whether a property found it.
        property: Property that killed it; empty if it survived.
        schedule: Schedule string of the killing execution; empty if none.
        replay: Command line that kills it again; empty if it survived.
        message: What the killing property reported.
        checker: What looked for it: schedules of simulated ranks, or the explorer, under ``ptx``.
        source: Where the same mistake was made in public.
        seconds: Wall time spent.
        counterexample: What the explorer found.
    """

    name: str
    rule: str
    killed: bool
    property: str
    schedule: str
    replay: str
    message: str
    checker: Literal["simulator", "explorer"] = "simulator"
    source: str = ""
    seconds: Seconds = 0.0
    counterexample: Counterexample | None = None


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A correct protocol, or the unmutated kernels of a scenario, in the explorer.

    Attributes:
        name: Name of the protocol, or the scenario.
        verdict: What the explorer concludes; mutants count as killed only beside PROVED.
        classes: Classes of executions.
        seconds: Wall time spent.
    """

    name: str
    verdict: str
    classes: Count
    seconds: Seconds


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of ``tiebreak verify``.

    Attributes:
        schema_version: Version of this form, ``SCHEMA_VERSION``.
        tiebreak_version: Version of the distribution.
        started: Start of the run, ISO 8601 with an offset.
        seconds: Wall time of the whole run.
        arguments: Command-line arguments, without the program name.
        versions: Versions of the interpreter and of the packages in use.
        seed: Seed of every random choice.
        preset: Preset of the total order.
        ranks: World sizes.
        cells: One entry per property and backend.
        mutants: One entry per mutant; empty if none was asked for.
        proofs: What the mutants of the explorer are compared with.
        inputs: What the inputs were, one description each.
        exit_status: 0 clean, 1 violation, 2 misuse.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    tiebreak_version: str
    started: str
    seconds: Seconds
    arguments: tuple[str, ...]
    versions: dict[str, str]
    seed: int
    preset: str
    ranks: tuple[Annotated[int, Meta(ge=1)], ...]
    cells: tuple[Cell, ...]
    mutants: tuple[MutantResult, ...] = ()
    proofs: tuple[Proof, ...] = ()
    inputs: tuple[str, ...]
    exit_status: Literal[0, 1, 2]


def encode_report(report: Report) -> bytes:
    """Encode a report as the indented UTF-8 text of ``report.json``."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def decode_report(text: bytes) -> Report:
    """Decode ``report.json``.

    Raises:
        InputError: The text is not JSON, or does not follow the schema.
    """
    try:
        return msgspec.json.decode(text, type=Report)
    except msgspec.DecodeError as error:
        remedy = "read it with the tiebreak version that wrote it"
        raise InputError(f"report.json cannot be read: {error}", remedy=remedy) from error


def schema() -> dict[str, Any]:
    """State the JSON Schema of ``report.json``."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Report)}


def encode_schema() -> bytes:
    """Encode the schema as the text of ``report.schema.json``; ``python -m tiebreak.report.model`` writes it."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n"


if __name__ == "__main__":
    Path(__file__).with_name("report.schema.json").write_bytes(encode_schema())
