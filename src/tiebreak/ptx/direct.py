"""One rank whose launches run on the PTX machine at once, each held to be free of findings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from .arguments import Argument, Placed, place
from .launch import Prepared
from .routing import Request, route_launches

_torch_empty = torch.empty


class DirectRank:
    """A rank as host programs of a backend see it (``backends.host.RankFabric``), without peers.

    Args:
        package: Package that holds the implementation.
        architecture: Target to compile for.
        schedule: Order in which warps run.
    """

    def __init__(self, package: str, architecture: str, schedule: str = "lockstep") -> None:
        self.device = torch.device("cpu")
        self._package = package
        self._architecture = architecture
        self._schedule = schedule
        self._memory: list[Placed] = []
        # Addresses do not keep what they lead to alive.
        self._kept: list[torch.Tensor] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[DirectRank]:
        """Run launches of the host code here while the context is open.

        Raises:
            SimulationError: A launch has findings.
        """
        with route_launches(self._package, self._architecture, self.launch):
            torch.empty = self._allocate
            try:
                yield self
            finally:
                torch.empty = _torch_empty

    def upload(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Return a copy in this rank's device memory."""
        copy = tensor.clone()
        self._keep(copy, initialised=True)
        return copy

    def synchronize(self) -> None:
        """Do nothing: a launch has ended when it returns."""

    def _allocate(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Memory that a kernel must write before it reads it."""
        tensor = _torch_empty(*arguments, **options)
        self._keep(tensor, initialised=False)
        return tensor

    def _keep(self, tensor: torch.Tensor, *, initialised: bool) -> None:
        placed = place(tensor, "memory")
        assert isinstance(placed, Placed)
        self._kept.append(tensor)
        self._memory.append(Placed(placed.array, initialised=initialised))

    def launch(self, request: Request) -> None:
        """Run a launch.

        Raises:
            SimulationError: It has findings.
        """
        arguments = tuple(self._locate(value) for value in request.arguments)
        Prepared(request.code, arguments, request.grid, request.block, request.cluster, self._schedule).run().check()
        self._memory = [Placed(memory.array) for memory in self._memory]

    def _locate(self, value: Any) -> Argument:
        """An argument with the memory that it leads to, also where it is given as an address."""
        argument = place(value, "argument")
        address = argument.address if isinstance(argument, Placed) else argument
        if not isinstance(address, int) or isinstance(address, bool):
            return argument
        for memory in self._memory:
            offset = address - memory.address
            if 0 <= offset < memory.array.nbytes:
                return Placed(memory.array, offset, memory.initialised, self._follow(memory.array))
        return argument

    def _follow(self, array: Any) -> tuple[Placed, ...]:
        """What an array of nothing but addresses leads to."""
        if array.nbytes == 0 or array.nbytes % 8:
            return ()
        located = [self._find(int(address)) for address in array.reshape(-1).view(np.uint8).view(np.int64)]
        return tuple(each for each in located if each is not None) if None not in located else ()

    def _find(self, address: int) -> Placed | None:
        for memory in self._memory:
            if 0 <= address - memory.address < memory.array.nbytes:
                return Placed(memory.array, address - memory.address, memory.initialised)
        return None
