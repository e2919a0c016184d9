"""Compiled kernels: what the compiler hands over, what a cubin costs, and folders of kernels.

Annotations are evaluated where they stand: CuTeDSL reads them, and its names
are imported inside a function.
"""

import dataclasses
import importlib.util
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton

from tiebreak.errors import DriverError, InputError, KernelFileError, MissingBackendError
from tiebreak.impl import kernel_binary, kernel_files
from tiebreak.impl.driver import load_kernel
from tiebreak.impl.kernel_binary import KernelBinary, KernelRecipe, compile_kernel, measure_resources, read_entry

PTX = """
.version 8.7
.target sm_90a
.address_size 64
{shared}
.visible .entry fill(
	.param .u64 .ptr .global .align 16 fill_param_0,
	.param .u32 fill_param_1,
	.param .u8 fill_param_2
)
.reqntid 64, 1, 1
{{
	.reg .b32 	%r<4>;
	.reg .b64 	%rd<4>;
{local}
	ld.param.b64 	%rd1, [fill_param_0];
	ld.param.b32 	%r1, [fill_param_1];
{body}
	st.global.b32 	[%rd1], %r1;
	ret;
}}
"""
SHARED = {
    "shared": ".shared .align 4 .b8 room[5000];",
    "body": "	st.shared.b32 	[room+4], %r1;\n	ld.shared.b32 %r1, [room+8];",
}
SPILLED = {
    "local": "	.local .align 8 .b8 depot[64];",
    "body": "	mov.b64 %rd2, depot;\n	cvt.u64.u32 %rd3, %r1;\n	add.s64 %rd2, %rd2, %rd3;\n"
    "	st.local.b32 [%rd2], %r1;\n	ld.local.b32 %r1, [%rd2+4];",
}


