"""Addresses of state spaces: generic windows, and shared memory of the CTAs of a cluster.

An address in ``shared::cluster`` is the number of the CTA in its cluster plus
one, in the bits from 24 on, and the offset in that CTA's shared memory; an
offset alone is the executing CTA's own (PTX ISA, "State Spaces: Shared State
Space").  A generic address of shared or local memory lies in a window where no
process has memory; all others are generic addresses as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .form import UnknownInstructionError
from .memory import Addresses, Array
from .module import Instruction, Kernel

if TYPE_CHECKING:
    from .executor_cta import Cta

SHARED_WINDOW = 1 << 56
LOCAL_WINDOW = 1 << 57
CTA_SHIFT = 24
_OFFSETS = (1 << CTA_SHIFT) - 1

WindowOperation = Callable[..., Array]


def split_cluster(cta: Cta, addresses: Addresses) -> tuple[Addresses, Addresses]:
    """Return the number in its cluster of the CTA that each shared address belongs to, and the offset there."""
    owners = (addresses >> CTA_SHIFT) - 1
    return np.where(owners < 0, cta.cluster_rank, owners), addresses & _OFFSETS


def make_window_operation(instruction: Instruction, kernel: Kernel) -> WindowOperation:
    """Return what cvta, isspacep, mapa or getctarank computes of the CTA and its operands.

    Raises:
        UnknownInstructionError: The form is not known.
    """
    words = instruction.modifiers
    result = "uint32" if words[-1] in ("u32", "b32") else "uint64"
    shared = any(word.startswith("shared") for word in words)
    if instruction.opcode == "getctarank":
        return lambda cta, address: split_cluster(cta, _integers(address))[0].astype("uint32")
    if instruction.opcode == "mapa":
        return _make_mapa(shared, result)
    space = "shared" if shared else next((word.split("::")[0] for word in words if word in _SPACES), "")
    if not space:
        raise UnknownInstructionError(
            f"instruction of line {instruction.line} of kernel {kernel.name}",
            value=instruction.name, limit="its state space is not known",
        )  # fmt: skip
    if instruction.opcode == "isspacep":
        return _make_test(space, "shared::cta" in words or "shared" in words)
    return _from_generic(space, result) if "to" in words else _to_generic(space, result)


_SPACES = ("global", "local", "const", "param")


def _integers(address: Any) -> Addresses:
    return np.asarray(address).astype(np.int64)


def _make_mapa(shared: bool, result: str) -> WindowOperation:
    window = 0 if shared else SHARED_WINDOW

    def evaluate(cta: Cta, address: Any, number: Any) -> Array:
        offsets = _integers(address) & _OFFSETS
        return ((_integers(number) + 1 << CTA_SHIFT) + offsets + window).astype(result)

    return evaluate


def _to_generic(space: str, result: str) -> WindowOperation:
    def evaluate(cta: Cta, address: Any) -> Array:
        if space == "shared":
            owners, offsets = split_cluster(cta, _integers(address))
            return (SHARED_WINDOW + (owners + 1 << CTA_SHIFT) + offsets).astype(result)
        return (_integers(address) + (LOCAL_WINDOW if space == "local" else 0)).astype(result)

    return evaluate


def _from_generic(space: str, result: str) -> WindowOperation:
    def evaluate(cta: Cta, address: Any) -> Array:
        if space == "shared":
            owners, offsets = split_cluster(cta, _integers(address) - SHARED_WINDOW)
            elsewhere = np.where(owners == cta.cluster_rank, 0, owners + 1 << CTA_SHIFT)
            return (elsewhere + offsets).astype(result)
        return (_integers(address) - (LOCAL_WINDOW if space == "local" else 0)).astype(result)

    return evaluate


def _make_test(space: str, own: bool) -> WindowOperation:
    def evaluate(cta: Cta, address: Any) -> Array:
        generic = _integers(address)
        local, shared = generic >= LOCAL_WINDOW, (generic >= SHARED_WINDOW) & (generic < LOCAL_WINDOW)
        if space == "local":
            return local
        if space == "shared":
            return shared & (split_cluster(cta, generic - SHARED_WINDOW)[0] == cta.cluster_rank) if own else shared
        parameters = (generic >= cta.launch.parameters.base) & (generic < cta.launch.parameters.end)
        return parameters if space.startswith("param") else ~(local | shared | parameters)

    return evaluate
