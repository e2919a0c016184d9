"""Kernels built ahead of time: the command, what it refuses, and the table that it shares with codegen."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tiebreak import build, cli, codegen
from tiebreak.errors import InputError, MissingBackendError
from tiebreak.impl import kernel_store
from tiebreak.impl.kernel_binary import KernelBinary, KernelRecipe
from tiebreak.impl.kernel_files import read_kernel
from tiebreak.impl.kernel_store import fingerprint_sources, obtain_kernel
from tiebreak.resources import SPILL_LIMIT, find_excesses

SOURCES = (Path(__file__),)
ARCHITECTURES = ("sm_90a", "sm_100a", "sm_121a")
PTX = ".visible .entry fill(\n.param .u64 fill_param_0\n)\n"


def make_binary(recipe: KernelRecipe) -> KernelBinary:
    """Stand in for the compiler."""
    cubin = recipe.architecture.encode()
    return KernelBinary(recipe.name, recipe.architecture, "fill", cubin, PTX, 40, 0, recipe.dynamic_shared_bytes, 0)


def refuse(options: str):
    raise ModuleNotFoundError("No module named 'cutlass'")


def make_recipes(*shared_bytes: int):
    """Return a list of kernels that differ in their shared memory."""
    return lambda architecture: [
        KernelRecipe(f"fill-{size}", architecture, SOURCES, refuse, size) for size in shared_bytes
    ]


def use(monkeypatch, *shared_bytes: int, compile=make_binary) -> None:
    monkeypatch.setattr(build, "list_recipes", make_recipes(*shared_bytes))
    monkeypatch.setattr(build, "compile_kernel", compile)


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.app, ["build", *arguments], env={"COLUMNS": "200"}, catch_exceptions=False)
    return done.exit_code, done.output


def test_every_kernel_is_built_for_every_target_and_found_by_its_user(monkeypatch, tmp_path):
    use(monkeypatch, 0, 101_376)
    code, text = run("--arch", ",".join(ARCHITECTURES), "--out", str(tmp_path / "kernels"))
    assert (code, "6 kernels in" in text) == (0, True)
    monkeypatch.setenv("TIEBREAK_KERNELS", str(tmp_path / "kernels"))
    monkeypatch.setattr(kernel_store, "_known", {})
    monkeypatch.setattr(kernel_store, "find_compiler", lambda: None)
    for architecture in ARCHITECTURES:
        for recipe in make_recipes(0, 101_376)(architecture):
            assert obtain_kernel(recipe) == make_binary(recipe)
            row = next(line for line in text.splitlines() if f" {recipe.name} " in line and architecture in line)
            cells = [cell.strip() for cell in row.strip("│").split("│")]
            assert cells == [recipe.name, architecture, "40", str(recipe.dynamic_shared_bytes), "0", str(len(PTX))]


def test_all_targets_are_the_default(monkeypatch, tmp_path):
    use(monkeypatch, 0)
    assert run("--out", str(tmp_path))[0] == 0
    assert {path.name for path in tmp_path.glob("*.json")} == {f"fill-0.{name}.json" for name in ARCHITECTURES}


def test_a_kernel_that_fits_not_every_target_fails_the_build(monkeypatch, tmp_path):
    use(monkeypatch, 0, 101_377)
    code, text = run("--arch", "sm_90a", "--out", str(tmp_path))
    assert code == 1
    assert "too costly: fill-101377 for sm_90a needs 101377 bytes of shared memory; GB10 has 101376" in text
    assert list(tmp_path.iterdir()) == [], "all kernels or none"


def test_static_shared_memory_and_spills_count():
    recipe = KernelRecipe("fill", "sm_90a", (), refuse, 100_000)
    binary = make_binary(recipe)
    assert list(find_excesses([binary])) == []
    large = KernelBinary(**{**vars(binary), "static_shared_bytes": 1377})
    spilling = KernelBinary(**{**vars(binary), "spilled_bytes": SPILL_LIMIT})
    spilled = KernelBinary(**{**vars(binary), "spilled_bytes": SPILL_LIMIT + 8})
    assert list(find_excesses([large, spilling, spilled])) == [
        "fill for sm_90a needs 101377 bytes of shared memory; GB10 has 101376",
        "fill for sm_90a spills 520 bytes per thread; at most 512 are accepted",
    ]


@pytest.mark.parametrize(("spilled_bytes", "code"), [(512, 0), (520, 1)])
def test_spilled_registers_are_shown_and_refused_beyond_the_limit(monkeypatch, tmp_path, spilled_bytes, code):
    use(monkeypatch, 0, compile=lambda recipe: replace(make_binary(recipe), spilled_bytes=spilled_bytes))
    found, text = run("--arch", "sm_90a", "--out", str(tmp_path))
    row = next(line for line in text.splitlines() if " fill-0 " in line)
    assert (found, f" {spilled_bytes} " in row, any(tmp_path.iterdir())) == (code, True, code == 0)


@pytest.mark.parametrize("architectures", ["", "sm_90", "90a", "sm_80a", "sm_90a,", "sm_90a,sm_9"])
def test_targets_without_the_instructions_are_refused(monkeypatch, tmp_path, architectures):
    use(monkeypatch, 0)
    with pytest.raises(InputError, match="architecture is"):
        build.build_kernels(architectures, tmp_path, Console(file=io.StringIO()))
    assert list(tmp_path.iterdir()) == []


def test_targets_may_be_spaced(monkeypatch, tmp_path):
    use(monkeypatch, 0)
    assert build.build_kernels("sm_90a, sm_121a", tmp_path, Console(file=io.StringIO())) == 0
    assert read_kernel(tmp_path, "fill-0", "sm_121a", fingerprint_sources(SOURCES)) is not None


def test_a_missing_compiler_is_misuse_and_named(monkeypatch, tmp_path, capsys):
    use(monkeypatch, 0, compile=build.compile_kernel)
    monkeypatch.setattr(sys, "argv", ["tiebreak", "build", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "fill-0 for sm_90a is not compiled, and CuTeDSL is not there" in error
    assert 'pip install "nvidia-cutlass-dsl[cu13]"' in error


def test_help_names_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "tiebreak", "build", "--help"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "--arch" in done.stdout, "--out" in done.stdout) == (0, True, True)


def test_codegen_prints_the_other_kernels_and_names_those_left_out(monkeypatch, capsys):
    triton = make_binary(KernelRecipe("pack", "sm_90", (), refuse))
    monkeypatch.setattr(codegen, "compile_triton", lambda architectures: iter([triton]))
    monkeypatch.setattr(codegen, "list_representatives", make_recipes(0, 512))
    monkeypatch.setattr(codegen, "find_compiler", lambda: None)
    assert codegen.main(["--architectures", "90"]) == 2
    printed = capsys.readouterr()
    assert " pack " in printed.out
    assert "left out because CuTeDSL is not installed: fill-0, fill-512;" in " ".join(printed.err.split())


def test_codegen_compiles_for_the_targets_with_all_instructions(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(codegen, "compile_triton", lambda architectures: iter([]))
    monkeypatch.setattr(codegen, "list_representatives", make_recipes(512))
    monkeypatch.setattr(codegen, "find_compiler", lambda: "4.8.1")
    monkeypatch.setattr(codegen, "compile_kernel", make_binary)
    assert codegen.main(["--architectures", "90,121", "--ptx", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(" fill-512 ") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"fill-512.sm_90a.ptx", "fill-512.sm_121a.ptx"}


def test_codegen_stops_when_the_compiler_cannot_be_imported(monkeypatch):
    monkeypatch.setattr(codegen, "list_representatives", make_recipes(0))
    monkeypatch.setattr(codegen, "find_compiler", lambda: "4.8.1")
    with pytest.raises(MissingBackendError, match="fill-0 for sm_90a"):
        list(codegen.compile_cutedsl([90]))
