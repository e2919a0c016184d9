"""Loads a copy of ``tiebreak.impl`` with a few lines of its source replaced.

The copy lives under a package name of its own, so that the unmutated modules
stay as they are; ``linecache`` holds the mutated text, because Triton reads the
source of a kernel when it is decorated.  An edit that does not match exactly
once is an error: a mutant cannot go stale unnoticed.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tiebreak.errors import InputError

PREFIX = "tiebreak_mutant_"


@dataclass(frozen=True)
class Edit:
    """One replacement in one module of ``tiebreak.impl``.

    Attributes:
        module: Module name inside the package, for example ``kernels_exchange``.
        old: Text that must occur exactly once.
        new: Text that replaces it.
    """

    module: str
    old: str
    new: str


def apply_edits(module: str, text: str, edits: Sequence[Edit]) -> str:
    """Return ``text`` with the edits of ``module`` made.

    Raises:
        InputError: The old text of an edit does not occur exactly once.
    """
    for edit in edits:
        if edit.module == module:
            count = text.count(edit.old)
            if count != 1:
                raise InputError(
                    f"the old text of an edit of {module}",
                    value=edit.old,
                    limit=f"it occurs {count} times, not once",
                    remedy="update the mutant to the current source",
                )
            text = text.replace(edit.old, edit.new)
    return text


class _Loader(importlib.abc.Loader):
    def __init__(self, module: str, path: Path, edits: Sequence[Edit]) -> None:
        self._module, self._path, self._edits = module, path, edits

    def exec_module(self, module: ModuleType) -> None:
        text = apply_edits(self._module, self._path.read_text(encoding="utf-8"), self._edits)
        filename = f"<{module.__name__}>/{self._path.name}"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        module.__file__ = filename
        exec(compile(text, filename, "exec"), module.__dict__)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of one mutated package."""

    def __init__(self, package: str, root: Path, edits: Sequence[Edit]) -> None:
        self._package, self._root, self._edits = package, root, edits

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._package and not fullname.startswith(self._package + "."):
            return None
        name = fullname[len(self._package) + 1 :]
        source = self._root / (f"{name.replace('.', '/')}.py" if name else "__init__.py")
        if not source.exists():
            return None
        loader = _Loader(name, source, self._edits)
        return importlib.util.spec_from_loader(fullname, loader, origin=str(source), is_package=not name)


def package_of(name: str) -> str:
    """Return the name of the package of a mutant."""
    return PREFIX + name.replace("-", "_")


def load_mutated(name: str, edits: Sequence[Edit]) -> str:
    """Make the mutated package importable and return its name.

    Raises:
        InputError: An edit names a module that ``tiebreak.impl`` does not have,
            or does not match exactly once.
    """
    import tiebreak.impl

    root = Path(tiebreak.impl.__path__[0])
    for edit in edits:
        if not (root / f"{edit.module}.py").exists():
            raise InputError("edit", value=edit.module, limit="no such module in tiebreak.impl", remedy="fix its name")
    package = package_of(name)
    if package not in sys.modules:
        sys.meta_path.insert(0, _Finder(package, root, edits))
        importlib.import_module(package)
        for edit in edits:
            importlib.import_module(f"{package}.{edit.module}")
    return package
