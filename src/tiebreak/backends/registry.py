"""Backends by name, as ``--backend`` takes them."""

from __future__ import annotations

from collections.abc import Sequence

from tiebreak.errors import InputError, MissingBackendError

from . import Backend
from .reference import SpecBackend
from .simulated import SimulatedBackend

SIMULATED = ("sim:alternating", "sim:acknowledged", "sim:all-gather")
NAMES = ("spec", *SIMULATED)


def expand_names(names: Sequence[str]) -> list[str]:
    """Return full backend names: ``sim`` stands for every simulated transport.

    Raises:
        InputError: A name is unknown.
        MissingBackendError: The backend exists, but this machine cannot run it.
    """
    full: list[str] = []
    for name in names:
        if name == "cuda":
            raise MissingBackendError(
                "backend",
                value=name,
                limit="this version runs no merge on CUDA devices",
                remedy=f"choose among {', '.join(NAMES)}",
            )
        if name != "sim" and name not in NAMES:
            raise InputError("backend", value=name, limit=f"backends are sim, {', '.join(NAMES)}", remedy="name one")
        full.extend(SIMULATED if name == "sim" else (name,))
    return list(dict.fromkeys(full))


def make_backend(name: str) -> Backend:
    """Return the backend called ``name``; see ``NAMES``.

    Raises:
        InputError: The name is unknown, or stands for several backends.
    """
    full = expand_names([name])
    if len(full) > 1:
        raise InputError("backend", value=name, limit=f"it stands for {', '.join(full)}", remedy="name one of them")
    return SpecBackend() if full == ["spec"] else SimulatedBackend(full[0])
