"""Arguments of a launch as text: read from a command line, and saved so that a launch can be repeated.

=============================  =====================================================================
Text                           Argument
=============================  =====================================================================
``7``, ``-1``, ``0x10``        Integer
``1.5``, ``nan``               Float
``zeros:int32:4x16``           Array of zeros; the shape may be one number
``full:-1:int32:4x16``         Array of one value
``empty:int32:4x16``           Array that nothing wrote yet: reading it is a finding
``random:float32:4x4096``      Normal floats, or integers of the whole range; ``random:float32:64:7`` with seed 7
``arange:int32:64``            0, 1, 2, ...
``scores.npy``                 Array of a file; ``scores.npy@128`` starts 128 bytes into it
``table:a.npy,b.npy@64``       Array of int64 addresses of other arrays
``name=...``                   Any of these, by the name of a Triton parameter
=============================  =====================================================================
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from tiebreak.errors import InputError

Array: TypeAlias = npt.NDArray[Any]

_NUMPY_DTYPES = frozenset(
    (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)
)
"""Element types whose names and values are kept for printing; memory of others is bytes."""

_CONSTANTS = {"True": True, "False": False, "None": None}
_MADE = re.compile(r"(zeros|empty|random|arange|full):(?:([^:]+):)?([a-z]+\d+):([\dx]+)(?::(\d+))?$")
_FILE = re.compile(r"(.+\.npy)(?:@(\d+))?$")
_REMEDY = "see the table of tiebreak.ptx.arguments"


@dataclass(frozen=True)
class Placed:
    """A place in an array.

    Attributes:
        array: What holds the memory; all of it may be addressed.
        offset: Where the argument points to, in bytes.
        initialised: Whether the array counts as written.
        addressed: Arrays that the array holds addresses of, in order; empty if it is no table.
    """

    array: Array
    offset: int = 0
    initialised: bool = True
    addressed: tuple[Placed, ...] = ()

    @property
    def address(self) -> int:
        """Address of the argument."""
        return int(self.array.ctypes.data) + self.offset


Argument: TypeAlias = Placed | int | float | bool | None
"""An argument of a launch; None only for a Triton parameter."""


def place(value: Any, name: str) -> Argument:
    """An argument of a Python launch: a CPU tensor, an array, a number, or a ``Placed``.

    Raises:
        InputError: Something else, or a tensor on a device.
    """
    if isinstance(value, Placed | bool | int | float) or value is None:
        return value
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    if isinstance(value, np.ndarray):
        root = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        return Placed(root, value.ctypes.data - root.ctypes.data)
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
        limit = "must be a CPU tensor, an array or a number"
        raise InputError(f"argument {name}", value=value, limit=limit)
    if value.is_contiguous() and value.nbytes == value.untyped_storage().nbytes() and value.dtype in _NUMPY_DTYPES:
        return Placed(value.detach().numpy())
    storage = torch.tensor([], dtype=torch.uint8).set_(value.untyped_storage())
    return Placed(storage.numpy(), value.data_ptr() - storage.data_ptr())


def parse_argument(text: str) -> Argument:
    """The argument that a text states; see the module.

    Raises:
        InputError: The text states none, or its file cannot be read.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if re.match(r"-?(0[xX][0-9a-fA-F]+|\d+)$", text):
        return int(text, 0)
    if text.startswith("table:"):
        parts = tuple(_parse_placed(part) for part in text.removeprefix("table:").split(","))
        return Placed(np.array([part.address for part in parts], np.int64), addressed=parts)
    if _MADE.match(text) or _FILE.match(text):
        return _parse_placed(text)
    try:
        return float(text)
    except ValueError as error:
        raise InputError("argument", value=text, limit="is no number, array or file", remedy=_REMEDY) from error


def _parse_placed(text: str) -> Placed:
    if found := _MADE.match(text):
        return _make(*found.groups())
    if found := _FILE.match(text):
        try:
            return Placed(np.load(found[1]), int(found[2] or 0))
        except (OSError, ValueError) as error:
            raise InputError(
                "file of an argument", value=found[1], limit=str(error), remedy="name a .npy file"
            ) from error
    raise InputError("array", value=text, limit="is no array or file", remedy=_REMEDY)


def _make(form: str, value: str | None, dtype: str, shape: str, seed: str | None) -> Placed:
    try:
        kind = np.dtype(dtype)
        sizes = tuple(int(size) for size in shape.split("x"))
        array = np.zeros(sizes, kind)
        if form == "full":
            array[...] = kind.type(float(value or 0) if kind.kind == "f" else int(value or "0", 0))
        elif value is not None:
            raise ValueError(f"{form} takes no value")
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError("array", value=f"{form}:{dtype}:{shape}", limit=str(error), remedy=_REMEDY) from error
    if form == "arange":
        array[...] = np.arange(array.size).reshape(sizes)
    elif form == "random":
        array[...] = _draw(kind, sizes, int(seed or 0))
    return Placed(array, initialised=form != "empty")


def _draw(kind: np.dtype[Any], sizes: tuple[int, ...], seed: int) -> Array:
    random = np.random.default_rng(seed)
    if kind.kind == "f":
        return random.standard_normal(sizes)
    limits = np.iinfo(kind)
    return random.integers(limits.min, limits.max, sizes, kind, endpoint=True)


def save_arguments(folder: Path, arguments: Sequence[Argument]) -> list[str]:
    """Save arrays to files of a folder, each memory once; returns the texts that state the arguments.

    Raises:
        InputError: The folder cannot be written to.
    """
    names: dict[int, str] = {}

    def state(argument: Argument) -> str:
        if not isinstance(argument, Placed):
            return str(argument)
        if argument.addressed:
            return "table:" + ",".join(map(state, argument.addressed))
        key = argument.array.ctypes.data
        if key not in names:
            names[key] = str(folder / f"array{len(names)}.npy")
            np.save(names[key], argument.array)
        return f"{names[key]}@{argument.offset}" if argument.offset else names[key]

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [state(argument) for argument in arguments]
    except OSError as error:
        raise InputError("folder of a replay", value=str(folder), limit=str(error.strerror)) from error
