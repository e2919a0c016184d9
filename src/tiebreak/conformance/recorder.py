"""Runs conformance cases on an NVIDIA device, through the driver's own compiler of PTX."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from tiebreak.errors import DriverError, TiebreakError
from tiebreak.impl.driver_library import Driver, LaunchConfig, open_driver

from .case import Case
from .kernel_text import ENTRY, input_bytes, make_kernel, output_bytes
from .operands import draw_memory, draw_operands
from .vectors import Results, Vectors, split_results

_ERROR_LOG, _ERROR_LOG_SIZE = 5, 6
"""``CU_JIT_ERROR_LOG_BUFFER`` and ``CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES``."""

_LOG_BYTES = 4096
_GUARD = 0xA5
_GUARD_BYTES = 256
_SECONDS = 10.0
"""How long a launch may take."""

DEVICE_TARGET = "sm_90"
"""Target of the cases that are recorded: that of H200, whose PTX later devices run as well."""

NOT_RECORDED = "not recorded"
"""How the reason starts why a case of another target has no results."""

_NOT_READY = "CUDA_ERROR_NOT_READY"


class RecorderError(TiebreakError):
    """Raised when the device gives other results the second time, or writes where it should not."""


class HungLaunchError(RecorderError):
    """Raised when a launch does not end."""


class Device:
    """The first device, and buffers for operands and results.

    Args:
        capacity: Bytes of each buffer.
    """

    def __init__(self, capacity: int) -> None:
        self._driver: Driver = open_driver()
        self._capacity = capacity
        self._device = ctypes.c_int()
        self._driver.call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(0))
        self.reset()

    @property
    def name(self) -> str:
        """Name of the device."""
        text = ctypes.create_string_buffer(256)
        self._driver.call("cuDeviceGetName", text, ctypes.c_int(256), self._device)
        return text.value.decode()

    @property
    def driver_version(self) -> int:
        """Version of the driver."""
        version = ctypes.c_int()
        self._driver.call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    def reset(self) -> None:
        """Make a fresh context: a launch that failed has left the old one unusable."""
        context = ctypes.c_void_p()
        self._driver.call("cuDevicePrimaryCtxReset_v2", self._device)
        self._driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._driver.call("cuCtxSetCurrent", context)
        self._input, self._output = (self._allocate(self._capacity) for _ in range(2))

    def _allocate(self, size: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self._driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def run(self, text: str, operands: bytes, results: int, threads: int) -> bytes:
        """Compile and run one kernel of one CTA, and return what it left in the results and the guard after them.

        Raises:
            DriverError: The compiler or the device refused; the compiler's own words are in the error.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._load(module, text)
        try:
            self._driver.call("cuModuleGetFunction", ctypes.byref(function), module, ENTRY.encode())
            self._driver.call("cuMemcpyHtoD_v2", self._input, operands, ctypes.c_size_t(len(operands)))
            size = results + _GUARD_BYTES
            self._driver.call("cuMemsetD8_v2", self._output, ctypes.c_ubyte(0), ctypes.c_size_t(results))
            guard = ctypes.c_uint64(self._output.value + results)
            self._driver.call("cuMemsetD8_v2", guard, ctypes.c_ubyte(_GUARD), ctypes.c_size_t(_GUARD_BYTES))
            self._launch(function, threads)
            raw = ctypes.create_string_buffer(size)
            self._driver.call("cuMemcpyDtoH_v2", raw, self._output, ctypes.c_size_t(size))
            return raw.raw
        finally:
            # After a failed launch this fails as well; the first error is the one that counts.
            self._driver.library.cuModuleUnload(module)

    def _load(self, module: ctypes.c_void_p, text: str) -> None:
        """Compile PTX; what the compiler says about an error becomes part of the exception."""
        log = ctypes.create_string_buffer(_LOG_BYTES)
        names = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        code = self._driver.library.cuModuleLoadDataEx(ctypes.byref(module), text.encode(), 2, names, values)
        if code:
            error = self._driver.explain("compilation", code)
            said = " ".join(log.value.decode(errors="replace").split())
            raise DriverError(f"{error}: {said}", name=error.name)

    def _launch(self, function: ctypes.c_void_p, threads: int) -> None:
        """Launch one CTA and wait for it, but not for ever."""
        config = LaunchConfig(1, 1, 1, threads, 1, 1, 0, None, None, 0)
        pointers = (ctypes.c_void_p * 2)(ctypes.addressof(self._input), ctypes.addressof(self._output))
        self._driver.call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
        deadline = time.monotonic() + _SECONDS
        while True:
            code = self._driver.library.cuStreamQuery(None)
            error = self._driver.explain("launch", code) if code else None
            if error is None:
                return
            if error.name != _NOT_READY:
                raise error
            if time.monotonic() > deadline:
                raise HungLaunchError("a launch did not end", limit=f"{_SECONDS} seconds", remedy="reset the device")


def pack_operands(case: Case) -> bytes:
    """What the kernel of a case reads."""
    words = [*draw_operands(case), draw_memory(case)]
    return np.concatenate(words).astype(np.uint64).tobytes().ljust(input_bytes(case), b"\0")


def run_case(device: Device, case: Case) -> Results:
    """Results of a case, which the device has to give twice.

    Raises:
        DriverError: The compiler or the device refused.
        RecorderError: The second results differ, or bytes past the results were written.
    """
    text, operands, size = make_kernel(case), pack_operands(case), output_bytes(case)
    threads = 1 if case.kind == "sequence" else case.count
    first, second = (device.run(text, operands, size, threads) for _ in range(2))
    if first != second:
        raise RecorderError("a case gave other results the second time", value=case.name)
    if first[size:] != bytes([_GUARD]) * _GUARD_BYTES:
        raise RecorderError("a case wrote past its results", value=case.name)
    return split_results(case, first[:size])


def record(device: Device, cases: tuple[Case, ...]) -> Vectors:
    """Run every case that the device has; a case that fails is noted and passed over.

    After a launch that never ended nothing else can run: the cases that are left have no results.
    """
    vectors = Vectors(device.name, device.driver_version)
    for case in cases:
        if case.target != DEVICE_TARGET:
            vectors.failures[case.name] = f"{NOT_RECORDED}: it needs {case.target}"
            continue
        try:
            vectors.results[case.name] = run_case(device, case)
        except HungLaunchError as error:
            vectors.failures[case.name] = str(error)
            break
        except RecorderError as error:
            vectors.failures[case.name] = str(error)
        except DriverError as error:
            vectors.failures[case.name] = str(error)
            device.reset()
    return vectors
