"""The file form of captured scores and candidates, and its loader.

A file is an ``.npz`` archive or a ``.safetensors`` file with the arrays of
exactly one of these three forms:

================== ======= ============= =============================================
array              dtype   shape         meaning
================== ======= ============= =============================================
scores             float32 [rows, N]     score of column c; the id of a column is c
lengths (optional) int32   [rows]        valid columns of each row; N if absent
------------------ ------- ------------- ---------------------------------------------
candidates         int32   [rows, N, 2]  (fp32 bits of the score, id)
------------------ ------- ------------- ---------------------------------------------
candidate_scores   float32 [rows, N]     score of each candidate
candidate_ids      int32   [rows, N]     id of each candidate
================== ======= ============= =============================================

Every score is allowed, NaN and both zeros included.  An id is at least -1, and
-1 marks an unused slot.  Metadata is a flat object of strings: in an archive a
zero-dimensional string array ``metadata`` holding JSON, in a safetensors file
the header's own metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tiebreak.errors import InputError
from tiebreak.inputs.archive import read_archive

Form = Literal["scores", "candidates"]
DEFAULT_FILE = "minilm_indexer_scores.npz"

_DTYPES: Mapping[str, DTypeLike] = {
    "scores": np.float32,
    "lengths": np.int32,
    "candidates": np.int32,
    "candidate_scores": np.float32,
    "candidate_ids": np.int32,
}
_AXES = {"scores": 2, "lengths": 1, "candidates": 3, "candidate_scores": 2, "candidate_ids": 2}
_KEY_SETS = ({"scores"}, {"scores", "lengths"}, {"candidates"}, {"candidate_scores", "candidate_ids"})


@dataclass(frozen=True)
class CapturedInput:
    """Scores and ids of a captured run, in one shape for every file form.

    Attributes:
        name: File name.
        form: "scores" if ids are columns, so that the rows can be sharded over
            ranks; "candidates" if they are ids that somebody gathered.
        scores: float32[rows, N].
        ids: int32[rows, N]; -1 in unused slots, so also past a row's length.
        lengths: int32[rows]; number of leading columns that are in use.
        metadata: What the file says about its origin.
    """

    name: str
    form: Form
    scores: NDArray[np.float32]
    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    metadata: Mapping[str, str]

    def __str__(self) -> str:
        rows, width = self.scores.shape
        return f"{self.name}: {self.form}, {rows} rows of {width}"


def load_input(path: Path | str) -> CapturedInput:
    """Load a captured file.

    Raises:
        InputError: The file is missing, is no archive of either kind, is
            truncated, or holds other keys, dtypes, shapes, lengths or ids than
            the file form allows.
    """
    path = Path(path)
    arrays, metadata = read_archive(path)
    keys = set(arrays)
    if keys not in _KEY_SETS:
        forms = " or ".join(" + ".join(sorted(form)) for form in _KEY_SETS)
        raise InputError(f"arrays of {path.name}", value=sorted(keys), limit=f"must be {forms}", remedy="rename them")
    for key, array in arrays.items():
        _check_array(f"{key} of {path.name}", array, _DTYPES[key], _AXES[key])
    scores, ids, lengths = _normalise(path.name, arrays)
    for array in (scores, ids, lengths):
        array.setflags(write=False)
    return CapturedInput(path.name, "scores" if "scores" in keys else "candidates", scores, ids, lengths, metadata)


def default_input() -> CapturedInput:
    """Load the captured indexer scores that the package ships."""
    with resources.as_file(resources.files("tiebreak.inputs") / "data" / DEFAULT_FILE) as path:
        return load_input(path)


def _check_array(what: str, array: NDArray[Any], dtype: DTypeLike, axes: int) -> None:
    if array.dtype != np.dtype(dtype):
        limit = f"must be {np.dtype(dtype)}"
        raise InputError(f"dtype of {what}", value=str(array.dtype), limit=limit, remedy="convert it before saving")
    if array.ndim != axes or 0 in array.shape:
        limit = f"must have {axes} axes, none of them empty"
        raise InputError(f"shape of {what}", value=array.shape, limit=limit, remedy="save at least one row and column")


def _normalise(
    name: str, arrays: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]]:
    """Scores, ids and lengths of checked arrays."""
    if "scores" in arrays:
        scores = np.ascontiguousarray(arrays["scores"])
        lengths = _check_lengths(name, arrays.get("lengths"), scores.shape)
        columns = np.arange(scores.shape[1], dtype=np.int32)
        return scores, np.where(columns < lengths[:, None], columns, np.int32(-1)), lengths
    if "candidates" in arrays:
        pairs = arrays["candidates"]
        if pairs.shape[2] != 2:
            limit = "the last axis must be (score bits, id)"
            raise InputError(f"shape of candidates of {name}", value=pairs.shape, limit=limit, remedy="stack two words")
        scores, ids = np.ascontiguousarray(pairs[..., 0]).view(np.float32), np.ascontiguousarray(pairs[..., 1])
    else:
        scores, ids = (np.ascontiguousarray(arrays[key]) for key in ("candidate_scores", "candidate_ids"))
    if ids.shape != scores.shape:
        limit = f"must equal the shape of candidate_scores, {scores.shape}"
        raise InputError(f"shape of candidate_ids of {name}", value=ids.shape, limit=limit, remedy="save one id each")
    if int(ids.min()) < -1:
        limit = "must be -1 (unused) or an id from 0 up"
        raise InputError(f"id in {name}", value=int(ids.min()), limit=limit, remedy="write -1 in unused slots")
    return scores, ids, np.full(scores.shape[0], scores.shape[1], dtype=np.int32)


def _check_lengths(name: str, lengths: NDArray[np.int32] | None, shape: tuple[int, ...]) -> NDArray[np.int32]:
    if lengths is None:
        return np.full(shape[0], shape[1], dtype=np.int32)
    if lengths.shape != shape[:1]:
        what, limit = f"shape of lengths of {name}", f"must be {shape[:1]}"
        raise InputError(what, value=lengths.shape, limit=limit, remedy="save one length a row")
    broken = lengths[(lengths < 0) | (lengths > shape[1])]
    if broken.size:
        limit = f"must be from 0 to the {shape[1]} columns"
        raise InputError(f"length in {name}", value=int(broken[0]), limit=limit, remedy="save the valid column count")
    return np.ascontiguousarray(lengths)
