"""Compiles Triton kernels to PTX text, in a process that may also interpret them.

Whether a kernel is interpreted or compiled is decided when it is decorated, so
for a whole process (TRITON_INTERPRET).  A process that interprets kernels asks
a worker process, which imports the same module without that switch.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import ir, make_backend
from triton.runtime.jit import JITFunction

from tiebreak.errors import InputError, MissingBackendError, WorkerError


@dataclass(frozen=True)
class TritonSource:
    """A kernel with everything that its code depends on.

    Attributes:
        module: Importable name of the module that holds the kernel.
        function: Name of the kernel.
        types: Type of every argument in order, as Triton spells it (``*i64``, ``i32``), ``constexpr`` for constants.
        constants: Compile-time arguments by name, as pairs: integers, floats, booleans, strings or None.
        aligned: Places of arguments that are known to be multiples of 16.
        warps: Warps per CTA.
        architecture: Compute capability, such as 90.
    """

    module: str
    function: str
    types: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[int, ...]
    warps: int
    architecture: int


@dataclass(frozen=True)
class TritonCode:
    """A compiled kernel.

    Attributes:
        ptx: PTX text; its parameters are the arguments that are no constants, in order, and scratch pointers.
        shared_bytes: Dynamic shared memory of a CTA.
    """

    ptx: str
    shared_bytes: int


def compile_source(source: TritonSource) -> TritonCode:
    """Compile a kernel up to its PTX, without ptxas.

    Raises:
        MissingBackendError: This process interprets kernels.
        InputError: There is no such kernel.
    """
    kernel = getattr(_import(source.module), source.function, None)
    if kernel is None:
        raise InputError("kernel", value=f"{source.module}:{source.function}", limit="there is none of that name")
    if not isinstance(kernel, JITFunction):
        raise MissingBackendError(
            "the Triton compiler", limit="TRITON_INTERPRET is set", remedy="unset it before triton is imported"
        )
    return _lower(kernel, source)


def _import(name: str) -> Any:
    """Import a module; the package of a mutant exists in the process that asks, and is made here too."""
    from tiebreak.mutants.catalogue import MUTANTS
    from tiebreak.mutants.loader import load_mutated, package_of

    package = name.partition(".")[0]
    for mutant in MUTANTS.values():
        if package_of(mutant.name) == package:
            load_mutated(mutant.name, mutant.edits)
    return importlib.import_module(name)


def _lower(kernel: Any, source: TritonSource) -> TritonCode:
    """Run the stages of Triton's compiler that come before machine code."""
    signature = dict(zip(kernel.arg_names, source.types, strict=True))
    attributes = {(place,): [["tt.divisibility", 16]] for place in source.aligned}
    tree = ASTSource(kernel, signature, constexprs=dict(source.constants), attrs=attributes)
    target = GPUTarget("cuda", source.architecture, 32)
    backend = make_backend(target)
    options = backend.parse_options({"num_warps": source.warps})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, tree.language)
    metadata = {"target": target, **options.__dict__}
    generators = backend.get_codegen_implementation(options)
    module = tree.make_ir(target, options, generators, backend.get_module_map(), context)
    for name, stage in stages.items():
        module = stage(module, metadata)
        if name == "ptx":
            break
    return TritonCode(str(module), int(metadata["shared"]))


class _Worker:
    """A process that compiles; it is started at the first request and ends with this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def compile(self, source: TritonSource) -> TritonCode:
        """Have one kernel compiled.

        Raises:
            WorkerError: The compiler refused the kernel, or the process died.
        """
        if self._process is None or self._process.poll() is not None:
            self._process = _start()
        given, taken = self._process.stdin, self._process.stdout
        assert given is not None and taken is not None
        given.write(json.dumps(asdict(source)) + "\n")
        given.flush()
        answer = json.loads(taken.readline() or '{"error": "the process died"}')
        if "error" in answer:
            raise WorkerError(f"compilation of {source.module}:{source.function}", limit=answer["error"])
        return TritonCode(**answer)

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


def _start() -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tiebreak.ptx.triton_compiler"],
        # The default of contraction changes between Triton releases; the generated code must not.
        env={**kept, "TRITON_DEFAULT_FP_FUSION": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


_worker = _Worker()
atexit.register(_worker.close)


@cache
def obtain_code(source: TritonSource) -> TritonCode:
    """Return the PTX of a kernel, compiled once per process by a worker.

    Raises:
        WorkerError: The compiler refused the kernel, or the worker died.
    """
    return _worker.compile(source)


def main() -> None:
    """Serve requests, one line each, until the input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    # Whatever the compiler prints must not stand between two answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        request = json.loads(line)
        request |= {name: tuple(request[name]) for name in ("types", "aligned")}
        request["constants"] = tuple(tuple(pair) for pair in request["constants"])
        try:
            answer = asdict(compile_source(TritonSource(**request)))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
