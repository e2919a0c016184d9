"""One selection as one word that fits a command line.

``k=1;3f800000:0,3f800000:7`` asks for the best one of two candidates, each
written as the fp32 bits of its score in hexadecimal and its id in decimal.
Bits and not decimals, so that NaN payloads and signed zeros survive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tiebreak.errors import InputError

_TOKEN = re.compile(r"k=(0|[1-9]\d*);((?:[0-9a-f]{8}:-?\d+(?:,(?!$)|$))*)", re.ASCII)


@dataclass(frozen=True, eq=False)
class TargetInput:
    """Candidates of one row and the number of slots.

    Attributes:
        scores: float32[N].
        ids: int32[N]; -1 marks padding.
        k: Number of slots.
    """

    scores: NDArray[np.float32]
    ids: NDArray[np.int32]
    k: int

    def __str__(self) -> str:
        pairs = ", ".join(f"({score}, id {number})" for score, number in zip(self.scores, self.ids, strict=True))
        return f"k = {self.k} of [{pairs}]"


def encode_input(example: TargetInput) -> str:
    """Write a selection as a token."""
    words = example.scores.view(np.uint32).tolist()
    pairs = (f"{word:08x}:{number}" for word, number in zip(words, example.ids.tolist(), strict=True))
    return f"k={example.k};{','.join(pairs)}"


def decode_input(token: str) -> TargetInput:
    """Read a token.

    Raises:
        InputError: The text has another form, or an id does not fit int32.
    """
    match = _TOKEN.fullmatch(token)
    if match is None:
        limit = "must be k=K;BITS:ID,BITS:ID,... with eight lower-case hexadecimal digits for each score"
        raise InputError("replay input", value=token, limit=limit, remedy="paste it from the report, in quotes")
    pairs = [pair.split(":") for pair in match[2].split(",") if pair]
    ids = [int(number) for _, number in pairs]
    for number in ids:
        if not -1 <= number < 2**31:
            limit = "must be -1 (padding) or an id from 0 to 2**31 - 1"
            raise InputError("id in the replay input", value=number, limit=limit, remedy="correct the id")
    words = np.array([int(bits, 16) for bits, _ in pairs], dtype=np.uint32)
    return TargetInput(words.view(np.float32), np.array(ids, dtype=np.int32), int(match[1]))
