"""What the executor decides between runs of generated code: branches, exits, waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tiebreak.errors import InputError

from .executor_convergence import find_converged
from .executor_faults import fail
from .executor_groups import Group, Mask, Unit
from .module import Instruction, Register
from .program import find_targets

if TYPE_CHECKING:
    from .executor_cta import Cta


def decide(cta: Cta, unit: Unit, group: Group) -> None:
    """Perform the instruction that a group stands at if it is one that the executor performs itself."""
    compiled = cta.launch.compiled
    if group.place == len(compiled.kernel.body):
        leave(cta, unit, group)
        return
    instruction = compiled.kernel.body[group.place]
    perform = compiled.decisions[group.place]
    if perform is None:
        return
    if cta.taints:
        cta.taints.check_decision(group, instruction)
    cta.launch.count_decision(group.place, group.count)
    perform(cta, unit, group, instruction)


def find_decision(instruction: Instruction) -> Any:
    """Return what performs an instruction between runs of code, or None if code does."""
    if instruction.opcode in ("bar", "barrier"):
        return _meet
    return _DECISIONS.get(instruction.opcode)


def select(cta: Cta, unit: Unit, group: Group, instruction: Instruction, place: int) -> Group | None:
    """Return the threads of a group whose guard holds, or None; the others go to ``place``."""
    if instruction.guard is None:
        return group
    predicate: Mask = cta.file.array(instruction.guard.register)[group.low : group.high]
    holds = ~predicate if instruction.guard.negated else predicate
    if group.mask is not None:
        holds = holds & group.mask
    count = int(np.count_nonzero(holds))
    if count == group.count:
        return group
    if count == 0:
        group.place = place
        return None
    part = np.zeros(len(group.active), bool)
    part[group.low : group.high] = holds
    chosen, _ = unit.split(group, part, group.place, place)
    return chosen


def leave(cta: Cta, unit: Unit, group: Group) -> None:
    """Let threads exit."""
    cta.alive = cta.alive & ~group.active
    unit.remove(group)
    cta.cluster_barrier.complete(group.threads)


def _branch(cta: Cta, unit: Unit, group: Group, instruction: Instruction) -> None:
    chosen = select(cta, unit, group, instruction, group.place + 1)
    if chosen is not None:
        _jump(cta, unit, chosen, find_targets(cta.launch.kernel, instruction)[0], instruction)


def _jump(cta: Cta, unit: Unit, group: Group, target: int, instruction: Instruction) -> None:
    group.place = target
    if target <= instruction.index and group.polled:
        # Going back after a strong access is polling: whoever may change what it polls goes first.
        group.polled = False
        group.patience += 1
        unit.seen = cta.launch.version


def _branch_indexed(cta: Cta, unit: Unit, group: Group, instruction: Instruction) -> None:
    chosen = select(cta, unit, group, instruction, group.place + 1)
    if chosen is None:
        return
    register = instruction.operands[0]
    assert isinstance(register, Register)
    targets = find_targets(cta.launch.kernel, instruction)
    values = cta.file.array(register.name)
    while chosen is not None:
        value = int(values[chosen.threads[0]])
        if value >= len(targets):
            place = f"index {value} of {len(targets)} targets"
            fail(cta, "out-of-bounds", instruction, chosen.threads[:1], "branches", place, "no such target")
        same = chosen.active & (values == value)
        following = None
        if np.count_nonzero(same) < chosen.count:
            chosen, following = unit.split(chosen, same, chosen.place, chosen.place)
        _jump(cta, unit, chosen, targets[value], instruction)
        chosen = following


def _exit(cta: Cta, unit: Unit, group: Group, instruction: Instruction) -> None:
    chosen = select(cta, unit, group, instruction, group.place + 1)
    if chosen is not None:
        leave(cta, unit, chosen)


def _trap(cta: Cta, unit: Unit, group: Group, instruction: Instruction) -> None:
    chosen = select(cta, unit, group, instruction, group.place + 1)
    if chosen is not None:
        fail(cta, "trap", instruction, chosen.threads[:1], "traps", "the kernel", "it ended itself")


def _sleep(cta: Cta, unit: Unit, group: Group, instruction: Instruction) -> None:
    group.polled = True
    group.place += 1


def _skip(cta: Cta, unit: Unit, group: Group, instruction: Instruction) -> None:
    group.place += 1


def _call(cta: Cta, unit: Unit, group: Group, instruction: Instruction) -> None:
    raise InputError(
        f"instruction of line {instruction.line} of kernel {cta.launch.kernel.name}", value=instruction.name,
        limit="calls of functions are not executed", remedy="compile the kernel so that they are inlined",
    )  # fmt: skip


def _meet(cta: Cta, unit: Unit, group: Group, instruction: Instruction) -> None:
    """Barriers of a warp, of a CTA and of a cluster."""
    chosen = select(cta, unit, group, instruction, group.place + 1)
    if chosen is None:
        return
    words = instruction.modifiers
    aligned = instruction.opcode == "bar" or "aligned" in words
    if aligned and "cluster" not in words:
        chosen = find_converged(cta, unit, chosen, instruction)
        if chosen is None:
            return
    if "warp" in words:
        cta.barriers.meet_warps(chosen, instruction)
    elif "cluster" in words:
        cta.cluster_barrier.meet(cta, chosen, instruction)
    else:
        cta.barriers.meet(unit, chosen, instruction)


_DECISIONS = {
    "bra": _branch, "brx": _branch_indexed, "ret": _exit, "exit": _exit, "trap": _trap, "nanosleep": _sleep,
    "brkpt": _skip, "call": _call,
}  # fmt: skip
