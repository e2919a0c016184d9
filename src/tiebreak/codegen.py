"""Compiles every kernel to PTX and machine code, without a GPU.

``python -m tiebreak.codegen`` prints what each kernel costs on each
architecture; ``--ptx DIR`` keeps the PTX.  Triton kernels must be decorated
for compilation, so the environment variable TRITON_INTERPRET must not be set.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import triton
from rich.console import Console
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from .console import open_console
from .errors import InputError, MissingBackendError, TiebreakError
from .impl import kernels_exchange, kernels_localise, kernels_owner, kernels_select, kernels_state
from .impl.kernel_binary import KernelBinary, compile_kernel, describe_kernel
from .impl.kernel_recipes import list_representatives
from .impl.kernel_store import find_compiler
from .resources import tabulate_kernels

ARCHITECTURES = (90, 100, 121)
"""Compute capabilities: H200, B200, GB10."""

INTEGER, ADDRESSES = "i32", "*i64"
_FIXED = {"world_size": 8, "rank": 3, "interleave": 64, "local_candidates": 2048, "slots": 2}
_EXCHANGE = {"published_offset": 0, "rows_offset": 256, "acknowledged_offset": 512, "inbox_offset": 1024}
_RETURN = {"returned_offset": 768, "returned_ids_offset": 2**30}


@dataclass(frozen=True)
class Specimen:
    """One kernel with compile-time values.

    Attributes:
        name: Printed name.
        kernel: The decorated kernel.
        types: Types of the arguments that are not integers or compile-time values.
        values: Compile-time values.
        warps: Warps per CTA.
    """

    name: str
    kernel: Any
    types: dict[str, str]
    values: dict[str, Any]
    warps: int = 4


def specimens() -> Iterator[Specimen]:
    """Yield every kernel as the host code launches it, for 8 ranks and K = 2048."""
    state = {"state": ADDRESSES, "peer_addresses": ADDRESSES}
    yield Specimen(
        "initialise", kernels_state.initialise, {"state": ADDRESSES, "flags": ADDRESSES},
        {"state_words": 8, "flag_words": 128, "block": 128}, 1,
    )  # fmt: skip
    yield Specimen("clear", kernels_state.clear, {"words": ADDRESSES, "count": "i32"}, {"block": 1024})
    yield Specimen("wait_writable", kernels_exchange.wait_writable, {**state, "acknowledged": ADDRESSES}, {}, 1)
    pointers = {"scores": "*fp32", "local_indices": "*i32", "row_starts": "*i32", "destination": "*i32"}
    for starts in (False, True):
        name = "pack+row_starts" if starts else "pack"
        values = {**_FIXED, "has_row_starts": starts, "block": 1024}
        yield Specimen(name, kernels_exchange.pack, {**state, **pointers}, values)
    yield Specimen("push", kernels_exchange.push, {**state, "inbox": "*i32"}, {**_FIXED, **_EXCHANGE, "block": 1024})
    yield Specimen("publish", kernels_exchange.publish, state, {**_FIXED, **_EXCHANGE}, 1)
    flags = {"published": ADDRESSES, "published_rows": ADDRESSES}
    yield Specimen("wait", kernels_exchange.wait, {**state, **flags}, _FIXED, 1)
    for acknowledges in (False, True):
        name = "complete+acknowledge" if acknowledges else "complete"
        values = {**_FIXED, **_EXCHANGE, "acknowledges": acknowledges}
        yield Specimen(name, kernels_exchange.complete, state, values, 1)
    yield from _owner_specimens(state)
    for size, variant in ((512, ""), (512, "+peers"), (512, "+by_position"), (2048, "")):
        name, from_peers, by_position = f"select-{size}{variant}", variant == "+peers", variant == "+by_position"
        types = {**state, "candidates": ADDRESSES if from_peers else "*i32", "output": "*i32"}
        values = {"from_peers": from_peers, "slots": 1 if from_peers else 2, "has_state": not from_peers, "nan": 0}
        values |= {"zero": 0, "size": size, "stages": size.bit_length() - 1, "by_position": by_position}
        yield Specimen(name, kernels_select.select, types, values, 4 if size < 2048 else 8)
    for table in (False, True):
        name = "localise+table" if table else "localise"
        types = dict.fromkeys(("global_ids", "output", "counts", "block_table", "requests"), "*i32")
        values = {**_FIXED, "has_table": table, "has_requests": table, "tile": 1024}
        yield Specimen(name, kernels_localise.localise, types, values)


def _owner_specimens(state: dict[str, str]) -> Iterator[Specimen]:
    """Yield the kernels that an owner-sharded exchange has besides."""
    values = {**_FIXED, **_EXCHANGE, **_RETURN, "block": 1024}
    yield Specimen("push_to_owners", kernels_owner.push_to_owners, {**state, "packed": "*i32"}, values)
    yield Specimen("return_ids", kernels_owner.return_ids, {**state, "returned_ids": "*i32"}, values)
    yield Specimen("publish_returned", kernels_owner.publish_returned, state, values, 1)
    yield Specimen("wait_returned", kernels_owner.wait_returned, {**state, "returned": ADDRESSES}, {}, 1)
    types = {**state, "returned_ids": "*i32", "output": "*i32"}
    yield Specimen("collect", kernels_owner.collect, types, values)


def compile_specimen(specimen: Specimen, architecture: int) -> KernelBinary:
    """Compile one Triton kernel for one compute capability.

    Raises:
        MissingBackendError: The kernels were decorated for the interpreter.
    """
    kernel = specimen.kernel
    if not isinstance(kernel, JITFunction):
        raise MissingBackendError(
            "the Triton compiler", limit="TRITON_INTERPRET is set", remedy="unset it before triton is imported"
        )
    constants = {name: value for name, value in specimen.values.items() if name in kernel.arg_names}
    signature = {
        name: "constexpr" if name in constants else specimen.types.get(name, INTEGER) for name in kernel.arg_names
    }
    aligned = {
        (place,): [["tt.divisibility", 16]] for place, kind in enumerate(signature.values()) if kind.startswith("*")
    }
    compiled = triton.compile(
        ASTSource(kernel, signature, constexprs=constants, attrs=aligned),
        target=GPUTarget("cuda", architecture, 32),
        options={"num_warps": specimen.warps},
    )
    ptx, cubin = str(compiled.asm["ptx"]), bytes(compiled.asm["cubin"])
    return describe_kernel(specimen.name, f"sm_{architecture}", ptx, cubin, int(compiled.metadata.shared))


def compile_triton(architectures: Sequence[int]) -> Iterator[KernelBinary]:
    """Compile every Triton kernel for every compute capability."""
    for specimen in specimens():
        for architecture in architectures:
            yield compile_specimen(specimen, architecture)


def compile_cutedsl(architectures: Sequence[int]) -> Iterator[KernelBinary]:
    """Compile a CuTeDSL kernel of every shape for every compute capability, with its own instructions.

    Raises:
        MissingBackendError: CuTeDSL is not there; names the kernels.
    """
    recipes = [recipe for architecture in architectures for recipe in list_representatives(f"sm_{architecture}a")]
    if recipes and find_compiler() is None:
        names = ", ".join(dict.fromkeys(recipe.name for recipe in recipes))
        raise MissingBackendError(
            f"left out because CuTeDSL is not installed: {names}", remedy='pip install "nvidia-cutlass-dsl[cu13]"'
        )
    yield from map(compile_kernel, recipes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, print a table, and keep the PTX if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tiebreak.codegen", description="Compile every kernel, no GPU.")
    parser.add_argument("--architectures", default=",".join(map(str, ARCHITECTURES)), help="compute capabilities")
    parser.add_argument("--ptx", type=Path, help="folder for the PTX, one file per kernel and architecture")
    options = parser.parse_args(arguments)
    binaries: list[KernelBinary] = []
    failure = ""
    try:
        architectures = [_parse_architecture(text) for text in options.architectures.split(",")]
        for binary in chain(compile_triton(architectures), compile_cutedsl(architectures)):
            binaries.append(binary)
            if options.ptx is not None:
                options.ptx.mkdir(parents=True, exist_ok=True)
                Path(options.ptx, f"{binary.name}.{binary.architecture}.ptx").write_text(binary.ptx)
    except TiebreakError as error:
        failure = str(error)
    if binaries:
        open_console().print(tabulate_kernels(binaries))
    if failure:
        Console(stderr=True).print(f"error: {failure}", markup=False)
    return 2 if failure else 0


def _parse_architecture(text: str) -> int:
    """Return one compute capability, such as 90."""
    if not text.isdecimal() or int(text) < 90:
        raise InputError("architecture", value=text, limit="must be a compute capability of at least 90")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
