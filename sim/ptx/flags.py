"""Flag operations of a kernel: strong accesses to global memory and fences, and the barriers around them.

An access with an order synchronises one thread.  What it means for the other
threads of the CTA depends on the CTA barriers on the paths to it and from it
(PTX ISA, Memory Consistency Model, causality order), so these are found on
every path of the control flow, not in text order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .conditions import Conditions
from .module import Instruction, Kernel
from .program import Program, find_program

ORDERS = ("relaxed", "acquire", "release", "acq_rel", "volatile", "mmio")
SCOPES = ("cta", "cluster", "gpu", "sys")
_SPACES = ("shared", "local", "param", "const")


@dataclass(frozen=True)
class Surroundings:
    """What lies between a flag operation and the nearest CTA barriers, in one direction.

    Attributes:
        barriers: The nearest CTA barrier of every path, in text order.
        accesses: Plain accesses to global memory that a path meets first, in text order.
        open: Whether a path meets no barrier at all.
    """

    barriers: tuple[Instruction, ...]
    accesses: tuple[Instruction, ...]
    open: bool


@dataclass(frozen=True)
class FlagOperation:
    """One strong access to global memory, or one fence.

    Attributes:
        instruction: The instruction.
        order: Memory order; that of an atomic without one is ``relaxed``, that of a fence its own.
        scope: Scope; that of an atomic without one is ``gpu``.
        performed_by: Which threads perform it, see ``Conditions.describe``.
        before: Plain stores and barriers before it.
        after: Plain accesses and barriers behind it.
    """

    instruction: Instruction
    order: str
    scope: str
    performed_by: str
    before: Surroundings
    after: Surroundings

    @property
    def releases(self) -> bool:
        """Whether what was written before is visible to whoever observes it."""
        return self.order in ("release", "acq_rel", "sc")

    @property
    def acquires(self) -> bool:
        """Whether it makes visible what was released."""
        return self.order in ("acquire", "acq_rel", "sc")


def find_flag_operations(kernel: Kernel) -> list[FlagOperation]:
    """Return the flag operations of a kernel in text order."""
    conditions, flow = Conditions(kernel), _Flow(find_program(kernel))
    return [
        FlagOperation(
            instruction,
            _first(instruction.modifiers, (*ORDERS, "sc"), "relaxed"),
            _first(instruction.modifiers, SCOPES, "gpu"),
            conditions.describe(instruction),
            flow.look(instruction.index, flow.predecessors, is_plain_store),
            flow.look(instruction.index, flow.successors, is_plain_access),
        )
        for instruction in kernel.body
        if is_flag_operation(instruction)
    ]


def is_flag_operation(instruction: Instruction) -> bool:
    """Tell whether an instruction is a fence, or an access to global memory that is not weak."""
    if instruction.opcode in ("fence", "membar"):
        return True
    if instruction.opcode not in ("ld", "st", "atom", "red") or _is_elsewhere(instruction):
        return False
    return instruction.opcode in ("atom", "red") or any(part in ORDERS for part in instruction.modifiers)


def is_plain_access(instruction: Instruction) -> bool:
    """Tell whether an instruction is a weak access to global memory."""
    plain = instruction.opcode in ("ld", "st") and not any(part in ORDERS for part in instruction.modifiers)
    return plain and not _is_elsewhere(instruction)


def is_plain_store(instruction: Instruction) -> bool:
    """Tell whether an instruction is a weak store to global memory."""
    return instruction.opcode == "st" and is_plain_access(instruction)


def is_cta_barrier(instruction: Instruction) -> bool:
    """Tell whether an instruction makes all threads of the CTA wait for each other."""
    if instruction.opcode not in ("bar", "barrier"):
        return False
    return not {"warp", "cluster", "arrive"} & set(instruction.modifiers)


def _is_elsewhere(instruction: Instruction) -> bool:
    """Tell whether an access is to memory other than global memory; a generic address counts as global."""
    return any(part.partition("::")[0] in _SPACES for part in instruction.modifiers)


def _first(modifiers: tuple[str, ...], choices: tuple[str, ...], otherwise: str) -> str:
    return next((part for part in modifiers if part in choices), otherwise)


class _Flow:
    """The control flow of a kernel, instruction by instruction."""

    def __init__(self, program: Program) -> None:
        self._body = program.kernel.body
        self.successors: list[list[int]] = [[] for _ in self._body]
        self.predecessors: list[list[int]] = [[] for _ in self._body]
        for block in program.blocks:
            for place in range(block.start, block.stop - 1):
                self._connect(place, place + 1)
            for successor in block.successors:
                if successor != program.exit:
                    self._connect(block.stop - 1, program.blocks[successor].start)

    def _connect(self, here: int, there: int) -> None:
        self.successors[here].append(there)
        self.predecessors[there].append(here)

    def look(self, place: int, neighbours: list[list[int]], matters: Callable[[Instruction], bool]) -> Surroundings:
        """Return what lies on the paths from an instruction up to the nearest CTA barriers."""
        seen: set[int] = set()
        waiting = list(neighbours[place])
        barriers: set[int] = set()
        is_open = not waiting
        while waiting:
            here = waiting.pop()
            if here in seen:
                continue
            seen.add(here)
            if is_cta_barrier(self._body[here]):
                barriers.add(here)
                continue
            is_open |= not neighbours[here]
            waiting += neighbours[here]
        accesses = sorted(here for here in seen if matters(self._body[here]))
        return Surroundings(
            tuple(self._body[here] for here in sorted(barriers)), tuple(self._body[here] for here in accesses), is_open
        )
