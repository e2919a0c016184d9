"""Reading order 1 of 11: the total order on (score, id).

In words: a candidate is better when its score is higher; among equal scores
it is better when its id is lower.  Any candidate with a negative id is padding
and worse than every valid candidate, also worse than a valid -inf or NaN.

Two questions remain that "higher" does not answer for fp32, and public
kernels answer them differently, so each is an explicit policy: where NaN
stands, and whether -0.0 equals +0.0.  A preset names one pair of answers.

The order is then stated a second time as one unsigned 64-bit key, larger is
better, equal only for candidates that nobody can tell apart:

====== ===== =======================================================
bits   width content
====== ===== =======================================================
63     1     valid flag: 1 for id >= 0; a padding key is 0 altogether
31..62 32    score word, see ``score_words``
0..30  31    2**31 - 1 - id, so that the lower id has the larger key
====== ===== =======================================================
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiebreak.errors import InputError

Scores = NDArray[np.float32]
Ids = NDArray[np.int32]
Words = NDArray[np.uint32]
Keys = NDArray[np.uint64]

PADDING_ID = -1
"""Id of an unused slot.  Every negative id is padding; this one is written."""

LARGEST_ID = 2**31 - 1
"""Largest id that int32 carries."""

_SIGN = np.uint32(0x8000_0000)
_LOWEST_WORD = np.uint32(0)
_HIGHEST_WORD = np.uint32(0xFFFF_FFFF)


class NanPolicy(enum.Enum):
    """Where NaN stands among the scores."""

    LAST = "last"
    """All NaNs are one class, below -inf and above padding."""
    FIRST = "first"
    """All NaNs are one class, above +inf."""
    BITS = "bits"
    """NaNs are ordered by sign and payload: +NaN above +inf, -NaN below -inf."""


class ZeroPolicy(enum.Enum):
    """Whether the two zeros tie."""

    EQUAL = "equal"
    """-0.0 counts as +0.0, as IEEE 754 comparison has it."""
    BITS = "bits"
    """-0.0 is lower than +0.0."""


@dataclass(frozen=True)
class Preset:
    """One named total order.

    Attributes:
        name: Key in ``PRESETS``.
        nan: NaN policy.
        zero: Signed-zero policy.
        source: Where the behaviour is documented or was measured.
        id_limit: Largest id that the order's public key can carry.
    """

    name: str
    nan: NanPolicy
    zero: ZeroPolicy
    source: str
    id_limit: int = LARGEST_ID


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                name="ieee",
                nan=NanPolicy.LAST,
                zero=ZeroPolicy.EQUAL,
                source="IEEE 754-2019 section 5.11 (zeros compare equal); a NaN is no score, so it never displaces one",
            ),
            Preset(
                name="torch",
                nan=NanPolicy.FIRST,
                zero=ZeroPolicy.EQUAL,
                source="torch.topk on CPU; https://github.com/pytorch/pytorch/issues/16762 and issues/117617",
            ),
            Preset(
                name="vllm-cutedsl",
                nan=NanPolicy.BITS,
                zero=ZeroPolicy.BITS,
                source="sign-flip key of the 64-bit selector, https://github.com/vllm-project/vllm/pull/46076",
            ),
            # The public int64 key spends 30 bits on the id (bits 0..29), so it carries no id from 2**30 on.
            Preset(
                name="vllm-triton",
                nan=NanPolicy.LAST,
                zero=ZeroPolicy.EQUAL,
                source="portable twin of that selector, tied to https://github.com/vllm-project/vllm/pull/57239",
                id_limit=2**30 - 1,
            ),
        )
    }
)
"""The named orders; ``ieee`` is the default everywhere."""


def require_array(what: str, array: object, dtype: type[np.generic], dimensions: int | None = None) -> None:
    """Check that an argument is an array of one dtype.

    Meaning:
        Rejects instead of converting: a silent conversion is how an id loses
        its low bits or a score its NaN payload.
    Shapes:
        ``array`` has ``dimensions`` axes, or any number when that is None.
    Errors:
        ``InputError`` for anything but an ndarray of ``dtype`` and that rank.
    Source:
        None; a house rule.
    """
    if not isinstance(array, np.ndarray):
        raise InputError(what, value=type(array).__name__, limit="an ndarray is needed", remedy="call numpy.asarray")
    if array.dtype != np.dtype(dtype):
        raise InputError(
            f"dtype of {what}", value=str(array.dtype), limit=f"must be {np.dtype(dtype)}", remedy="convert it yourself"
        )
    if dimensions is not None and array.ndim != dimensions:
        raise InputError(f"shape of {what}", value=array.shape, limit=f"must have {dimensions} axes")


def require_shape(what: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Check that an array has exactly one shape.

    Meaning:
        Nothing is broadcast: each row of each argument is spelled out.
    Shapes:
        ``array`` has shape ``shape``.
    Errors:
        ``InputError`` for any other shape.
    Source:
        None; a house rule.
    """
    if array.shape != shape:
        raise InputError(f"shape of {what}", value=array.shape, limit=f"must be {shape}")


