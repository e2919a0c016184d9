"""The search for the smallest input that a target fails on."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import Flaky, NoSuchExample

from tiebreak.inputs.captured import CapturedInput, default_input
from tiebreak.spec.contracts import Contract
from tiebreak.spec.order import Preset, resolve_preset
from tiebreak.target.examples import captured_inputs, target_inputs
from tiebreak.target.execution import Verdict, judge
from tiebreak.target.loading import Target
from tiebreak.target.reduction import reduce_input
from tiebreak.target.tokens import TargetInput, encode_input


@dataclass(frozen=True)
class TargetFinding:
    """The smallest failing input found.

    Attributes:
        property: Property that was violated; see ``Verdict``.
        message: What was expected and what was found.
        example: The input.
        token: The input as ``decode_input`` reads it.
    """

    property: str
    message: str
    example: TargetInput
    token: str


@dataclass(frozen=True)
class TargetReport:
    """Outcome of the verification of one target.

    Attributes:
        executions: Number of calls, those of shrinking included.
        inputs: Number of inputs before any shrinking.
        captured: Number of captured selections that were tried.
        captured_failures: Number of those that failed.
        finding: The smallest failing input, or None if there is none.
    """

    executions: int
    inputs: int
    captured: int
    captured_failures: int
    finding: TargetFinding | None


@dataclass
class _Examiner:
    """Calls a target, counts, and remembers the last failure of the first kind that it saw."""

    target: Target
    contract: Contract
    preset: Preset
    executions: int = 0
    inputs: int = 0
    failure: tuple[TargetInput, Verdict] | None = field(default=None)

    def judge(self, example: TargetInput) -> Verdict | None:
        """Call the target once."""
        self.executions += 1
        return judge(self.target, example, self.contract, self.preset)

    def fails(self, example: TargetInput) -> bool:
        """Whether an input fails as the first failing one did, so that shrinking keeps to one cause."""
        self.inputs += self.failure is None
        verdict = self.judge(example)
        if verdict is None or (self.failure is not None and verdict.property != self.failure[1].property):
            return False
        self.failure = (example, verdict)
        return True

    def finding(self) -> TargetFinding | None:
        """The last failure as a finding."""
        if self.failure is None:
            return None
        example, verdict = self.failure
        return TargetFinding(verdict.property, verdict.message, example, encode_input(example))


def verify_target(
    target: Target,
    contract: Contract,
    preset: str | Preset = "ieee",
    seed: int = 0,
    max_examples: int = 500,
    captured: CapturedInput | None = None,
) -> TargetReport:
    """Look for an input on which a target breaks its contract.

    Args:
        target: The selector.
        contract: What it promises.
        preset: The total order that the promise is about.
        seed: Seed of the drawn inputs; the same seed gives the same report.
        max_examples: Number of drawn inputs.
        captured: Real input to try as well; the shipped scores if None.

    Raises:
        InputError: The preset is unknown.
    """
    examiner = _Examiner(target, contract, resolve_preset(preset))
    _search_drawn(examiner, seed, max_examples)
    tried = list(captured_inputs(captured or default_input()))
    failing = [example for example in tried if examiner.judge(example) is not None]
    inputs = examiner.inputs + len(tried)
    if examiner.failure is None and failing:
        examiner.fails(failing[0])
    if examiner.failure is not None:
        reduce_input(examiner.failure[0], examiner.fails)
    return TargetReport(examiner.executions, inputs, len(tried), len(failing), examiner.finding())


def replay_target(target: Target, example: TargetInput, contract: Contract, preset: str | Preset) -> TargetReport:
    """Try one input again."""
    examiner = _Examiner(target, contract, resolve_preset(preset))
    examiner.fails(example)
    return TargetReport(1, 1, 0, 0, examiner.finding())


def _search_drawn(examiner: _Examiner, seed: int, max_examples: int) -> None:
    """Draw and shrink; the examiner keeps what was found."""
    chosen = settings(
        max_examples=max_examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        find(target_inputs(examiner.preset), examiner.fails, settings=chosen, random=Random(seed))
    except (NoSuchExample, Flaky):
        # A target whose output changes from call to call ends as flaky; its last failure stands.
        return
