"""Whether a contender's outputs are right, in the contract that it claims."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tiebreak.errors import InputError
from tiebreak.spec.contracts import Contract, check_selection
from tiebreak.spec.order import Ids
from tiebreak.spec.packing import unpack

from .contenders import Launch
from .inputs import InputSet

POISON = -559038737
"""Written to outputs beforehand (0xDEADBEEF): no id, and not the -1 of an unused slot."""

LONGEST_REASON = 300


def poison_outputs(launches: Sequence[Launch]) -> None:
    """Overwrite every output, so that a contender that writes nothing is not taken for right."""
    for launch in launches:
        for output in launch.outputs:
            output.fill_(POISON)


def find_violation(launches: Sequence[Launch], inputs: Sequence[InputSet], contract: Contract | None) -> str:
    """Return what is wrong with the outputs of a contender, or an empty string.

    Args:
        launches: One per input set, after they ran.
        inputs: The input sets.
        contract: What the outputs are held to; None where they must be copies.
    """
    for number, (launch, drawn) in enumerate(zip(launches, inputs, strict=True)):
        for output, original in zip(launch.outputs, launch.copies, strict=contract is None):
            if not torch.equal(output, original):
                return f"input set {number}: {int((output != original).sum())} words differ from what was sent"
        if contract is not None:
            reason = explain_output(drawn, launch.outputs[0].cpu().numpy(), contract)
            if reason:
                return f"input set {number}: {reason}"
    return ""


def explain_output(drawn: InputSet, output: Ids, contract: Contract) -> str:
    """Return the first violation of the contract in one output, or an empty string.

    Raises:
        InputError: The contract is ``values``, under which no contender runs.
    """
    if contract is Contract.VALUES:
        raise InputError("contract", value=contract.value, limit="must be order or set")
    compared, expected = output, drawn.expected
    if contract is Contract.SET:
        compared, expected = np.sort(output, axis=1), np.sort(expected, axis=1)
    wrong = np.flatnonzero(np.any(compared != expected, axis=1))
    if not len(wrong):
        return ""
    row = int(wrong[0])
    scores, ids = unpack(drawn.candidates[row : row + 1])
    (violation,) = check_selection(scores, ids, expected.shape[1], output[row : row + 1], contract)
    reason = f"{contract.value} broken in {len(wrong)} rows, first in row {row}: {violation.message}"
    return reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}..."
