"""CuTeDSL kernels as modules of the PTX machine, with the Python lines of their instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tiebreak.impl.kernel_binary import KernelRecipe
from tiebreak.impl.kernel_store import obtain_kernel
from tiebreak.impl.selector import selector_recipe
from tiebreak.impl.specialization import SelectorSpecialization

from . import call_paths
from .code import KernelCode

LINES = "+lines"
"""What the name of a kernel with line information ends in; it is compiled apart from the one that GPUs run."""


@dataclass(frozen=True)
class _Compilation:
    """What a recipe returns, with the line table written out."""

    __ptx__: str
    __cubin__: bytes


def obtain_selector_code(specialization: SelectorSpecialization, architecture: str) -> KernelCode:
    """The PTX of a selector, from the cache or compiled.

    Args:
        specialization: The selector.
        architecture: Target, such as ``sm_100a``.

    Raises:
        MissingBackendError: It is not compiled, and CuTeDSL is not there.
    """
    return obtain_recipe_code(selector_recipe(specialization, architecture))


def obtain_recipe_code(recipe: KernelRecipe) -> KernelCode:
    """The PTX of any CuTeDSL kernel, the very text that GPUs run; see ``obtain_selector_code``."""
    binary = obtain_kernel(recipe)
    return KernelCode(
        binary.ptx,
        f"{recipe.name}.{recipe.architecture}",
        binary.dynamic_shared_bytes,
        explain=lambda: _obtain_lined_code(recipe),
    )


def _obtain_lined_code(recipe: KernelRecipe) -> KernelCode:
    """The same kernel compiled with line information, which takes longer and is needed for findings only."""
    # What writes the lines is part of what the cached text is made from.
    sources = (*recipe.sources, Path(call_paths.__file__))
    binary = obtain_kernel(replace(recipe, name=recipe.name + LINES, sources=sources, build=_trace_lines(recipe)))
    return KernelCode(binary.ptx, f"{recipe.name}.{recipe.architecture}", binary.dynamic_shared_bytes)


def _trace_lines(recipe: KernelRecipe) -> Callable[[str], Any]:
    """How a recipe is built together with the paths of calls."""
    files = {str(path) for path in recipe.sources}

    def build(options: str) -> _Compilation:
        paths = call_paths.CallPaths(files.__contains__)
        with paths.record():
            compiled = recipe.build(f"{options} --generate-line-info")
        return _Compilation(paths.expand(str(compiled.__ptx__)), bytes(compiled.__cubin__))

    return build
