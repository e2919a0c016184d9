"""Golden vectors: the results that a device gave for each conformance case, in one file.

The operands are not stored: they follow from the case (see ``operands``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiebreak.errors import InputError

from .case import Case
from .kernel_text import CHUNK, WORD

Results = tuple[npt.NDArray[np.uint64], ...]
"""Results of each destination, one 64-bit word per thread; four words per thread for a store case."""


@dataclass
class Vectors:
    """What a device gave.

    Attributes:
        device: Name of the device.
        driver: Version of the driver, as ``cuDriverGetVersion`` gives it.
        results: Results of each case by name.
        failures: Why a case has none, by name: what the driver's compiler or the launch said.
    """

    device: str
    driver: int
    results: dict[str, Results] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def split_results(case: Case, raw: bytes) -> Results:
    """Results of each destination of a case, of the bytes that its kernel left."""
    words = np.frombuffer(raw, np.uint64)
    if case.kind == "store":
        return (words[: case.count * CHUNK // WORD].copy(),)
    return tuple(words[place * case.count :][: case.count].copy() for place in range(len(case.destinations)))


def write_vectors(vectors: Vectors, cases: tuple[Case, ...], path: Path) -> None:
    """Write the file; every result in as few bytes as its type has, and a predicate in one bit."""
    parts: list[bytes] = []
    index: list[list[object]] = []
    place = 0
    for case in cases:
        results = vectors.results.get(case.name)
        if results is None:
            continue
        packed = b"".join(map(_pack, results, _widths(case)))
        index.append([case.name, place, len(packed)])
        parts.append(packed)
        place += len(packed)
    header = {"device": vectors.device, "driver": vectors.driver, "failures": vectors.failures, "index": index}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez_compressed(path, header=text, results=np.frombuffer(b"".join(parts), np.uint8))


def read_vectors(cases: tuple[Case, ...], path: Path) -> Vectors:
    """Read the file.

    Raises:
        InputError: It has results of another size than a case of that name has.
    """
    with np.load(path) as content:
        header, raw = json.loads(content["header"].tobytes()), content["results"].tobytes()
    named = {case.name: case for case in cases}
    vectors = Vectors(header["device"], header["driver"], {}, header["failures"])
    for name, place, size in header["index"]:
        if name in named:
            vectors.results[name] = _unpack(named[name], raw[place : place + size])
    return vectors


def _widths(case: Case) -> tuple[int, ...]:
    """Bytes of a stored result of each destination; 0 for a bit."""
    if case.kind == "store":
        return (WORD,)
    return tuple(0 if kind == "pred" else width for kind, width in zip(case.destinations, case.widths, strict=True))


def _pack(words: npt.NDArray[np.uint64], width: int) -> bytes:
    return np.packbits(words != 0).tobytes() if width == 0 else words.astype(f"uint{8 * width}").tobytes()


def _unpack(case: Case, raw: bytes) -> Results:
    results = []
    count = case.count * (CHUNK // WORD if case.kind == "store" else 1)
    for width in _widths(case):
        size = -(-count // 8) if width == 0 else count * width
        part, raw = np.frombuffer(raw[:size], np.uint8), raw[size:]
        if len(part) != size:
            raise InputError(
                f"results of {case.name}", value=len(part), limit=f"it needs {size} bytes", remedy="record again"
            )
        words = np.unpackbits(part)[:count] if width == 0 else part.view(f"uint{8 * width}")
        results.append(words.astype(np.uint64))
    if raw:
        raise InputError(f"results of {case.name}", limit=f"{len(raw)} bytes are left over", remedy="record again")
    return tuple(results)
