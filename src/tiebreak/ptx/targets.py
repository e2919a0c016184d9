"""What can be launched: Triton kernels, CuTeDSL recipes, PTX files, and names of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from tiebreak.errors import InputError
from tiebreak.impl.kernel_binary import KernelRecipe

from .code import KernelCode, read_file
from .cutedsl import obtain_recipe_code
from .triton_arguments import bind
from .triton_compiler import TritonCode, TritonSource, compile_source, obtain_code

ARCHITECTURES = ("sm_90a", "sm_100a", "sm_121a")
"""Targets: H200, B200, GB10."""

_FORMS = "a .ptx file, or module:attribute of a Triton kernel, a KernelRecipe, or a function (architecture) of one"


def capability_of(architecture: str) -> int:
    """Compute capability of a target: 100 for ``sm_100a``.

    Raises:
        InputError: The target is unknown.
    """
    if architecture not in ARCHITECTURES:
        raise InputError("architecture", value=architecture, limit=f"targets are {', '.join(ARCHITECTURES)}")
    return int(architecture[3:-1])


def find_target(name: str, architecture: str, entry: str = "") -> Any:
    """The kernel that a text names: ``kernel.ptx``, or ``module:attribute``.

    Args:
        name: The text.
        architecture: Target, for a function that makes recipes.
        entry: Kernel of a file that has several.

    Raises:
        InputError: There is none.
    """
    if name.endswith(".ptx"):
        return read_file(Path(name), entry)
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError("kernel", value=name, limit=f"must be {_FORMS}")
    try:
        # As ``python -m`` would: a kernel of the current folder can be named.
        sys.path.insert(0, "")
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError("kernel", value=name, limit=str(error), remedy=f"name {_FORMS}") from error
    finally:
        sys.path.remove("")
    if callable(found) and not is_triton_kernel(found):
        return found(architecture)
    return found


def is_triton_kernel(target: Any) -> bool:
    """Tell whether a value is a kernel decorated with ``triton.jit``."""
    return isinstance(target, InterpretedFunction | JITFunction)


def compile_target(
    target: Any, arguments: Sequence[Any], named: Mapping[str, Any], architecture: str
) -> tuple[KernelCode, tuple[Any, ...], Mapping[str, Any]]:
    """The code of a target, its arguments at run time, one for each parameter, and all arguments by name.

    Args:
        target: Triton kernel, ``KernelRecipe`` or ``KernelCode``.
        arguments: Arguments by position.
        named: Arguments of a Triton kernel by name, constants and ``num_warps`` included.
        architecture: Target.

    Raises:
        InputError: The target or the architecture is none, or takes other arguments.
        MissingBackendError: CuTeDSL is not there.
        WorkerError: Triton refuses the kernel.
    """
    capability = capability_of(architecture)
    if is_triton_kernel(target):
        bound = bind(target, arguments, named, capability)
        compiled = _compile_triton(target, bound.source)
        code = KernelCode(compiled.ptx, f"{bound.source.function}.{architecture}", compiled.shared_bytes)
        # Triton appends pointers to scratch memory, which is not used where it is 0.
        scratch = len(code.kernel.parameters) - len(bound.arguments)
        return code, (*bound.arguments, *([0] * scratch)), bound.given
    if named:
        raise InputError("arguments by name", value=sorted(named), limit="only Triton kernels take them")
    if isinstance(target, KernelRecipe):
        return obtain_recipe_code(target), tuple(arguments), {}
    if not isinstance(target, KernelCode):
        raise InputError("kernel", value=target, limit=f"must be {_FORMS}")
    return target, tuple(arguments), {}


def _compile_triton(kernel: Any, source: TritonSource) -> TritonCode:
    """Compile here if this process decorates kernels for compilation, else in the worker, which imports them."""
    if isinstance(kernel, JITFunction):
        return compile_source(source)
    if source.module == "__main__":
        raise InputError(
            "module of the kernel",
            value=source.module,
            limit="a process that interprets kernels has another one compile them",
            remedy="put the kernel into a module of its own, or unset TRITON_INTERPRET",
        )
    return obtain_code(source)
