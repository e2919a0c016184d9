"""Launches on the PTX machine: PTX text, Triton kernels and CuTeDSL kernels, from Python and the command line."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tiebreak.cli import app
from tiebreak.errors import InputError, MissingBackendError, SimulationError, WorkerError
from tiebreak.impl.kernels_select import select
from tiebreak.impl.specialization import SelectorSpecialization
from tiebreak.ptx.code import KernelCode, read_file
from tiebreak.ptx.launch import launch
from tiebreak.ptx.targets import ARCHITECTURES, find_target
from tiebreak.ptx.triton_arguments import bind

SCALE = """
.version 9.0
.target sm_100a
.address_size 64
.file 1 "scale.py"
.visible .entry scale(.param .u64 scale_param_0, .param .u64 scale_param_1, .param .f32 scale_param_2, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [scale_param_0];
    ld.param.u64 %rd2, [scale_param_1];
    ld.param.f32 %f1, [scale_param_2];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    .loc 1 7 5
    ld.global.f32 %f2, [%rd4];
    mul.f32 %f3, %f2, %f1;
    .loc 1 8 5
    st.global.f32 [%rd5], %f3;
DONE:
    ret;
}
"""

RACE = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry race(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    .shared .align 4 .b32 cell;
    mov.u32 %r1, %tid.x;
    st.shared.b32 [cell], %r1;
    bar.sync 0;
    ld.shared.b32 %r2, [cell];
    ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.b32 [%rd3], %r2;
    ret;
}
"""


CONSTANTS = {
    "from_peers": False, "slots": 1, "has_state": False, "nan": 0, "zero": 0, "size": 16, "stages": 4,
    "by_position": False,
}  # fmt: skip
"""Compile-time arguments of the Triton selector."""


def write(folder: Path, text: str) -> Path:
    path = folder / "kernel.ptx"
    path.write_text(text)
    return path


def gather(rows: int, count: int) -> torch.Tensor:
    """Candidates int32 [rows, count, 2] with distinct scores."""
    scores = torch.randperm(rows * count, generator=torch.Generator().manual_seed(1)).float().reshape(rows, count)
    return torch.stack([scores.view(torch.int32), torch.arange(count, dtype=torch.int32).expand(rows, -1)], -1)


def expect(candidates: torch.Tensor, k: int) -> list[list[int]]:
    return torch.topk(candidates[..., 0].contiguous().view(torch.float32), k).indices.tolist()


@pytest.mark.parametrize("kind", ["array", "tensor", "view"])
def test_a_file_runs_on_the_memory_of_its_arguments(tmp_path: Path, kind: str) -> None:
    given, out = np.arange(50, dtype=np.float32), np.zeros(50, np.float32)
    path, pair = write(tmp_path, SCALE), (given, out)
    if kind == "array":
        launched = launch(path, (2,), *pair, 0.5, 50, threads=(32,))
    elif kind == "tensor":
        launched = launch(str(path), (2,), *map(torch.from_numpy, pair), 0.5, 50, threads=(32,))
    else:
        wide = torch.zeros(60)
        launched = launch(path, (2,), torch.from_numpy(given), wide[10:], 0.5, 50, threads=(32,))
        out = wide[10:].numpy()
        assert (wide[:10] == 0).all()
    assert launched.check() is launched
    assert out.tolist() == (given * np.float32(0.5)).tolist()
    assert launched.report is not None and launched.report.thread_instructions > 64 * 10


def test_a_read_past_the_end_names_the_line_of_the_source_and_says_how_to_run_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIEBREAK_CACHE", str(tmp_path / "cache"))
    given, out = np.arange(40, dtype=np.float32), np.zeros(64, np.float32)
    launched = launch(write(tmp_path, SCALE), (2,), given, out, 2.0, 50, threads=(32,))
    (finding,) = launched.findings
    assert finding.kind == "out-of-bounds" and "scale.py:7" in str(finding) and launched.report is None
    with pytest.raises(SimulationError, match="out-of-bounds"):
        launched.check()
    command = shlex.split(finding.replay)
    assert command[:2] == ["tiebreak", "ptx"]
    again = CliRunner().invoke(app, command[1:])
    assert again.exit_code == 1
    assert "out-of-bounds" in again.output and "scale.py:7" in again.output


