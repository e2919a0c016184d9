"""The simulator's lowering profiles, derived from audited PTX."""

from __future__ import annotations

from tiebreak.sim.lowering import Lowering

from .kernels import PROBE
from .manifest import Entry

_BARRIER = ("bar.sync", "barrier")


def derive_profile(name: str, entries: dict[str, list[Entry]]) -> Lowering:
    """Return what a compiler does around atomics, on every target and with any number of warps.

    Args:
        name: Name of the profile, that of the compiler.
        entries: Entries of the compiler by kernel, with those of the probes.
    """
    return Lowering(
        name=name,
        barrier_before_release=_always(entries, "release", "before"),
        barrier_after_acquire=_always(entries, "acquire", "after"),
        barrier_after_used_result=_always(entries, "use", "after"),
    )


def _always(entries: dict[str, list[Entry]], probe: str, side: str) -> bool:
    """Tell whether nothing but a barrier lies on one side of the operation of a probe, in every variant."""
    found = [entry for name, own in entries.items() if name.startswith(f"{PROBE}{probe},") for entry in own]
    return bool(found) and all(text.startswith(_BARRIER) for entry in found for text in entry[side])
