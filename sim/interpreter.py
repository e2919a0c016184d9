"""Hooks into the Triton interpreter: memory operations become scheduling points.

Under ``TRITON_INTERPRET=1`` Triton runs kernels as Python, one program after
another, with every memory operation going through a method of its builder.
While a session is open these methods report to the machine first, a launch
puts its grid on a simulated stream instead of running it, and ``torch.empty``
returns poisoned memory.  Kernels and host code stay as they are.

Names and signatures of the builder differ between Triton versions; the hooks
take what they need by position and pass the rest through, and operations that
a version lacks are left out.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from tiebreak.errors import MissingBackendError

from .agent import Program
from .device import Launch
from .machine import Machine
from .memory import poison
from .operations import Handler, Operations

_session: list[Operations] = []


class _Language:
    """Stands in for a kernel whose globals name the whole language, so that all of it is patched."""

    __globals__: ClassVar[dict[str, Any]] = {"tl": tl, "core": tl.core}


def active() -> Operations | None:
    """Return the operations of the open session if a program or host of it is current."""
    return _session[-1] if _session and _session[-1].machine.current is not None else None


@contextlib.contextmanager
def open_session(machine: Machine, operations: Operations | None = None) -> Iterator[None]:
    """Route launches, memory operations and ``torch.empty`` of this process to ``machine``.

    Args:
        machine: The machine.
        operations: Its operations, where they are not the plain ones.

    Raises:
        MissingBackendError: Kernels were decorated without ``TRITON_INTERPRET=1``, or
            the interpreter of this Triton does not work with this NumPy.
    """
    with open_operations(operations or Operations(machine)):
        machine.enter = _enter
        yield


@contextlib.contextmanager
def open_operations(operations: Operations) -> Iterator[None]:
    """Route launches, memory operations and ``torch.empty`` of this process to ``operations``.

    Raises:
        MissingBackendError: See ``open_session``.
    """
    if not isinstance(tl.sort, interpreter.InterpretedFunction):
        raise MissingBackendError(
            "the Triton interpreter",
            limit="simulated ranks need kernels that were decorated under TRITON_INTERPRET=1",
            remedy="set TRITON_INTERPRET=1 in the environment before triton is imported",
        )
    scope = interpreter._patch_lang(_Language)
    _require_numpy(scope)
    patches: list[tuple[Any, dict[str, Callable[..., Any]]]] = [
        (interpreter.InterpreterBuilder, _builder_hooks()),
        (interpreter.InterpretedFunction, {"run": _run}),
        (interpreter, {"_patch_lang": lambda fn: scope}),
        (torch, {"empty": _empty}),
    ]
    saved = [(owner, name, getattr(owner, name)) for owner, hooks in patches for name in hooks]
    for owner, hooks in patches:
        for name, hook in hooks.items():
            setattr(owner, name, hook)
    _session.append(operations)
    try:
        yield
    finally:
        _session.pop()
        for owner, name, original in saved:
            setattr(owner, name, original)
        scope.restore()


def _require_numpy(scope: Any) -> None:
    """See that a scalar of the patched language can be a Python integer.

    Triton 3.6 converts an array of one element there, which NumPy refuses since 2.4.
    """
    try:
        interpreter._implicit_cvt(1).__index__()
    except TypeError as error:
        scope.restore()
        raise MissingBackendError(
            "the interpreter of Triton",
            value=triton.__version__,
            limit=f"it does not work with NumPy {np.__version__}",
            remedy="install an older numpy (numpy<2.4) or a newer triton (triton>=3.9)",
        ) from error


def _enter(program: Program) -> None:
    """Make the interpreter's program index that of ``program``."""
    interpreter.interpreter_builder.set_grid_dim(*program.grid)
    interpreter.interpreter_builder.set_grid_idx(*program.index)


_HANDLERS: dict[str, Handler] = {
    "create_masked_load": lambda operations, perform, ptrs, mask, *_: operations.load(ptrs, mask, perform),
    "create_masked_store": lambda operations, perform, ptrs, value, mask, *_: operations.store(
        ptrs, mask, value, perform
    ),
    "create_atomic_rmw": lambda operations, perform, op, ptr, value, mask, sem, scope: operations.rmw(
        _name(op), ptr, value, mask, _name(sem), _name(scope), perform
    ),
    "create_atomic_cas": lambda operations, perform, ptr, compare, value, sem, scope: operations.cas(
        ptr, compare, _name(sem), _name(scope), perform
    ),
    "create_atomic_load": lambda operations, perform, ptr, mask, sem, scope: operations.atomic_load(
        ptr, mask, _name(sem), _name(scope)
    ),
    "create_atomic_store": lambda operations, perform, ptr, value, mask, sem, scope: operations.atomic_store(
        ptr, value, mask, _name(sem), _name(scope)
    ),
    "create_atomic_poll": lambda operations, perform, ptr, expected, timeout_ns, sem, scope: interpreter.TensorHandle(
        operations.atomic_poll(ptr, expected, timeout_ns is not None, _name(sem), _name(scope)), tl.int1
    ),
    "create_barrier": lambda operations, perform: operations.barrier(),
}
"""Memory operations of the builder; a Triton version may lack some."""


def _name(enum: Any) -> str:
    """Return the lower-case name of a member of one of Triton's enumerations."""
    return str(getattr(enum, "name", enum)).lower()


def _builder_hooks() -> dict[str, Callable[..., Any]]:
    """Return a replacement for each memory operation that this Triton's builder has."""
    builder = interpreter.InterpreterBuilder
    return {
        name: _hook(getattr(builder, name), handler) for name, handler in _HANDLERS.items() if hasattr(builder, name)
    }


def _hook(original: Callable[..., Any], handler: Handler) -> Callable[..., Any]:
    """Return a builder method that asks ``handler`` while a program runs, and ``original`` otherwise."""

    def hooked(self: Any, *arguments: Any) -> Any:
        operations = active()
        perform = functools.partial(original, self, *arguments)
        if operations is None or operations.machine.program is None:
            return perform()
        return operations.issue(handler, perform, arguments)

    return hooked


@functools.cache
def _parameter_names(kernel: Callable[..., Any]) -> frozenset[str]:
    """Names of what a kernel takes; options of the launch are not among them."""
    names = inspect.getfullargspec(kernel)
    return frozenset((*names.args, *names.kwonlyargs))


def _run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    """Put a launch on the current stream of the rank whose host is running."""
    operations = active()
    if warmup or operations is None:
        return
    kernel = self.rewrite()
    kwargs = {key: value for key, value in kwargs.items() if key in _parameter_names(kernel)}
    given = inspect.getcallargs(kernel, *args, **kwargs)
    constants = interpreter.GridExecutor(kernel, self.arg_names, grid).constexprs
    converted = {key: value if key in constants else interpreter._implicit_cvt(value) for key, value in given.items()}
    shape = tuple(grid(converted) if callable(grid) else grid)
    shape = shape + (1,) * (3 - len(shape))
    operations.adopt_arguments(given)

    def body() -> None:
        operations.run_program(kernel, converted, given)

    operations.launch(Launch(self.__name__, body, (int(shape[0]), int(shape[1]), int(shape[2])), given))


_torch_empty = torch.empty


def _empty(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Allocate memory that a kernel must write before it reads it."""
    tensor = _torch_empty(*args, **kwargs)
    operations = active()
    if operations is not None and operations.machine.program is None:
        tensor = operations.place(tensor)
        poison(tensor)
        operations.adopt_fresh(tensor)
    return tensor