def test_a_replay_starts_from_what_the_memory_held_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIEBREAK_CACHE", str(tmp_path))
    out = np.full(64, -1, np.int32)
    launched = launch(KernelCode(RACE, "race.ptx"), (1,), out, threads=(64,))
    assert {finding.kind for finding in launched.findings} == {"race"}
    assert (out >= 0).all(), "the launch ran to its end"
    (saved,) = tmp_path.glob("replays/*/array0.npy")
    assert (np.load(saved) == -1).all()
    assert "finding" not in str(launch(KernelCode(RACE, "race.ptx"), (1,), out, threads=(64,), races=False).findings)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_triton_kernel_compiles_for_each_target(architecture: str) -> None:
    candidates, out = gather(2, 40), torch.full((2, 9), -7, dtype=torch.int32)
    arguments = (candidates, out, candidates, 40, 40, 80, 80, 0, 9, 9)
    launched = launch(select, (2,), *arguments, architecture=architecture, num_warps=1, **CONSTANTS).check()
    assert out.tolist() == expect(candidates, 9)
    assert launched.code.module.target == architecture
    files = {each.location.file.rsplit("/", 1)[-1] for each in launched.code.kernel.body if each.location}
    assert "kernels_select.py" in files


@pytest.mark.cutedsl
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_cutedsl_kernel_compiles_for_each_target(architecture: str) -> None:
    from tiebreak.impl.selector import find_reciprocal, selector_recipe

    recipe = selector_recipe(SelectorSpecialization(threads=128, vectors=1), architecture)
    candidates, out = gather(2, 256), torch.full((2, 9), -7, dtype=torch.int32)
    arguments = (candidates, out, 0, 0, 2048, 0, 9, 256, 256, find_reciprocal(256), 1, 9, 0)
    launched = launch(recipe, (2,), *arguments).check()
    assert [sorted(row) for row in out.tolist()] == [sorted(row) for row in expect(candidates, 9)]
    assert launched.code.module.target == architecture
    assert launched.code.explain is not None


@pytest.mark.parametrize("name", ["kernels", "kernels:absent", "absent_module:kernel", ":kernel"])
def test_names_of_no_kernel(name: str) -> None:
    with pytest.raises(InputError, match="kernel"):
        find_target(name, "sm_100a")


def test_what_cannot_be_launched(tmp_path: Path) -> None:
    path = write(tmp_path, SCALE)
    array = np.zeros(4, np.float32)
    cases = {
        r"number of arguments of scale is 1; it takes scale_param_0 \(u64\), .*n \(u32\)": lambda: launch(
            path, (1,), array
        ),
        "block; scale does not say": lambda: launch(path, (1,), array, array, 1.0, 4),
        "grid is": lambda: launch(path, (0,), array, array, 1.0, 4, threads=(32,)),
        "at most 1024": lambda: launch(path, (1,), array, array, 1.0, 4, threads=(2048,)),
        "by name": lambda: launch(path, (1,), array, array, 1.0, n=4, threads=(32,)),
        "architecture is 'sm_80'": lambda: launch(select, (1,), architecture="sm_80"),
        "arguments of select": lambda: launch(select, (1,), array),
        "kernel is 5": lambda: launch(5, (1,)),
        "PTX file": lambda: read_file(tmp_path / "absent.ptx"),
        "kernel is 'other'": lambda: KernelCode(SCALE, "scale.ptx", entry="other").kernel,
    }
    for message, call in cases.items():
        with pytest.raises(InputError, match=message):
            call()
    required = KernelCode(SCALE.replace("n)\n{", "n)\n.reqntid 32\n{"), "scale.ptx")
    with pytest.raises(InputError, match=r"block is \(64, 1, 1\); scale requires \(32, 1, 1\)"):
        launch(required, (1,), array, array, 1.0, 4, threads=(64,))
    launch(required, (1,), array, array, 1.0, 4).check()


