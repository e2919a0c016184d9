"""Where kernels can run, and the device they are launched on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from triton.runtime.jit import JITFunction

from tiebreak.errors import MissingBackendError

from .kernels_select import select


def device_guard(device: torch.device) -> AbstractContextManager[Any]:
    """Make ``device`` the current one, since Triton launches on the current device.

    Raises:
        MissingBackendError: A tensor in CPU memory needs the Triton interpreter.
    """
    if device.type == "cuda":
        return torch.cuda.device(device)
    if isinstance(select, JITFunction):
        raise MissingBackendError(
            f"a GPU for tensors on {device}",
            limit="compiled kernels need CUDA tensors",
            remedy="pass CUDA tensors, or set TRITON_INTERPRET=1 before triton is imported",
        )
    return nullcontext()
