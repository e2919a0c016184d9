"""Seeded bugs of compilers: what a lowering may lose of orders, scopes and barriers, and what it may change soundly.

Each is an edit of the PTX of one kernel, as if a compiler had emitted it.  A
mutant must be noticed on simulated ranks; a variant is another correct lowering
of the same source and must stay clean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from tiebreak.errors import InputError
from tiebreak.verify.scenario import Scenario

_SMALL = Scenario(
    transport="symmetric", implementation="triton", launches="separate", rows=1, k=2, local=2, length=6, epochs=2
)
_ACKNOWLEDGED = Scenario(
    transport="symmetric",
    discipline="acknowledged",
    implementation="triton",
    launches="separate",
    rows=1,
    k=2,
    local=2,
    length=6,
    epochs=3,
)
_OWNERS = Scenario(
    transport="symmetric",
    implementation="triton",
    launches="separate",
    rows=3,
    k=2,
    local=2,
    length=12,
    epochs=2,
    owner_rows=2,
)
_FUSED = Scenario(transport="symmetric", launches="fused", rows=2, k=2, local=2, length=6, epochs=2, contract="set")
# A row that fills the CTA is loaded right behind the acquires; for a shorter one all threads meet once more.
_FULL = replace(_FUSED, rows=1, local=128, length=512, epochs=1, kind="random", data_points=False)

_BARRIER = r"^\s*bar\.sync\s+0;$"
_RELEASE = r"(@%\w+) atom\.global\.sys\.release\.exch\.b64 (%\w+), (\[.*?\]), (%\w+);"
_ACQUIRE = r"(@%\w+) ld\.global\.sys\.acquire\.b64 (%\w+), (\[.*?\]);"
_VOTE = r"barrier\.cta\.red\.or\.pred any, 0, vote;"
_ROWS = r"(@%\w+) (st\.global\.b64 [^;]*;)"


@dataclass(frozen=True, kw_only=True)
class Substitution:
    """One replacement in a PTX text.

    Attributes:
        old: Regular expression, of which ``^`` and ``$`` match at lines.
        new: Replacement, with groups as in ``re.sub``.
    """

    old: str
    new: str


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
    """

    name: str
    kernel: str
    rule: str
    edits: tuple[Substitution, ...]
    scenario: Scenario = field(default=_SMALL)
    sound: bool = False
    schedules: tuple[str, ...] = ("default", "random:0", "random:1")

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


def _replace(old: str, new: str) -> Substitution:
    return Substitution(old=old, new=new)


def _weaken(
    kernel: str, scenario: Scenario, operation: str, order: str, *, spelling: str = "{scope}.{order}"
) -> list[LoweringMutant]:
    """Return mutants of one operation: relaxed, and with narrower scopes.

    Args:
        kernel: The kernel.
        scenario: Where it matters.
        operation: What it is for, in a name.
        order: ``release`` or ``acquire``.
        spelling: How the compiler writes scope and order.
    """
    old = re.escape(spelling.format(scope="sys", order=order))
    rules = {
        ("sys", "relaxed"): f"the {operation} is a {order}",
        ("gpu", order): f"the {operation} reaches the threads of other devices",
        ("cta", order): f"the {operation} reaches other CTAs",
    }
    return [
        LoweringMutant(
            name=f"{operation}-{'relaxed' if kind == 'relaxed' else scope}",
            kernel=kernel,
            rule=rule,
            edits=(_replace(rf"\.{old}\b", "." + spelling.format(scope=scope, order=kind)),),
            scenario=scenario,
        )
        for (scope, kind), rule in rules.items()
    ]


