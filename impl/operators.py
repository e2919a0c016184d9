"""Operators of ``torch.ops.tiebreak`` for selection and localisation, with fake implementations.

They make the eager functions of the same names usable in graphs of
``torch.compile``.  Importing ``tiebreak.impl`` registers them; those of the
merge are in ``merge_operators``.  An operator returns new tensors; its ``_out``
form writes to ``out`` and returns what is left.

The fake implementations make the same checks as the eager functions, so that a
graph that could not run is refused when it is traced.  Sizes may be symbolic.
"""

from __future__ import annotations

from typing import cast

import torch
from torch.library import custom_op

from tiebreak.errors import InputError

from . import localisation, select
from .geometry import Implementation, SelectionContract
from .localisation import BlockTable
from .policy import resolve_policy
from .select import CandidateLayout

NAMESPACE = __name__.partition(".")[0]
"""A copy of the package under another name must not replace the operators of this one."""


@custom_op(f"{NAMESPACE}::select_candidates", mutates_args=())
def select_candidates(
    candidates: torch.Tensor,
    k: int,
    preset: str = "ieee",
    layout: str = "row-major",
    contract: str = "order",
    implementation: str = "auto",
) -> torch.Tensor:
    """As ``select.select_candidates``: int32 ``[rows, k]``."""
    form, order = cast(CandidateLayout, layout), cast(SelectionContract, contract)
    kernel = cast(Implementation, implementation)
    return select.select_candidates(candidates, k, preset, layout=form, contract=order, implementation=kernel)


@custom_op(f"{NAMESPACE}::select_candidates_out", mutates_args=("out",))
def select_candidates_out(
    candidates: torch.Tensor,
    out: torch.Tensor,
    preset: str = "ieee",
    layout: str = "row-major",
    contract: str = "order",
    implementation: str = "auto",
) -> None:
    """As ``select_candidates`` into ``out``, whose second dimension is k."""
    form, order = cast(CandidateLayout, layout), cast(SelectionContract, contract)
    k, kernel = require_matrix("out", out), cast(Implementation, implementation)
    select.select_candidates(candidates, k, preset, layout=form, contract=order, implementation=kernel, out=out)


@custom_op(f"{NAMESPACE}::select_peer_candidates", mutates_args=())
def select_peer_candidates(
    addresses: torch.Tensor,
    rows: int,
    local_candidates: int,
    k: int,
    preset: str = "ieee",
    contract: str = "order",
    implementation: str = "auto",
) -> torch.Tensor:
    """As ``select.select_peer_candidates``: int32 ``[rows, k]``.

    A graph does not know that the operator reads the buffers behind the
    addresses, so they have to be written before the graph that reads them.
    """
    order, kernel = cast(SelectionContract, contract), cast(Implementation, implementation)
    return select.select_peer_candidates(
        addresses, rows, local_candidates, k, preset, contract=order, implementation=kernel
    )


@custom_op(f"{NAMESPACE}::select_peer_candidates_out", mutates_args=("out",))
def select_peer_candidates_out(
    addresses: torch.Tensor,
    local_candidates: int,
    out: torch.Tensor,
    preset: str = "ieee",
    contract: str = "order",
    implementation: str = "auto",
) -> None:
    """As ``select_peer_candidates`` into ``out``, whose dimensions are rows and k."""
    k, rows = require_matrix("out", out), out.shape[0]
    order, kernel = cast(SelectionContract, contract), cast(Implementation, implementation)
    select.select_peer_candidates(
        addresses, rows, local_candidates, k, preset, contract=order, implementation=kernel, out=out
    )


