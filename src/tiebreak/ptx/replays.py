"""Launches kept in a folder, so that one command repeats them."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tiebreak.errors import InputError
from tiebreak.impl.kernel_store import locate_cache

from .arguments import Argument, Array, Placed, save_arguments

if TYPE_CHECKING:
    from .launch import Prepared

Snapshot = list[tuple[Array, Array]]
"""Arrays, and what they held."""


def take_snapshot(arguments: Sequence[Argument]) -> Snapshot:
    """What every array of the arguments holds."""
    return [(array, array.copy()) for array in _list_arrays(arguments)]


def _list_arrays(arguments: Sequence[Argument]) -> Iterator[Array]:
    for argument in arguments:
        if isinstance(argument, Placed):
            yield from [argument.array] if not argument.addressed else _list_arrays(argument.addressed)


def save_replay(prepared: Prepared, before: Snapshot) -> str:
    """Keep a launch in the cache folder; returns the command that repeats it.

    Args:
        prepared: The launch.
        before: What its arrays held before it ran.

    Raises:
        InputError: The folder cannot be written to.
    """
    digest = hashlib.sha256(repr((prepared.grid, prepared.block, prepared.code.text)).encode())
    for _, content in before:
        digest.update(content.tobytes())
    folder = locate_cache() / "replays" / digest.hexdigest()[:16]
    after = take_snapshot(prepared.arguments)
    try:
        restore(before)
        texts = save_arguments(folder, prepared.arguments)
        (folder / "kernel.ptx").write_text(prepared.code.text)
    except OSError as error:
        raise InputError("folder of a replay", value=str(folder), limit=str(error.strerror)) from error
    finally:
        restore(after)
    return _state_command(prepared, str(folder / "kernel.ptx"), " ".join(texts))


def restore(snapshot: Snapshot) -> None:
    """Put back what arrays held."""
    for array, content in snapshot:
        array[...] = content


def _state_command(prepared: Prepared, path: str, arguments: str) -> str:
    options = {
        "--grid": ",".join(map(str, prepared.grid)),
        "--block": ",".join(map(str, prepared.block)),
        "--entry": prepared.code.entry,
        "--shared": str(prepared.code.shared_bytes or ""),
        "--cluster": str(prepared.cluster) if prepared.cluster > 1 else "",
        "--schedule": prepared.schedule if prepared.schedule != "lockstep" else "",
        "--args": arguments,
    }
    words = [word for name, value in options.items() if value for word in (name, value)]
    return shlex.join(["tiebreak", "ptx", path, *words])