def assemble(folder: Path, **parts: str) -> bytes:
    """Return the cubin of the PTX above, made by the assembler that Triton carries."""
    source, target = folder / "fill.ptx", folder / "fill.cubin"
    source.write_text(PTX.format(**{"shared": "", "local": "", "body": "", **parts}))
    command = [triton.knobs.nvidia.ptxas.path, "-arch", "sm_90a", str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    return target.read_bytes()


def make_binary(**changes) -> KernelBinary:
    ptx = PTX.format(shared="", local="", body="")
    binary = KernelBinary("fill-64", "sm_90a", "fill", b"\x7fELF\x00\xff", ptx, 8, 0, 2048, 0)
    return dataclasses.replace(binary, **changes)


# -- PTX and cubin -------------------------------------------------------------------------------------------------


def test_the_entry_and_its_parameters_are_read_in_order():
    assert read_entry(make_binary().ptx) == ("fill", "qiB")
    assert make_binary().parameter_format == "qiB"
    assert read_entry(".visible .entry bare()\n{ ret; }") == ("bare", "")
    assert read_entry(".visible .entry mean(\n.param .f32 mean_param_0,\n.param .f64 mean_param_1\n)") == ("mean", "fd")
    aggregate = ".visible .entry all(\n.param .align 8 .b8 all_param_0[24],\n.param .f64 all_param_1\n)"
    with pytest.raises(InputError, match="all_param_0"):
        read_entry(aggregate)


@pytest.mark.parametrize(("ptx", "count"), [("", 0), (".visible .entry a()\n.visible .entry b()\n", 2)])
def test_one_kernel_is_expected(ptx, count):
    with pytest.raises(InputError, match=f"is {count}; must be 1"):
        read_entry(ptx)


def test_resources_leave_out_what_cuda_reserves(tmp_path):
    plain, shared = measure_resources(assemble(tmp_path)), measure_resources(assemble(tmp_path, **SHARED))
    assert (plain.static_shared_bytes, plain.spilled_bytes) == (0, 0)
    assert 4 <= plain.registers <= 16
    assert (shared.static_shared_bytes, shared.spilled_bytes) == (5000, 0)
    dynamic = measure_resources(assemble(tmp_path, shared=".extern .shared .align 16 .b8 room[];", body=SHARED["body"]))
    assert dynamic.static_shared_bytes == 0
    assert make_binary(static_shared_bytes=16).shared_bytes == 2064


def test_local_memory_counts_as_spilled(tmp_path):
    assert measure_resources(assemble(tmp_path, **SPILLED)).spilled_bytes >= 64


def test_a_missing_cuobjdump_is_named(monkeypatch):
    monkeypatch.setattr(triton, "knobs", object())
    with pytest.raises(MissingBackendError, match=r"cuobjdump.*nvidia.*TRITON_CUOBJDUMP_PATH"):
        measure_resources(b"")


# -- the compiler --------------------------------------------------------------------------------------------------


def build_fill(options: str):
    """Compile a kernel with one parameter of every kind that launches use, one of them unused."""
    import cutlass
    from cutlass import Boolean, Int32, Int64, cute
    from cutlass.cute.runtime import make_ptr

    @cute.kernel
    def fill(target: cute.Pointer, last: Int32, unused: Int32, offset: Int64, when: Boolean, step: cutlass.Constexpr):
        thread, _, _ = cute.arch.thread_idx()
        if when:
            cute.make_tensor(target + offset, cute.make_layout(64))[thread] = last - thread * step

    @cute.jit
    def host(target: cute.Pointer, last: Int32, unused: Int32, offset: Int64, when: Boolean):
        fill(target, last, unused, offset, when, 2).launch(grid=[1, 1, 1], block=[64, 1, 1], cluster=[1, 1, 1])

    target = make_ptr(Int32, 0, cute.AddressSpace.gmem, assumed_align=16)
    return cute.compile(host, target, Int32(0), Int32(0), Int64(0), Boolean(False), options=options)


@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a", "sm_121a"])
def test_the_compiler_needs_no_gpu_and_leaves_no_file(architecture, tmp_path, monkeypatch):
    work, drafts = tmp_path / "work", tmp_path / "drafts with a space"
    work.mkdir()
    drafts.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(kernel_binary.tempfile, "tempdir", str(drafts))
    recipe = KernelRecipe("fill", architecture, (), build_fill, 4096)
    if importlib.util.find_spec("cutlass") is None:
        with pytest.raises(MissingBackendError, match=rf"fill for {architecture}"):
            compile_kernel(recipe)
    else:
        binary = compile_kernel(recipe)
        assert f".target {architecture}\n" in binary.ptx
        assert ".reqntid 64, 1, 1" in binary.ptx
        assert binary.parameter_format == "qiiqB"
        assert binary.cubin.startswith(b"\x7fELF")
        assert binary.entry.encode() in binary.cubin
        assert (binary.dynamic_shared_bytes, binary.static_shared_bytes, binary.spilled_bytes) == (4096, 0, 0)
        assert 1 <= binary.registers <= 32
    assert list(work.iterdir()) == []
    assert list(drafts.glob("tmp*")) == [], "the folder with the dumps stays"


def test_a_missing_compiler_is_named_with_both_remedies(monkeypatch):
    monkeypatch.setitem(sys.modules, "cutlass", None)
    recipe = KernelRecipe("fill-64", "sm_121a", (), build_fill)
    with pytest.raises(
        MissingBackendError, match=r"fill-64 for sm_121a .*nvidia-cutlass-dsl\[cu13\].*TIEBREAK_KERNELS"
    ):
        compile_kernel(recipe)


# -- a device ------------------------------------------------------------------------------------------------------


def device_recipe(name: str) -> KernelRecipe:
    major, minor = torch.cuda.get_device_capability(0)
    return KernelRecipe(name, f"sm_{major}{minor}a", (), build_fill, 60_000)


def expected_fill() -> list[int]:
    return [-1] * 8 + [100 - 2 * thread for thread in range(64)] + [-1] * 8


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"cluster": 2}, {"programmatic": True}, {"cluster": 2, "programmatic": True}])
@pytest.mark.parametrize("captured", [False, True])
def test_a_kernel_runs_on_this_device(options, captured):
    target = torch.full((80,), -1, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()  # The kernel does not wait for what a programmatic launch may overtake.
    binary = compile_kernel(device_recipe(f"fill-{captured}-{'-'.join(options)}"))

    def launch():
        kernel = load_kernel(binary, 0)
        arguments = (target.data_ptr(), 100, 0, 8, True)
        kernel.launch((2, 1, 1), 64, arguments, stream=torch.cuda.current_stream().cuda_stream, **options)

    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        graph.replay()
    else:
        launch()
    assert target.tolist() == expected_fill()


@pytest.mark.gpu
def test_the_device_says_how_many_ctas_fit():
    kernel = load_kernel(compile_kernel(device_recipe("fill-occupancy")), 0)
    room = torch.cuda.get_device_properties(0).shared_memory_per_multiprocessor
    assert kernel.count_ctas(64) == room // (60_032 + kernel_binary.RESERVED_SHARED_BYTES)
    assert kernel.count_clusters(64, 2) >= 1


@pytest.mark.gpu
def test_the_device_refuses_what_was_compiled_for_others():
    torch.cuda.init()
    other = "sm_121a" if torch.cuda.get_device_capability(0)[0] < 12 else "sm_90a"
    with pytest.raises(DriverError, match="compile the kernel for the device's architecture"):
        load_kernel(compile_kernel(KernelRecipe("fill-other", other, (), build_fill)), 0)
    kernel = load_kernel(compile_kernel(device_recipe("fill-threads")), 0)
    with pytest.raises(DriverError, match=r"launch of kernel fill-threads .*CUDA_ERROR_INVALID_VALUE"):
        kernel.launch((1, 1, 1), 128, (0, 0, 0, 0, False), stream=torch.cuda.current_stream().cuda_stream)


# -- folders -------------------------------------------------------------------------------------------------------


def test_a_kernel_survives_its_folder(tmp_path):
    folder = tmp_path / "new" / "folder"
    binary = make_binary()
    kernel_files.write_kernel(folder, binary, "f1")
    assert kernel_files.read_kernel(folder, "fill-64", "sm_90a", "f1") == binary
    assert sorted(path.name for path in folder.iterdir()) == [
        "fill-64.sm_90a.cubin", "fill-64.sm_90a.json", "fill-64.sm_90a.ptx",
    ]  # fmt: skip
    changed = make_binary(registers=9, cubin=b"\x7fELF other")
    kernel_files.write_kernel(folder, changed, "f2")
    assert kernel_files.read_kernel(folder, "fill-64", "sm_90a", "f2") == changed
    assert len(list(folder.iterdir())) == 3


def test_files_are_for_whom_the_umask_allows(tmp_path):
    before = os.umask(0o022)
    try:
        kernel_files.write_kernel(tmp_path, make_binary(), "f1")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o644}


