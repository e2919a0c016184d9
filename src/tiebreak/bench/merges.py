"""What is timed across GPUs: this package's merges, and transports that move candidates and select nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar, cast

import torch

from tiebreak.errors import InputError
from tiebreak.impl.agreement import attempt, failure_error
from tiebreak.impl.fabric import Fabric
from tiebreak.impl.geometry import Geometry
from tiebreak.impl.merge import merge_topk
from tiebreak.impl.workspace import Workspace
from tiebreak.spec.contracts import Contract

from .contenders import COPY_BLOCK, FLOORS, Contender, Launch
from .inputs import INTERLEAVE, InputSet
from .kernels import push_words
from .model import Shape

MAX_POLLS = 20_000_000
"""Bound of a wait, some seconds: beyond any skew between ranks here."""

WIDEST_ACCESS = 16
"""Bytes of the widest access of one thread; the start of a buffer is at least as aligned."""

SYMMETRIC = {"transport": "symmetric", "owner_rows": 0}
ROUTES: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "alternating": {**SYMMETRIC, "discipline": "alternating", "launches": "separate"},
        "acknowledged": {**SYMMETRIC, "discipline": "acknowledged"},
        "owner-sharded": {"transport": "symmetric", "discipline": "alternating", "owner_rows": 1},
        "all-gather": {"transport": "all-gather"},
    }
)
"""Ways of the candidates to the selection, as attributes of the geometry."""

FUSED: Mapping[str, dict[str, Any]] = MappingProxyType(
    {f"fused {contract}": {**SYMMETRIC, "launches": "fused", "contract": contract} for contract in ("order", "set")}
)
"""Merges in one launch, which only CuTeDSL has."""


@dataclass(frozen=True)
class RankInput:
    """One input set on one rank's device.

    Attributes:
        scores: float32 ``[rows, width]``, this rank's shard.
        local_indices: int32 ``[rows, L]``, this rank's candidates.
        gathered: int32 ``[W, rows, L, 2]``, the candidates of all ranks.
    """

    scores: torch.Tensor
    local_indices: torch.Tensor
    gathered: torch.Tensor


Result = TypeVar("Result")
Prepare = Callable[[list[RankInput]], list[Launch]]


@dataclass(frozen=True)
class Exchange:
    """Something to time on all ranks together.

    Attributes:
        name: Printed name.
        contract: What its output is held to; None if it selects nothing.
        ours: Whether it is this package's.
        open: Sets up on every rank, for one shape, what its launches share; gives the preparation of all input sets.
    """

    name: str
    contract: Contract | None
    ours: bool
    open: Callable[[Fabric, Shape], AbstractContextManager[Prepare]]


def act_together(fabric: Fabric, what: str, action: Callable[[], Result]) -> Result:
    """Run an action on every rank, and meet behind it.

    Raises:
        WorkspaceError: On every rank, if the action raised on any.
    """
    result, failures = attempt(fabric, action)
    if failures:
        raise failure_error(what, failures, remedy="see the reasons of the ranks named")
    return cast(Result, result)


def upload(drawn: InputSet, fabric: Fabric) -> RankInput:
    """Copy one input set to this rank's device."""
    arrays = (drawn.scores[fabric.rank], drawn.local_indices[fabric.rank], drawn.gathered)
    return RankInput(*(torch.from_numpy(array).to(fabric.device) for array in arrays))


def merge_geometry(options: dict[str, Any], shape: Shape, max_rows: int, world_size: int) -> Geometry:
    """Return the geometry of one merge of a shape."""
    local_candidates = shape.candidates // world_size
    return Geometry(max_rows=max_rows, local_candidates=local_candidates, k=shape.k, interleave=INTERLEAVE, **options)


@contextmanager
def open_merge(fabric: Fabric, shape: Shape, *, options: dict[str, Any]) -> Iterator[Prepare]:
    """Create a workspace, and merge through it."""
    geometry = merge_geometry(options, shape, shape.rows, fabric.world_size)
    with Workspace.create(fabric, geometry, max_polls=MAX_POLLS) as workspace:
        yield lambda inputs: [_prepare_merge(workspace, one, shape) for one in inputs]
        act_together(fabric, "merge", workspace.check)


