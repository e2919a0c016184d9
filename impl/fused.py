"""Host side of merges in one launch: which merges they serve, and their launch."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from tiebreak.errors import InputError, WorkspaceError

from .agreement import require
from .driver import LoadedKernel, load_kernel
from .fabric import Fabric
from .geometry import Geometry
from .kernel_binary import KernelRecipe
from .kernel_store import obtain_kernel
from .policy import resolve_policy
from .select import resolve_implementation
from .selector import count_multiprocessors, count_resident_ctas, device_architecture, list_sources
from .selector_choice import choose_specialization
from .specialization import SelectorSpecialization

if TYPE_CHECKING:
    from .workspace import Workspace

PAIR = 2
"""Candidates that are sent at once where every rank has an even number of them."""


def merge_specialization(
    geometry: Geometry, world_size: int, ctas: int, multiprocessors: int
) -> SelectorSpecialization:
    """Return the selector that a merge of so many CTAs contains."""
    return choose_specialization(
        rows=ctas,
        count=world_size * geometry.local_candidates,
        k=geometry.k,
        contract=geometry.contract,
        policy=resolve_policy(geometry.preset),
        multiprocessors=multiprocessors,
        paired=geometry.local_candidates % PAIR == 0,
    )


def merge_recipe(specialization: SelectorSpecialization, architecture: str) -> KernelRecipe:
    """Return how the kernel of a merge is made."""

    def build(options: str) -> Any:
        from .cutedsl.merge import compile_merge

        return compile_merge(specialization, options)

    name = f"merge-{specialization.name}"
    return KernelRecipe(name, architecture, list_sources(), build, specialization.shared_bytes)


@cache
def obtain_merge(specialization: SelectorSpecialization, index: int) -> LoadedKernel:
    """Return a merge that is loaded on a device.

    Raises:
        MissingBackendError: It is not compiled and cannot be, or not for this device.
    """
    return load_kernel(obtain_kernel(merge_recipe(specialization, device_architecture(index))), index)


def agree_fused_rows(fabric: Fabric, geometry: Geometry, *, symmetric: bool) -> int:
    """Return the rows up to which merges are one launch, 0 for none; collective, the same on all ranks.

    A CTA waits for CTAs of the other ranks, so all must be resident; ranks that
    share a device share its room.

    Args:
        fabric: This rank's fabric.
        geometry: What the ranks agreed on.
        symmetric: Whether they have symmetric memory.

    Raises:
        WorkspaceError: On every rank, when fused launches are asked for and
            cannot be on some rank, or its kernels are not there.
    """
    own = require(
        fabric,
        "preparation of fused launches",
        lambda: count_own_ctas(fabric, geometry, symmetric=symmetric),
        remedy="choose launches 'separate' on every rank",
    )
    device = str(torch.cuda.get_device_properties(fabric.device).uuid) if own else ""
    reports = fabric.gather_objects((own, device))
    devices = [name for _, name in reports]
    # A CTA more than there are rows meets the peers.
    room: int = min(ctas // devices.count(name) - 1 for ctas, name in reports)
    agreed = max(0, min(geometry.count_packet_rows(fabric.world_size), room))
    if agreed == 0 and geometry.launches == "fused":
        raise WorkspaceError(
            "rows merged in one launch",
            value=agreed,
            limit="launches 'fused' needs room for a row of every rank on every device",
            remedy="choose launches 'separate' on every rank",
        )
    return agreed


def count_own_ctas(fabric: Fabric, geometry: Geometry, *, symmetric: bool) -> int:
    """Return how many CTAs of a merge this rank's device holds at once, 0 if it cannot fuse.

    Raises:
        InputError: Fused launches are asked for and cannot be.
        MissingBackendError: As ``obtain_merge``.
    """
    possible = symmetric and geometry.count_packet_rows(fabric.world_size) > 0
    possible = possible and resolve_implementation(geometry.implementation, fabric.device) == "cutedsl"
    shapes: list[SelectorSpecialization] = []
    index, multiprocessors = fabric.device.index, 0
    if possible:
        multiprocessors = count_multiprocessors(index)
        for ctas in (multiprocessors, multiprocessors + 1):
            shapes.append(merge_specialization(geometry, fabric.world_size, ctas, multiprocessors))
        # A thread of a CTA releases and awaits the flag of one rank.
        possible = not any(shape.streamed or shape.threads < fabric.world_size for shape in shapes)
    if not possible:
        if geometry.launches == "fused":
            raise InputError(
                "launches",
                value="fused",
                limit="needs symmetric memory, CuTeDSL, discipline alternating, candidates that fit registers, "
                "and no more ranks than a CTA has threads",
                remedy="choose 'auto' or 'separate'",
            )
        return 0
    few, many = (count_resident_ctas(obtain_merge(shape, index), shape.threads, index) for shape in shapes)
    return many if few >= multiprocessors else few


def merge_fused(
    workspace: Workspace,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    row_starts: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Launch a merge of at most ``workspace.fused_rows`` rows on the current stream."""
    buffer, layout, geometry = workspace.buffer, workspace.layout, workspace.geometry
    assert buffer is not None
    fabric, (rows, width) = workspace.fabric, scores.shape
    index = fabric.device.index
    multiprocessors = count_multiprocessors(index)
    ctas = rows + 1
    specialization = merge_specialization(geometry, fabric.world_size, ctas, multiprocessors)
    arguments = (
        scores.data_ptr(),
        local_indices.data_ptr(),
        0 if row_starts is None else row_starts.data_ptr(),
        buffer.peer_addresses.data_ptr(),
        buffer.local.data_ptr(),
        workspace.state.data_ptr(),
        out.data_ptr(),
        scores.stride(0),
        local_indices.stride(0),
        out.stride(0),
        layout.packet_slot_bytes,
        workspace.max_polls,
        layout.packets,
        layout.uses,
        layout.arrived,
        layout.arrived_rows,
        rows,
        width,
        geometry.local_candidates,
        fabric.world_size,
        fabric.rank,
        geometry.interleave,
        geometry.k,
    )
    kernel = obtain_merge(specialization, index)
    stream = torch.cuda.current_stream(fabric.device).cuda_stream
    kernel.launch((ctas, 1, 1), specialization.threads, arguments, stream=stream, programmatic=True)
