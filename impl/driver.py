"""Kernels on a device: loads machine code and launches it.

One path serves kernels compiled in this process and kernels compiled ahead of
time.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence
from functools import cache

from tiebreak.errors import InputError

from .driver_library import (
    CAPTURE_MODE_RELAXED,
    CLUSTER_DIMENSION,
    CONFIG_LAYOUT,
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


class _Frame(threading.local):
    """What one thread's launches of one kernel are written to; the driver copies it.

    Args:
        binary: The kernel.
    """

    def __init__(self, binary: KernelBinary) -> None:
        kinds = binary.parameter_format
        self.layout = struct.Struct(kinds)
        self.values = ctypes.create_string_buffer(self.layout.size + 1)
        # A repeat count of 0 aligns the end of what is before it.
        offsets = [struct.calcsize(f"{kinds[:place]}0{kind}") for place, kind in enumerate(kinds)]
        base = ctypes.addressof(self.values)
        self.pointers = (ctypes.c_void_p * len(kinds))(*(base + offset for offset in offsets))
        self.config = LaunchConfig()
        self.config_pointer = ctypes.byref(self.config)


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
        self._frame = _Frame(binary)
        self._shared_bytes = binary.dynamic_shared_bytes

    def launch(
        self,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[int | float],
        *,
        stream: int,
        cluster: int = 1,
        programmatic: bool = False,
    ) -> None:
        """Launch on a stream of the kernel's device, whose context is current.

        Args:
            grid: CTAs in x, y and z; x is a multiple of ``cluster``.
            threads: Threads per CTA, as the kernel was compiled for.
            arguments: One number per kernel parameter, in the order of the
                PTX: addresses, and integers in the range of the signed type.
            stream: Handle of the stream (``CUstream``).
            cluster: CTAs per cluster, along x.
            programmatic: Let the grid start before the kernel ahead of it in
                the stream ends; the kernel must execute ``griddepcontrol.wait``.

        Raises:
            InputError: An argument is missing, left over or out of range.
            DriverError: The driver refused.
        """
        frame = self._frame
        try:
            frame.layout.pack_into(frame.values, 0, *arguments)
        except struct.error as error:
            raise InputError(
                f"arguments of kernel {self.binary.name}", value=tuple(arguments), limit=str(error),
                remedy=f"pass numbers of the types {self.binary.parameter_format!r} (module struct)",
            ) from error  # fmt: skip
        self._configure(frame.config, grid, threads, stream, cluster, programmatic)
        code = self.driver.launch(frame.config_pointer, self.function, frame.pointers, None)
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
        config = LaunchConfig()
        self._configure(config, (cluster, 1, 1), threads, 0, cluster, False)
        self.driver.call("cuOccupancyMaxActiveClusters", ctypes.byref(count), self.function, ctypes.byref(config))
        return count.value

    def _configure(
        self,
        config: LaunchConfig,
        grid: tuple[int, int, int],
        threads: int,
        stream: int,
        cluster: int,
        programmatic: bool,
    ) -> None:
        """Fill a launch configuration, all fields at once."""
        attributes = _make_attributes(cluster, programmatic)
        address = ctypes.addressof(attributes) if attributes else 0
        CONFIG_LAYOUT.pack_into(config, 0, *grid, threads, 1, 1, self._shared_bytes, stream, address, len(attributes))


@cache
def _make_attributes(cluster: int, programmatic: bool) -> ctypes.Array[LaunchAttribute]:
    """Return the launch attributes, which launches only read."""
    wanted = []
    if cluster > 1:
        wanted.append(LaunchAttribute(CLUSTER_DIMENSION, b"", AttributeValue(cluster=(cluster, 1, 1))))
    if programmatic:
        wanted.append(LaunchAttribute(PROGRAMMATIC_STREAM_SERIALIZATION, b"", AttributeValue(programmatic=1)))
    return (LaunchAttribute * len(wanted))(*wanted)


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
