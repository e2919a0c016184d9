"""Kernels without one of their instructions."""

from __future__ import annotations

from dataclasses import replace

from tiebreak.errors import InputError

from .module import Immediate, Instruction, Kernel


def remove_instruction(kernel: Kernel, place: int) -> Kernel:
    """Return a kernel without the instruction at a place of its body.

    Of a test of a barrier object the answer remains, which is that the phase has completed.

    Raises:
        InputError: There is no such place.
    """
    if not 0 <= place < len(kernel.body):
        raise InputError("place", value=place, limit=f"{kernel.name} has {len(kernel.body)} instructions")
    instruction = kernel.body[place]
    if {"test_wait", "try_wait"} & set(instruction.modifiers):
        body = (*kernel.body[:place], _answer(instruction), *kernel.body[place + 1 :])
        return replace(kernel, body=body)
    rest = kernel.body[:place] + kernel.body[place + 1 :]
    body = tuple(replace(instruction, index=index) for index, instruction in enumerate(rest))
    labels = {name: at - (at > place) for name, at in kernel.labels.items()}
    return replace(kernel, body=body, labels=labels)


def _answer(test: Instruction) -> Instruction:
    """Return what writes that a test succeeded."""
    zero = Immediate("0", 0)
    return replace(test, opcode="setp", modifiers=("eq", "u32"), operands=(test.operands[0], zero, zero))
