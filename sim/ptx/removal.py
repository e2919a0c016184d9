"""Kernels without one of their instructions."""

from __future__ import annotations

from dataclasses import replace

from tiebreak.errors import InputError

from .module import Kernel


def remove_instruction(kernel: Kernel, place: int) -> Kernel:
    """Return a kernel without the instruction at a place of its body.

    Raises:
        InputError: There is no such place.
    """
    if not 0 <= place < len(kernel.body):
        raise InputError("place", value=place, limit=f"{kernel.name} has {len(kernel.body)} instructions")
    rest = kernel.body[:place] + kernel.body[place + 1 :]
    body = tuple(replace(instruction, index=index) for index, instruction in enumerate(rest))
    labels = {name: at - (at > place) for name, at in kernel.labels.items()}
    return replace(kernel, body=body, labels=labels)