@custom_op(f"{NAMESPACE}::localise", mutates_args=())
def localise(
    global_ids: torch.Tensor,
    rank: int,
    world_size: int,
    interleave: int = 1,
    blocks: torch.Tensor | None = None,
    block_size: int | None = None,
    block_stride: int | None = None,
    requests: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As ``localisation.localise``: int32 ``[rows, k]`` and counts int32 ``[rows]``; the table in parts."""
    table = _table(blocks, block_size, block_stride, requests)
    return localisation.localise(global_ids, rank, world_size, interleave, table=table)


@custom_op(f"{NAMESPACE}::localise_out", mutates_args=("out",))
def localise_out(
    global_ids: torch.Tensor,
    out: torch.Tensor,
    rank: int,
    world_size: int,
    interleave: int = 1,
    blocks: torch.Tensor | None = None,
    block_size: int | None = None,
    block_stride: int | None = None,
    requests: torch.Tensor | None = None,
) -> torch.Tensor:
    """As ``localise`` into ``out``; returns the counts."""
    table = _table(blocks, block_size, block_stride, requests)
    return localisation.localise(global_ids, rank, world_size, interleave, table=table, out=out)[1]


@select_candidates.register_fake
def _(
    candidates: torch.Tensor,
    k: int,
    preset: str = "ieee",
    layout: str = "row-major",
    contract: str = "order",
    implementation: str = "auto",
) -> torch.Tensor:
    return _fake_selection(candidates, k, preset, layout, contract, implementation, None)


@select_candidates_out.register_fake
def _(
    candidates: torch.Tensor,
    out: torch.Tensor,
    preset: str = "ieee",
    layout: str = "row-major",
    contract: str = "order",
    implementation: str = "auto",
) -> None:
    _fake_selection(candidates, require_matrix("out", out), preset, layout, contract, implementation, out)


@select_peer_candidates.register_fake
def _(
    addresses: torch.Tensor,
    rows: int,
    local_candidates: int,
    k: int,
    preset: str = "ieee",
    contract: str = "order",
    implementation: str = "auto",
) -> torch.Tensor:
    return _fake_peer_selection(addresses, rows, local_candidates, k, preset, contract, implementation, None)


@select_peer_candidates_out.register_fake
def _(
    addresses: torch.Tensor,
    local_candidates: int,
    out: torch.Tensor,
    preset: str = "ieee",
    contract: str = "order",
    implementation: str = "auto",
) -> None:
    k = require_matrix("out", out)
    _fake_peer_selection(addresses, out.shape[0], local_candidates, k, preset, contract, implementation, out)


@localise.register_fake
def _(
    global_ids: torch.Tensor,
    rank: int,
    world_size: int,
    interleave: int = 1,
    blocks: torch.Tensor | None = None,
    block_size: int | None = None,
    block_stride: int | None = None,
    requests: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    table = _table(blocks, block_size, block_stride, requests)
    localisation.check_localisation(global_ids, rank, world_size, interleave, table)
    rows, k = global_ids.shape
    return select.prepare_output(None, rows, k, global_ids.device), global_ids.new_empty(rows)


@localise_out.register_fake
def _(
    global_ids: torch.Tensor,
    out: torch.Tensor,
    rank: int,
    world_size: int,
    interleave: int = 1,
    blocks: torch.Tensor | None = None,
    block_size: int | None = None,
    block_stride: int | None = None,
    requests: torch.Tensor | None = None,
) -> torch.Tensor:
    table = _table(blocks, block_size, block_stride, requests)
    localisation.check_localisation(global_ids, rank, world_size, interleave, table)
    select.prepare_output(out, global_ids.shape[0], global_ids.shape[1], global_ids.device)
    return global_ids.new_empty(global_ids.shape[0])


def require_matrix(name: str, tensor: torch.Tensor) -> int:
    """Check that a tensor has two dimensions, and return the second.

    Raises:
        InputError: It has not.
    """
    if tensor.dim() != 2:
        raise InputError(f"shape of {name}", value=tuple(tensor.shape), limit="must be [rows, k]")
    return tensor.shape[1]


def _fake_selection(
    candidates: torch.Tensor,
    k: int,
    preset: str,
    layout: str,
    contract: str,
    implementation: str,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Check a selection of gathered candidates, and return its output."""
    sources, rows, local_candidates = select.check_candidates(candidates, cast(CandidateLayout, layout))
    out = select.prepare_output(out, rows, k, candidates.device)
    order, kernel = cast(SelectionContract, contract), cast(Implementation, implementation)
    select.check_selection(k, sources * local_candidates, order, kernel, candidates.device)
    resolve_policy(preset)
    return out


def _fake_peer_selection(
    addresses: torch.Tensor,
    rows: int,
    local_candidates: int,
    k: int,
    preset: str,
    contract: str,
    implementation: str,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Check a selection from the sources' buffers, and return its output."""
    select.check_addresses(addresses, rows, local_candidates)
    out = select.prepare_output(out, rows, k, addresses.device)
    order, kernel = cast(SelectionContract, contract), cast(Implementation, implementation)
    select.check_selection(k, addresses.shape[0] * local_candidates, order, kernel, addresses.device)
    resolve_policy(preset)
    return out


def _table(
    blocks: torch.Tensor | None, block_size: int | None, block_stride: int | None, requests: torch.Tensor | None
) -> BlockTable | None:
    """Return the block table that an operator got in parts.

    Raises:
        InputError: Some parts are there without the others they need.
    """
    if blocks is not None and block_size is not None:
        return BlockTable(blocks, block_size, block_stride, requests)
    if not all(part is None for part in (blocks, block_size, block_stride, requests)):
        raise InputError(
            "block table",
            limit="blocks and block_size go together, and block_stride and requests need both",
            remedy="pass both, or no part of a table",
        )
    return None
