"""Seeded bugs of compilers: what a lowering may lose of orders, scopes and barriers, and what it may change soundly.

Each is an edit of the PTX of one kernel, as if a compiler had emitted it.  A
mutant must be noticed on simulated ranks; a variant is another correct lowering
of the same source and must stay clean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tiebreak.errors import InputError
from tiebreak.verify.scenario import Scenario

_SMALL = Scenario(
    transport="symmetric", implementation="triton", launches="separate", rows=1, k=2, local=2, length=6, epochs=2
)
_ACKNOWLEDGED = replace(_SMALL, discipline="acknowledged", epochs=3)
_OWNERS = replace(_SMALL, rows=3, length=12, owner_rows=2)
_FUSED = Scenario(transport="symmetric", launches="fused", rows=2, k=2, local=2, length=6, epochs=2, contract="set")

_BARRIER = r"^\s*bar\.sync\s+0;$"
_RELEASE = r"(@%\w+) atom\.global\.sys\.release\.exch\.b64 (%\w+), (\[.*?\]), (%\w+);"
_RELAXED = r"\1 atom.global.sys.relaxed.exch.b64 \2, \3, \4;"
_ACQUIRE = r"(@%\w+) ld\.global\.sys\.acquire\.b64 (%\w+), (\[.*?\]);"
_PACKETS = r"relaxed\.sys\.global((?:\.v2)?\.b64)"
_HALF = r"mov\.b64 packet{}, \{{(%\w+),(%\w+)\}}; "
_PAIR = _HALF.format(0) + _HALF.format(1) + r"@when st\.relaxed\.sys\.global\.v2\.b64 (\[%\w+)\], [^;]*;"
_HALVES = r"@when st.relaxed.sys.global.v4.b32 \5], {\1,\2,\3,\4};"
_EPOCH = r"ld\.global\.b64 (%rd\d+), \[%rd\d+\];(\s*// end inline asm\s*add\.s64\s+%rd\d+, \1, 1;)"
_ROWS = r"(@%\w+) (st\.global\.b64 [^;]*;)"


class Substitution(NamedTuple):
    """One replacement in a PTX text.

    Attributes:
        old: Regular expression, of which ``^`` and ``$`` match at lines.
        new: Replacement, with groups as in ``re.sub``.
    """

    old: str
    new: str = ""


@dataclass(frozen=True, kw_only=True)
class LoweringMutant:
    """One edit of a kernel's PTX.

    Attributes:
        name: Name.
        kernel: Part of the name of the kernel's entry that no other kernel of the scenario has.
        rule: What the code no longer keeps; of a variant, why it still does.
        edits: Replacements, made in order.
        scenario: A scenario that the unmutated code passes.
        sound: Whether it is a variant.
        schedules: Strategies to try, in order, until one of them notices.
        source: Where the same mistake was made in public; empty where nothing is claimed.
    """

    name: str
    kernel: str
    rule: str
    edits: tuple[Substitution, ...]
    scenario: Scenario = field(default=_SMALL)
    sound: bool = False
    schedules: tuple[str, ...] = ("default", "random:0", "random:1")
    source: str = ""

    def edit(self, kernel: str, text: str) -> str:
        """Return the PTX of a kernel, edited if it is the one.

        Raises:
            InputError: A replacement finds nothing to replace.
        """
        if not re.fullmatch(self.kernel, kernel):
            return text
        for substitution in self.edits:
            text, count = re.subn(substitution.old, substitution.new, text, flags=re.MULTILINE)
            if count == 0:
                raise InputError(
                    f"text of the mutant {self.name}",
                    value=substitution.old,
                    limit=f"{kernel} has none",
                    remedy="update the mutant to what the compiler emits now",
                )
        return text


def _edit(kernel: str, name: str, rule: str, *edits: tuple[str, str], **options: Any) -> LoweringMutant:
    """Return a mutant of a kernel; ``edits`` are old and new texts."""
    return LoweringMutant(
        name=name, kernel=kernel, rule=rule, edits=tuple(Substitution(*each) for each in edits), **options
    )


def _weaken(
    kernel: str,
    scenario: Scenario,
    operation: str,
    order: str,
    *,
    spelling: str = "{scope}.{order}",
    sources: tuple[str, ...] = ("", "", ""),
) -> list[LoweringMutant]:
    """Return mutants of one operation: relaxed, and with narrower scopes.

    Args:
        kernel: The kernel.
        scenario: Where it matters.
        operation: What it is for, in a name.
        order: ``release`` or ``acquire``.
        spelling: How the compiler writes scope and order.
        sources: Where each was done in public.
    """
    old = re.escape(spelling.format(scope="sys", order=order))
    rules = {
        ("sys", "relaxed"): f"the {operation} is a {order}",
        ("gpu", order): f"the {operation} reaches the threads of other devices",
        ("cta", order): f"the {operation} reaches other CTAs",
    }
    return [
        _edit(
            kernel,
            f"{operation}-{'relaxed' if kind == 'relaxed' else scope}",
            rule,
            (rf"\.{old}\b", "." + spelling.format(scope=scope, order=kind)),
            scenario=scenario,
            source=source,
        )
        for ((scope, kind), rule), source in zip(rules.items(), sources, strict=True)
    ]


_EXCHANGE = [
    *_weaken("publish", _SMALL, "publish", "release"),
    *_weaken("wait", _SMALL, "wait", "acquire"),
    *_weaken("complete", _ACKNOWLEDGED, "acknowledge", "release"),
    *_weaken("wait_writable", _ACKNOWLEDGED, "wait-writable", "acquire"),
    *_weaken("publish_returned", _OWNERS, "return", "release"),
    *_weaken("wait_returned", _OWNERS, "wait-returned", "acquire"),
    _edit(
        "publish",
        "publish-by-plain-store",
        "a flag is written by a strong store",
        (_RELEASE, r"\1 st.global.b64 \3, \4;"),
    ),
    _edit("wait", "wait-by-plain-load", "a flag is polled by strong loads", (_ACQUIRE, r"\1 ld.global.b64 \2, \3;")),
    _edit(
        "wait",
        "wait-by-volatile-load",
        "a volatile load acquires nothing",
        (_ACQUIRE, r"\1 ld.volatile.global.b64 \2, \3;"),
    ),
    _edit(
        "publish",
        "rows-after-flag",
        "the number of rows is stored before the flag is released",
        (rf"(?s){_ROWS}(.*?){_RELEASE}", r"\3\4 atom.global.sys.release.exch.b64 \5, \6, \7;\n\1 \2"),
    ),
    _edit(
        "publish",
        "publish-without-barriers",
        "where all threads store, they meet before one of them releases",
        (_ROWS, r"\2"),
        (_BARRIER, ""),
    ),
    _edit("wait", "wait-without-barriers", "all threads meet behind the acquire of one of them", (_BARRIER, "")),
    _edit(
        "complete",
        "complete-without-barriers",
        "every thread has read the counter before one of them advances it",
        (_BARRIER, ""),
    ),
    _edit(
        "publish",
        "fence-at-gpu-scope",
        "the fence in front of a relaxed flag reaches the threads of other devices",
        (_RELEASE, rf"\1 fence.acq_rel.gpu;\n{_RELAXED}"),
    ),
    _edit(
        "publish",
        "fence-behind-flag",
        "the fence stands in front of the flag",
        (_RELEASE, rf"{_RELAXED}\n\1 fence.acq_rel.sys;"),
    ),
    _edit(
        "publish",
        "fence-before-data",
        "the fence stands behind the data",
        (_ROWS, r"fence.acq_rel.sys;\n\1 \2"),
        (_RELEASE, _RELAXED),
    ),
    _edit(
        "wait",
        "poll-without-fence",
        "a fence stands behind relaxed polls",
        (_ACQUIRE, r"\1 atom.global.sys.relaxed.add.u64 \2, \3, 0;"),
    ),
    _edit(
        "pack",
        "ids-not-packed",
        "every word that is pushed was written",
        (r"@%\w+ st\.global\.b32 \[ (%\w+) \+ 0 \], \{ %\w+ \};(?![\s\S]*?st\.global\.b32)", ""),
    ),
    _edit(
        "push",
        "push-beyond-the-inbox",
        "stores stay within the memory of the peer",
        (r"(st\.global\.b32 \[ %\w+) \+ 0 \]", r"\1 + 1073741824 ]"),
    ),
]

_FUSED_MERGE = [
    *_weaken(
        "merge",
        _FUSED,
        "fused-publish",
        "release",
        spelling="{order}.{scope}",
        sources=(
            "https://github.com/vllm-project/vllm/issues/8404",
            "https://github.com/ROCm/iris/issues/462",
            "https://github.com/NVIDIA/cutlass/issues/3324",
        ),
    ),
    *_weaken(
        "merge",
        _FUSED,
        "fused-wait",
        "acquire",
        spelling="{order}.{scope}",
        sources=(
            "https://github.com/NVIDIA/nvshmem/issues/75",
            "https://github.com/ROCm/aiter/pull/4786",
            "https://github.com/NVIDIA/cutlass/pull/3647",
        ),
    ),
    _edit(
        "merge",
        "fused-packets-plain",
        "a packet is written by a strong store",
        (rf"st\.{_PACKETS}", r"st.global\1"),
        scenario=_FUSED,
        source="https://github.com/ROCm/aiter/pull/3290",
    ),
    _edit(
        "merge",
        "fused-packets-gpu",
        "a packet reaches the threads of other devices",
        (rf"st\.{_PACKETS}", r"st.relaxed.gpu.global\1"),
        scenario=_FUSED,
        source="https://github.com/ROCm/iris/issues/462",
    ),
    _edit(
        "merge",
        "fused-packets-torn",
        "a packet is written at once",
        (_PAIR, _HALVES),
        scenario=_FUSED,
        source="https://github.com/vllm-project/vllm/pull/2760",
    ),
    _edit(
        "merge",
        "fused-polls-plain",
        "packets are polled by strong loads",
        (rf"ld\.{_PACKETS}", r"ld.global\1"),
        scenario=_FUSED,
        source="https://github.com/meta-pytorch/torchcomms/pull/2318",
    ),
    _edit(
        "merge",
        "fused-polls-gpu",
        "polls reach what other devices write",
        (rf"ld\.{_PACKETS}", r"ld.relaxed.gpu.global\1"),
        scenario=_FUSED,
        source="https://github.com/ROCm/aiter/pull/4786",
    ),
    _edit(
        "merge",
        "fused-rows-after-flag",
        "the number of rows is stored before the flag is released",
        (r"(st\.global\.b64 [^;]*;)((?:(?!st\.global\.b64)[\s\S])*?)(st\.release\.sys[^;]*;)", r"\2\3\n\1"),
        scenario=_FUSED,
        source="https://github.com/NVIDIA/nvshmem/pull/36",
    ),
    _edit(
        "merge",
        "fused-epoch-frozen",
        "a kernel reads the epoch of its exchange every time that it runs",
        (_EPOCH, r"mov.b64 \1, 0;\2"),
        scenario=replace(_FUSED, mode="graph", epochs=3),
        source="https://github.com/vllm-project/vllm/pull/46913",
    ),
    _edit(
        "merge",
        "fused-completion-relaxed",
        "the last CTA to finish knows that the others have read the epoch that it advances",
        (r"atom\.acq_rel\.gpu\.", "atom.relaxed.gpu."),
        scenario=_FUSED,
        source="https://github.com/vllm-project/vllm/pull/8776",
    ),
]

_VARIANTS = [
    _edit(
        "publish",
        "release-by-store",
        "a store may release as well as an exchange",
        (_RELEASE, r"\1 st.release.sys.global.b64 \3, \4;"),
        sound=True,
    ),
    _edit(
        "publish",
        "release-by-fence",
        "a fence and a relaxed exchange are a release pattern",
        (_RELEASE, rf"\1 fence.acq_rel.sys;\n{_RELAXED}"),
        sound=True,
    ),
    _edit(
        "wait",
        "acquire-by-atomic",
        "an atomic that adds 0 acquires as well as a load; Triton before 3.6 polls so",
        (_ACQUIRE, r"\1 atom.global.sys.acquire.add.u64 \2, \3, 0;"),
        sound=True,
    ),
    _edit(
        "wait",
        "acquire-by-fence",
        "a relaxed load and a fence are an acquire pattern",
        (_ACQUIRE, r"\1 ld.relaxed.sys.global.b64 \2, \3;\n\1 fence.acq_rel.sys;"),
        sound=True,
    ),
    _edit(
        "publish",
        "rows-stored-by-all-threads",
        "all threads may store one value, since they meet before the release",
        (_ROWS, r"\2"),
        sound=True,
    ),
    _edit(
        "wait|publish|complete",
        "barrier-of-the-warp",
        "in a CTA of one warp a barrier of the warp orders memory as well",
        (_BARRIER, "bar.warp.sync -1;"),
        sound=True,
    ),
    _edit(
        "merge",
        "packets-one-by-one",
        "the elements of a vector are stores of their own",
        (
            r"@when st\.relaxed\.sys\.global\.v2\.b64 (\[%\w+)\], \{(packet0), (packet1)\};",
            r"@when st.relaxed.sys.global.b64 \1], \2; @when st.relaxed.sys.global.b64 \1+8], \3;",
        ),
        scenario=_FUSED,
        sound=True,
    ),
]

LOWERING_MUTANTS: dict[str, LoweringMutant] = {
    mutant.name: mutant for mutant in (*_EXCHANGE, *_FUSED_MERGE, *_VARIANTS)
}
"""Mutants and variants by name."""
