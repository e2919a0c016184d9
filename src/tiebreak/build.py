"""Compiles every CuTeDSL kernel into a folder, for machines that may not compile."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console

from .errors import InputError
from .impl.kernel_binary import compile_kernel
from .impl.kernel_files import write_kernel
from .impl.kernel_recipes import list_recipes
from .impl.kernel_store import KERNELS_VARIABLE, fingerprint_sources
from .resources import find_excesses, tabulate_kernels


def build_kernels(architectures: str, folder: Path, console: Console) -> int:
    """Compile, print what each kernel costs, and write all kernels unless one costs too much.

    Args:
        architectures: Targets, separated by commas: ``sm_90a,sm_121a``.
        folder: Where to write to; created if it is not there.
        console: Where to print.

    Returns:
        0, or 1 if a kernel spills too many registers or does not fit every target.

    Raises:
        InputError: A target is not known.
        MissingBackendError: CuTeDSL is not there.
        KernelFileError: The folder cannot be written to.
    """
    targets = [_check_architecture(text.strip()) for text in architectures.split(",")]
    recipes = [recipe for target in targets for recipe in list_recipes(target)]
    binaries = []
    for recipe in recipes:
        with console.status(f"compiling {recipe.name} for {recipe.architecture}"):
            binaries.append(compile_kernel(recipe))
    console.print(tabulate_kernels(binaries))
    excesses = list(find_excesses(binaries))
    for line in excesses:
        console.print(f"too costly: {line}", markup=False)
    if excesses:
        return 1
    for recipe, binary in zip(recipes, binaries, strict=True):
        write_kernel(folder, binary, fingerprint_sources(recipe.sources))
    console.print(f"{len(binaries)} kernels in {folder}; set {KERNELS_VARIABLE} to use them", markup=False)
    return 0


def _check_architecture(text: str) -> str:
    """Return a target that has all instructions that the kernels need."""
    found = re.fullmatch(r"sm_(\d+)a", text)
    if found is None or int(found[1]) < 90:
        raise InputError("architecture", value=text, limit="must be sm_90a or a later one with the suffix a")
    return text
