"""Kernels on a device: loads machine code and launches it.

One path serves kernels compiled in this process and kernels compiled ahead of
time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from tiebreak.errors import InputError

from .driver_library import (
    CAPTURE_MODE_RELAXED,
    CLUSTER_DIMENSION,
    MAX_DYNAMIC_SHARED_SIZE_BYTES,
    PROGRAMMATIC_STREAM_SERIALIZATION,
    AttributeValue,
    Driver,
    LaunchAttribute,
    LaunchConfig,
    open_driver,
)
from .kernel_binary import KernelBinary

_loaded: dict[tuple[str, str, bytes, int], LoadedKernel] = {}
_loading = threading.Lock()


class LoadedKernel:
    """A kernel in the memory of one device.

    Args:
        driver: The driver.
        binary: What was loaded.
        function: The driver's handle of the kernel (``CUfunction``).
    """

    def __init__(self, driver: Driver, binary: KernelBinary, function: int) -> None:
        self.driver = driver
        self.binary = binary
        self.function = ctypes.c_void_p(function)
        self._parameter_bytes = binary.parameter_bytes
        self._shared_bytes = binary.dynamic_shared_bytes

    def launch(
        self,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[ctypes._SimpleCData[Any]],
        *,
        stream: int,
        cluster: int = 1,
        programmatic: bool = False,
    ) -> None:
        """Launch on a stream of the kernel's device, whose context is current.

        Args:
            grid: CTAs in x, y and z; x is a multiple of ``cluster``.
            threads: Threads per CTA, as the kernel was compiled for.
            arguments: One ctypes value per kernel parameter, in the order of
                the PTX: ``c_void_p`` or ``c_uint64`` for a pointer, ``c_int32``
                and ``c_int64`` for integers.  Copied before the call returns.
            stream: Handle of the stream (``CUstream``).
            cluster: CTAs per cluster, along x.
            programmatic: Let the grid start before the kernel ahead of it in
                the stream ends; the kernel must execute ``griddepcontrol.wait``.

        Raises:
            InputError: Number or sizes of the arguments differ from the parameters.
            DriverError: The driver refused.
        """
        if tuple(map(ctypes.sizeof, arguments)) != self._parameter_bytes:
            raise InputError(
                f"bytes per argument of kernel {self.binary.name}",
                value=tuple(map(ctypes.sizeof, arguments)),
                limit=f"must be {self._parameter_bytes}",
            )
        config = self._configure(grid, threads, stream, cluster, programmatic)
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        code = self.driver.launch(ctypes.byref(config), self.function, pointers, None)
        if code:
            raise self.driver.explain(f"launch of kernel {self.binary.name} on grid {grid}", code)

    def count_ctas(self, threads: int) -> int:
        """Return how many CTAs an SM can hold at once."""
        count = ctypes.c_int()
        self.driver.call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(count), self.function, ctypes.c_int(threads), ctypes.c_size_t(self._shared_bytes),
        )  # fmt: skip
        return count.value

    def count_clusters(self, threads: int, cluster: int) -> int:
        """Return how many clusters of CTAs the device can hold at once."""
        count = ctypes.c_int()
        config = self._configure((cluster, 1, 1), threads, 0, cluster, False)
        self.driver.call("cuOccupancyMaxActiveClusters", ctypes.byref(count), self.function, ctypes.byref(config))
        return count.value

    def _configure(
        self, grid: tuple[int, int, int], threads: int, stream: int, cluster: int, programmatic: bool
    ) -> LaunchConfig:
        """Return the launch configuration; of its own, so that threads may launch at once."""
        attributes, count = _make_attributes(cluster, programmatic)
        return LaunchConfig(*grid, threads, 1, 1, self._shared_bytes, stream, attributes, count)


@cache
def _make_attributes(cluster: int, programmatic: bool) -> tuple[ctypes.Array[LaunchAttribute] | None, int]:
    """Return the launch attributes, which launches only read, and how many they are."""
    wanted = []
    if cluster > 1:
        wanted.append(LaunchAttribute(CLUSTER_DIMENSION, b"", AttributeValue(cluster=(cluster, 1, 1))))
    if programmatic:
        wanted.append(LaunchAttribute(PROGRAMMATIC_STREAM_SERIALIZATION, b"", AttributeValue(programmatic=1)))
    return ((LaunchAttribute * len(wanted))(*wanted) if wanted else None), len(wanted)


def load_kernel(binary: KernelBinary, device_index: int) -> LoadedKernel:
    """Return a kernel in the memory of a device; it is loaded once per process and device.

    Loading synchronises nothing, and is allowed while a stream is captured.

    Args:
        binary: The kernel, compiled for the device's architecture.
        device_index: Index of the device among the visible ones.

    Raises:
        MissingBackendError: There is no CUDA driver.
        DriverError: The driver refused.
    """
    key = (binary.name, binary.architecture, binary.cubin, device_index)
    with _loading:
        if key not in _loaded:
            _loaded[key] = _load(open_driver(), binary, device_index)
        return _loaded[key]


def _load(driver: Driver, binary: KernelBinary, device_index: int) -> LoadedKernel:
    """Load a kernel in the primary context of a device, which is the one that torch uses."""
    device, context, mode = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int(CAPTURE_MODE_RELAXED)
    driver.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(device_index))
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver.call("cuCtxPushCurrent_v2", context)
    driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        return LoadedKernel(driver, binary, _load_function(driver, binary))
    finally:
        driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        driver.call("cuCtxPopCurrent_v2", ctypes.byref(context))


def _load_function(driver: Driver, binary: KernelBinary) -> int:
    """Load a kernel in the current context, allow it its shared memory, and return its handle."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(binary.cubin))
    driver.call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(binary.entry.encode()))
    if binary.dynamic_shared_bytes:
        size = ctypes.c_int(binary.dynamic_shared_bytes)
        driver.call("cuFuncSetAttribute", function, ctypes.c_int(MAX_DYNAMIC_SHARED_SIZE_BYTES), size)
    assert function.value is not None
    return function.value