def test_triton_refuses_a_kernel_by_an_error_that_names_it() -> None:
    candidates = gather(1, 8)
    with pytest.raises(WorkerError, match=r"(?s)kernels_select:select.*power of 2"):
        launch(select, (1,), *(candidates,) * 3, 8, 8, 16, 16, 0, 4, 4, **{**CONSTANTS, "size": 12})


def test_types_of_triton_arguments() -> None:
    tensor = torch.zeros(16, dtype=torch.int32)
    bound = bind(select, (tensor, tensor[1:], tensor, 1, 16, 2**40, 4, 1, 9, 9), {**CONSTANTS, "num_warps": 2}, 90)
    # ``slot_words`` is the only integer that the kernel lets Triton specialise; here it becomes a constant.
    assert bound.source.types[:10] == ("*i32", "*i32", "*i32", "i32", "i32", "i64", "i32", "constexpr", "i32", "i32")
    assert bound.source.aligned == (0, 2) and bound.source.warps == 2
    assert dict(bound.source.constants) == {**CONSTANTS, "slot_words": 1}
    assert len(bound.arguments) == 9


def test_the_command_prints_outputs_and_what_ran(tmp_path: Path) -> None:
    path = write(tmp_path, SCALE)
    words = ["ptx", str(path), "--grid", "2", "--block", "32", "--args", "arange:float32:50 zeros:float32:50 2 50"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "scale_param_1 float32 (50,)" in result.output and "scale_param_0" not in result.output
    assert re.search(r"mul +9\.7\.3", result.output) and "no inexact instruction" in result.output
    assert "kernel.ptx: findings: 0" in result.output


def test_the_command_ends_with_1_after_a_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIEBREAK_CACHE", str(tmp_path / "cache"))
    words = ["ptx", str(write(tmp_path, RACE)), "--block", "64", "--args", "zeros:int32:64"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "race: shared" in result.output and "replay: tiebreak ptx" in result.output
    assert CliRunner().invoke(app, [*words, "--no-races"]).exit_code == 0


def test_the_command_runs_triton_kernels_by_name() -> None:
    constants = " ".join(f"{name}={value}" for name, value in CONSTANTS.items())
    arguments = f"zeros:int32:1x8x2 full:-7:int32:1x4 zeros:int32:1 8 8 16 16 0 4 4 num_warps=1 {constants}"
    words = ["ptx", "tiebreak.impl.kernels_select:select", "--arch", "sm_90a", "--args", arguments]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "[[0 0 0 0]]" in result.output


def test_cutedsl_is_asked_for_where_it_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tiebreak.impl import kernel_store
    from tiebreak.impl.selector import selector_recipe

    monkeypatch.setenv("TIEBREAK_CACHE", str(tmp_path))
    monkeypatch.setattr(kernel_store, "find_compiler", lambda: None)
    recipe = selector_recipe(SelectorSpecialization(threads=128, vectors=1, slots=512), "sm_100a")
    with pytest.raises(MissingBackendError, match="CuTeDSL"):
        launch(recipe, (1,))


SCRIPT = """
import torch, triton, triton.language as tl
from tiebreak.errors import InputError
from tiebreak.ptx.launch import launch

@triton.jit
def double(given, out, count, block: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + place, tl.load(given + place, mask=place < count) * 2, mask=place < count)

out = torch.zeros(50)
try:
    launch(double, (2,), torch.arange(50.0), out, 50, block=32, num_warps=1).check()
except InputError as error:
    print(error)
print(int(out.sum()))
"""


@pytest.mark.parametrize(("interpret", "printed"), [("0", "2450"), ("1", "put the kernel into a module of its own")])
def test_a_script_launches_its_own_kernels_unless_it_interprets_them(
    interpret: str, printed: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "TRITON_INTERPRET": interpret, "TRITON_DEFAULT_FP_FUSION": "0"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
    assert printed in done.stdout
