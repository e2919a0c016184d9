"""Which threads perform an instruction: guards and branches as expressions over thread numbers."""

from __future__ import annotations

import re
from collections import defaultdict

from .module import Address, Immediate, Instruction, Kernel, Operand, Pair, Register, Symbol, Vector
from .program import Program, find_program

_SIGNS = {"and": "&", "or": "|", "xor": "^", "add": "+", "sub": "-", "shl": "<<", "shr": ">>", "mul": "*"}
_RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_OPPOSITES = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_COPIES = ("mov", "cvt", "cvta")
_THREADS = ("tid.", "laneid", "warpid", "elect")
_OPAQUE = ("ld", "atom", "bar", "barrier", "vote", "shfl", "match", "redux")
_PARAMETER = re.compile(r".*_param_(\d+)$")
_DEPTH = 12

EVERY_THREAD = "every thread"
_DATA = "result of "


class Conditions:
    """The conditions of one kernel.

    Args:
        kernel: The kernel.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._program = find_program(kernel)
        self._definitions: dict[str, list[Instruction]] = defaultdict(list)
        for instruction in kernel.body:
            for register in _destinations(instruction):
                self._definitions[register].append(instruction)
        self._branches = _find_branches(self._program)

    def describe(self, instruction: Instruction) -> str:
        """Return what tells the threads that perform an instruction from others, or ``EVERY_THREAD``.

        Kept are conditions over thread numbers; others are the same for all threads of a CTA, or depend on data.
        """
        found: dict[str, None] = {}
        if instruction.guard is not None:
            found[self._state(instruction.guard.register, instruction.guard.negated)] = None
        self._collect(self._block_of(instruction.index), found, set())
        kept = [text for text in found if any(name in text for name in _THREADS)]
        return " and ".join(kept) or EVERY_THREAD

    def _collect(self, block: int, found: dict[str, None], seen: set[int]) -> None:
        """Add the conditions of the branches that decide whether a block runs."""
        if block in seen:
            return
        seen.add(block)
        for branch, taken in self._branches.get(block, ()):
            guard = self._kernel.body[self._program.blocks[branch].stop - 1].guard
            assert guard is not None
            found[self._state(guard.register, guard.negated is taken)] = None
            self._collect(branch, found, seen)

    def _block_of(self, place: int) -> int:
        return next(number for number, block in enumerate(self._program.blocks) if block.start <= place < block.stop)

    def _state(self, register: str, negated: bool) -> str:
        """Return a predicate or its opposite as an expression."""
        text = self._strip(self._express(Register(register), _DEPTH))
        if not negated:
            return text
        definitions = self._definitions.get(register, [])
        if len(definitions) == 1 and definitions[0].opcode == "not":
            return self._strip(self._express(definitions[0].operands[1], _DEPTH))
        if len(definitions) == 1 and definitions[0].opcode == "setp" and len(definitions[0].modifiers) == 2:
            relation = _relation(definitions[0])
            left, right = (self._express(operand, _DEPTH) for operand in definitions[0].operands[1:3])
            return f"{left} {_OPPOSITES.get(relation, f'not {relation}')} {right}"
        return f"not ({text})"

    @staticmethod
    def _strip(text: str) -> str:
        """Return an expression without the brackets around all of it."""
        return text[1:-1] if text.startswith("(") and text.endswith(")") else text

    def _express(self, operand: Operand, depth: int) -> str:
        """Return the value of an operand as an expression over special registers, parameters and constants."""
        if isinstance(operand, Immediate):
            return str(operand.bits)
        if isinstance(operand, Address):
            return self._express(operand.base, depth) + (f" + {operand.offset}" if operand.offset else "")
        if isinstance(operand, Symbol):
            return operand.name
        if not isinstance(operand, Register):
            return "?"
        if operand.name.startswith("!"):
            return f"not {self._express(Register(operand.name[1:]), depth)}"
        definitions = self._definitions.get(operand.name, [])
        if not definitions:
            return operand.name.removeprefix("%")
        if len(definitions) > 1 or depth == 0:
            return "?"
        return self._compute(definitions[0], depth - 1)

    def _compute(self, instruction: Instruction, depth: int) -> str:
        """Return what a value instruction computes as an expression."""
        sources = [self._express(operand, depth) for operand in instruction.operands[1:]]
        opcode = instruction.opcode
        if opcode in _COPIES and len(sources) == 1:
            return sources[0]
        if opcode == "ld" and "param" in instruction.modifiers:
            found = _PARAMETER.match(sources[0])
            return f"parameter {found[1]}" if found else sources[0]
        if opcode in _OPAQUE:
            return f"{_DATA}{instruction.name}"
        if opcode in _SIGNS and len(sources) == 2:
            return f"({sources[0]} {_SIGNS[opcode]} {sources[1]})"
        if opcode == "mad" and len(sources) == 3:
            return f"({sources[0]} * {sources[1]} + {sources[2]})"
        if opcode == "setp" and len(sources) == 2:
            return f"({sources[0]} {_relation(instruction)} {sources[1]})"
        return f"{opcode}({', '.join(sources)})"


def _relation(instruction: Instruction) -> str:
    name = instruction.modifiers[0]
    return _RELATIONS.get(name) or _UNSIGNED.get(name, name)


def _destinations(instruction: Instruction) -> list[str]:
    """Return the names of the registers that an instruction writes."""
    if instruction.opcode in ("st", "red", "bra", "fence", "membar") or not instruction.operands:
        return []
    first = instruction.operands[0]
    if isinstance(first, Pair):
        parts: tuple[Operand, ...] = (first.first, first.second)
    else:
        parts = first.elements if isinstance(first, Vector) else (first,)
    return [part.name for part in parts if isinstance(part, Register)]


def _find_branches(program: Program) -> dict[int, list[tuple[int, bool]]]:
    """Return, for each block, the branches that it depends on directly, and whether it lies on the taken side.

    A block depends on a branch if it post-dominates one successor of it but not the branch itself
    (Ferrante, Ottenstein and Warren, TOPLAS 1987, section 3.1).
    """
    found: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for number, block in enumerate(program.blocks):
        if len(block.successors) != 2 or program.kernel.body[block.stop - 1].guard is None:
            continue
        for side, successor in enumerate(block.successors):
            node = successor
            while node not in (block.reconvergence, program.exit):
                found[node].append((number, side == 0))
                node = program.blocks[node].reconvergence
    return found
