"""Host code of an implementation whose launches go to the PTX machine instead of a device.

The host code runs as it is, on CPU tensors: it chooses kernels, and passes
grids and arguments.  What it asks of CUDA is answered for the device that the
architecture stands for, and compiled kernels are stand-ins that hand their
launches over.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from triton.runtime.interpreter import InterpretedFunction

from .code import KernelCode
from .cutedsl import obtain_recipe_code
from .targets import capability_of, compile_target

MULTIPROCESSORS = {"sm_90a": 132, "sm_100a": 148, "sm_121a": 48}
"""Multiprocessors of H200, B200 and GB10, which the choice of a kernel depends on."""

CTA_SLOTS = 2048
"""Threads that a multiprocessor is taken to hold at once."""


@dataclass(frozen=True)
class Request:
    """A launch as host code asks for it.

    Attributes:
        code: What to run.
        grid: CTAs in x, y and z.
        block: Threads of a CTA.
        arguments: One for each parameter: tensors and numbers; CuTeDSL kernels get addresses as integers.
        cluster: CTAs of a cluster, along x.
    """

    code: KernelCode
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Any, ...]
    cluster: int = 1


Launch = Callable[[Request], None]


class RoutedKernel:
    """A CuTeDSL kernel that looks loaded to host code; see ``impl.driver.LoadedKernel``.

    Args:
        code: The kernel.
        route: Takes its launches.
    """

    def __init__(self, code: KernelCode, route: Launch) -> None:
        self.code = code
        self._route = route

    def launch(
        self,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[int | float],
        *,
        stream: int,
        cluster: int = 1,
        programmatic: bool = False,
    ) -> None:
        """Hand a launch over; launches of a stream run one after the other."""
        self._route(Request(self.code, grid, (threads, 1, 1), tuple(arguments), cluster))

    def count_ctas(self, threads: int) -> int:
        """CTAs that a multiprocessor is taken to hold."""
        return CTA_SLOTS // threads


@contextlib.contextmanager
def route_launches(package: str, architecture: str, launch: Launch) -> Iterator[None]:
    """Hand launches of an implementation's host code to ``launch`` while the context is open.

    Args:
        package: Package that holds the implementation.
        architecture: Target to compile for.
        launch: Takes each launch.

    Raises:
        InputError: The architecture is unknown.
    """
    capability_of(architecture)
    with contextlib.ExitStack() as stack:
        for owner, name, stand_in in (
            *_triton_patches(architecture, launch),
            *_cutedsl_patches(package, architecture, launch),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, stand_in)
        yield


def _triton_patches(architecture: str, launch: Launch) -> Iterator[tuple[Any, str, Any]]:
    def run(self: Any, *positional: Any, grid: Any, warmup: bool, **named: Any) -> None:
        if warmup:
            return
        code, arguments, given = compile_target(self, positional, named, architecture)
        x, y, z = (*(grid(given) if callable(grid) else grid), 1, 1)[:3]
        block = code.kernel.directives["reqntid"]
        launch(Request(code, (int(x), int(y), int(z)), (block[0], 1, 1), arguments))

    yield InterpretedFunction, "run", run


def _cutedsl_patches(package: str, architecture: str, launch: Launch) -> Iterator[tuple[Any, str, Any]]:
    select, selector, fused = (importlib.import_module(f"{package}.{name}") for name in ("select", "selector", "fused"))

    def obtain(recipe: Any) -> RoutedKernel:
        return RoutedKernel(obtain_recipe_code(recipe), launch)

    def count_rows(specialization: Any, index: int | None) -> int:
        return MULTIPROCESSORS[architecture] * CTA_SLOTS // int(specialization.threads)

    yield selector, "obtain_selector", lambda each, index: obtain(selector.selector_recipe(each, architecture))
    yield fused, "obtain_merge", lambda each, index: obtain(fused.merge_recipe(each, architecture))
    yield selector, "count_rows_at_once", count_rows
    for module in (selector, fused):
        yield module, "count_multiprocessors", lambda index: MULTIPROCESSORS[architecture]
    for module in (select, fused):
        yield module, "resolve_implementation", lambda asked, device: "cutedsl" if asked == "auto" else asked
    properties = SimpleNamespace(multi_processor_count=MULTIPROCESSORS[architecture], uuid=architecture)
    yield torch.cuda, "get_device_properties", lambda device: properties
    yield torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0)
