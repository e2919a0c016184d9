"""Packaging: one copy of the code, import contracts that can fail, and an install without CuTeDSL."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import tiebreak

ROOT = Path(__file__).resolve().parents[1]
LINKED = ("spec", "impl", "sim")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SOURCES = sorted(
    path
    for folder in (*LINKED, "src", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if "__pycache__" not in path.parts
)


def run_python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "TRITON_INTERPRET": "1", **variables}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", LINKED)
def test_folder_is_no_import_root(name: str) -> None:
    assert importlib.util.find_spec(name) is None, "set PYTHONSAFEPATH=1, as tox does"
    assert importlib.util.find_spec(f"tiebreak.{name}") is not None


@pytest.mark.parametrize("name", LINKED)
def test_link_leads_to_the_folder(name: str) -> None:
    link = ROOT / "src" / "tiebreak" / name
    assert os.readlink(link) == os.path.join("..", "..", name)
    assert (link / "py.typed").is_file()


def imported_roots(path: Path) -> set[str]:
    """First components of every absolute import of a module."""
    roots = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            roots.add(node.module.split(".")[0])
    return roots


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_no_folder_as_root(path: Path) -> None:
    assert not imported_roots(path) & set(LINKED)


def test_imported_roots_sees_every_form_of_import(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("import spec.order\ndef f():\n    from impl import x\nfrom . import sim\n", encoding="utf-8")
    assert imported_roots(module) == {"spec", "impl"}


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    config = ["--config", str(directory / "pyproject.toml"), "--no-cache"]
    return run_python("-c", program, *config, PYTHONPATH=str(directory / "src"))


def test_import_contracts_are_kept() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("errors.py", "import numpy", "errors imports the standard library only"),
        ("spec/order.py", "import torch", "spec imports errors, and no third party but numpy"),
        ("spec/order.py", "import tiebreak.report.model", "spec imports errors, and no third party but numpy"),
        ("sim/__init__.py", "import tiebreak.spec.order", "impl, spec and sim do not import one another"),
        ("impl/__init__.py", "from tiebreak import sim", "impl, spec and sim do not import one another"),
        ("impl/__init__.py", "import hypothesis", "what is verified does not import what verifies it"),
        ("impl/select.py", "def f():\n    import cutlass", "only the kernels written in CuTeDSL import it"),
        ("report/model.py", "import tiebreak.sim", "inputs, report and target do not need the simulator"),
    ],
)
def test_import_contract_can_break(tmp_path: Path, module: str, statement: str, contract: str) -> None:
    package = tmp_path / "src" / "tiebreak"
    shutil.copytree(ROOT / "src" / "tiebreak", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (package / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{statement}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1
    assert f"{contract} BROKEN" in " ".join(result.stdout.split())


KERNELS = "tiebreak.impl.cutedsl"
"""The one package whose modules import ``cutlass`` when they are imported: it looks annotations up in the module."""

IMPORT_ALL = """
import importlib, pkgutil, sys
for name in {blocked!r}:
    sys.modules[name] = None
import tiebreak
for module in pkgutil.walk_packages(tiebreak.__path__, "tiebreak."):
    if not module.name.endswith("__main__") and not module.name.startswith({kernels!r} + "."):
        importlib.import_module(module.name)
        print(module.name)
assert not any(name.startswith({kernels!r} + ".") for name in sys.modules)
"""


def test_every_module_imports_without_cutedsl_and_cuda_libraries() -> None:
    result = run_python("-c", IMPORT_ALL.format(blocked=("cutlass", "cuda"), kernels=KERNELS))
    assert result.returncode == 0, result.stderr
    assert {"tiebreak.errors", "tiebreak.spec.order", "tiebreak.impl.selector", KERNELS} <= set(result.stdout.split())


def test_cutedsl_is_pinned_exactly_and_brings_no_cuda_13_libraries() -> None:
    requirements = [line for line in PROJECT["project"]["dependencies"] if line.startswith("nvidia-cutlass-dsl")]
    assert requirements == ["nvidia-cutlass-dsl==4.8.1"]


def test_version_is_stated_once() -> None:
    assert tiebreak.__version__ == PROJECT["project"]["version"] == metadata.version("tiebreak")


def test_continuous_integration_runs_the_command_of_the_readme() -> None:
    command = "python -m pip install tox && python -m tox run -e cpu"
    assert command in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
