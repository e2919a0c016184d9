"""Which barriers, fences, acquires and releases of a kernel are needed.

Each is left out by itself, and the executions of the kernel are judged without
it (``tiebreak.sim.ptx.omission``).  A race shows that it is needed.  No race on
any input tried shows less, so the report says what was tried; a proof from the
text, where there is one, holds for every input
(``tiebreak.sim.ptx.redundancy``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tiebreak.errors import InputError
from tiebreak.sim.ptx.findings import Finding, FindingError, describe_location
from tiebreak.sim.ptx.module import Kernel
from tiebreak.sim.ptx.omission import Edge, Omissions, list_edges
from tiebreak.sim.ptx.races import RaceDetector
from tiebreak.sim.ptx.redundancy import prove_redundant
from tiebreak.sim.ptx.removal import remove_instruction

from .launch import Prepared
from .replays import Snapshot, restore, take_snapshot

NEEDED, REDUNDANT, UNREACHED = "needed", "redundant", "not reached"


@dataclass(frozen=True)
class Input:
    """A launch to audit with.

    Attributes:
        name: What it is, in print.
        prepared: The launch.
    """

    name: str
    prepared: Prepared


@dataclass
class Verdict:
    """What is known of one edge.

    Attributes:
        edge: The instruction.
        witness: The race that appears without it, or None.
        shown_by: Input and schedule that showed it.
        reached: Executions that it ran in.
        proof: Why it orders nothing whatever the input, or an empty string.
        wrong: Input and schedule of executions without it whose outputs differ.
    """

    edge: Edge
    witness: Finding | None = None
    shown_by: str = ""
    reached: int = 0
    proof: str = ""
    wrong: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """``needed``, ``redundant`` on what was tried, or ``not reached``."""
        if self.witness is not None:
            return NEEDED
        return REDUNDANT if self.reached or self.proof else UNREACHED

    @property
    def argument(self) -> str:
        """Why the status is what it is, in words."""
        if self.witness is not None:
            return f"{self.witness.place}: {self.witness.missing}"
        if self.proof:
            return f"proven: {self.proof}"
        if not self.reached:
            return "no input tried ran it"
        return f"no conflicting accesses without it in {self.reached} executions"


@dataclass(frozen=True)
class Audit:
    """Verdicts on a kernel.

    Attributes:
        kernel: Name of the kernel.
        inputs: Inputs tried.
        schedules: Schedules tried with each.
        findings: What is wrong with the kernel as it is.
        verdicts: One for each edge, in the order of the kernel.
        together: What is wrong when all that are redundant are left out at once, or None.
    """

    kernel: str
    inputs: tuple[str, ...]
    schedules: tuple[str, ...]
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    together: Finding | None

    def count(self, status: str) -> int:
        """Return how many verdicts are so."""
        return sum(verdict.status == status for verdict in self.verdicts)

    def as_dict(self) -> dict[str, object]:
        """Return the audit as JSON values."""
        return {
            "kernel": self.kernel,
            "inputs": list(self.inputs),
            "schedules": list(self.schedules),
            "findings": [finding.as_dict() for finding in self.findings],
            "verdicts": [_as_dict(verdict) for verdict in self.verdicts],
            "together": self.together.as_dict() if self.together is not None else None,
        }


def audit_kernel(
    inputs: Iterable[Input],
    schedules: Sequence[str] = ("lockstep",),
    *,
    outputs: bool = False,
    together: bool = True,
) -> Audit:
    """Judge every edge of a kernel on some inputs.

    Args:
        inputs: Launches of one kernel; their arrays are as they were afterwards.
        schedules: Orders of warps to run each with.
        outputs: Whether to run the kernel without each edge too, and compare what it writes.
        together: Whether to run everything once more without all that is redundant.

    Raises:
        InputError: There are no inputs, or they are not of one kernel.
        UnknownInstructionError: The kernel has an instruction that the machine does not know.
    """
    auditor = _Auditor(list(inputs), tuple(schedules))
    for each, prepared in auditor.launches():
        auditor.judge(each, prepared, outputs)
    return auditor.conclude(auditor.judge_together() if together else None)


class _Auditor:
    """Collects verdicts over executions."""

    def __init__(self, inputs: list[Input], schedules: tuple[str, ...]) -> None:
        if not inputs:
            raise InputError("inputs of an audit", value=0, limit="at least one", remedy="state arguments")
        self.inputs, self.schedules = inputs, schedules
        self.code = inputs[0].prepared.code
        if self.code.explain is not None:
            self.code = self.code.explain()
        self.kernel = self.code.kernel
        if any(each.prepared.code.text != inputs[0].prepared.code.text for each in inputs):
            raise InputError("inputs of an audit", limit="all are of one kernel")
        proofs = prove_redundant(self.kernel)
        self.verdicts = {
            edge.instruction.index: Verdict(edge, proof=proofs.get(edge.instruction.index, ""))
            for edge in list_edges(self.kernel)
        }
        self.findings: list[Finding] = []

    def launches(self) -> Iterable[tuple[str, Prepared]]:
        """Yield every input with every schedule, and its name."""
        for number, each in enumerate(self.inputs, 1):
            for schedule in self.schedules:
                name = f"input {number}, {schedule}" if len(self.schedules) > 1 else f"input {number}"
                yield name, replace(each.prepared, code=self.code, schedule=schedule)

    def judge(self, name: str, prepared: Prepared, outputs: bool) -> None:
        """Judge the edges that no race is known for by one execution."""
        open_ones = [place for place, verdict in self.verdicts.items() if verdict.witness is None]
        before = take_snapshot(prepared.arguments)
        omissions = _watch(prepared, [frozenset({place}) for place in open_ones])
        after = take_snapshot(prepared.arguments)
        restore(before)
        known = {finding.instructions for finding in self.findings}
        self.findings += [each for each in omissions.whole.detector.findings if each.instructions not in known]
        for place, omission in zip(open_ones, omissions.omissions, strict=True):
            verdict = self.verdicts[place]
            verdict.reached += bool(omission.reached)
            verdict.witness = omission.race
            if verdict.witness is None and verdict.edge.role == "wait" and omission.reached and not self.findings:
                verdict.witness = _find_without(prepared, remove_instruction(self.kernel, place), before)
            verdict.shown_by = name if verdict.witness is not None else ""
        if outputs and not omissions.whole.detector.findings:
            self._compare(name, prepared, before, after)

    def _compare(self, name: str, prepared: Prepared, before: Snapshot, after: Snapshot) -> None:
        """Run the kernel without each edge that is an instruction of its own, and compare what it writes."""
        for place, verdict in self.verdicts.items():
            if verdict.edge.role != "order" and not _writes_the_same(
                prepared, remove_instruction(self.kernel, place), before, after
            ):
                verdict.wrong.append(name)

    def judge_together(self) -> Finding | None:
        """Return what is wrong without all that is redundant, if anything is."""
        redundant = {place for place, verdict in self.verdicts.items() if verdict.status == REDUNDANT}
        found = None
        if len(redundant) > 1 and not self.findings:
            waits = {place for place in redundant if self.verdicts[place].edge.role == "wait"}
            kernel, others = _remove_waits(self.kernel, waits, frozenset(redundant - waits))
            for _, prepared in self.launches():
                before = take_snapshot(prepared.arguments)
                omissions = _watch(prepared, [others], kernel)
                found = found or omissions.omissions[0].race or next(iter(omissions.whole.detector.findings), None)
                restore(before)
        return found

    def conclude(self, together: Finding | None) -> Audit:
        """Return the audit."""
        names = tuple(each.name for each in self.inputs)
        verdicts = tuple(self.verdicts.values())
        return Audit(self.kernel.name, names, self.schedules, tuple(self.findings), verdicts, together)


def _remove_waits(kernel: Kernel, waits: set[int], others: frozenset[int]) -> tuple[Kernel, frozenset[int]]:
    """Return a kernel without some waits, and where ``others`` are in it."""
    for place in sorted(waits, reverse=True):
        shorter = remove_instruction(kernel, place)
        gone = len(kernel.body) - len(shorter.body)
        kernel, others = shorter, frozenset(other - gone * (other > place) for other in others)
    return kernel, others


def _watch(prepared: Prepared, sets: list[frozenset[int]], kernel: Kernel | None = None) -> Omissions:
    """Run a launch, or another kernel in its place, and judge it without each set of instructions."""
    memory = prepared.place_arguments()
    omissions = Omissions(sets, memory.place, alone=math.prod(prepared.grid) == 1)
    try:
        prepared.perform(memory, omissions, kernel)
    except FindingError as error:
        omissions.report(error.finding)
        omissions.finish()
    return omissions


def _find_without(prepared: Prepared, kernel: Kernel, before: Snapshot) -> Finding | None:
    """Return what is wrong with a kernel without a wait, a race if there is one; puts the arrays back."""
    memory = prepared.place_arguments()
    detector = RaceDetector(place=memory.place)
    try:
        prepared.perform(memory, detector, kernel)
    except FindingError as error:
        detector.report(error.finding)
        detector.finish()
    finally:
        restore(before)
    return min(detector.findings, key=lambda finding: finding.kind != "race", default=None)


def _writes_the_same(prepared: Prepared, kernel: Kernel, before: Snapshot, after: Snapshot) -> bool:
    """Tell whether another kernel leaves the arrays as they were left; puts them back."""
    try:
        prepared.perform(prepared.place_arguments(), None, kernel)
    except FindingError:
        return False
    else:
        return all(array.tobytes() == content.tobytes() for array, content in after)
    finally:
        restore(before)


def _as_dict(verdict: Verdict) -> dict[str, object]:
    instruction = verdict.edge.instruction
    return {
        "instruction": instruction.name,
        "role": verdict.edge.role,
        "line": instruction.line,
        "source": describe_location(instruction.location),
        "status": verdict.status,
        "argument": verdict.argument,
        "witness": verdict.witness.as_dict() if verdict.witness is not None else None,
        "shown_by": verdict.shown_by,
        "reached": verdict.reached,
        "proof": verdict.proof,
        "wrong": verdict.wrong,
    }
