"""Launches through the CUDA driver, against a stand-in for libcuda that keeps what it was called with."""

from __future__ import annotations

import ctypes
import re
import threading

import pytest

from tiebreak.errors import DriverError, InputError, MissingBackendError
from tiebreak.impl import driver as cuda
from tiebreak.impl import driver_library
from tiebreak.impl.kernel_binary import KernelBinary

PTX = """
.visible .entry copy(
	.param .u64 .ptr .global .align 16 copy_param_0,
	.param .u8 copy_param_1,
	.param .u32 copy_param_2,
	.param .f32 copy_param_3,
	.param .u64 copy_param_4
)
.reqntid 64, 1, 1
{ ret; }
"""
BINARY = KernelBinary("copy+1", "sm_90a", "copy", b"\x7fELF\x00rest", PTX, 8, 16, 70_000, 0)
CONTEXT, MODULE, FUNCTION, STREAM = 0x1000, 0x2000, 0x3000, 0x4000
LAUNCH = {"threads": 64, "stream": STREAM}
VALUES = (0x7F00_0000_1230, True, -7, 0.5, -(2**40))


def pointed(argument):
    """Return the object behind ctypes.byref."""
    return argument._obj


class Library:
    """Every entry point succeeds, unless ``codes`` says otherwise; ``calls`` lists (name, details)."""

    def __init__(self, **codes: int) -> None:
        self.codes = codes
        self.calls: list[tuple] = []

    def __getattr__(self, name):
        handler = getattr(Library, "on" + re.sub("([A-Z])", r"_\1", name.removeprefix("cu")).lower(), None)

        def entry(*arguments):
            self.calls.append((name, handler(self, *arguments) if handler else None))
            return self.codes.get(name, 0)

        return entry

    def on_device_primary_ctx_retain(self, context, device):
        pointed(context).value = CONTEXT
        return device.value

    def on_device_get(self, device, index):
        pointed(device).value = index.value

    def on_ctx_push_current_v2(self, context):
        return context.value

    def on_thread_exchange_stream_capture_mode(self, mode):
        given, pointed(mode).value = pointed(mode).value, 1
        return given

    def on_module_load_data(self, module, image):
        pointed(module).value = MODULE
        return ctypes.cast(image, ctypes.c_void_p).value

    def on_module_get_function(self, function, module, name):
        pointed(function).value = FUNCTION
        return module.value, name.value

    def on_func_set_attribute(self, function, attribute, value):
        return function.value, attribute.value, value.value

    def on_launch_kernel_ex(self, config, function, parameters, extra):
        types = (ctypes.c_uint64, ctypes.c_uint8, ctypes.c_int32, ctypes.c_float, ctypes.c_int64)
        values = tuple(kind.from_address(parameters[place]).value for place, kind in enumerate(types))
        alignment = [parameters[place] % ctypes.sizeof(kind) for place, kind in enumerate(types)]
        assert (len(parameters), alignment) == (len(types), [0] * len(types))
        return bytes(pointed(config)), describe_attributes(pointed(config)), function.value, values, extra

    def on_occupancy_max_active_blocks_per_multiprocessor(self, count, function, threads, shared_bytes):
        pointed(count).value = 2
        return function.value, threads.value, shared_bytes.value

    def on_occupancy_max_active_clusters(self, count, function, config):
        pointed(count).value = 33
        return function.value, pointed(config).grid_x, describe_attributes(pointed(config))

    def on_get_error_name(self, code, text):
        names = {1: b"CUDA_ERROR_INVALID_VALUE", 201: b"CUDA_ERROR_INVALID_CONTEXT", 998: b"CUDA_ERROR_NEW"}
        pointed(text).value = names.get(code)


def describe_attributes(config):
    """Return (id, the value's first twelve bytes as integers) of each attribute."""
    raw = [ctypes.string_at(ctypes.addressof(config.attributes[place]), 72) for place in range(config.attribute_count)]
    return [(int.from_bytes(item[:4], "little"), memoryview(item[8:20]).cast("I").tolist()) for item in raw]


def load(library: Library) -> cuda.LoadedKernel:
    return cuda._load(driver_library.Driver(library), BINARY, 3)


def test_layouts_are_those_of_the_header():
    offsets = {
        name: getattr(driver_library.LaunchConfig, name).offset for name, _ in driver_library.LaunchConfig._fields_
    }
    assert list(offsets.values()) == [0, 4, 8, 12, 16, 20, 24, 32, 40, 48]
    assert ctypes.sizeof(driver_library.LaunchConfig) == 56
    assert ctypes.sizeof(driver_library.LaunchAttribute) == 72
    assert driver_library.LaunchAttribute.value.offset == 8


def test_loading_uses_the_primary_context_and_restores_the_thread():
    library = Library()
    kernel = load(library)
    image = library.calls[5][1]
    assert ctypes.string_at(image, len(BINARY.cubin)) == BINARY.cubin
    assert library.calls == [
        ("cuInit", None),
        ("cuDeviceGet", None),
        ("cuDevicePrimaryCtxRetain", 3),
        ("cuCtxPushCurrent_v2", CONTEXT),
        ("cuThreadExchangeStreamCaptureMode", 2),
        ("cuModuleLoadData", image),
        ("cuModuleGetFunction", (MODULE, b"copy")),
        ("cuFuncSetAttribute", (FUNCTION, 8, 70_000)),
        ("cuThreadExchangeStreamCaptureMode", 1),
        ("cuCtxPopCurrent_v2", None),
    ]
    assert kernel.function.value == FUNCTION


