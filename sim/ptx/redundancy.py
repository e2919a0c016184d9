"""Barriers that the text of a kernel proves to be redundant, whatever its input.

Without one barrier, only what threads do between the barriers before it and it
is no longer ordered with what they do between it and the barriers after it.  If
no access of the first kind conflicts with one of the second, on any path, the
barrier orders nothing.  Two accesses do not conflict if both are reads, if both
are atomic, if their state spaces differ, or if their addresses are known to lie
apart (``addresses``).

The proof knows barriers of the whole CTA only; what stands at or behind others
counts as not ordered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .access import resolve_access
from .addresses import Addresses, Place, lie_apart
from .module import Instruction, Kernel
from .program import Program, find_program
from .table import find_entry

READ, UPDATE, WRITE = "read", "update", "write"
_PLAIN = ("ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix", "prefetch", "prefetchu", "applypriority", "discard")
_OTHERS = ("memory", "atomic", "async", "barrier")
_WINDOWS = {"shared": "shared", "cluster": "shared", "global": "global", "generic": "generic"}


@dataclass(frozen=True)
class _Touch:
    """An access as far as the text tells.

    Attributes:
        kind: Whether it reads, writes, or updates atomically.
        space: State space.
        width: Bytes.
        place: Where it may go, or None if unknown.
    """

    kind: str
    space: str
    width: int = 0
    place: Place | None = None

    def conflicts_with(self, other: _Touch) -> bool:
        """Whether two threads could race at these accesses."""
        kinds = {self.kind, other.kind}
        if kinds == {READ} or (kinds == {UPDATE} and self.width == other.width):
            return False
        if self.space != other.space and "generic" not in (self.space, other.space):
            return False
        if self.place is None or other.place is None:
            return True
        return not lie_apart(self.place, self.width, other.place, other.width)


def prove_redundant(kernel: Kernel) -> dict[int, str]:
    """Return the barriers of CTAs that order nothing, by their place in the kernel, with the argument in words.

    Raises:
        UnknownInstructionError: The kernel has an instruction that is not in the table.
    """
    backwards, forwards = _find_steps(find_program(kernel))
    touches = _find_touches(kernel)
    proven = {}
    for instruction in kernel.body:
        if _is_barrier(instruction):
            place = instruction.index
            before, after = (_collect(kernel, touches, steps, place) for steps in (backwards, forwards))
            if not any(first.conflicts_with(second) for first in before for second in after):
                proven[place] = _argue(before, after)
    return proven


def _is_barrier(instruction: Instruction) -> bool:
    """Whether all threads of a CTA wait here."""
    waits = instruction.opcode in ("bar", "barrier") and not {"warp", "cluster", "arrive"} & set(instruction.modifiers)
    # A reduction has a destination and a predicate besides; a count of threads would be one more.
    operands = len(instruction.operands) - (2 if "red" in instruction.modifiers else 0)
    return waits and instruction.guard is None and operands <= 1


def _find_steps(program: Program) -> tuple[list[list[int]], list[list[int]]]:
    """Places that may come right before each place, and right after it."""
    count = len(program.kernel.body)
    backwards: list[list[int]] = [[] for _ in range(count)]
    forwards: list[list[int]] = [[] for _ in range(count)]
    for block in program.blocks:
        pairs = [(place, place + 1) for place in range(block.start, block.stop - 1)]
        leading = [program.blocks[number].start for number in block.successors if number < program.exit]
        for first, second in [*pairs, *((block.stop - 1, place) for place in leading)]:
            forwards[first].append(second)
            backwards[second].append(first)
    return backwards, forwards


def _collect(kernel: Kernel, touches: dict[int, _Touch], steps: list[list[int]], start: int) -> list[_Touch]:
    """Accesses that can be reached from a barrier without another barrier, one way."""
    seen: set[int] = set()
    pending = list(steps[start])
    while pending:
        place = pending.pop()
        if place not in seen and not _is_barrier(kernel.body[place]):
            seen.add(place)
            pending += steps[place]
    return [touches[place] for place in seen if place in touches]


def _find_touches(kernel: Kernel) -> dict[int, _Touch]:
    """Accesses of shared and global memory by place."""
    addresses = Addresses(kernel)
    touches = {}
    for instruction in kernel.body:
        if instruction.opcode in _PLAIN:
            form = resolve_access(instruction, kernel.name)
            if form.kind in (READ, WRITE, UPDATE) and form.space in _WINDOWS:
                space = _WINDOWS[form.space]
                touches[instruction.index] = _Touch(form.kind, space, form.width, addresses.find(instruction))
        elif _may_write(instruction, kernel):
            touches[instruction.index] = _Touch(WRITE, "generic")
    return touches


def _may_write(instruction: Instruction, kernel: Kernel) -> bool:
    """Whether an instruction that is no plain access may touch memory: copies and barrier objects, not barriers."""
    if instruction.opcode in ("bar", "barrier") or "prefetch" in instruction.modifiers:
        return False
    return find_entry(instruction, kernel.name).kind in _OTHERS


def _argue(before: Iterable[_Touch], after: Iterable[_Touch]) -> str:
    """The proof in words."""
    first, second = ({touch.kind for touch in side} for side in (before, after))
    if not first or not second:
        return f"no access lies between it and the barriers {'after' if first else 'before'} it"
    if first | second == {READ}:
        return "only reads lie between it and the barriers around it"
    return "what lies between it and the barriers around it never touches the same bytes, or is atomic on both sides"
