"""Executions that cannot go on: who waits where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from .executor_faults import make_actor
from .executor_groups import BARRIER, CONVERGENCE, Group
from .executor_registers import LANES
from .findings import Finding, FindingError, FindingKind
from .module import Instruction

if TYPE_CHECKING:
    from .executor_cta import Cta


def fail_blocked(ctas: Sequence[Cta]) -> NoReturn:
    """No thread can go on.

    Raises:
        FindingError: ``warp-mask`` where lanes wait for others at a warp instruction, ``divergent-barrier`` where they
            do at a barrier that whole warps reach together, ``barrier-not-reached`` where threads wait at a barrier.
    """
    waiting = _list_groups(ctas)
    for state in (CONVERGENCE, BARRIER):
        at = next((group.instruction for _, group in waiting if group.state == state), None)
        if at is not None:
            _fail(_name_wait(state, at), waiting, "waits", _count_exited(ctas))
    raise AssertionError("threads are left, and none of them waits")


def _name_wait(state: str, instruction: Instruction) -> FindingKind:
    if state == BARRIER:
        return "barrier-not-reached"
    return "divergent-barrier" if _is_barrier(instruction) else "warp-mask"


def fail_spinning(ctas: Sequence[Cta], turns: int) -> NoReturn:
    """Every thread polls, and nothing changes what they poll.

    Raises:
        FindingError: ``deadlock``.
    """
    missing = f"nothing changed what they read in {turns} turns; {_count_exited(ctas)}"
    _fail("deadlock", _list_groups(ctas), "polls", missing)


def fail_budget(ctas: Sequence[Cta], steps: int) -> NoReturn:
    """The bound of steps is reached.

    Raises:
        FindingError: ``budget``.
    """
    _fail("budget", _list_groups(ctas), "runs", f"more than {steps} steps; {_count_exited(ctas)}")


def _fail(kind: FindingKind, groups: Sequence[tuple[Cta, Group]], action: str, missing: str) -> NoReturn:
    actors = []
    for cta, group in groups:
        body = cta.launch.kernel.body
        instruction = group.instruction or body[min(group.place, len(body) - 1)]
        words = {BARRIER: "waits", CONVERGENCE: "waits for its warp"}.get(group.state, action)
        actors.append(make_actor(cta, instruction, int(group.threads[0]), words))
    place = "; ".join(_describe(cta, group) for cta, group in groups)
    raise FindingError(Finding(kind, tuple(actors), place, missing, groups[0][0].launch.replay))


def _describe(cta: Cta, group: Group) -> str:
    warps = sorted({int(thread) // LANES for thread in group.threads})
    body = cta.launch.kernel.body
    instruction = group.instruction or body[min(group.place, len(body) - 1)]
    which = f"warp {warps[0]}" if len(warps) == 1 else f"warps {warps[0]} to {warps[-1]}"
    return f"CTA {cta.position.cta}: {group.count} threads of {which} at line {instruction.line}"


def _list_groups(ctas: Sequence[Cta]) -> list[tuple[Cta, Group]]:
    return [(cta, group) for cta in ctas for unit in cta.units for group in unit.groups]


def _count_exited(ctas: Sequence[Cta]) -> str:
    return ", ".join(
        f"{cta.position.threads - int(cta.alive.sum())} threads of CTA {cta.position.cta} exited" for cta in ctas
    )


def _is_barrier(instruction: Instruction) -> bool:
    return instruction.opcode in ("bar", "barrier") and "warp" not in instruction.modifiers