def _prepare_merge(workspace: Workspace, one: RankInput, shape: Shape) -> Launch:
    output = torch.empty((shape.rows, shape.k), dtype=torch.int32, device=one.scores.device)
    return Launch(partial(merge_topk, workspace, one.scores, one.local_indices, out=output), (output,))


@contextmanager
def open_gather(fabric: Fabric, shape: Shape) -> Iterator[Prepare]:
    """All-gather packed candidates through the fabric's library."""

    def prepare(one: RankInput) -> Launch:
        output = torch.empty_like(one.gathered)
        return Launch(partial(fabric.all_gather, output, one.gathered[fabric.rank]), (output,), (one.gathered,))

    yield lambda inputs: [prepare(one) for one in inputs]


@contextmanager
def open_push(fabric: Fabric, shape: Shape) -> Iterator[Prepare]:
    """Copy packed candidates into every peer's memory, without any flag."""
    buffers: list[Any] = []

    def prepare(inputs: list[RankInput]) -> list[Launch]:
        words = inputs[0].gathered.numel()
        buffers.append(fabric.rendezvous(4 * len(inputs) * words))
        return [_prepare_push(fabric, buffers[0], one, 4 * number * words) for number, one in enumerate(inputs)]

    try:
        yield prepare
    finally:
        for buffer in buffers:
            fabric.free(buffer)


def _prepare_push(fabric: Fabric, buffer: Any, one: RankInput, offset: int) -> Launch:
    """Push to an inbox int32 ``[W, rows, L, 2]`` at ``offset`` bytes of every rank's buffer."""
    rank, world_size = fabric.rank, fabric.world_size
    source = one.gathered[rank]
    own_offset = offset + 4 * rank * source.numel()
    end = offset + 4 * one.gathered.numel()
    inbox = buffer.local[offset:end].view(torch.int32).view(one.gathered.shape)
    peers = [peer for peer in range(world_size) if peer != rank]
    grid = (-(-source.numel() // COPY_BLOCK), len(peers))

    run = partial(
        push_words[grid],
        source,
        buffer.peer_addresses,
        source.numel(),
        own_offset,
        rank=rank,
        alignment=math.gcd(own_offset, WIDEST_ACCESS),
        block=COPY_BLOCK,
        num_warps=4,
    )
    return Launch(run, tuple(inbox[peer] for peer in peers), tuple(one.gathered[peer] for peer in peers))


@contextmanager
def open_local(fabric: Fabric, shape: Shape, *, contender: Contender) -> Iterator[Prepare]:
    """Run a contender of one GPU on the gathered candidates, on every rank at once."""

    def prepare(one: RankInput) -> Launch:
        rows_first = one.gathered.transpose(0, 1).reshape(shape.rows, shape.candidates, 2)
        return contender.prepare(rows_first.contiguous(), shape.k)

    yield lambda inputs: [prepare(one) for one in inputs]


def merge_options() -> dict[str, dict[str, Any]]:
    """Return the attributes of the geometry of every merge, by name."""
    separate = {
        f"tiebreak {route} {implementation}": {**attributes, "implementation": implementation}
        for (route, attributes), implementation in itertools.product(ROUTES.items(), ("cutedsl", "triton"))
    }
    fused = {f"tiebreak {name}": {**attributes, "implementation": "cutedsl"} for name, attributes in FUSED.items()}
    return {**fused, **separate}


def choose_merges(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the named merges, all if none is named.

    Raises:
        InputError: No merge has that name.
    """
    known = merge_options()
    for name in names:
        if name not in known:
            raise InputError("merge", value=name, limit=f"must be one of {', '.join(known)}")
    return {name: options for name, options in known.items() if not names or name in names}


def exchanges(names: Sequence[str]) -> list[Exchange]:
    """Return the floors, the transports, and the named merges, all if none is named.

    Raises:
        InputError: No merge has that name.
    """
    merges = choose_merges(names)
    chosen = [Exchange(floor.name, None, False, partial(open_local, contender=floor)) for floor in FLOORS]
    chosen.append(Exchange("NCCL all-gather", None, False, open_gather))
    chosen.append(Exchange("push copy", None, False, open_push))
    for name, options in merges.items():
        contract = Contract(Geometry(max_rows=1, local_candidates=1, k=1, **options).contract)
        chosen.append(Exchange(name, contract, True, partial(open_merge, options=options)))
    return chosen
