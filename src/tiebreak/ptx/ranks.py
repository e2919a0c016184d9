"""The host code of an implementation on simulated ranks whose kernels are compiled to PTX."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import partial

import torch

from tiebreak.errors import InputError
from tiebreak.sim.device import Launch
from tiebreak.sim.fabric import Session
from tiebreak.sim.interpreter import active, open_session
from tiebreak.sim.machine import Machine
from tiebreak.sim.ptx.ranks import RankDevices

from .arguments import place
from .code import KernelCode
from .parameters import check_arguments, pack_argument
from .routing import Request, route_launches

Edit = Callable[[str, str], str]
"""Takes the name of a kernel and its PTX, and returns the PTX to run."""


def keep_text(kernel: str, text: str) -> str:
    """Return the PTX as the compiler made it."""
    return text


def make_session(
    package: str,
    architecture: str,
    edit: Edit = keep_text,
    *,
    lines: bool = False,
    make_devices: Callable[[Machine], RankDevices] = RankDevices,
) -> Session:
    """Return what makes launches of an implementation's host code run compiled code on simulated ranks.

    Args:
        package: Package that holds the implementation.
        architecture: Target, such as ``sm_100a``.
        edit: Changes the code of kernels, to see whether a change is noticed.
        lines: Whether to compile kernels together with their source positions, where that takes longer.
        make_devices: Makes what runs the launches.

    Raises:
        InputError: The target is unknown.
    """

    @contextlib.contextmanager
    def session(machine: Machine) -> Iterator[None]:
        router = _Router(make_devices(machine), edit, lines)
        with open_session(machine), route_launches(package, architecture, router.enqueue):
            yield

    return session


def _shorten(entry: str) -> str:
    """Return the name of a kernel's function; CuTeDSL puts it between its own and the types of the arguments."""
    found = re.match(r"kernel_cutlass_([a-z_]+?)_", entry)
    return found[1] if found else entry


class _Router:
    """Puts launches on the stream of the rank whose host asks for them.

    Args:
        devices: The devices.
        edit: Changes the code of kernels.
        lines: Whether kernels come with their source positions.
    """

    def __init__(self, devices: RankDevices, edit: Edit, lines: bool) -> None:
        self._devices = devices
        self._lines = lines
        self._edit = edit
        self._codes: dict[str, KernelCode] = {}

    def enqueue(self, request: Request) -> None:
        """Put a launch on the current stream; its arguments are read now, as a captured graph freezes them.

        Raises:
            InputError: No host program is running, or the launch is one of clusters.
        """
        operations = active()
        if operations is None or request.cluster != 1:
            limit = "simulated ranks take launches of their hosts, without clusters"
            raise InputError("launch", value=request.code.name, limit=limit)
        code = self._obtain(request.code)
        kernel = code.kernel
        check_arguments(kernel, request.arguments)
        packed = [
            pack_argument(parameter, place(value, parameter.name))
            for parameter, value in zip(kernel.parameters, request.arguments, strict=True)
        ]
        names = (parameter.name for parameter in kernel.parameters)
        given = dict(zip(names, request.arguments, strict=True))
        operations.adopt_arguments({name: value for name, value in given.items() if isinstance(value, torch.Tensor)})
        body = partial(self._devices.run, kernel, code.module, request.block, packed, shared_bytes=code.shared_bytes)
        operations.launch(Launch(_shorten(kernel.name), body, request.grid, request.arguments))

    def _obtain(self, code: KernelCode) -> KernelCode:
        """Return the code to run, parsed once per session."""
        found = self._codes.get(code.text)
        if found is None:
            given = code.explain() if self._lines and code.explain is not None else code
            text = self._edit(_shorten(given.kernel.name), given.text)
            found = self._codes[code.text] = KernelCode(text, code.name, code.shared_bytes, code.entry)
        return found
