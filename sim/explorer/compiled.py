"""Functions that are compiled when they are first called, and cached.

The cache is keyed by all compiled sources, and the layout of their memory: numba's own key is the file
of one function, and would keep machine code into which an older version of a
function of another file was compiled.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numba
from numba.core import config

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _cache_folder() -> str:
    """Folder of the machine code of exactly these sources."""
    sources = [source.read_bytes() for source in sorted(Path(__file__).parent.glob("*.py"))]
    compiled = (text for text in sources if b"from .compiled import" in text or b"HEADER =" in text)
    digest = hashlib.sha256(b"".join(compiled)).hexdigest()[:16]
    base = Path(os.environ.get("TIEBREAK_CACHE") or Path.home() / ".cache" / "tiebreak")
    return str(base / "explorer" / digest)


_FOLDER = _cache_folder()


def _compile(function: Callable[Arguments, Result], **options: Any) -> Callable[Arguments, Result]:
    """Hand a function to numba, with a cache of its own."""
    settings: Any = config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = _FOLDER
    try:
        dispatcher: Callable[Arguments, Result] = numba.njit(cache=True, **options)(function)
        return dispatcher
    finally:
        settings.CACHE_DIR = before


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a function of arrays and integers that only compiled functions call."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def entry(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a function of arrays and integers that Python calls."""
    return _compile(function)
