"""Arrays and metadata of an ``.npz`` or ``.safetensors`` file.

Reading never unpickles, and every way in which a file can be damaged ends in
an ``InputError`` that names the file and the entry.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from tiebreak.errors import InputError

Arrays = Mapping[str, NDArray[Any]]

# RuntimeError: an encrypted entry, or as NotImplementedError an unknown compression method.
_DAMAGE = (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError, RuntimeError)
_SAFETENSORS_DTYPES = ("F32", "I32")


def read_archive(path: Path) -> tuple[Arrays, Mapping[str, str]]:
    """Read all arrays and the metadata of a captured file.

    Raises:
        InputError: The file is missing or damaged, its suffix is neither of
            the two, an array holds Python objects or a dtype that NumPy lacks,
            or the metadata is not a flat JSON object of strings.
    """
    readers: dict[str, Callable[[Path], tuple[Arrays, Mapping[str, str]]]]
    readers = {".npz": _read_npz, ".safetensors": _read_safetensors}
    if path.suffix not in readers:
        limit = f"must end in {' or '.join(readers)}"
        raise InputError("input file", value=str(path), limit=limit, remedy="convert it")
    if not path.is_file():
        raise InputError("input file", value=str(path), limit="must exist", remedy="check the path")
    return readers[path.suffix](path)


def _damaged(what: str, path: Path, error: Exception) -> InputError:
    limit = f"cannot be read: {type(error).__name__}: {error}"
    return InputError(what, value=str(path), limit=limit, remedy="save it again, without Python objects")


def _read_npz(path: Path) -> tuple[Arrays, Mapping[str, str]]:
    arrays: dict[str, NDArray[Any]] = {}
    key = "archive"
    try:
        with zipfile.ZipFile(path):
            pass  # A lone .npy file or a pickle under this suffix would load as something else.
        with np.load(path, allow_pickle=False) as archive:
            for key in archive.files:
                arrays[key] = np.asarray(archive[key])
    except _DAMAGE as error:
        raise _damaged(f"{key} of the input file", path, error) from error
    return arrays, _parse_metadata(path, arrays.pop("metadata", None))


def _parse_metadata(path: Path, array: NDArray[Any] | None) -> Mapping[str, str]:
    if array is None:
        return {}
    try:
        parsed = json.loads(str(array.item()))
    except ValueError as error:
        raise _damaged("metadata of the input file", path, error) from error
    if not isinstance(parsed, dict) or not all(isinstance(value, str) for value in parsed.values()):
        limit = "must be a flat object of strings"
        raise InputError(f"metadata of {path.name}", value=parsed, limit=limit, remedy="save every value as a string")
    return parsed


def _read_safetensors(path: Path) -> tuple[Arrays, Mapping[str, str]]:
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with safe_open(path, framework="numpy") as archive:
            for key in archive.keys():  # noqa: SIM118 - the handle itself is not iterable
                _check_safetensors_dtype(path, key, archive.get_slice(key).get_dtype())
                arrays[key] = archive.get_tensor(key)
            return arrays, archive.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise _damaged("input file", path, error) from error


def _check_safetensors_dtype(path: Path, key: str, dtype: str) -> None:
    if dtype not in _SAFETENSORS_DTYPES:
        limit = f"must be {' or '.join(_SAFETENSORS_DTYPES)}"
        raise InputError(f"dtype of {key} of {path.name}", value=dtype, limit=limit, remedy="convert it before saving")
