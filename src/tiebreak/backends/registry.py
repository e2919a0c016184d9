"""Backends by name, as ``--backend`` takes them."""

from __future__ import annotations

from collections.abc import Sequence

from tiebreak.errors import InputError
from tiebreak.impl.kernel_store import find_compiler

from . import Backend
from .cuda import PLACEMENTS, CudaBackend, require_device
from .reference import SpecBackend

FORMS = ("alternating", "acknowledged", "all-gather")
"""How candidates travel, as the last part of a name: by flags in either discipline, or by the fallback."""

SIMULATED = tuple(f"sim:{form}" for form in FORMS)
CUDA = tuple(f"cuda:{form}" for form in FORMS)
PTX = ("ptx:sm_90a", "ptx:sm_100a", "ptx:sm_121a")
NAMES = ("spec", *SIMULATED)
"""Backends that run on every machine."""

_GROUPS = {
    "sim": SIMULATED,
    "cuda": CUDA,
    "ptx": PTX,
    **{f"cuda:{place}": tuple(f"cuda:{place}:{form}" for form in FORMS) for place in PLACEMENTS},
}
_ALL = tuple(dict.fromkeys((*NAMES, *(name for names in _GROUPS.values() for name in names))))


def form_of(name: str) -> str:
    """Return how candidates travel in a backend; those without a transport take any scenario."""
    form = name.rpartition(":")[2]
    return form if form in FORMS else FORMS[0]


def on_device(name: str) -> bool:
    """Tell whether a backend runs on GPUs, in worker processes of its own."""
    return name.partition(":")[0] == "cuda"


def on_ptx_machine(name: str) -> bool:
    """Tell whether a backend runs compiled kernels on the PTX machine; each target has kernels of its own."""
    return name in PTX


def default_names() -> tuple[str, ...]:
    """Return what is verified unless something else is asked for: spec, simulated ranks, and one target's kernels.

    The last take CuTeDSL, and are left out where that is not installed.
    """
    return ("spec", "sim", *(PTX[1:2] if find_compiler() is not None else ()))


def expand_names(names: Sequence[str]) -> list[str]:
    """Return full backend names: ``sim`` and ``cuda`` stand for every transport, ``ptx`` for every target.

    Raises:
        InputError: A name is unknown.
        MissingBackendError: The backend exists, but this machine cannot run it.
    """
    full: list[str] = []
    for name in names:
        if name not in _GROUPS and name not in _ALL:
            known = ", ".join((*_GROUPS, *_ALL))
            raise InputError("backend", value=name, limit=f"backends are {known}", remedy="name one")
        full.extend(_GROUPS.get(name, (name,)))
    if any(on_device(name) for name in full):
        require_device()
    return list(dict.fromkeys(full))


def make_backend(name: str) -> Backend:
    """Return the backend called ``name``; see ``NAMES``.

    Raises:
        InputError: The name is unknown, or stands for several backends.
        MissingBackendError: The backend exists, but this machine cannot run it.
    """
    full = expand_names([name])
    if len(full) > 1:
        raise InputError("backend", value=name, limit=f"it stands for {', '.join(full)}", remedy="name one of them")
    if name == "spec":
        return SpecBackend()
    if name in SIMULATED:
        # Imported when it is needed: machines with GPUs can do without the simulator's requirements.
        from .simulated import SimulatedBackend

        return SimulatedBackend(name)
    if name in PTX:
        from .ptx import PtxBackend

        return PtxBackend(name)
    return CudaBackend(name)
