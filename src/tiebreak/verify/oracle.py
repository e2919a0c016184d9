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


def select_row(bits: Iterable[int], ids: Iterable[int], k: int, preset: str, contract: str = "order") -> list[int]:
    """Return the k best ids of one row, -1 padded.

    Args:
        bits: fp32 patterns of the scores.
        ids: Candidate ids; negative ones are padding.
        k: Number of slots.
        preset: Order preset.
        contract: ``order`` (best first) or ``set`` (in the order in which they are given,
            the first of equal candidates).
    """
    policy = resolve_preset(preset)
    pairs = [(word, number) for word, number in zip(bits, ids, strict=True) if number >= 0]
    valid = [(goodness_of_bits(word, policy.nan, policy.zero), number) for word, number in pairs]
    places = sorted(range(len(valid)), key=lambda place: (-valid[place][0], valid[place][1], place))[:k]
    chosen = places if contract == "order" else sorted(places)
    return [valid[place][1] for place in chosen] + [-1] * (k - len(chosen))