def test_other_kernels_are_not_found(tmp_path):
    kernel_files.write_kernel(tmp_path, make_binary(), "f1")
    assert kernel_files.read_kernel(tmp_path, "fill-6", "sm_90a", "f1") is None
    assert kernel_files.read_kernel(tmp_path, "fill-64", "sm_100a", "f1") is None
    assert kernel_files.read_kernel(tmp_path / "absent", "fill-64", "sm_90a", "f1") is None


def change_manifest(**changes):
    def change(folder: Path) -> None:
        path = folder / "fill-64.sm_90a.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "fill-64.sm_90a.cubin").unlink(), r"fill-64\.sm_90a\.cubin is damaged; No such file"),
        (lambda folder: (folder / "fill-64.sm_90a.ptx").unlink(), r"fill-64\.sm_90a\.ptx is damaged; No such file"),
        (lambda folder: (folder / "fill-64.sm_90a.cubin").write_bytes(b"\x7fELF"), r"\.cubin is damaged; its content"),
        (lambda folder: (folder / "fill-64.sm_90a.ptx").write_text("ret;"), r"\.ptx is damaged; its content"),
        (lambda folder: (folder / "fill-64.sm_90a.json").write_text("{"), r"\.json is damaged; no JSON"),
        (lambda folder: (folder / "fill-64.sm_90a.json").write_text("[1]"), r"\.json is damaged; it is no manifest"),
        (lambda folder: (folder / "fill-64.sm_90a.json").write_bytes(b"\xff"), r"\.json is damaged; no JSON"),
        (change_manifest(version=2), "no manifest of version 1"),
        (change_manifest(registers="8"), "wrong type: registers"),
        (change_manifest(spilled_bytes=True), "wrong type: spilled_bytes"),
        (change_manifest(entry="empty"), "not the kernel in the PTX"),
        (change_manifest(name="fill-65"), "name in .* is 'fill-65'; must be 'fill-64'"),
        (change_manifest(architecture="sm_100a"), "architecture in .* is 'sm_100a'; must be 'sm_90a'"),
        (change_manifest(fingerprint="f0"), "fingerprint in .* is 'f0'; must be 'f1'"),
    ],
)
def test_damage_is_found_and_the_file_named(tmp_path, change, message):
    kernel_files.write_kernel(tmp_path, make_binary(), "f1")
    change(tmp_path)
    with pytest.raises(KernelFileError, match=message) as caught:
        kernel_files.read_kernel(tmp_path, "fill-64", "sm_90a", "f1")
    assert str(tmp_path) in str(caught.value)
    assert "delete it, or build the folder again" in str(caught.value)


@pytest.mark.parametrize("name", ["", "../fill", "a/b", ".hidden", "a b", "a\n"])
def test_names_that_leave_the_folder_are_refused(tmp_path, name):
    with pytest.raises(InputError, match="name of a kernel"):
        kernel_files.write_kernel(tmp_path, make_binary(name=name), "f1")
    with pytest.raises(InputError, match="architecture"):
        kernel_files.read_kernel(tmp_path, "fill", name, "f1")


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    place = tmp_path / "file"
    place.write_text("")
    with pytest.raises(KernelFileError, match=re.escape(str(place))):
        kernel_files.write_kernel(place, make_binary(), "f1")


def test_a_failed_write_leaves_the_old_kernel_and_no_draft(tmp_path, monkeypatch):
    kernel_files.write_kernel(tmp_path, make_binary(), "f1")

    def refuse(source, target):
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(kernel_files.os, "replace", refuse)
    with pytest.raises(KernelFileError, match="No space left on device"):
        kernel_files.write_kernel(tmp_path, make_binary(cubin=b"other"), "f1")
    assert kernel_files.read_kernel(tmp_path, "fill-64", "sm_90a", "f1") == make_binary()
    assert len(list(tmp_path.iterdir())) == 3
