"""Fences in generated code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .executor_groups import Group, Mask
from .module import Instruction
from .observation import Scope

if TYPE_CHECKING:
    from .executor_cta import Cta

_SCOPES: dict[str, Scope] = {
    "cta": "cta", "cluster": "cluster", "gpu": "gpu", "sys": "sys", "gl": "gpu",
}  # fmt: skip


def make_fence(instruction: Instruction) -> Callable[[Cta, Group, Mask | None], None]:
    """Return what performs ``fence`` or ``membar``.

    ``membar`` is a sequentially consistent fence (PTX ISA, "membar/fence").  A
    fence without a scope, such as ``fence.proxy.async``, holds for the CTA.
    """
    words = instruction.modifiers
    scope: Scope = next((_SCOPES[word] for word in words if word in _SCOPES), "cta")
    order = next((word for word in ("sc", "acq_rel", "acquire", "release") if word in words), "acq_rel")
    if any(word.startswith("proxy") for word in words) or "mbarrier_init" in words:
        order = "proxy"
    elif instruction.opcode == "membar":
        order = "sc"

    def perform(cta: Cta, group: Group, guard: Mask | None) -> None:
        threads = group.threads
        if guard is not None:
            threads = guard.nonzero()[0] + group.low
        if not len(threads):
            return
        if cta.observer is not None:
            cta.observer.fence(cta.position, threads, instruction, order, scope)

    return perform