def test_a_failed_load_restores_the_thread():
    library = Library(cuModuleLoadData=1)
    with pytest.raises(DriverError, match="cuModuleLoadData failed with CUDA_ERROR_INVALID_VALUE"):
        load(library)
    assert [name for name, _ in library.calls[-2:]] == ["cuThreadExchangeStreamCaptureMode", "cuCtxPopCurrent_v2"]


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ({}, []),
        ({"cluster": 1}, []),
        ({"cluster": 4}, [(4, [4, 1, 1])]),
        ({"programmatic": True}, [(6, [1, 0, 0])]),
        ({"cluster": 2, "programmatic": True}, [(4, [2, 1, 1]), (6, [1, 0, 0])]),
    ],
)
def test_a_launch_hands_over_configuration_and_values(options, attributes):
    library = Library()
    load(library).launch((8, 2, 3), arguments=VALUES, **LAUNCH, **options)
    name, (config, found, function, values, extra) = library.calls[-1]
    assert (name, found, function, extra) == ("cuLaunchKernelEx", attributes, FUNCTION, None)
    assert values == VALUES
    words = memoryview(config).cast("I").tolist()
    assert words[:7] == [8, 2, 3, 64, 1, 1, 70_000]
    assert words[8] == STREAM
    assert words[12] == len(attributes)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ((), "expected 5 items"),
        (VALUES[:-1], "expected 5 items"),
        ((*VALUES, 1), "expected 5 items"),
        ((2**63, *VALUES[1:]), "out of range"),
        ((*VALUES[:2], 2**31, *VALUES[3:]), "format requires"),
        ((*VALUES[:2], 1.5, *VALUES[3:]), "not an integer"),
        ((ctypes.c_void_p(1), *VALUES[1:]), "not an integer"),
    ],
)
def test_wrong_arguments_never_reach_the_driver(wrong, reason):
    library = Library()
    kernel = load(library)
    with pytest.raises(InputError, match=rf"arguments of kernel copy\+1 is .*{reason}.*'qBifq'"):
        kernel.launch((1, 1, 1), arguments=wrong, **LAUNCH)
    assert library.calls[-1][0] != "cuLaunchKernelEx"


@pytest.mark.parametrize(
    ("code", "name", "remedy"),
    [
        (201, "CUDA_ERROR_INVALID_CONTEXT", "current"),
        (998, "CUDA_ERROR_NEW", "documentation"),
        (997, "CUDA error 997", "documentation"),
    ],
)
def test_a_refused_launch_names_kernel_error_and_remedy(code, name, remedy):
    kernel = load(Library(cuLaunchKernelEx=code))
    with pytest.raises(DriverError, match=rf"copy\+1 .*{name}.*{remedy}") as caught:
        kernel.launch((1, 1, 1), arguments=VALUES, **LAUNCH)
    assert caught.value.name == name


def test_occupancy_counts_dynamic_shared_memory_and_clusters():
    library = Library()
    kernel = load(library)
    assert kernel.count_ctas(64) == 2
    assert library.calls[-1][1] == (FUNCTION, 64, 70_000)
    assert kernel.count_clusters(64, 4) == 33
    assert library.calls[-1][1] == (FUNCTION, 4, [(4, [4, 1, 1])])


def test_a_kernel_is_loaded_once_per_device(monkeypatch):
    library = Library()
    monkeypatch.setattr(cuda, "open_driver", lambda: driver_library.Driver(library))
    monkeypatch.setattr(cuda, "_loaded", {})
    kernels = [[], []]
    for device in (0, 1):
        threads = [
            threading.Thread(target=lambda device=device: kernels[device].append(cuda.load_kernel(BINARY, device)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(set(map(id, group))) for group in kernels] == [1, 1]
    assert kernels[0][0] is not kernels[1][0]
    assert [name for name, _ in library.calls].count("cuModuleLoadData") == 2


def test_launches_of_two_threads_do_not_share_their_values():
    library = Library()
    kernel = load(library)
    places = []

    def keep(config, function, parameters, extra):
        places.append((ctypes.addressof(pointed(config)), ctypes.addressof(parameters), parameters[0]))

    kernel.driver.launch = lambda *arguments: keep(*arguments) or 0
    for _ in range(2):
        kernel.launch((1, 1, 1), arguments=VALUES, **LAUNCH)
    thread = threading.Thread(target=kernel.launch, args=((1, 1, 1), 64, VALUES), kwargs={"stream": STREAM})
    thread.start()
    thread.join()
    assert places[0] == places[1]
    assert not set(places[0]) & set(places[2])


def test_a_kernel_without_parameters_can_be_launched():
    binary = KernelBinary("bare", "sm_90a", "bare", b"\x7fELF", ".visible .entry bare()\n{ ret; }", 8, 0, 0, 0)
    library = Library()
    kernel = cuda._load(driver_library.Driver(library), binary, 0)
    assert "cuFuncSetAttribute" not in [name for name, _ in library.calls]
    seen = []
    kernel.driver.launch = lambda config, function, parameters, extra: seen.append(len(parameters)) or 0
    kernel.launch((1, 1, 1), arguments=(), **LAUNCH)
    assert seen == [0]


def test_a_missing_driver_is_named():
    with pytest.raises(MissingBackendError, match=r"libcuda-that-is-not-there.*run on a machine with"):
        driver_library.open_library("libcuda-that-is-not-there.so.1")
