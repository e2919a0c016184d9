"""The CUDA driver's library: layouts, numbers and entry points, called by ctypes.

They are those of ``cuda.h`` of CUDA 13.0; the driver keeps them for good under
a versioned name.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from tiebreak.errors import DriverError, MissingBackendError

CLUSTER_DIMENSION = 4
"""``CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION``."""

PROGRAMMATIC_STREAM_SERIALIZATION = 6
"""``CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION``."""

MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
"""``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES``."""

CAPTURE_MODE_RELAXED = 2
"""``CU_STREAM_CAPTURE_MODE_RELAXED``."""

_DEVICE = "make the tensors' device current with torch.cuda.device"
_EARLIER = "an earlier kernel failed; restart the process and run it under compute-sanitizer"
_REMEDIES = {
    "CUDA_ERROR_INVALID_VALUE": "check grid, threads, cluster and shared memory against the device's limits",
    "CUDA_ERROR_OUT_OF_MEMORY": "free device memory",
    "CUDA_ERROR_NO_DEVICE": "run on a machine with an NVIDIA GPU, and check CUDA_VISIBLE_DEVICES",
    "CUDA_ERROR_INVALID_CONTEXT": _DEVICE,
    "CUDA_ERROR_INVALID_HANDLE": f"launch on a stream of the kernel's device, and {_DEVICE}",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "compile the kernel for the device's architecture",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "make the grid a multiple of the cluster, and the cluster at most 8",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "launch fewer threads, or use less shared memory",
    "CUDA_ERROR_ILLEGAL_ADDRESS": _EARLIER,
    "CUDA_ERROR_MISALIGNED_ADDRESS": _EARLIER,
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": _EARLIER,
    "CUDA_ERROR_LAUNCH_FAILED": _EARLIER,
}


class AttributeValue(ctypes.Union):
    """``CUlaunchAttributeValue``, as far as it is used; 64 bytes."""

    _fields_: ClassVar = [
        ("pad", ctypes.c_char * 64),
        ("cluster", ctypes.c_uint * 3),
        ("programmatic", ctypes.c_int),
    ]


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute``; the value is aligned to 8 bytes."""

    _fields_: ClassVar = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", AttributeValue)]


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_: ClassVar = [
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    ]


CONFIG_LAYOUT = struct.Struct("7IQQI")
"""``LaunchConfig`` for the module ``struct``, which fills it faster than field by field."""


class Driver:
    """The entry points of libcuda that launches need, each checked.

    Args:
        library: The loaded library, or an object with the same functions.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.launch = library.cuLaunchKernelEx
        self.call("cuInit", 0)

    def call(self, function: str, *arguments: Any) -> None:
        """Call an entry point by name.

        Raises:
            DriverError: It failed.
        """
        code = getattr(self.library, function)(*arguments)
        if code:
            raise self.explain(function, code)

    def explain(self, what: str, code: int) -> DriverError:
        """Return the exception for a CUDA error code."""
        text = ctypes.c_char_p()
        known = self.library.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value
        name = known.decode() if known else f"CUDA error {code}"
        remedy = _REMEDIES.get(name, "see the CUDA driver's documentation of this error")
        return DriverError(f"{what} failed with {name}", name=name, remedy=remedy)


@cache
def open_driver() -> Driver:
    """Return the machine's CUDA driver.

    Raises:
        MissingBackendError: There is no libcuda.so.1.
        DriverError: It cannot be initialised.
    """
    return Driver(open_library())


def open_library(name: str = "libcuda.so.1", load: Callable[[str], Any] = ctypes.CDLL) -> Any:
    """Load the driver's library.

    Raises:
        MissingBackendError: It is not there.
    """
    try:
        return load(name)
    except OSError as error:
        raise MissingBackendError(
            "the CUDA driver is not there", limit=str(error), remedy="run on a machine with an NVIDIA GPU and driver"
        ) from error
