"""The form of the specification: reading order, fixed headings, allowed imports."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tiebreak.spec

FOLDER = Path(tiebreak.spec.__file__).parent
HEADINGS = ["Meaning", "Shapes", "Errors", "Source"]
ORDER = ["order", "selection", "contracts", "layout", "packing", "merge", "theorem"]
ORDER += ["protocol", "search", "exchange", "fused"]


def tree_of(name: str) -> ast.Module:
    return ast.parse((FOLDER / f"{name}.py").read_text())


def operations(name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Public functions and methods; properties are attributes and not operations."""
    for node in tree_of(name).body:
        owned = node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else [node]
        for item in owned:
            if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                decorators = {ast.unparse(decorator) for decorator in item.decorator_list}
                if "property" not in decorators:
                    yield f"{name}.{item.name}", item


OPERATIONS = [pytest.param(node, id=label) for name in ORDER for label, node in operations(name)]


@pytest.mark.parametrize("node", OPERATIONS)
def test_operation_has_the_fixed_headings(node: ast.FunctionDef) -> None:
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    sections = re.split(r"^(\w+):\n", text, flags=re.MULTILINE)
    assert sections[1::2] == HEADINGS
    assert all(section.strip() for section in sections)


def test_operations_are_found() -> None:
    labels = {label for name in ORDER for label, _ in operations(name)}
    assert {"order.keys", "selection.select", "layout.owner", "packing.localise", "exchange.explore"} <= labels


def test_every_module_states_its_place() -> None:
    assert sorted(ORDER) == sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
    listed = re.findall(r"^(\d+)\. ``(\w+)``", tiebreak.spec.__doc__ or "", flags=re.MULTILINE)
    assert listed == [(str(place), name) for place, name in enumerate(ORDER, 1)]
    for place, name in enumerate(ORDER, 1):
        docstring = ast.get_docstring(tree_of(name)) or ""
        assert docstring.startswith(f"Reading order {place} of {len(ORDER)}: ")


@pytest.mark.parametrize("name", ORDER)
def test_modules_import_only_what_was_read_before(name: str) -> None:
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported = [node.module or ""]
        elif isinstance(node, ast.ImportFrom):
            assert node.module in ORDER[: ORDER.index(name)]
            continue
        else:
            continue
        for module in imported:
            root = module.partition(".")[0]
            assert root in sys.stdlib_module_names or root == "numpy" or module == "tiebreak.errors"


def test_package_hides_no_module() -> None:
    for name in ORDER:
        assert inspect.ismodule(importlib.import_module(f"tiebreak.spec.{name}"))
        assert inspect.ismodule(getattr(tiebreak.spec, name))
