"""Graph replays of merges with fresh data each, all of them compared with a sort of the candidates.

Every rank draws the data of all ranks from one seed on its device, computes what
is right by a library sort, replays a graph that was captured once, and compares
on the device.  On a sample of the replays the sort is itself held to the
specification.  Graphs of different numbers of rows take turns on one workspace,
ranks are delayed at random, and outputs are poisoned before each replay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from tiebreak.errors import SimulationError
from tiebreak.impl.fabric import Fabric
from tiebreak.impl.merge import merge_topk
from tiebreak.impl.workspace import Workspace
from tiebreak.spec.packing import unpack
from tiebreak.spec.selection import select

from .checking import POISON
from .inputs import DISTINCT_TIES, INTERLEAVE, SHARD_FACTOR
from .merges import MAX_POLLS, merge_geometry
from .model import ReplayCount, Shape
from .reference import select_by_sort
from .timing import capture, delay_stream

SAMPLES = 16
"""Replays on which the sort is compared with the specification."""

LONGEST_DELAY_CYCLES = 40_000
"""Longest random delay of a rank before a replay, about 20 us."""

PADDING_SHARE = 0.02
"""Share of the candidates that are padding."""

SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-45, 1.0, -1.0)


class FreshData:
    """Data of all ranks, drawn on the device; equal seeds give equal data on every rank.

    Args:
        world_size: Ranks W.
        local_candidates: Candidates L that each rank offers per row.
        device: Where to draw.
        seed: Seed.
    """

    def __init__(self, world_size: int, local_candidates: int, device: torch.device, seed: int) -> None:
        self._world_size = world_size
        self._local_candidates = local_candidates
        # A power of two, so that an odd stride visits every column.
        self._width = SHARD_FACTOR * (1 << (local_candidates - 1).bit_length())
        self._generator = torch.Generator(device).manual_seed(seed)
        self._device = device
        self._specials = torch.tensor(SPECIAL, device=device)

    @property
    def width(self) -> int:
        """Columns of a shard."""
        return self._width

    def draw_scores(self, rows: int, replay: int) -> torch.Tensor:
        """Return float32 ``[W, rows, width]``: random, tie-heavy, special and equal values in turn."""
        shape = (self._world_size, rows, self._width)
        kind = replay % 4
        if kind == 0:
            return torch.randn(shape, generator=self._generator, device=self._device)
        if kind == 1:
            return self._draw_integers(DISTINCT_TIES, shape).float()
        if kind == 2:
            return self._specials[self._draw_integers(len(SPECIAL), shape)]
        return torch.full(shape, float(replay), device=self._device)

    def draw_indices(self, rows: int) -> torch.Tensor:
        """Return int32 ``[W, rows, L]``: distinct columns in scattered order, some of them -1."""
        shape = (self._world_size, rows, 1)
        first = self._draw_integers(self._width, shape)
        stride = 2 * self._draw_integers(self._width // 2, shape) + 1
        columns = (first + stride * torch.arange(self._local_candidates, device=self._device)) % self._width
        padding = torch.rand(columns.shape, generator=self._generator, device=self._device) < PADDING_SHARE
        return torch.where(padding, -1, columns).int()

    def pack(self, scores: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """Return the candidates row by row, int32 ``[rows, W * L, 2]``."""
        wide = indices.long()
        valid = wide >= 0
        ranks = torch.arange(self._world_size, device=self._device).view(-1, 1, 1)
        ids = (wide // INTERLEAVE * self._world_size + ranks) * INTERLEAVE + wide % INTERLEAVE
        chosen = torch.gather(scores.view(torch.int32), 2, wide.clamp(min=0))
        pairs = torch.stack((chosen, torch.where(valid, ids, -1).int()), dim=-1)
        return pairs.transpose(0, 1).reshape(scores.shape[1], -1, 2)

    def _draw_integers(self, limit: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(0, limit, shape, generator=self._generator, device=self._device)


class Replayable(Protocol):
    """What was captured once."""

    def replay(self) -> None:
        """Launch it."""


@dataclass(frozen=True)
class CapturedMerge:
    """A graph of one merge, and the buffers that it reads and writes.

    Attributes:
        graph: The graph.
        scores: float32 ``[rows, width]``.
        local_indices: int32 ``[rows, L]``.
        output: int32 ``[rows, k]``.
    """

    graph: Replayable
    scores: torch.Tensor
    local_indices: torch.Tensor
    output: torch.Tensor


def count_exact_replays(
    fabric: Fabric, name: str, options: dict[str, Any], shapes: Sequence[Shape], replays: int, seed: int
) -> list[ReplayCount]:
    """Replay one merge with fresh data each, and count the exact replays of every rank.  Collective.

    Args:
        fabric: This rank's fabric.
        name: Name of the merge.
        options: Attributes of its geometry.
        shapes: Shapes that differ in their rows only; their graphs take turns.
        replays: How many.
        seed: Seed of data and delays.

    Raises:
        SimulationError: The sort differs from the specification.
        PeerError: An exchange ended in its error state.
    """
    max_rows = max(shape.rows for shape in shapes)
    geometry = merge_geometry(options, shapes[0], max_rows, fabric.world_size)
    data = FreshData(fabric.world_size, geometry.local_candidates, fabric.device, seed)
    with Workspace.create(fabric, geometry, max_polls=MAX_POLLS) as workspace:
        merges = [_capture(workspace, data, shape) for shape in shapes]
        exact = _replay(fabric, merges, data, shapes, replays, seed, ordered=geometry.contract == "order")
        workspace.check()
        del merges
    counts = fabric.gather_objects(exact)
    return [ReplayCount(name, rank, fabric.world_size, count, replays) for rank, count in enumerate(counts)]


def _capture(workspace: Workspace, data: FreshData, shape: Shape) -> CapturedMerge:
    """Capture one merge on buffers that hold valid data."""
    rank = workspace.fabric.rank
    scores = data.draw_scores(shape.rows, 0)[rank].clone()
    indices = data.draw_indices(shape.rows)[rank].clone()
    output = torch.empty((shape.rows, shape.k), dtype=torch.int32, device=scores.device)
    run = partial(merge_topk, workspace, scores, indices, out=output)
    run()
    workspace.fabric.synchronize()
    return CapturedMerge(capture([run]), scores, indices, output)


def _replay(
    fabric: Fabric,
    merges: Sequence[CapturedMerge],
    data: FreshData,
    shapes: Sequence[Shape],
    replays: int,
    seed: int,
    ordered: bool,
) -> int:
    """Replay with fresh data, and return how many outputs were exact on this rank."""
    delays = random.Random(seed * fabric.world_size + fabric.rank)
    exact = torch.zeros((), dtype=torch.int64, device=fabric.device)
    for replay in range(replays):
        merge, shape = merges[replay % len(merges)], shapes[replay % len(merges)]
        # Kinds of data and numbers of rows take turns at different paces, so that every pair occurs.
        scores, indices = data.draw_scores(shape.rows, replay // len(merges)), data.draw_indices(shape.rows)
        candidates = data.pack(scores, indices)
        expected = select_by_sort(candidates, shape.k)
        if replay % max(replays // SAMPLES, 1) == 0:
            _check_reference(candidates, expected)
        merge.scores.copy_(scores[fabric.rank])
        merge.local_indices.copy_(indices[fabric.rank])
        merge.output.fill_(POISON)
        delay_stream(delays.randrange(LONGEST_DELAY_CYCLES))
        merge.graph.replay()
        exact += _is_exact(merge.output, expected, ordered)
    return int(exact.item())


def _is_exact(output: torch.Tensor, expected: torch.Tensor, ordered: bool) -> torch.Tensor:
    """Return on the device whether an output is right, slot by slot or as a set of ids with counts."""
    if not ordered:
        output, expected = output.sort(dim=1).values, expected.sort(dim=1).values
    return (output == expected).all()


def _check_reference(candidates: torch.Tensor, expected: torch.Tensor) -> None:
    """Hold the sort to the specification.

    Raises:
        SimulationError: They differ.
    """
    scores, ids = unpack(candidates.cpu().numpy())
    if (select(scores, ids, expected.shape[1]) != expected.cpu().numpy()).any():
        raise SimulationError("selection by torch.sort", limit="must equal the specification", remedy="report it")
