"""Arguments of a Triton launch: which are compile-time constants, which types and alignments the others have.

The rules are those of Triton's own launches (``triton/runtime/jit.py``,
``specialize_impl``): integers that equal 1 become constants, multiples of 16
are known as such, unless the kernel asks for no specialisation.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction, KernelParam

from tiebreak.errors import InputError

from .triton_compiler import TritonSource

CONSTANT = "constexpr"
ALIGNMENT = 16
_DTYPES = {
    torch.bool: "i1", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.uint16: "u16",
    torch.int32: "i32", torch.uint32: "u32", torch.int64: "i64", torch.uint64: "u64",
    torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64",
    torch.float8_e4m3fn: "fp8e4nv", torch.float8_e5m2: "fp8e5",
}  # fmt: skip


@dataclass(frozen=True)
class BoundLaunch:
    """A launch whose arguments are bound to parameters.

    Attributes:
        source: The kernel with what its code depends on.
        arguments: Run-time arguments in the order of the kernel's parameters: tensors and numbers.
        given: Every argument by name, constants included.
    """

    source: TritonSource
    arguments: tuple[Any, ...]
    given: Mapping[str, Any]


def bind(
    kernel: Any,
    positional: Sequence[Any],
    named: Mapping[str, Any],
    architecture: int,
    *,
    module: str = "",
    warps: int = 4,
) -> BoundLaunch:
    """Bind arguments as ``kernel[grid](*positional, **named)`` does.

    Args:
        kernel: A Triton kernel, decorated for the interpreter or for compilation.
        positional: Arguments by position: CPU tensors, NumPy arrays, numbers, None.
        named: Arguments by name; ``num_warps`` is among them if the launch states it.
        architecture: Compute capability.
        module: Importable name of the kernel's module, if it is another than the kernel says.
        warps: Warps per CTA if the launch does not state them.

    Raises:
        InputError: Not a Triton kernel, or arguments that it does not take.
    """
    if not isinstance(kernel, InterpretedFunction | JITFunction):
        raise InputError("kernel", value=kernel, limit="must be decorated with triton.jit")
    named = dict(named)
    warps = int(named.pop("num_warps", warps))
    parameters = _list_parameters(kernel)
    try:
        bound = inspect.signature(kernel.fn).bind(*positional, **named)
    except TypeError as error:
        raise InputError(f"arguments of {kernel.fn.__name__}", limit=str(error)) from error
    bound.apply_defaults()
    described = [_describe(parameter, bound.arguments[parameter.name]) for parameter in parameters]
    source = TritonSource(
        module=module or kernel.fn.__module__,
        function=kernel.fn.__name__,
        types=tuple(kind for kind, _ in described),
        constants=tuple(
            (parameter.name, bound.arguments[parameter.name])
            for parameter, (kind, _) in zip(parameters, described, strict=True)
            if kind == CONSTANT
        ),
        aligned=tuple(place for place, (_, aligned) in enumerate(described) if aligned),
        warps=warps,
        architecture=architecture,
    )
    values = [bound.arguments[parameter.name] for parameter in parameters]
    arguments = tuple(value for value, kind in zip(values, source.types, strict=True) if kind != CONSTANT)
    return BoundLaunch(source, arguments, dict(bound.arguments))


@cache
def _list_parameters(kernel: Any) -> list[Any]:
    """Parameters of a kernel, with what its decorator says about them."""
    options = kernel.kwargs if isinstance(kernel, InterpretedFunction) else vars(kernel)
    exempt, unaligned = (options.get(name) or () for name in ("do_not_specialize", "do_not_specialize_on_alignment"))
    return [
        KernelParam(
            place,
            parameter,
            place in exempt or parameter.name in exempt,
            place in unaligned or parameter.name in unaligned,
        )
        for place, parameter in enumerate(inspect.signature(kernel.fn).parameters.values())
    ]


def _describe(parameter: Any, value: Any) -> tuple[str, bool]:
    """Type of an argument, and whether it is known to be a multiple of 16."""
    if parameter.is_constexpr or value is None:
        return CONSTANT, False
    specialised = not parameter.do_not_specialize
    alignable = specialised and not parameter.do_not_specialize_on_alignment
    if isinstance(value, torch.Tensor):
        if value.dtype not in _DTYPES:
            raise InputError(f"dtype of {parameter.name}", value=value.dtype, limit="kernels have no such pointers")
        return f"*{_DTYPES[value.dtype]}", alignable and value.data_ptr() % ALIGNMENT == 0
    if isinstance(value, np.ndarray):
        return _describe(parameter, torch.from_numpy(value))
    if isinstance(value, bool | np.bool_):
        return "i1", False
    if isinstance(value, float | np.floating):
        return parameter.annotation_type or "fp32", False
    if not isinstance(value, int | np.integer):
        raise InputError(f"argument {parameter.name}", value=value, limit="must be a tensor, an array or a number")
    if parameter.annotation_type:
        return parameter.annotation_type, alignable and value % ALIGNMENT == 0
    if value == 1 and specialised:
        return CONSTANT, False
    kind = "i32" if -(2**31) <= value < 2**31 else "i64" if -(2**63) <= value < 2**63 else "u64"
    return kind, alignable and value % ALIGNMENT == 0
