"""Arguments against the parameters of a kernel: their number, kinds and ranges, and the bytes that are passed."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tiebreak.errors import InputError
from tiebreak.sim.ptx.memory_global import GlobalMemory
from tiebreak.sim.ptx.module import Kernel, Parameter

from .arguments import Argument, Placed

_FLOATS = {"f16": "e", "f32": "f", "f64": "d"}
POINTER_BYTES = 8


def check_arguments(kernel: Kernel, arguments: Sequence[object]) -> None:
    """See that there is an argument for each parameter.

    Raises:
        InputError: There is not.
    """
    if len(arguments) != len(kernel.parameters):
        takes = ", ".join(f"{parameter.name} ({parameter.kind})" for parameter in kernel.parameters)
        raise InputError(
            f"number of arguments of {kernel.name}", value=len(arguments), limit=f"it takes {takes or 'none'}"
        )


def pack_argument(parameter: Parameter, argument: Argument) -> int:
    """The bits that a parameter gets.

    Raises:
        InputError: The argument does not fit the parameter's kind.
    """
    bits = 8 * parameter.size
    if isinstance(argument, Placed):
        if parameter.size != POINTER_BYTES:
            raise _reject(parameter, argument.array.shape, "is no pointer")
        return argument.address
    if parameter.kind in _FLOATS and isinstance(argument, int | float):
        return int.from_bytes(struct.pack("<" + _FLOATS[parameter.kind], float(argument)), "little")
    if not isinstance(argument, int):
        raise _reject(parameter, argument, "is no float")
    if not -(1 << bits - 1) <= argument < 1 << bits:
        raise _reject(parameter, argument, f"has {bits} bits")
    return argument % (1 << bits)


def _reject(parameter: Parameter, value: object, reason: str) -> InputError:
    return InputError(f"argument {parameter.name}", value=value, limit=f"the parameter, .{parameter.kind}, {reason}")


def register_argument(memory: GlobalMemory, argument: Argument, name: str) -> None:
    """Make an argument's memory known, and the memory that a table of addresses leads to."""
    if not isinstance(argument, Placed):
        return
    memory.register(argument.array, name=name, initialised=argument.initialised)
    for number, other in enumerate(argument.addressed):
        register_argument(memory, other, f"{name}[{number}]")
