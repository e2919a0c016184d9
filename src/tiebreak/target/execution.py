"""One call of a target, and the verdict on its output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tiebreak.spec.contracts import Contract, check_selection
from tiebreak.spec.order import Preset
from tiebreak.target.loading import Target
from tiebreak.target.tokens import TargetInput


@dataclass(frozen=True)
class Verdict:
    """What is wrong with one output.

    Attributes:
        property: "values", "set" or "order" for a broken contract, "form" for
            an output that is not k integers of int32, "exception" for a raise.
        message: What was expected and what was found.
    """

    property: str
    message: str


def judge(target: Target, example: TargetInput, contract: Contract, preset: Preset) -> Verdict | None:
    """Call a target once; None if the output keeps the contract."""
    try:
        returned = target(torch.from_numpy(example.scores.copy()), torch.from_numpy(example.ids.copy()), example.k)
    except Exception as error:
        return Verdict("exception", f"raised {type(error).__name__}: {error}")
    output, problem = _read_output(returned, example.k)
    if problem:
        return Verdict("form", problem)
    scores, ids, row = example.scores[None], example.ids[None], output[None]
    violations = check_selection(scores, ids, example.k, row, contract, preset)
    return Verdict(violations[0].property, str(violations[0])) if violations else None


def _read_output(returned: object, k: int) -> tuple[NDArray[np.int32], str]:
    """The output as int32[k], or what keeps it from being that."""
    nothing = np.empty(0, dtype=np.int32)
    try:
        array = returned.detach().cpu().numpy() if isinstance(returned, torch.Tensor) else np.asarray(returned)
    except (TypeError, ValueError, RuntimeError) as error:
        return nothing, f"returned {type(returned).__name__}, which is no array of ids: {error}"
    if array.shape != (k,):
        return nothing, f"returned shape {array.shape} instead of {(k,)}"
    if array.size and array.dtype.kind not in "iu":
        return nothing, f"returned dtype {array.dtype} instead of integers"
    outside = [number for number in array.tolist() if not -(2**31) <= number < 2**31]
    return (nothing, f"returned id {outside[0]}, which does not fit int32") if outside else (array.astype(np.int32), "")