def resolve_preset(name: str | Preset) -> Preset:
    """Preset of a name; a preset stands for itself.

    Meaning:
        Every operation that takes a preset takes either form, so that a
        caller can state an order of their own.
    Shapes:
        None.
    Errors:
        ``InputError`` for a name that is not in ``PRESETS``.
    Source:
        None; a house rule.
    """
    if isinstance(name, Preset):
        return name
    if name not in PRESETS:
        raise InputError("preset", value=name, limit=f"must be one of {', '.join(PRESETS)}")
    return PRESETS[name]


def score_words(scores: Scores, preset: str | Preset = "ieee") -> Words:
    """Score words: unsigned integers that order as the scores do.

    Meaning:
        Flip all bits of a negative fp32, flip only the sign bit of any other:
        the results compare as unsigned integers as the scores compare as
        numbers, subnormals included, with +NaN on top and -NaN at the bottom.
        ``ZeroPolicy.EQUAL`` maps -0.0 to +0.0 first.  ``NanPolicy.LAST`` maps
        every NaN to word 0, below the word of -inf (0x007f_ffff), and
        ``NanPolicy.FIRST`` to the largest word, above that of +inf
        (0xff80_0000); sign and payload are then ignored.  Two scores tie
        exactly when their words are equal.
    Shapes:
        float32[...] to uint32[...].
    Errors:
        ``InputError`` for another dtype or an unknown preset.
    Source:
        The flip is the classic radix-sort key of Herf (2001) and of the
        selector of https://github.com/vllm-project/vllm/pull/46076.
    """
    chosen = resolve_preset(preset)
    require_array("scores", scores, np.float32)
    bits = scores.view(np.uint32)
    if chosen.zero is ZeroPolicy.EQUAL:
        bits = np.where(bits == _SIGN, np.uint32(0), bits)
    words = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    if chosen.nan is NanPolicy.LAST:
        words = np.where(np.isnan(scores), _LOWEST_WORD, words)
    elif chosen.nan is NanPolicy.FIRST:
        words = np.where(np.isnan(scores), _HIGHEST_WORD, words)
    return words


def keys(scores: Scores, ids: Ids, preset: str | Preset = "ieee") -> Keys:
    """Keys: the total order on (score, id) as one unsigned integer.

    Meaning:
        ``1 << 63 | word << 31 | (2**31 - 1 - id)`` for a valid candidate and
        0 for padding, whatever score the padding carries.  Larger is better.
        Keys of valid candidates are equal only for equal words and equal ids.
    Shapes:
        float32[...] and int32[...] of one shape to uint64[...].
    Errors:
        ``InputError`` for other dtypes, unequal shapes, an unknown preset, or
        an id above the preset's ``id_limit``.
    Source:
        This project's layout.  Public keys: 64 bits with the id complemented
        in the low half (https://github.com/vllm-project/vllm/pull/46076), and
        a valid flag at bit 62 with a 30-bit id in the portable twin.
    """
    chosen = resolve_preset(preset)
    words = score_words(scores, chosen)
    require_array("ids", ids, np.int32)
    require_shape("ids", ids, scores.shape)
    if ids.size and int(ids.max()) > chosen.id_limit:
        raise InputError(
            "largest id",
            value=int(ids.max()),
            limit=f"preset {chosen.name} carries ids up to {chosen.id_limit}",
            remedy="use a preset with a wider id",
        )
    lower_id_first = (LARGEST_ID - ids.astype(np.int64)).astype(np.uint64)
    valid = np.uint64(1 << 63) | words.astype(np.uint64) << np.uint64(31) | lower_id_first
    return np.where(ids < 0, np.uint64(0), valid)
