"""Pairs of a correct and a broken kernel written in Triton, which differ in compile-time arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import triton_kernels
from .kernel import Arguments, Trial, Words, draw_words, expect_output

BLOCK = 256


@dataclass(frozen=True, kw_only=True)
class TritonTwins:
    """A Triton kernel that is correct or broken as compile-time arguments say.

    Attributes:
        name: Name of the broken one.
        rule: The rule that the broken one breaks.
        source: Where the same mistake was made in public.
        kernel: The decorated kernel.
        sound: Compile-time arguments of the correct one.
        broken: Compile-time arguments of the broken one.
        places: Texts that each occur on exactly one line of the kernel's Python file; a finding must name these lines.
        make_trial: Maker of the run-time arguments.
        findings: Kinds of findings of which one must be reported.
        grid: Programs of the launch.
    """

    name: str
    rule: str
    source: str
    kernel: Any
    sound: Mapping[str, Any]
    broken: Mapping[str, Any]
    places: tuple[str, ...]
    make_trial: Callable[[], Trial]
    findings: tuple[str, ...] = ("race",)
    grid: int = 1


def _zeros(size: int = BLOCK) -> Words:
    return np.zeros(size, np.uint32)


def _reverse() -> Trial:
    values = draw_words(BLOCK, 9)
    return expect_output(values[::-1], values=values, scratch=_zeros())


def _advance() -> Trial:
    state = np.array([7], np.uint32)
    expected = {"state": np.array([8], np.uint32), "output": np.full(BLOCK, 7, np.uint32)}
    return Trial({"state": state, "output": _zeros()}, expected)


def _far_row() -> Trial:
    values, row, stride = draw_words(BLOCK, 9), 40_000, 131_072
    arguments: Arguments = {"values": values, "output": _zeros(), "row": row, "stride": stride, "first": row * stride}
    return Trial(arguments, {"output": values})


def _short_row() -> Trial:
    values, expected = draw_words(200, 9), _zeros()
    expected[:200] = values
    return Trial({"values": values, "output": _zeros(), "length": 200}, {"output": expected})


def _hand_over() -> Trial:
    values = draw_words(BLOCK, 9)
    return expect_output(values, values=values, inbox=_zeros(), flag=_zeros(1))


_WHOLE, _BROKEN = {"broken": False, "block": BLOCK}, {"broken": True, "block": BLOCK}
_RELEASED = {"order": "release", "scope": "gpu", "block": BLOCK}
_INBOX = ("tl.store(inbox + lanes", "tl.load(inbox + lanes)")

TRITON_TWINS = (
    TritonTwins(
        name="read-back-without-barrier",
        rule="what another thread of the program stored is loaded after a barrier",
        source="https://github.com/triton-lang/triton/issues/10924",
        kernel=triton_kernels.read_back,
        sound=_WHOLE,
        broken=_BROKEN,
        places=("tl.store(scratch + lanes", "tl.load(scratch + (block"),
        make_trial=_reverse,
    ),
    TritonTwins(
        name="epoch-advanced-early",
        rule="all lanes have read the epoch before one of them advances it",
        source="https://github.com/triton-lang/triton/pull/10816",
        kernel=triton_kernels.advance,
        sound=_WHOLE,
        broken=_BROKEN,
        places=("epoch = tl.load(state)", "tl.store(state, epoch + 1)"),
        make_trial=_advance,
    ),
    TritonTwins(
        name="triton-row-offset-of-32-bits",
        rule="row x stride is computed in 64 bits",
        source="https://github.com/local-inference-lab/b12x/pull/45",
        kernel=triton_kernels.load_row,
        sound=_WHOLE,
        broken=_BROKEN,
        places=("tl.load(values + (start - first) + lanes)",),
        make_trial=_far_row,
        findings=("out-of-bounds",),
    ),
    TritonTwins(
        name="unmasked-tail",
        rule="lanes past the end of a row load nothing",
        source="https://github.com/ROCm/aiter/pull/1567",
        kernel=triton_kernels.load_tail,
        sound=_WHOLE,
        broken=_BROKEN,
        places=("loaded = tl.load(values + lanes, mask=inside)",),
        make_trial=_short_row,
        findings=("out-of-bounds",),
    ),
    TritonTwins(
        name="triton-flag-relaxed",
        rule="publishing data is a release",
        source="https://github.com/vllm-project/vllm/issues/8404",
        kernel=triton_kernels.hand_over,
        sound=_RELEASED,
        broken=_RELEASED | {"order": "relaxed"},
        places=_INBOX,
        make_trial=_hand_over,
        grid=2,
    ),
    TritonTwins(
        name="triton-flag-at-cta-scope",
        rule="a release to another CTA has the scope of the GPU",
        source="https://github.com/ROCm/aiter/pull/4786",
        kernel=triton_kernels.hand_over,
        sound=_RELEASED,
        broken=_RELEASED | {"scope": "cta"},
        places=_INBOX,
        make_trial=_hand_over,
        grid=2,
    ),
)
"""Twins in Triton."""
