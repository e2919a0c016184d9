"""What a kernel of the zoo is, and how its PTX text is put together.

A body is written in PTX with registers that need no declaration: the first
letter of a register's name tells its type (``%p_`` pred, ``%h_`` b16, ``%r_``
b32, ``%d_`` b64).  Parameters stand in registers before the body starts, and so
do the numbers of the thread, its lane, its warp and its CTA, where the body
uses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tiebreak.errors import InputError

ARCHITECTURE = "sm_90a"
VERSION = "8.8"
"""PTX ISA version; the first that knows ``sm_121a``."""

Words: TypeAlias = npt.NDArray[np.uint32]
Arguments: TypeAlias = Mapping[str, npt.NDArray[Any] | int]
"""Value of each parameter by name: an array whose address is passed, or an integer."""

_TYPES = {"p": "pred", "h": "b16", "r": "b32", "d": "b64"}
_REGISTER = re.compile(r"%[phrd]_\w+")
_PROLOGUE = {
    "%r_thread": "mov.u32 %r_thread, %tid.x;",
    "%r_lane": "mov.u32 %r_lane, %laneid;",
    "%r_warp": "mov.u32 %r_warp, %tid.x; shr.u32 %r_warp, %r_warp, 5;",
    "%r_cta": "mov.u32 %r_cta, %ctaid.x;",
    "%r_rank": "mov.u32 %r_rank, %cluster_ctarank;",
}


class Edit(NamedTuple):
    """A replacement of text that occurs exactly once."""

    old: str
    new: str = ""


@dataclass(frozen=True)
class Trial:
    """One launch's arguments, and what it must write.

    Attributes:
        arguments: Value of each parameter by name.
        expected: Contents of arrays after the launch, by parameter.
        unordered: Parameters whose elements may stand in any order.
    """

    arguments: Arguments
    expected: Mapping[str, npt.NDArray[Any]]
    unordered: frozenset[str] = frozenset()

    def find_differences(self) -> list[str]:
        """Return the parameters whose arrays are not as expected."""
        return [name for name, wanted in self.expected.items() if not self._agrees(name, wanted)]

    def _agrees(self, name: str, wanted: npt.NDArray[Any]) -> bool:
        found = self.arguments[name]
        assert isinstance(found, np.ndarray)
        if name in self.unordered:
            return np.array_equal(np.sort(found), np.sort(wanted))
        return np.array_equal(found, wanted)


@dataclass(frozen=True, kw_only=True)
class SoundKernel:
    """A correct kernel.

    Attributes:
        name: Name on the command line.
        summary: What it does and what keeps it correct.
        parameters: Type of each parameter by name, in order: ``{"values": "u64", "count": "u32"}``.
        body: PTX, as the module's text says.
        trials: Makers of a launch's arguments by name; the first is the default.
        threads: Threads per CTA.
        grid: CTAs of the launch.
        cluster: CTAs per cluster.
    """

    name: str
    summary: str
    parameters: Mapping[str, str]
    body: str
    trials: Mapping[str, Callable[[], Trial]]
    threads: int = 64
    grid: int = 1
    cluster: int = 1


@dataclass(frozen=True, kw_only=True)
class BrokenKernel:
    """A correct kernel with one mistake.

    Attributes:
        name: Name on the command line.
        rule: The rule that it breaks.
        source: Where the same mistake was made in public.
        original: The correct kernel.
        edits: What makes the mistake, in the body of ``original``.
        findings: Kinds of findings of which one must be reported, at ``places``.
        places: Texts that each occur on exactly one line of the broken kernel; a finding must name all these lines.
        trial: Name of the trial that shows it.
        schedule: Order of the warps under which the output is wrong; empty where no order of warps makes it so.
    """

    name: str
    rule: str
    source: str
    original: SoundKernel
    edits: tuple[Edit, ...]
    findings: tuple[str, ...] = ("race",)
    places: tuple[str, ...]
    trial: str = ""
    schedule: str = ""
    body: str = field(init=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "body", apply_edits(self.original.body, self.edits, self.name))

    @property
    def make_trial(self) -> Callable[[], Trial]:
        """Maker of the arguments that show the mistake."""
        trials = self.original.trials
        return trials[self.trial or next(iter(trials))]


def draw_words(size: int, seed: int) -> Words:
    """Return words from 1 to 999: uint32[size]."""
    return np.random.default_rng(seed).integers(1, 1000, size, dtype=np.uint32)


def align_words(words: Words) -> Words:
    """Return a copy whose address is a multiple of 16 bytes."""
    buffer = np.empty(words.size + 4, np.uint32)
    aligned: Words = buffer[-buffer.ctypes.data % 16 // 4 :][: words.size]
    aligned[...] = words
    return aligned


def expect_output(expected: npt.NDArray[Any], *, unordered: bool = False, **arguments: npt.NDArray[Any] | int) -> Trial:
    """Return a launch whose last array, ``output``, holds zeros before it and ``expected`` after it."""
    given: Arguments = {**arguments, "output": np.zeros_like(expected)}
    return Trial(given, {"output": expected}, frozenset({"output"} if unordered else ()))


def apply_edits(text: str, edits: tuple[Edit, ...], what: str) -> str:
    """Return text with each edit applied.

    Raises:
        InputError: A text to replace does not occur exactly once.
    """
    for edit in edits:
        if text.count(edit.old) != 1:
            raise InputError(f"occurrences of {edit.old!r} in {what}", value=text.count(edit.old), limit="must be 1")
        text = text.replace(edit.old, edit.new)
    return text


def build_text(kernel: SoundKernel | BrokenKernel, architecture: str = ARCHITECTURE) -> str:
    """Return the PTX module that holds one kernel of the zoo."""
    return f".version {VERSION}\n.target {architecture}\n.address_size 64\n\n{build_entry(kernel)}"


def name_entry(kernel: SoundKernel | BrokenKernel) -> str:
    """Return the name of a kernel in its PTX text."""
    return kernel.name.replace("-", "_")


def build_entry(kernel: SoundKernel | BrokenKernel) -> str:
    """Return one kernel of the zoo without the directives of a module."""
    original = kernel.original if isinstance(kernel, BrokenKernel) else kernel
    body = "\n".join(line.rstrip() for line in kernel.body.strip("\n").splitlines())
    prologue = [text for register, text in _PROLOGUE.items() if re.search(rf"{register}\b", body)]
    for name, kind in original.parameters.items():
        prologue.append(f"ld.param.{kind} {_name_register(name, kind)}, [{name}];")
    parameters = ",\n".join(f"    .param .{kind} {name}" for name, kind in original.parameters.items())
    cluster = f".reqnctapercluster {original.cluster}, 1, 1\n" if original.cluster > 1 else ""
    return (
        f".visible .entry {name_entry(kernel)}(\n{parameters}\n)\n.reqntid {original.threads}, 1, 1\n{cluster}{{\n"
        f"{_declare_registers(' '.join([*prologue, body]))}"
        + "".join(f"    {line}\n" for line in prologue)
        + f"{body}\n    ret;\n}}\n"
    )


def find_line(text: str, place: str) -> int:
    """Return the number, from 1, of the one line of a text that contains ``place``.

    Raises:
        InputError: None does, or several do.
    """
    found = [number for number, line in enumerate(text.splitlines(), 1) if place in line]
    if len(found) != 1:
        raise InputError(f"lines with {place!r}", value=len(found), limit="must be 1")
    return found[0]


def _name_register(name: str, kind: str) -> str:
    return f"%{'d' if kind.endswith('64') else 'r'}_{name}"


def _declare_registers(text: str) -> str:
    names = sorted(set(_REGISTER.findall(text)))
    groups = {letter: [name for name in names if name[1] == letter] for letter in _TYPES}
    return "".join(f"    .reg .{_TYPES[letter]} {', '.join(group)};\n" for letter, group in groups.items() if group)
