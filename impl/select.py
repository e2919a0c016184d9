"""Public selection: the K best of gathered candidates, without any exchange."""

from __future__ import annotations

from typing import Literal

import torch

from tiebreak.errors import InputError, MissingBackendError

from .geometry import (
    CONTRACTS,
    IMPLEMENTATIONS,
    LARGEST_TILE,
    Implementation,
    SelectionContract,
    check_integer,
    check_name,
)
from .kernels_select import select
from .kernels_state import LARGEST_ID
from .launch import device_guard
from .policy import Policy, resolve_policy
from .selector import select_rows
from .selector_choice import LARGEST_ROW
from .source import locate_source

CandidateLayout = Literal["row-major", "rank-major"]


def select_candidates(
    candidates: torch.Tensor,
    k: int,
    preset: str = "ieee",
    *,
    layout: CandidateLayout = "row-major",
    contract: SelectionContract = "order",
    implementation: Implementation = "auto",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the ids of the k best candidates of each row, -1 in unused slots.

    The total order is score descending, then lowest id; a negative id is padding and
    never selected.  Duplicates count as often as they occur.

    Args:
        candidates: int32, contiguous: pairs of fp32 bits and id, ``[rows, N, 2]``
            (``row-major``) or ``[W, rows, L, 2]`` (``rank-major``, as an
            all-gather leaves them).
        k: Ids per row, at least 1; may exceed the candidates.
        preset: Name of the total order, see ``policy.POLICIES``.
        layout: Which of the two shapes ``candidates`` has.
        contract: Order of the ids: best first (``order``), or that of the
            candidates' positions, source by source (``set``); the first of
            equal candidates are selected.
        implementation: Kernel: ``cutedsl``, ``triton``, or ``auto``: cutedsl for
            tensors on a GPU, triton for others.
        out: int32 ``[rows, k]`` to write to, rows any distance apart.

    Returns:
        int32 ``[rows, k]``.

    Raises:
        InputError: Wrong shape, dtype, stride, device, k, preset or layout, or
            more than 8192 of the candidates would be selected; that limit does not
            hold for contract ``set`` and cutedsl.
        MissingBackendError: The implementation cannot run here; another one is never taken instead.

    Source:
        https://github.com/vllm-project/vllm/pull/46076 for the task;
        https://github.com/vllm-project/vllm/pull/50366 for the rank-major form.
    """
    sources, rows, local_candidates = check_candidates(candidates, layout)
    out = prepare_output(out, rows, k, candidates.device)
    launch_select(
        candidates,
        out,
        count=sources * local_candidates,
        source_candidates=local_candidates,
        source_words=rows * local_candidates * 2,
        row_words=local_candidates * 2,
        policy=resolve_policy(preset),
        contract=contract,
        implementation=implementation,
    )
    return out


def select_peer_candidates(
    addresses: torch.Tensor,
    rows: int,
    local_candidates: int,
    k: int,
    preset: str = "ieee",
    *,
    contract: SelectionContract = "order",
    implementation: Implementation = "auto",
    aligned: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """As ``select_candidates``, from one buffer ``[rows, L, 2]`` per source, given by address.

    Nothing orders the reads after the sources' writes: the caller does.

    Args:
        addresses: int64 ``[W]``, contiguous: addresses of int32 buffers ``[rows, L, 2]``.
        rows: Rows of each buffer.
        local_candidates: Candidates L per row of each buffer.
        k: Ids per row.
        preset: Name of the total order.
        contract: As for ``select_candidates``.
        implementation: As for ``select_candidates``.
        aligned: Whether every address is a multiple of 16, which the host cannot
            see; candidates are then read two at a time if L is even.
        out: int32 ``[rows, k]`` to write to.

    Returns:
        int32 ``[rows, k]``.

    Raises:
        InputError: As for ``select_candidates``.
        MissingBackendError: As for ``select_candidates``.

    Source:
        https://github.com/vllm-project/vllm/pull/50366 (owner-local buffers).
    """
    check_addresses(addresses, rows, local_candidates)
    out = prepare_output(out, rows, k, addresses.device)
    launch_select(
        addresses,
        out,
        count=addresses.shape[0] * local_candidates,
        source_candidates=local_candidates,
        source_words=0,
        row_words=local_candidates * 2,
        policy=resolve_policy(preset),
        contract=contract,
        implementation=implementation,
        from_peers=True,
        aligned=aligned,
    )
    return out


def launch_select(
    candidates: torch.Tensor,
    out: torch.Tensor,
    *,
    count: int,
    source_candidates: int,
    source_words: int,
    row_words: int,
    policy: Policy,
    contract: SelectionContract,
    implementation: Implementation,
    from_peers: bool = False,
    aligned: bool = False,
    state: torch.Tensor | None = None,
    slots: int = 1,
    slot_words: int = 0,
) -> None:
    """Launch a selection kernel for every row of ``out``; see ``kernels_select.select``.

    Args:
        candidates: int32 candidates, or int64 ``[W]`` addresses of them.
        out: int32 ``[rows, k]``.
        count: Candidates of a row.
        source_candidates: Candidates of a row from one source.
        source_words: Words from one source to the next; not used with addresses.
        row_words: Words from one row of a source to the next.
        policy: Total order.
        contract: Order of the output.
        implementation: Kernel.
        from_peers: Whether ``candidates`` holds addresses.
        aligned: Whether the addresses are multiples of 16.
        state: State of the exchange that brought the candidates.
        slots: Inbox slots.
        slot_words: Words from one inbox slot to the next.

    Raises:
        InputError: As for ``select_candidates``.
        MissingBackendError: As for ``select_candidates``.
    """
    rows, k = out.shape
    kernel = check_selection(k, count, contract, implementation, out.device)
    stages = max(min(k, count) - 1, 15).bit_length()
    if rows == 0:
        return
    with device_guard(out.device):
        if kernel == "cutedsl":
            source = locate_source(
                candidates,
                count=count,
                source_candidates=source_candidates,
                source_words=source_words,
                row_words=row_words,
                from_peers=from_peers,
                aligned=aligned,
                state=state,
                slots=slots,
                slot_words=slot_words,
            )
            select_rows(source, out, count, contract, policy)
            return
        select[(rows,)](
            candidates,
            out,
            candidates if state is None else state,
            count,
            source_candidates,
            source_words,
            row_words,
            slot_words,
            out.stride(0),
            k,
            from_peers=from_peers,
            slots=slots,
            has_state=state is not None,
            nan=int(policy.nan),
            zero=int(policy.zero),
            size=1 << stages,
            stages=stages,
            by_position=contract == "set",
            num_warps=4 if stages < 11 else 8,
        )


def check_candidates(candidates: torch.Tensor, layout: CandidateLayout) -> tuple[int, int, int]:
    """Check gathered candidates; return sources, rows, and candidates per source and row."""
    check_name("layout", layout, ("row-major", "rank-major"))
    leading = 2 if layout == "row-major" else 3
    check_tensor("candidates", candidates, torch.int32, (None,) * leading + (2,))
    if not candidates.is_contiguous():
        raise InputError("candidates", value=candidates.stride(), limit="must be contiguous")
    check_integer("rows", candidates.shape[-3], 0, LARGEST_ID.value)
    sources = 1 if layout == "row-major" else candidates.shape[0]
    return sources, candidates.shape[-3], candidates.shape[-2]


def check_addresses(addresses: torch.Tensor, rows: int, local_candidates: int) -> None:
    """Check a table of addresses and the sizes of the buffers behind it."""
    check_tensor("addresses", addresses, torch.int64, (None,))
    check_integer("rows", rows, 0, LARGEST_ID.value)
    check_integer("local_candidates", local_candidates, 0, LARGEST_ID.value)


def check_selection(
    k: int, count: int, contract: SelectionContract, implementation: Implementation, device: torch.device
) -> Implementation:
    """Check what is asked of a selection of k from ``count`` candidates per row; return the kernel for it."""
    check_name("contract", contract, CONTRACTS)
    check_name("implementation", implementation, IMPLEMENTATIONS)
    check_integer("candidates per row", count, 0, LARGEST_ROW)
    kernel = resolve_implementation(implementation, device)
    if (contract == "order" or kernel == "triton") and min(k, count) > LARGEST_TILE:
        raise InputError(
            "min(k, candidates)",
            value=min(k, count),
            limit=f"at most {LARGEST_TILE} are sorted",
            remedy="lower k, or use contract 'set' and implementation 'cutedsl'",
        )
    return kernel


def resolve_implementation(implementation: Implementation, device: torch.device) -> Implementation:
    """Return the kernel for tensors of a device, which ``auto`` leaves to it.

    Raises:
        MissingBackendError: The kernel cannot run there.
    """
    on_gpu = device.type == "cuda"
    if implementation == "cutedsl" and not on_gpu:
        raise MissingBackendError(
            f"a GPU for tensors on {device}",
            limit="CuTeDSL kernels need CUDA tensors",
            remedy="pass CUDA tensors, or implementation='triton'",
        )
    if implementation == "auto":
        return "cutedsl" if on_gpu else "triton"
    return implementation


def prepare_output(out: torch.Tensor | None, rows: int, k: int, device: torch.device) -> torch.Tensor:
    """Return ``out`` after checking it, or a new tensor of int32 ``[rows, k]``."""
    check_integer("k", k, 1, LARGEST_ID.value)
    if out is None:
        return torch.empty((rows, k), dtype=torch.int32, device=device)
    check_tensor("out", out, torch.int32, (rows, k), device)
    return out


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    dtype: torch.dtype,
    shape: tuple[int | None, ...],
    device: torch.device | None = None,
) -> None:
    """Check a tensor argument; its last dimension must be dense, None in ``shape`` is any size.

    Raises:
        InputError: A wrong dtype, shape, device or stride.
    """
    if tensor.dtype != dtype:
        raise InputError(f"dtype of {name}", value=tensor.dtype, limit=f"must be {dtype}")
    matches = [want is None or want == have for want, have in zip(shape, tensor.shape, strict=False)]
    if tensor.dim() != len(shape) or not all(matches):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InputError(f"shape of {name}", value=tuple(tensor.shape), limit=f"must be [{wanted}]")
    if device is not None and tensor.device != device:
        raise InputError(f"device of {name}", value=str(tensor.device), limit=f"must be {device}")
    if tensor.numel() > 0 and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise InputError(f"strides of {name}", value=tensor.stride(), limit="the last dimension must be dense")
