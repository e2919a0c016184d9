"""Writing a report folder.

Each file appears whole or not at all: it is written under a temporary name in
the same folder and renamed, so a reader never sees half of one and an
interrupted run leaves the previous report.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from tiebreak.errors import InputError
from tiebreak.report.junit import encode_junit
from tiebreak.report.model import Report, encode_report
from tiebreak.report.page import encode_page

FILES: Mapping[str, Callable[[Report], bytes]] = MappingProxyType(
    {"report.json": encode_report, "junit.xml": encode_junit, "index.html": encode_page}
)
"""File names of a report folder, and what encodes each."""


def prepare_folder(directory: Path | str) -> Path:
    """Make a report folder and see that it can be written, before a long run rather than after it.

    Raises:
        InputError: The folder cannot be made or written to.
    """
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise _unusable(folder, error) from error


def write_report(report: Report, directory: Path | str) -> None:
    """Write ``report.json``, ``junit.xml`` and ``index.html`` into a folder.

    Raises:
        InputError: The folder cannot be made or written to.
    """
    contents = {name: encode(report) for name, encode in FILES.items()}
    folder = prepare_folder(directory)
    try:
        for name, content in contents.items():
            _replace(folder / name, content)
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(folder: Path, error: OSError) -> InputError:
    limit = f"must be a folder that can be written: {error.strerror}"
    return InputError("report folder", value=str(folder), limit=limit, remedy="name another one")


def _replace(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
