"""Which registers still matter at a place in a kernel: liveness, by backward data flow.

Registers are numbered, and a set of them is an integer with one bit per
register, which keeps kernels with thousands of registers cheap
(Aho, Lam, Sethi, Ullman, "Compilers", 2nd edition, section 9.2.5).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from .form import CARRY
from .module import Address, Coordinates, Instruction, Kernel, Operand, Pair, Register, Vector
from .program import Program

WITHOUT_DESTINATION = frozenset(
    (
        "st", "stmatrix", "red", "bra", "brx", "ret", "exit", "trap", "fence", "membar", "cp",
        "prefetch", "prefetchu", "nanosleep", "griddepcontrol", "discard", "applypriority", "brkpt",
        "pmevent", "setmaxnreg",
    )
)  # fmt: skip
"""Opcodes whose first operand is no destination."""


def list_registers(operand: Operand) -> Iterator[str]:
    """Names of the declared and special registers in an operand."""
    if isinstance(operand, Register):
        yield operand.name.removeprefix("!")
    elif isinstance(operand, Address):
        yield from list_registers(operand.base)
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from list_registers(element)
    elif isinstance(operand, Pair):
        yield from list_registers(operand.first)
        yield from list_registers(operand.second)
    elif isinstance(operand, Coordinates):
        yield from list_registers(operand.map)
        yield from list_registers(operand.elements)


def list_written(instruction: Instruction) -> list[str]:
    """Registers that an instruction writes, if its guard holds."""
    written = list(list_registers(instruction.operands[0])) if _has_destination(instruction) else []
    return [*written, CARRY.name] if "cc" in instruction.modifiers else written


def _has_destination(instruction: Instruction) -> bool:
    opcode, operands = instruction.opcode, instruction.operands
    if not operands or opcode in WITHOUT_DESTINATION:
        return False
    if opcode in ("bar", "barrier"):
        return "red" in instruction.modifiers
    # Of mbarrier instructions, those that give a state or a truth value have it before the address.
    return opcode != "mbarrier" or isinstance(operands[0], (Register, Pair))


def list_read(instruction: Instruction) -> list[str]:
    """Registers that an instruction reads."""
    first = 1 if _has_destination(instruction) else 0
    read = [name for operand in instruction.operands[first:] for name in list_registers(operand)]
    if instruction.guard is not None:
        read.append(instruction.guard.register)
    return [*read, CARRY.name] if instruction.opcode in ("addc", "subc", "madc") else read


class Liveness:
    """Live registers of a kernel.

    Args:
        program: The kernel and its control flow.

    Attributes:
        number: Number of each register.
    """

    def __init__(self, program: Program) -> None:
        self._kernel: Kernel = program.kernel
        self._program = program
        self.number: dict[str, int] = {}
        self._reads: list[int] = []
        self._kills: list[int] = []
        for instruction in self._kernel.body:
            self._reads.append(self._bits(list_read(instruction)))
            # A guarded write leaves the old value to some threads.
            self._kills.append(0 if instruction.guard is not None else self._bits(list_written(instruction)))
        self._after = self._solve()
        self._starts = [block.start for block in program.blocks]
        self._inside: dict[int, list[int]] = {}

    def live_before(self, place: int) -> int:
        """Return the registers whose values may still be read from ``place`` on."""
        if place >= len(self._kernel.body):
            return 0
        number = self._block_of(place)
        inside = self._inside.get(number)
        if inside is None:
            inside = self._inside[number] = self._find_inside(number)
        return inside[place - self._program.blocks[number].start]

    def _find_inside(self, number: int) -> list[int]:
        """Live registers before each instruction of a block."""
        block = self._program.blocks[number]
        live, found = self._after[number], []
        for position in range(block.stop - 1, block.start - 1, -1):
            live = live & ~self._kills[position] | self._reads[position]
            found.append(live)
        return found[::-1]

    def _block_of(self, place: int) -> int:
        return bisect_right(self._starts, place) - 1

    def _bits(self, names: list[str]) -> int:
        bits = 0
        for name in names:
            bits |= 1 << self.number.setdefault(name, len(self.number))
        return bits

    def _solve(self) -> list[int]:
        """Live registers after each block."""
        blocks = self._program.blocks
        summary = [self._summarise(block.start, block.stop) for block in blocks]
        before = [0] * (len(blocks) + 1)
        after = [0] * len(blocks)
        changed = True
        while changed:
            changed = False
            for number in range(len(blocks) - 1, -1, -1):
                live = 0
                for following in blocks[number].successors:
                    live |= before[following]
                reads, kills = summary[number]
                after[number] = live
                live = live & ~kills | reads
                if live != before[number]:
                    before[number] = live
                    changed = True
        return after

    def _summarise(self, start: int, stop: int) -> tuple[int, int]:
        reads = kills = 0
        for position in range(stop - 1, start - 1, -1):
            reads = reads & ~self._kills[position] | self._reads[position]
            kills |= self._kills[position]
        return reads, kills
