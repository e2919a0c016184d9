"""One GPU of this process as a backend: every rank of a scenario is a stream of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tiebreak.errors import InputError
from tiebreak.verify.case import draw_cases
from tiebreak.verify.scenario import Scenario

from . import Ids, Outcome, Packed, collect_results
from .device import DeviceRank, choose_max_polls
from .host import HostProgram, Implementation, launch_localisation, launch_selection
from .pool import portable_error
from .streams import LARGEST_WORLD, StreamFabric, StreamWorld

new_stream: Callable[[], torch.cuda.Stream] = torch.cuda.Stream
"""Makes a stream of the current device; never the default one, which cannot be captured."""


class StreamBackend:
    """Runs the implementation on one device, in this process.

    Args:
        device: The device; the current GPU if absent.
        make_stream: Makes a stream of that device.
    """

    name = "cuda:streams"

    def __init__(self, device: torch.device | None = None, make_stream: Callable[[], Any] = new_stream) -> None:
        self._implementation = Implementation()
        self._device = torch.device("cuda", torch.cuda.current_device()) if device is None else device
        self._make_stream = make_stream
        self._streams: list[Any] = []

    def select(
        self,
        gathered: Packed,
        k: int,
        preset: str,
        arrangement: str,
        contract: str = "order",
        implementation: str = "auto",
    ) -> Ids:
        """Select from gathered candidates; see ``Backend.select``.

        Raises:
            TiebreakError: What the selection raised.
        """

        def launch(fabric: StreamFabric) -> list[torch.Tensor]:
            selection = (gathered, k, preset, arrangement, contract, implementation)
            return [launch_selection(self._implementation, fabric, *selection)]

        return self._run_alone(launch)[0]

    def localise(self, ids: Ids, rank: int, world_size: int, interleave: int) -> tuple[Ids, Ids]:
        """Localise selected ids; see ``Backend.localise``.

        Raises:
            TiebreakError: What the localisation raised.
        """

        def launch(fabric: StreamFabric) -> list[torch.Tensor]:
            return launch_localisation(self._implementation, fabric, ids, rank, world_size, interleave)

        local, counts = self._run_alone(launch)
        return local, counts

    def run(self, scenario: Scenario, schedule: str) -> Outcome:
        """Run all merges of a scenario; the hardware schedules, ``schedule`` is not used."""
        cases = draw_cases(scenario)
        outputs: list[list[Ids]] = [[] for _ in range(scenario.ranks)]
        programs = [
            bind_program(
                HostProgram(self._implementation, scenario, cases, outputs[rank], choose_max_polls(scenario)), scenario
            )
            for rank in range(scenario.ranks)
        ]
        errors = self._world(scenario.ranks).run(programs)
        ended = [error and portable_error(error) for error in errors]
        return collect_results(list(zip(outputs, ended, strict=True)))

    def _world(self, ranks: int) -> StreamWorld:
        """Return a world of ranks; streams are kept, so that no later one shares a queue with them.

        Raises:
            InputError: More ranks than one device can run side by side.
        """
        if ranks > LARGEST_WORLD:
            raise InputError(
                "ranks",
                value=ranks,
                limit=f"at most {LARGEST_WORLD} on one device",
                remedy="use processes on more GPUs",
            )
        while len(self._streams) < ranks:
            self._streams.append(self._make_stream())
        return StreamWorld(self._device, self._streams[:ranks])

    def _run_alone(self, launch: Callable[[StreamFabric], list[torch.Tensor]]) -> list[Ids]:
        """Run launches of one rank, and return the tensors they leave."""
        results: list[Ids] = []

        def program(fabric: StreamFabric) -> None:
            results.extend(tensor.cpu().numpy() for tensor in launch(fabric))

        (error,) = self._world(1).run([program])
        if error is not None:
            raise error
        return results


def bind_program(program: HostProgram, scenario: Scenario) -> Callable[[DeviceRank], None]:
    """Return a program whose rendezvous fails where the scenario says so."""

    def run(fabric: DeviceRank) -> None:
        fabric.fails_rendezvous = scenario.fault == "rendezvous" and fabric.rank == scenario.ranks - 1
        program(fabric)

    return run
