"""Operands of conformance cases: edge values and random ones, the same on every machine.

All are drawn from the raw stream of PCG64, seeded with the text of the case,
which NumPy keeps stable.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tiebreak.sim.ptx.floats import FORMATS

from .case import Case, width_of

Words = npt.NDArray[np.uint64]
"""Operands as bits, one 64-bit word each."""


class Stream:
    """Random numbers of one case.

    Args:
        text: What seeds it.
    """

    def __init__(self, text: str) -> None:
        self._source: Any = np.random.PCG64(zlib.crc32(text.encode()))

    def draw(self, count: int) -> Words:
        """Random 64-bit words."""
        return np.asarray(self._source.random_raw(count), np.uint64)

    def choose(self, values: Words, count: int) -> Words:
        """Values drawn with replacement."""
        return values[(self.draw(count) >> np.uint64(8)) % np.uint64(len(values))]

    def below(self, bound: int, count: int) -> Words:
        """Random integers from 0 up to ``bound``, exclusive."""
        return (self.draw(count) >> np.uint64(8)) % np.uint64(bound)


def draw_operands(case: Case) -> list[Words]:
    """Operands of each source of a case, ``case.count`` of each."""
    stream = Stream(case.name)
    drawn = [_draw(domain, stream, case.count) for domain in case.drawn_from]
    _relate(case, drawn, stream)
    return drawn


def draw_memory(case: Case) -> Words:
    """Four words per thread that a load case reads; one word, the first value of the cell, for a sequence."""
    if case.kind != "sequence":
        return Stream(f"memory of {case.name}").draw(4 * case.count if case.kind == "load" else 1)
    # Sums and exchanges start at zero, so that they stay numbers and the value that is looked for does occur.
    plain = "cas" not in case.text and "f" not in case.sources[0]
    return Stream(f"memory of {case.name}").draw(1) if plain else np.zeros(1, np.uint64)


def _relate(case: Case, drawn: list[Words], stream: Stream) -> None:
    """Make every eighth tuple special: the first two operands equal, or a sum that cancels a product."""
    for place in range(1, len(drawn)):
        if case.drawn_from[place] == case.drawn_from[0] and case.drawn_from[0] not in _DOMAINS:
            equal = stream.below(8, case.count) == 0
            drawn[place] = np.where(equal, drawn[0], drawn[place])
    if case.sources == ("f32",) * 3 and case.text.startswith(("fma", "mad")):
        first, second = (words.astype(np.uint32).view(np.float32) for words in drawn[:2])
        with np.errstate(all="ignore"):
            product = (-(first * second)).view(np.uint32).astype(np.uint64)
        nudge = stream.below(3, case.count) - np.uint64(1)
        drawn[2] = np.where(stream.below(4, case.count) == 0, (product + nudge) & np.uint64(0xFFFFFFFF), drawn[2])


def _draw(domain: str, stream: Stream, count: int) -> Words:
    """Operands of one source: edges and random values in turn, by chance."""
    if domain in _DOMAINS:
        return _DOMAINS[domain](stream, count)
    if domain.endswith("x2"):
        half = domain.removesuffix("x2")
        bits = 8 if half in ("e4m3", "e5m2") else 16
        return _draw(half, stream, count) | (_draw(half, stream, count) << np.uint64(bits))
    if ":" in domain:
        size, kind = domain.split(":")
        return _draw_numbers(size, kind, stream, count)
    make = _draw_floats if domain in FORMATS else _draw_integers
    edges, values = make(domain, stream, count)
    mask = np.uint64((1 << 8 * width_of(domain)) - 1)
    return np.where(stream.below(2, count) == 0, stream.choose(edges, count), values) & mask


def _draw_integers(kind: str, stream: Stream, count: int) -> tuple[Words, Words]:
    """Edges, and values of every magnitude and either sign."""
    width = 8 * width_of(kind)
    edges = [
        0,
        1,
        2,
        3,
        -1,
        -2,
        -3,
        7,
        1 << (width - 1),
        (1 << (width - 1)) - 1,
        (1 << (width - 1)) + 1,
        1 << (width // 2),
    ]
    values = stream.draw(count) >> (np.uint64(64 - width) + stream.below(width, count))
    values = np.where(stream.below(3, count) == 0, ~values, values)
    return np.array([edge & (1 << 64) - 1 for edge in edges], np.uint64), values


def _draw_floats(kind: str, stream: Stream, count: int) -> tuple[Words, Words]:
    """Edges, and values of any bits or near one."""
    number = FORMATS[kind]
    one, step = number.bias << (number.precision - 1), 1 << (number.precision - 1)
    infinite = number.infinite
    magnitudes = [
        0, 1, 2, step - 1, step, step + 1, one - step, one - 1, one, one + 1, one + step // 2, one + step,
        one + step + step // 4, one + 8 * step - 1, infinite - 1, infinite, infinite + 1, infinite + step // 2,
        infinite + step - 1, one + min(number.bias, 31) * step, one + min(number.bias, 63) * step,
        one + min(number.bias, 32) * step - 1,
    ]  # fmt: skip
    edges = np.array([bits | sign for bits in magnitudes for sign in (0, number.sign)], np.uint64)
    anything = stream.draw(count) >> np.uint64(64 - number.width)
    near = np.uint64(one - 6 * step) + stream.below(12 * step, count)
    # Integers and halves: ties of conversions to integers.
    coarse = near & ~np.uint64(step // 16 - 1 if step >= 16 else 0)
    near = np.where(stream.below(3, count) == 0, coarse, near) | (stream.below(2, count) * np.uint64(number.sign))
    tiny = stream.below(4 * step, count) | (stream.below(2, count) * np.uint64(number.sign))
    pick = stream.below(8, count)
    return edges, np.where(pick == 0, tiny, np.where(pick < 3, anything, near))


def _draw_numbers(size: str, kind: str, stream: Stream, count: int) -> Words:
    """Numbers: ``tiny`` ones about the smallest normal, or ones of magnitude 1/64 to 64; or ``nan``: mostly NaNs."""
    number = FORMATS[kind]
    if size == "nan":
        quiet, marks = number.infinite | 1 << (number.precision - 2), (1, 2, 3)
        nans = [sign | bits + mark for mark in marks for sign in (0, number.sign) for bits in (number.infinite, quiet)]
        return stream.choose(
            np.array([*nans, 0, number.infinite, number.bias << (number.precision - 1)], np.uint64), count
        )
    step = 1 << (number.precision - 1)
    lowest = 0 if size == "tiny" else (number.bias - 6) * step
    bits = np.uint64(lowest) + stream.below((2 if size == "tiny" else 12) * step, count)
    return bits | (stream.below(2, count) * np.uint64(number.sign))


def _of(*values: int) -> Callable[[Stream, int], Words]:
    """A domain of a few values."""
    listed = np.array([value & (1 << 32) - 1 for value in values], np.uint64)
    return lambda stream, count: stream.choose(listed, count)


def _per_warp(values: Words) -> Words:
    """The first value of each 32, for all 32."""
    return np.repeat(values[::32], 32)


def _draw_masks(stream: Stream, count: int) -> Words:
    """One membermask for each warp: all lanes for every other warp, at least two lanes for the others."""
    masks = _per_warp(stream.draw(count) & np.uint64(0xFFFFFFFF)) | np.uint64(0x00010002)
    return np.where((np.arange(count) // 32) % 2 == 0, np.uint64(0xFFFFFFFF), masks)


_CLAMPS = _of(0, 0x1F, 0x1C1F, 0x181F, 0x101F, 0x1C00, 0x1800, 0x0F, 0x1E1F)
"""Third operands of shfl: a bound in the lowest 5 bits, a mask of segments in bits 8 to 12."""

_DOMAINS: dict[str, Callable[[Stream, int], Words]] = {
    "pred": lambda stream, count: stream.below(2, count),
    "amount": _of(*range(33), 33, 40, 63, 64, 65, 127, 255, 256, 257, 1 << 31, -1),
    "field": _of(*range(34), 40, 48, 63, 64, 65, 128, 255, 256, 261, 1 << 31, -1),
    "narrow": _of(*range(33)),
    "offset": _of(*range(-9, 10), 31, -31, 32),
    "base": _of(*range(32)),
    "selector": lambda stream, count: stream.draw(count) & np.uint64(0xFFFFFFFF),
    "lane": _of(*range(32), 33, 63),
    "near": _of(*range(16)),
    "clamp": lambda stream, count: _per_warp(_CLAMPS(stream, count)),
    "mask": _draw_masks,
    "all": _of(-1),
    "half": lambda stream, count: _per_warp(_of(-1, 0xFFFF, 0xFFFF0000)(stream, count)),
    "few": _of(0, 1, 2, 3),
    "alike": lambda stream, count: _per_warp(stream.below(2, count)) | (stream.below(8, count) == 0),
    "same": lambda stream, count: np.where(
        (np.arange(count) // 32) % 4 < 2, np.uint64(7), stream.below(3, count)
    ).astype(np.uint64),
}  # fmt: skip
"""Domains that are not just a type."""
