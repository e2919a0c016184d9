"""The control flow of a kernel: basic blocks, their successors, and where diverged threads meet again.

Threads of a warp that part at a branch meet again at its immediate
post-dominator, the first block that every path from the branch to the exit
goes through (Fung et al., "Dynamic Warp Formation and Scheduling for Efficient
GPU Control Flow", MICRO 2007, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import networkx as nx

from tiebreak.errors import PtxSyntaxError

from .module import Instruction, Kernel, Symbol

_LEAVING = ("ret", "exit", "trap")


@dataclass(frozen=True)
class Block:
    """Instructions that run one after the other.

    Attributes:
        start: Place of the first instruction in ``Kernel.body``.
        stop: Place after the last one.
        successors: Blocks that may follow, by number; the number of blocks stands for the exit.  After a guarded
            branch the target comes first, then what follows in the text.  ``brx.idx`` has its targets in list order.
        reconvergence: Immediate post-dominator; the exit for a block from which no path leads there.
    """

    start: int
    stop: int
    successors: tuple[int, ...]
    reconvergence: int


@dataclass(frozen=True)
class Program:
    """A kernel and its control flow.

    Attributes:
        kernel: The kernel.
        blocks: Basic blocks in the order of the text.
        block_at: Number of the block that starts at a place in ``Kernel.body``.
    """

    kernel: Kernel
    blocks: tuple[Block, ...]
    block_at: dict[int, int]

    @property
    def exit(self) -> int:
        """Number that stands for the exit among blocks."""
        return len(self.blocks)


def find_program(kernel: Kernel) -> Program:
    """Control flow of a kernel, kept for kernels that were asked for before.

    Raises:
        PtxSyntaxError: A branch names no label, or the text ends without ``ret``, ``exit`` or a branch.
    """
    return _find_program(KernelIdentity(kernel))


class KernelIdentity:
    """A kernel compared by identity: its dictionaries have no hash."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __hash__(self) -> int:
        return id(self.kernel)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelIdentity) and other.kernel is self.kernel


@lru_cache(maxsize=128)
def _find_program(identity: KernelIdentity) -> Program:
    kernel = identity.kernel
    bounds = _find_bounds(kernel)
    ranges = list(pairwise([*bounds, len(kernel.body)]))
    block_at = {start: number for number, start in enumerate(bounds)}
    block_at[len(kernel.body)] = len(bounds)
    successors = [_find_successors(kernel, stop, block_at) for _, stop in ranges]
    meeting = _find_reconvergence(successors)
    blocks = tuple(
        Block(start, stop, following, meeting[number])
        for number, ((start, stop), following) in enumerate(zip(ranges, successors, strict=True))
    )
    return Program(kernel, blocks, block_at)


def find_targets(kernel: Kernel, instruction: Instruction) -> tuple[int, ...]:
    """Places in ``kernel.body`` that a ``bra`` or ``brx`` may go to; empty for another instruction.

    Raises:
        PtxSyntaxError: It names no label of the kernel.
    """
    if instruction.opcode not in ("bra", "brx"):
        return ()
    operand = instruction.operands[-1] if instruction.operands else None
    name = operand.name if isinstance(operand, Symbol) else ""
    labels = kernel.targets.get(name, ()) if instruction.opcode == "brx" else (name,)
    if not labels or any(label not in kernel.labels for label in labels):
        raise PtxSyntaxError(
            f"target of {instruction.name}", value=name, limit=f"a label of {kernel.name} (line {instruction.line})"
        )
    return tuple(kernel.labels[label] for label in labels)


def _find_bounds(kernel: Kernel) -> list[int]:
    """Where blocks start: at targets of branches and after what may leave; debugging labels start none."""
    bounds = {0}
    for instruction in kernel.body:
        targets = find_targets(kernel, instruction)
        bounds.update(targets)
        if targets or instruction.opcode in _LEAVING:
            bounds.add(instruction.index + 1)
    return sorted(bounds - {len(kernel.body)}) if kernel.body else []


def _find_successors(kernel: Kernel, stop: int, block_at: dict[int, int]) -> tuple[int, ...]:
    last = kernel.body[stop - 1]
    leaves = last.opcode in _LEAVING
    following = [block_at[place] for place in find_targets(kernel, last)] + ([len(block_at) - 1] if leaves else [])
    if last.guard is not None or not following:
        if stop == len(kernel.body):
            raise PtxSyntaxError(f"end of {kernel.name}", value=last.name, limit="ret, exit or an unguarded branch")
        following.append(block_at[stop])
    return tuple(dict.fromkeys(following)) if last.opcode != "brx" else tuple(following)


def _find_reconvergence(successors: list[tuple[int, ...]]) -> list[int]:
    leave = len(successors)
    backwards = nx.DiGraph()
    backwards.add_node(leave)
    backwards.add_edges_from((after, number) for number, following in enumerate(successors) for after in following)
    dominators = nx.immediate_dominators(backwards, leave)
    return [dominators.get(number, leave) for number in range(leave)]
