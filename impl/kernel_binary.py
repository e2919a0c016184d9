"""A compiled CuTeDSL kernel: machine code, PTX, and what the kernel costs.

CuTeDSL compiles for any architecture on any machine; no GPU takes part.  The
kernel's parameters stand in the PTX in the order of the arguments of the
function under ``cute.kernel``, one ``.param`` each, unused ones included and
``Constexpr`` ones left out: ``.u64`` for ``cute.Pointer``, ``Int64`` and
``Uint64``, ``.u32`` for ``Int32`` and ``Uint32``, ``.f32`` for ``Float32``,
``.u8`` for ``Boolean``.  A launch passes them in the same order.  Grid, cluster
size and the amount of dynamic shared memory are not part of the machine code;
the number of threads is (``.reqntid``).
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import triton

from tiebreak.errors import InputError, MissingBackendError

COMPILER_REMEDY = (
    'pip install "nvidia-cutlass-dsl[cu13]"; or run "tiebreak build --arch ARCHITECTURE --out FOLDER" '
    "on a machine that may compile, and set TIEBREAK_KERNELS to the folder"
)
"""What to do where a kernel has to be compiled and cannot be."""

RESERVED_SHARED_BYTES = 1024
"""Shared memory that CUDA keeps per CTA; from sm_90 on cuobjdump counts it once a kernel uses any."""

SHARED_LIMIT = 101_376
"""Shared memory of a CTA on GB10, 99 KiB: the least among the targets."""

_ENTRY = re.compile(r"^\.visible \.entry (\w+)\(([^)]*)\)", re.MULTILINE)
_PARAMETER = re.compile(r"\.param \.([a-z]\d+)(?: \.ptr[ .\w]*)? \w+")
_FORMATS = {"8": "B", "16": "h", "32": "i", "64": "q"}
_FLOAT_FORMATS = {"f32": "f", "f64": "d"}


@dataclass(frozen=True)
class KernelRecipe:
    """How a CuTeDSL kernel is made.

    Attributes:
        name: Name of the specialisation, which says all that tells it from
            others: letters, digits and ``_.+=,-``.
        architecture: Target, such as ``sm_90a``.
        sources: Files that the kernel's code comes from.
        build: Takes the compiler's options and returns what
            ``cute.compile(..., options=options)`` returns, for a host function
            that launches one kernel; it imports ``cutlass`` itself.
        dynamic_shared_bytes: Shared memory that every launch adds, per CTA.
    """

    name: str
    architecture: str
    sources: tuple[Path, ...]
    build: Callable[[str], Any]
    dynamic_shared_bytes: int = 0


class Resources(NamedTuple):
    """What the kernel of a cubin takes.

    Attributes:
        registers: Registers per thread.
        static_shared_bytes: Shared memory that the kernel declares, per CTA.
        spilled_bytes: Local memory per thread, which spilled registers take.
    """

    registers: int
    static_shared_bytes: int
    spilled_bytes: int


@dataclass(frozen=True)
class KernelBinary:
    """One kernel compiled for one architecture.

    Attributes:
        name: Name of the specialisation.
        architecture: Target, such as ``sm_90a``.
        entry: Name of the kernel in the machine code.
        cubin: Machine code, an ELF image.
        ptx: PTX text of the same compilation.
        registers: Registers per thread.
        static_shared_bytes: Shared memory that the kernel declares, per CTA.
        dynamic_shared_bytes: Shared memory that a launch adds, per CTA.
        spilled_bytes: Local memory per thread, which spilled registers take.
    """

    name: str
    architecture: str
    entry: str
    cubin: bytes
    ptx: str
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    spilled_bytes: int

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA, without what CUDA reserves."""
        return self.static_shared_bytes + self.dynamic_shared_bytes

    @cached_property
    def parameter_format(self) -> str:
        """Kernel parameters in order, as characters of ``struct``: ``q`` 64 bits, ``i`` 32 bits, ``f`` fp32."""
        return read_entry(self.ptx)[1]


def compile_kernel(recipe: KernelRecipe) -> KernelBinary:
    """Compile a CuTeDSL kernel without a GPU and without a file left behind.

    Raises:
        MissingBackendError: ``cutlass`` or ``cuobjdump`` is not there.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = f"--gpu-arch={recipe.architecture} --keep-ptx --keep-cubin --dump-dir={shlex.quote(folder)}"
        try:
            compiled = recipe.build(options)
        except ImportError as error:
            raise MissingBackendError(
                f"kernel {recipe.name} for {recipe.architecture} is not compiled, and CuTeDSL is not there",
                limit=str(error),
                remedy=COMPILER_REMEDY,
            ) from error
        ptx, cubin = str(compiled.__ptx__), bytes(compiled.__cubin__)
    return describe_kernel(recipe.name, recipe.architecture, ptx, cubin, recipe.dynamic_shared_bytes)


def describe_kernel(name: str, architecture: str, ptx: str, cubin: bytes, dynamic_shared_bytes: int) -> KernelBinary:
    """Return a kernel together with its entry and what it costs.

    Raises:
        InputError: The PTX has not exactly one kernel.
        MissingBackendError: ``cuobjdump`` is not there.
    """
    used = measure_resources(cubin)
    return KernelBinary(
        name=name,
        architecture=architecture,
        entry=read_entry(ptx)[0],
        cubin=cubin,
        ptx=ptx,
        registers=used.registers,
        static_shared_bytes=used.static_shared_bytes,
        dynamic_shared_bytes=dynamic_shared_bytes,
        spilled_bytes=used.spilled_bytes,
    )


def read_entry(ptx: str) -> tuple[str, str]:
    """Return the name of the one kernel in a PTX text, and its parameters as characters of ``struct``.

    Source: PTX ISA, section "Kernel Function Parameters".

    Raises:
        InputError: There is not exactly one kernel, or a parameter is an aggregate.
    """
    found = _ENTRY.findall(ptx)
    if len(found) != 1:
        names = ", ".join(name for name, _ in found)
        raise InputError("number of kernels in the PTX", value=len(found), limit=f"must be 1; found: {names or 'none'}")
    name, parameters = found[0]
    return name, "".join(_format_parameter(text.strip()) for text in parameters.split(",") if text.strip())


def _format_parameter(declaration: str) -> str:
    """Return the character for a kernel parameter; integers are signed, as PTX does not tell."""
    found = _PARAMETER.fullmatch(declaration)
    if found is None:
        raise InputError("kernel parameter", value=declaration, limit="must be a pointer or a scalar")
    return _FLOAT_FORMATS.get(found[1]) or _FORMATS[found[1][1:]]


def measure_resources(cubin: bytes) -> Resources:
    """Return what the one kernel in a cubin takes, as Triton's ``cuobjdump`` reports it.

    Raises:
        MissingBackendError: The installed Triton carries no ``cuobjdump``.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        command = [_find_cuobjdump(), "--dump-resource-usage", str(path)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", text)}
    static = max(0, found["SHARED"] - RESERVED_SHARED_BYTES)
    return Resources(found["REG"], static, found["STACK"] + found["LOCAL"])


def _find_cuobjdump() -> str:
    """Return the path of the ``cuobjdump`` that Triton carries."""
    try:
        path = str(triton.knobs.nvidia.cuobjdump.path)
    except (AttributeError, RuntimeError) as error:
        path, reason = "", str(error)
    else:
        reason = f"no file {path}"
    if not Path(path).is_file():
        raise MissingBackendError(
            "cuobjdump, which tells what a kernel costs, is not there",
            limit=reason,
            remedy="install Triton's wheel for Linux, which carries it, or set TRITON_CUOBJDUMP_PATH",
        )
    return path
