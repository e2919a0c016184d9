"""Kernel parameters: their bytes, and loads from parameter space."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from tiebreak.errors import InputError

from .executor_access import Load
from .executor_groups import Group
from .executor_memory import Operands
from .memory_global import GlobalMemory
from .module import Kernel, Parameter

if TYPE_CHECKING:
    from .executor_cta import Cta


class LoadParameter(Load):
    """``ld.param``: one value for all threads where the address is that of a parameter."""

    def __call__(self, cta: Cta, group: Group, operands: Operands) -> None:
        """Read for the threads of a group that its guard lets through."""
        region, offset = cta.launch.parameters, operands.offset
        inside = region.base <= offset <= region.end - self.form.width
        if operands.base is not None or not inside or offset % self.form.width:
            super().__call__(cta, group, operands)
            return
        row = region.read(np.array([offset]), self._dtype, self.form.vector).reshape(-1)
        mask = operands.guard if operands.guard is not None else group.mask
        for target, value in zip(operands.targets, row, strict=True):
            if target is not None and mask is None:
                target[...] = value
            elif target is not None:
                np.copyto(target, value, where=mask)


def pack_parameters(kernel: Kernel, arguments: Sequence[Any], memory: GlobalMemory) -> npt.NDArray[np.uint8]:
    """Return the parameter space of a launch.

    Args:
        kernel: The kernel.
        arguments: One per parameter: tensors and arrays are passed as the address of their first element and
            registered as memory; ints, floats, and ctypes or NumPy scalars by value; ``bytes`` as they are.
        memory: Where tensors and arrays are registered.

    Raises:
        InputError: Their number is wrong, or one does not fit its parameter.
    """
    if len(arguments) != len(kernel.parameters):
        limit = f"{kernel.name} takes {len(kernel.parameters)}"
        raise InputError("number of arguments", value=len(arguments), limit=limit, remedy="pass one per parameter")
    size = max((parameter.offset + parameter.size for parameter in kernel.parameters), default=0)
    space = np.zeros(size + -size % 16, np.uint8)
    for parameter, argument in zip(kernel.parameters, arguments, strict=True):
        data = _encode(parameter, argument, memory)
        if len(data) != parameter.size:
            limit = f"it holds {parameter.size} bytes, and the argument has {len(data)}"
            raise InputError(f"argument for {parameter.name}", value=argument, limit=limit)
        space[parameter.offset : parameter.offset + parameter.size] = np.frombuffer(data, np.uint8)
    return space


def _encode(parameter: Parameter, argument: Any, memory: GlobalMemory) -> bytes:
    if isinstance(argument, torch.Tensor):
        memory.register(argument, name=parameter.name)
        return argument.data_ptr().to_bytes(8, "little")
    if isinstance(argument, np.ndarray):
        memory.register(argument, name=parameter.name)
        return int(argument.ctypes.data).to_bytes(8, "little")
    if isinstance(argument, bytes):
        return argument
    if isinstance(argument, np.generic):
        return argument.tobytes()
    if isinstance(argument, (ctypes._SimpleCData, ctypes.Structure)):
        return ctypes.string_at(ctypes.addressof(argument), ctypes.sizeof(argument))
    if isinstance(argument, float):
        return np.array(argument, f"float{8 * parameter.size}").tobytes()
    if isinstance(argument, int):
        if not -(1 << 8 * parameter.size - 1) <= argument < 1 << 8 * parameter.size:
            limit = f"an integer of {parameter.size} bytes"
            raise InputError(f"argument for {parameter.name}", value=argument, limit=limit)
        return (argument % (1 << 8 * parameter.size)).to_bytes(parameter.size, "little")
    raise InputError(
        f"argument for {parameter.name}", value=argument,
        limit="tensors, arrays, numbers, ctypes and NumPy scalars, and bytes can be passed",
    )  # fmt: skip
