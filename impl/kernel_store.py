"""Where a compiled kernel comes from.

In this order: this process, the folders that ``TIEBREAK_KERNELS`` names, the
cache folder, the compiler.  A folder made by ``tiebreak build`` needs no
compiler; its kernels must come from the sources that are installed.  The cache
is ``TIEBREAK_CACHE``, or ``tiebreak`` in ``XDG_CACHE_HOME`` or ``~/.cache``;
its kernels must also come from the compiler that is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tiebreak.errors import InputError, KernelFileError, MissingBackendError

from .kernel_binary import COMPILER_REMEDY, KernelBinary, KernelRecipe, compile_kernel
from .kernel_files import read_kernel, write_kernel

KERNELS_VARIABLE, CACHE_VARIABLE = "TIEBREAK_KERNELS", "TIEBREAK_CACHE"
"""Environment variables: folders of kernels compiled ahead of time, separated by colons; the cache folder."""

_known: dict[tuple[str, str, tuple[Path, ...]], KernelBinary] = {}
_guard = threading.Lock()


def obtain_kernel(recipe: KernelRecipe) -> KernelBinary:
    """Return a kernel, compiled at most once per machine; processes that need the same one wait for the first.

    Raises:
        MissingBackendError: It is in no folder, and there is no compiler.
        KernelFileError: A file of it is damaged, comes from other sources, or cannot be written.
        InputError: ``TIEBREAK_KERNELS`` names a folder that is not there.
    """
    key = (recipe.name, recipe.architecture, recipe.sources)
    with _guard:
        if key not in _known:
            _known[key] = _find(recipe)
        return _known[key]


def fingerprint_sources(sources: Sequence[Path], *versions: str) -> str:
    """Return a digest of source files and of the versions of what they are compiled by."""
    digest = hashlib.sha256()
    for part in (*versions, *(part for path in sorted(sources) for part in (path.name, path.read_bytes()))):
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def list_kernel_folders() -> list[Path]:
    """Return the folders of kernels compiled ahead of time, in order.

    Raises:
        InputError: One of them is not there.
    """
    folders = [Path(text) for text in os.environ.get(KERNELS_VARIABLE, "").split(os.pathsep) if text]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(
                KERNELS_VARIABLE, value=str(folder), limit="must name folders", remedy="correct it or unset it"
            )
    return folders


def locate_cache() -> Path:
    """Return the folder that compiled kernels are kept in."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(CACHE_VARIABLE) or Path(home, "tiebreak"))


def find_compiler() -> str | None:
    """Return the version of CuTeDSL, or None if it is not there; does not import it."""
    if importlib.util.find_spec("cutlass") is None:
        return None
    try:
        return importlib.metadata.version("nvidia-cutlass-dsl")
    except importlib.metadata.PackageNotFoundError:  # Another package of that name.
        return None


def _find(recipe: KernelRecipe) -> KernelBinary:
    """Return a kernel from a folder or from the compiler."""
    fingerprint = fingerprint_sources(recipe.sources)
    folders = list_kernel_folders()
    for folder in folders:
        found = read_kernel(folder, recipe.name, recipe.architecture, fingerprint)
        if found is not None:
            return found
    version = find_compiler()
    if version is None:
        searched = ", ".join(map(str, folders)) or "unset"
        raise MissingBackendError(
            f"kernel {recipe.name} for {recipe.architecture} is not compiled, and CuTeDSL is not installed",
            limit=f"{KERNELS_VARIABLE} is {searched}",
            remedy=COMPILER_REMEDY,
        )
    return _compile_once(recipe, fingerprint_sources(recipe.sources, version))


def _compile_once(recipe: KernelRecipe, fingerprint: str) -> KernelBinary:
    """Return a kernel from the cache, into which it is put unless another process did."""
    folder = locate_cache() / fingerprint[:16]
    found = read_kernel(folder, recipe.name, recipe.architecture, fingerprint)
    if found is not None:
        return found
    with _lock_folder(folder, f".{recipe.name}.{recipe.architecture}.lock"):
        found = read_kernel(folder, recipe.name, recipe.architecture, fingerprint)
        if found is None:
            found = compile_kernel(recipe)
            write_kernel(folder, found, fingerprint)
    return found


@contextmanager
def _lock_folder(folder: Path, name: str) -> Iterator[None]:
    """Hold a file's lock, which a process that dies gives up."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / name, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise KernelFileError(
            f"cache folder {folder} cannot be written to",
            limit=str(error.strerror),
            remedy=f"set {CACHE_VARIABLE} to a folder that can be",
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
