"""Host side of the CuTeDSL selector: obtains the kernel that serves a call, and launches it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

from tiebreak.errors import MissingBackendError

from .driver import LoadedKernel, load_kernel
from .geometry import SelectionContract
from .kernel_binary import KernelRecipe
from .kernel_store import obtain_kernel
from .policy import Policy
from .selector_choice import choose_specialization
from .source import Source
from .specialization import SelectorSpecialization

KERNEL_FILES = ("policy.py", "specialization.py", "cutedsl/*.py")
ARCHITECTURES = {(9, 0): "sm_90a", (10, 0): "sm_100a", (12, 1): "sm_121a"}
"""Target of the kernels for each compute capability."""

TRITON_REMEDY = "pass implementation='triton'"
PADDING = -1


def select_rows(source: Source, out: torch.Tensor, count: int, contract: SelectionContract, policy: Policy) -> None:
    """Launch a selector for every row of ``out``, on the current stream of its device, which is the current one.

    Args:
        source: Where the candidates lie.
        out: int32 ``[rows, k]``, at least one row.
        count: Candidates of a row; with none, every slot is unused and no selector runs.
        contract: Order of the output.
        policy: Total order.

    Raises:
        MissingBackendError: The device is none that selectors are made for, or
            its selector is not compiled and cannot be.
    """
    rows, k = out.shape
    if count == 0:
        out.fill_(PADDING)
        return
    index = out.device.index
    specialization = choose_specialization(
        rows=rows,
        count=count,
        k=k,
        contract=contract,
        policy=policy,
        multiprocessors=count_multiprocessors(index),
        sources=source.kind,
        source_candidates=source.candidates,
        paired=source.paired,
        stateful=source.state != 0,
    )
    ahead = count_rows_at_once(specialization, index) if specialization.prefetches else 0
    launch_selector(obtain_selector(specialization, index), specialization.threads, source, out, count, ahead)


def launch_selector(
    kernel: LoadedKernel, threads: int, source: Source, out: torch.Tensor, count: int, ahead: int = 0
) -> None:
    """Launch a selector for every row of ``out`` on the current stream; arguments as ``Selector.select`` takes them."""
    rows, k = out.shape
    arguments = (
        source.address,
        out.data_ptr(),
        source.state,
        source.source_bytes,
        source.row_bytes,
        source.slot_bytes,
        out.stride(0),
        count,
        source.candidates,
        find_reciprocal(source.candidates),
        source.slots,
        k,
        ahead,
    )
    stream = torch.cuda.current_stream(out.device).cuda_stream
    kernel.launch((rows, 1, 1), threads, arguments, stream=stream, programmatic=True)


@cache
def count_rows_at_once(specialization: SelectorSpecialization, index: int) -> int:
    """Return how many rows a device selects from at once; each CTA prefetches for the one that follows it."""
    return count_resident_ctas(obtain_selector(specialization, index), specialization.threads, index)


def count_resident_ctas(kernel: LoadedKernel, threads: int, index: int) -> int:
    """Return how many CTAs of a kernel a device holds at once."""
    return kernel.count_ctas(threads) * count_multiprocessors(index)


def find_reciprocal(divisor: int) -> int:
    """Return the word m for which floor(n / divisor) is the high word of n m, as a signed number.

    With m = floor(2^32 / divisor) + 1 that is exact for n * divisor < 2^32 and
    a divisor of at least 2; so for every row that is not streamed.

    Source: Granlund and Montgomery, Division by invariant integers using
    multiplication, PLDI 1994.
    """
    word = ((1 << 32) // divisor + 1) & 0xFFFFFFFF
    return word - (1 << 32) if word >> 31 else word


def selector_recipe(specialization: SelectorSpecialization, architecture: str) -> KernelRecipe:
    """Return how the kernel of a specialisation is made."""

    def build(options: str) -> Any:
        from .cutedsl.selector import compile_selector

        return compile_selector(specialization, options)

    return KernelRecipe(specialization.name, architecture, list_sources(), build, specialization.shared_bytes)


def list_sources() -> tuple[Path, ...]:
    """Return the files that the code of every CuTeDSL kernel comes from."""
    folder = Path(__file__).parent
    return tuple(sorted(path for pattern in KERNEL_FILES for path in folder.glob(pattern)))


@cache
def obtain_selector(specialization: SelectorSpecialization, index: int) -> LoadedKernel:
    """Return a selector that is loaded on a device.

    Raises:
        MissingBackendError: As ``select_rows``.
    """
    try:
        return load_kernel(obtain_kernel(selector_recipe(specialization, device_architecture(index))), index)
    except MissingBackendError as error:
        remedies = "; or ".join(part for part in (error.remedy, TRITON_REMEDY) if part)
        raise MissingBackendError(error.what, value=error.value, limit=error.limit, remedy=remedies) from error


@cache
def device_architecture(index: int) -> str:
    """Return the architecture that kernels are compiled for on a device.

    Raises:
        MissingBackendError: Selectors are made for other devices.
    """
    capability = torch.cuda.get_device_capability(index)
    if capability not in ARCHITECTURES:
        known = ", ".join(f"{major}.{minor}" for major, minor in ARCHITECTURES)
        found = ".".join(map(str, capability))
        raise MissingBackendError(
            f"compute capability of device {index}", value=found, limit=f"CuTeDSL kernels are made for {known}"
        )
    return ARCHITECTURES[capability]


@cache
def count_multiprocessors(index: int) -> int:
    """Return the multiprocessors of a device."""
    return int(torch.cuda.get_device_properties(index).multi_processor_count)
