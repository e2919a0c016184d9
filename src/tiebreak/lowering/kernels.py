"""The kernels whose lowering is audited, and the compilers that lower them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version

import triton

from tiebreak.codegen import ADDRESSES, ARCHITECTURES, INTEGER, Specimen, specimens
from tiebreak.errors import MissingBackendError
from tiebreak.impl.kernel_binary import COMPILER_REMEDY, compile_kernel
from tiebreak.impl.kernel_recipes import list_representatives
from tiebreak.impl.kernel_store import find_compiler
from tiebreak.ptx.triton_compiler import TritonSource, obtain_code
from tiebreak.sim.ptx.module import Kernel
from tiebreak.sim.ptx.parser import parse

from . import probes

CUTEDSL, CUTEDSL_PACKAGE = "cutedsl", "nvidia-cutlass-dsl"
PROBE = "probe "
"""Prefix of the names of probes."""

_PROBE_WARPS = (1, 4)
_FLAGLESS = ("select", "localise")
"""First part of the names of kernels without atomics; they take most of the time to compile."""


def triton_version() -> str:
    """Return the compiler of this process as the manifest names it: ``triton-3.9``."""
    return "triton-" + ".".join(triton.__version__.split(".")[:2])


def cutedsl_version() -> str:
    """Return the CuTeDSL of this machine as the manifest names it: ``cutedsl-4.8.1``.

    Raises:
        MissingBackendError: It is not installed.
    """
    if find_compiler() is None:
        raise MissingBackendError("CuTeDSL, whose lowering is to be audited", remedy=COMPILER_REMEDY)
    return f"{CUTEDSL}-{version(CUTEDSL_PACKAGE)}"


def lower_triton() -> Iterator[tuple[str, str, Kernel]]:
    """Yield name, target and code of every Triton kernel with flag operations, and of the probes."""
    for specimen in (*_probe_specimens(), *specimens()):
        if specimen.name.startswith(_FLAGLESS):
            continue
        for architecture in ARCHITECTURES:
            module = parse(obtain_code(describe_source(specimen, architecture)).ptx, specimen.name)
            (kernel,) = module.kernels.values()
            yield specimen.name, module.target, kernel


def lower_cutedsl() -> Iterator[tuple[str, str, Kernel]]:
    """Yield name, target and code of the CuTeDSL merges in one launch, one per contract.

    Raises:
        MissingBackendError: CuTeDSL is not installed.
    """
    for architecture in ARCHITECTURES:
        for recipe in list_representatives(f"sm_{architecture}a"):
            contract = re.search(r"^merge-.*\bcontract=(\w+)", recipe.name)
            if contract is not None:
                module = parse(compile_kernel(recipe).ptx, recipe.name)
                (kernel,) = module.kernels.values()
                yield f"merge, contract {contract[1]}", module.target, kernel


def describe_source(specimen: Specimen, architecture: int) -> TritonSource:
    """Return what the compiler needs to know of a specimen: every pointer is aligned, as torch allocates."""
    names, function = specimen.kernel.arg_names, specimen.kernel.fn
    constants = {name: value for name, value in specimen.values.items() if name in names}
    types = tuple("constexpr" if name in constants else specimen.types.get(name, INTEGER) for name in names)
    aligned = tuple(place for place, kind in enumerate(types) if kind.startswith("*"))
    return TritonSource(
        function.__module__,
        function.__name__,
        types,
        tuple(constants.items()),
        aligned,
        specimen.warps,
        architecture,
    )


def _probe_specimens() -> Iterator[Specimen]:
    """Yield the probes, as programs of one warp and of several."""
    types = {"data": "*i32", "flag": ADDRESSES, "output": "*i32"}
    for kernel in (probes.release, probes.acquire, probes.use):
        for warps in _PROBE_WARPS:
            name = f"{PROBE}{kernel.fn.__name__}, warps {warps}"
            yield Specimen(name, kernel, types, {"block": 128}, warps)