_EXCHANGE = [
    *_weaken("publish", _SMALL, "publish", "release"),
    *_weaken("wait", _SMALL, "wait", "acquire"),
    *_weaken("complete", _ACKNOWLEDGED, "acknowledge", "release"),
    *_weaken("wait_writable", _ACKNOWLEDGED, "wait-writable", "acquire"),
    *_weaken("publish_returned", _OWNERS, "return", "release"),
    *_weaken("wait_returned", _OWNERS, "wait-returned", "acquire"),
    LoweringMutant(
        name="publish-by-plain-store",
        kernel="publish",
        rule="a flag is written by a strong store",
        edits=(_replace(_RELEASE, r"\1 st.global.b64 \3, \4;"),),
    ),
    LoweringMutant(
        name="wait-by-plain-load",
        kernel="wait",
        rule="a flag is polled by strong loads",
        edits=(_replace(_ACQUIRE, r"\1 ld.global.b64 \2, \3;"),),
    ),
    LoweringMutant(
        name="wait-by-volatile-load",
        kernel="wait",
        rule="a volatile load acquires nothing",
        edits=(_replace(_ACQUIRE, r"\1 ld.volatile.global.b64 \2, \3;"),),
    ),
    LoweringMutant(
        name="rows-after-flag",
        kernel="publish",
        rule="the number of rows is stored before the flag is released",
        edits=(_replace(rf"(?s){_ROWS}(.*?){_RELEASE}", r"\3\4 atom.global.sys.release.exch.b64 \5, \6, \7;\n\1 \2"),),
    ),
    LoweringMutant(
        name="publish-without-barriers",
        kernel="publish",
        rule="where all threads store, they meet before one of them releases",
        edits=(_replace(_ROWS, r"\2"), _replace(_BARRIER, "")),
    ),
    LoweringMutant(
        name="wait-without-barriers",
        kernel="wait",
        rule="all threads meet behind the acquire of one of them",
        edits=(_replace(_BARRIER, ""),),
    ),
    LoweringMutant(
        name="complete-without-barriers",
        kernel="complete",
        rule="every thread has read the counter before one of them advances it",
        edits=(_replace(_BARRIER, ""),),
    ),
    LoweringMutant(
        name="fence-at-gpu-scope",
        kernel="publish",
        rule="the fence in front of a relaxed flag reaches the threads of other devices",
        edits=(_replace(_RELEASE, r"\1 fence.acq_rel.gpu;\n\1 atom.global.sys.relaxed.exch.b64 \2, \3, \4;"),),
    ),
    LoweringMutant(
        name="fence-behind-flag",
        kernel="publish",
        rule="the fence stands in front of the flag",
        edits=(_replace(_RELEASE, r"\1 atom.global.sys.relaxed.exch.b64 \2, \3, \4;\n\1 fence.acq_rel.sys;"),),
    ),
    LoweringMutant(
        name="fence-before-data",
        kernel="publish",
        rule="the fence stands behind the data",
        edits=(
            _replace(_ROWS, r"fence.acq_rel.sys;\n\1 \2"),
            _replace(_RELEASE, r"\1 atom.global.sys.relaxed.exch.b64 \2, \3, \4;"),
        ),
    ),
    LoweringMutant(
        name="poll-without-fence",
        kernel="wait",
        rule="a fence stands behind relaxed polls",
        edits=(_replace(_ACQUIRE, r"\1 atom.global.sys.relaxed.add.u64 \2, \3, 0;"),),
    ),
    LoweringMutant(
        name="ids-not-packed",
        kernel="pack",
        rule="every word that is pushed was written",
        edits=(_replace(r"@%\w+ st\.global\.b32 \[ (%\w+) \+ 0 \], \{ %\w+ \};(?![\s\S]*?st\.global\.b32)", ""),),
    ),
    LoweringMutant(
        name="push-beyond-the-inbox",
        kernel="push",
        rule="stores stay within the memory of the peer",
        edits=(_replace(r"(st\.global\.b32 \[ %\w+) \+ 0 \]", r"\1 + 1073741824 ]"),),
    ),
]

_FUSED_MERGE = [
    *_weaken("merge", _FUSED, "fused-publish", "release", spelling="{order}.{scope}"),
    *_weaken("merge", _FUSED, "fused-wait", "acquire", spelling="{order}.{scope}"),
    LoweringMutant(
        name="fused-publish-without-barrier",
        kernel="merge",
        rule="all threads have sent their candidates before one of them releases the row",
        edits=(_replace(rf"\A([\s\S]*?){_VOTE}", r"\1mov.pred any, vote;"),),
        scenario=_FUSED,
    ),
    LoweringMutant(
        name="fused-wait-without-barrier",
        kernel="merge",
        rule="all threads meet behind the acquires of some of them",
        edits=(_replace(rf"(ld\.acquire\.sys[\s\S]*?){_VOTE}", r"\1mov.pred any, vote;"),),
        scenario=_FULL,
    ),
    LoweringMutant(
        name="fused-rows-after-flag",
        kernel="merge",
        rule="the number of rows is stored before the flag is released",
        edits=(_replace(rf"{_ROWS}([\s\S]*?)(st\.release\.sys[^;]*;)", r"\3\4\n\1 \2"),),
        scenario=_FUSED,
    ),
    LoweringMutant(
        name="fused-completion-relaxed",
        kernel="merge",
        rule="the last CTA to finish knows that the others have read the epoch that it advances",
        edits=(_replace(r"atom\.acq_rel\.gpu\.", "atom.relaxed.gpu."),),
        scenario=_FUSED,
    ),
]

_VARIANTS = [
    LoweringMutant(
        name="release-by-store",
        kernel="publish",
        rule="a store may release as well as an exchange",
        edits=(_replace(_RELEASE, r"\1 st.release.sys.global.b64 \3, \4;"),),
        sound=True,
    ),
    LoweringMutant(
        name="release-by-fence",
        kernel="publish",
        rule="a fence and a relaxed exchange are a release pattern",
        edits=(_replace(_RELEASE, r"\1 fence.acq_rel.sys;\n\1 atom.global.sys.relaxed.exch.b64 \2, \3, \4;"),),
        sound=True,
    ),
    LoweringMutant(
        name="acquire-by-atomic",
        kernel="wait",
        rule="an atomic that adds 0 acquires as well as a load; Triton before 3.6 polls so",
        edits=(_replace(_ACQUIRE, r"\1 atom.global.sys.acquire.add.u64 \2, \3, 0;"),),
        sound=True,
    ),
    LoweringMutant(
        name="acquire-by-fence",
        kernel="wait",
        rule="a relaxed load and a fence are an acquire pattern",
        edits=(_replace(_ACQUIRE, r"\1 ld.relaxed.sys.global.b64 \2, \3;\n\1 fence.acq_rel.sys;"),),
        sound=True,
    ),
    LoweringMutant(
        name="rows-stored-by-all-threads",
        kernel="publish",
        rule="all threads may store one value, since they meet before the release",
        edits=(_replace(_ROWS, r"\2"),),
        sound=True,
    ),
    LoweringMutant(
        name="barrier-of-the-warp",
        kernel="wait|publish|complete",
        rule="in a CTA of one warp a barrier of the warp orders memory as well",
        edits=(_replace(_BARRIER, "bar.warp.sync -1;"),),
        sound=True,
    ),
]

LOWERING_MUTANTS: dict[str, LoweringMutant] = {
    mutant.name: mutant for mutant in (*_EXCHANGE, *_FUSED_MERGE, *_VARIANTS)
}
"""Mutants and variants by name."""
