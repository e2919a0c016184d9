"""An oracle of its own: plain Python integers and sorted(), no NumPy, no kernel, no spec code.

The spec is what reviewers read; this is what the spec itself is checked with.
"""

from __future__ import annotations

from collections.abc import Iterable

from tiebreak.spec.order import NanPolicy, ZeroPolicy, resolve_preset


def goodness_of_bits(bits: int, nan: NanPolicy, zero: ZeroPolicy) -> int:
    """Return the integer for the fp32 pattern ``bits``."""
    magnitude, negative = bits & 0x7FFFFFFF, bits >> 31
    if magnitude > 0x7F800000 and nan is not NanPolicy.BITS:
        return -(1 << 40) if nan is NanPolicy.LAST else 1 << 40
    if magnitude == 0 and zero is ZeroPolicy.EQUAL:
        return 0
    return -magnitude - 1 if negative else magnitude


def select_row(bits: Iterable[int], ids: Iterable[int], k: int, preset: str) -> list[int]:
    """Return the k best ids of one row, -1 padded.

    Args:
        bits: fp32 patterns of the scores.
        ids: Candidate ids; negative ones are padding.
        k: Number of slots.
        preset: Order preset.
    """
    policy = resolve_preset(preset)
    pairs = [(word, number) for word, number in zip(bits, ids, strict=True) if number >= 0]
    valid = [(goodness_of_bits(word, policy.nan, policy.zero), number) for word, number in pairs]
    best = sorted(valid, key=lambda pair: (-pair[0], pair[1]))[:k]
    return [number for _, number in best] + [-1] * (k - len(best))
