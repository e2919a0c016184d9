"""Special-value policies of the total order, as the selection kernel takes them.

The order on scores is total only once somebody says where NaN goes and whether
the two zeros are one value.  A preset answers both.  Kernels take the answers
as compile-time integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tiebreak.errors import InputError


class NanPolicy(IntEnum):
    """Where NaN scores go: one class at an end, or by their raw bits."""

    LAST = 0
    FIRST = 1
    BITS = 2


class ZeroPolicy(IntEnum):
    """Whether -0.0 counts as +0.0, or sorts just below it by its raw bits."""

    EQUAL = 0
    BITS = 1


@dataclass(frozen=True)
class Policy:
    """What the kernels need to know of a preset."""

    nan: NanPolicy
    zero: ZeroPolicy


POLICIES: dict[str, Policy] = {
    "ieee": Policy(NanPolicy.LAST, ZeroPolicy.EQUAL),
    "torch": Policy(NanPolicy.FIRST, ZeroPolicy.EQUAL),
    "vllm-cutedsl": Policy(NanPolicy.BITS, ZeroPolicy.BITS),
    "vllm-triton": Policy(NanPolicy.LAST, ZeroPolicy.EQUAL),
}


def resolve_policy(preset: str) -> Policy:
    """Return the policy of a preset.

    Raises:
        InputError: No preset has that name.
    """
    if preset not in POLICIES:
        raise InputError(
            "preset", value=preset, limit=f"known presets are {', '.join(POLICIES)}", remedy="name one of them"
        )
    return POLICIES[preset]
