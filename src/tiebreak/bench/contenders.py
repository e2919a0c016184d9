"""What is timed: this package's selection, library selections, and the two floors.

A contender is prepared once per input set and then only launched.  Everything
that is not its own work, such as the composite key of the library selections,
is made in the preparation and not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from tiebreak.errors import InputError
from tiebreak.impl.geometry import Implementation, SelectionContract
from tiebreak.impl.select import select_candidates
from tiebreak.spec.contracts import Contract

from .kernels import copy_words, do_nothing
from .model import EMPTY_KERNEL, PACKED_COPY
from .reference import composite_keys

COPY_BLOCK = 2048
"""Words per program of a copy: four 16-byte accesses per thread."""


@dataclass(frozen=True)
class Launch:
    """One contender on one input set.

    Attributes:
        run: Launches on the current stream; can be captured.
        outputs: What it writes; for a selection, int32 ``[rows, k]`` alone.
        copies: What ``outputs`` must equal, for a contender that moves data and selects nothing.
    """

    run: Callable[[], object]
    outputs: tuple[torch.Tensor, ...] = ()
    copies: tuple[torch.Tensor, ...] = field(default=())


@dataclass(frozen=True)
class Contender:
    """Something to time on gathered candidates.

    Attributes:
        name: Printed name.
        contract: What its output is held to; None if it selects nothing.
        ours: Whether it is this package's.
        prepare: Takes int32 ``[rows, N, 2]`` on the device and k.
    """

    name: str
    contract: Contract | None
    ours: bool
    prepare: Callable[[torch.Tensor, int], Launch]


def prepare_nothing(candidates: torch.Tensor, k: int) -> Launch:
    """Launch a kernel that does nothing, one CTA per row."""
    rows = candidates.shape[0]
    return Launch(lambda: do_nothing[(rows,)](num_warps=4))


def prepare_copy(candidates: torch.Tensor, k: int) -> Launch:
    """Read and write the packed candidates once."""
    destination = torch.empty_like(candidates)
    count = candidates.numel()
    grid = (-(-count // COPY_BLOCK),)
    return Launch(
        lambda: copy_words[grid](candidates, destination, count, block=COPY_BLOCK, num_warps=4),
        (destination,),
        (candidates,),
    )


def prepare_topk(candidates: torch.Tensor, k: int) -> Launch:
    """``torch.topk`` of the key, then a gather of the ids."""
    keys, ids = composite_keys(candidates), candidates[..., 1].contiguous()
    shape, device = (candidates.shape[0], k), candidates.device
    found = (torch.empty(shape, dtype=torch.int64, device=device), torch.empty(shape, dtype=torch.int64, device=device))
    output = torch.empty(shape, dtype=torch.int32, device=device)

    def run() -> None:
        torch.topk(keys, k, dim=1, out=found)
        torch.gather(ids, 1, found[1], out=output)

    return Launch(run, (output,))


def prepare_sort(candidates: torch.Tensor, k: int) -> Launch:
    """``torch.sort`` of the key, then a gather of the ids."""
    keys, ids = composite_keys(candidates), candidates[..., 1].contiguous()
    found = (torch.empty_like(keys), torch.empty_like(keys))
    output = torch.empty((candidates.shape[0], k), dtype=torch.int32, device=candidates.device)

    def run() -> None:
        torch.sort(keys, dim=1, descending=True, out=found)
        torch.gather(ids, 1, found[1][:, :k], out=output)

    return Launch(run, (output,))


def prepare_selection(
    candidates: torch.Tensor, k: int, *, contract: SelectionContract, implementation: Implementation
) -> Launch:
    """This package's selection with one of its kernels."""
    output = torch.empty((candidates.shape[0], k), dtype=torch.int32, device=candidates.device)
    run = partial(select_candidates, candidates, k, contract=contract, implementation=implementation, out=output)
    return Launch(run, (output,))


def _selector(implementation: Implementation, contract: SelectionContract) -> Contender:
    prepare = partial(prepare_selection, contract=contract, implementation=implementation)
    return Contender(f"tiebreak {implementation} {contract}", Contract(contract), True, prepare)


FLOORS = (
    Contender(EMPTY_KERNEL, None, False, prepare_nothing),
    Contender(PACKED_COPY, None, False, prepare_copy),
)
"""What ratios are taken to; always timed."""

SELECTORS = (
    Contender("torch.topk", Contract.ORDER, False, prepare_topk),
    Contender("torch.sort", Contract.ORDER, False, prepare_sort),
    _selector("cutedsl", "order"),
    _selector("cutedsl", "set"),
    _selector("triton", "order"),
)
"""Contenders that select."""


def choose(names: Sequence[str]) -> tuple[Contender, ...]:
    """Return the floors and the named selectors, all of them if none is named.

    Raises:
        InputError: No selector has that name.
    """
    known = {contender.name: contender for contender in SELECTORS}
    for name in names:
        if name not in known:
            raise InputError("contender", value=name, limit=f"must be one of {', '.join(known)}")
    return FLOORS + tuple(contender for contender in SELECTORS if not names or contender.name in names)
