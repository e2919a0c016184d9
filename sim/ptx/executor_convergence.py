"""Lanes that wait for each other at warp instructions (PTX ISA, "shfl.sync": all non-exited threads of the mask)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .executor_groups import CONVERGENCE, Group, Mask, Unit, lane_bits
from .executor_registers import LANES
from .memory import Array
from .module import Immediate, Instruction, Register

if TYPE_CHECKING:
    from .executor_cta import Cta

FULL = 0xFFFFFFFF


def find_converged(cta: Cta, unit: Unit, group: Group, instruction: Instruction) -> Group | None:
    """Return the threads of a group for which every lane they name is there; the others wait.

    Args:
        cta: The CTA.
        unit: Unit of the group.
        group: The group.
        instruction: What it stands at: a warp instruction, or a barrier that whole warps reach together.
    """
    if instruction.opcode == "activemask" or group.mask is None:
        return group
    # Lanes that came here earlier wait until the last one comes: this may be it.
    earlier = [other for other in unit.groups if other.state == CONVERGENCE and other.place == group.place]
    if earlier:
        group = unit.merge([*earlier, group])
    here = lane_bits(group.active)
    absent = lane_bits(cta.alive) & ~here
    if not (absent & -(here != 0).astype(np.uint32)).any():
        return group
    named = _read_members(cta, instruction)
    waiting: Mask = group.active & ((np.repeat(absent, LANES) & named) != 0)
    count = int(np.count_nonzero(waiting))
    if count == 0:
        return group
    if count == group.count:
        group.wait(CONVERGENCE, instruction)
        return None
    left, chosen = unit.split(group, waiting, group.place, group.place)
    left.wait(CONVERGENCE, instruction)
    return chosen


def _read_members(cta: Cta, instruction: Instruction) -> Array:
    """Member masks ``[threads]``, or one for all; barriers take whole warps."""
    operand = instruction.operands[-1] if instruction.operands else None
    if instruction.opcode in ("bar", "barrier") and "warp" not in instruction.modifiers:
        return np.array(FULL, np.uint32)
    if isinstance(operand, Immediate):
        return np.array(operand.bits & FULL, np.uint32)
    assert isinstance(operand, Register)
    return cta.file.array(operand.name)
