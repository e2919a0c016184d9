"""Which CTA barriers the Triton compiler inserts around atomics, per version.

A Triton program runs on many threads.  A scalar atomic is issued by one of
them, so its release covers the stores of the *other* threads only across a CTA
barrier (PTX ISA, Memory Consistency Model: causality order includes barriers).
Before Triton 3.9 the compiler inserts no barrier in front of a release and
none behind an acquire whose result is unused; since 3.9 it does both
(triton-lang/triton#10816).  In every version an atomic whose scalar result is
used is followed by a barrier, because the value reaches the other threads
through shared memory.

A profile states these facts for the simulator.  A kernel that leans on the
newer compiler is reported under ``triton-3.6`` and clean under ``triton-3.9``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiebreak.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """Barriers around a scalar atomic, as the compiler inserts them.

    Attributes:
        name: Profile name, ``triton-<first version it describes>``.
        barrier_before_release: A CTA barrier precedes a release or acq_rel atomic.
        barrier_after_acquire: A CTA barrier follows an acquire or acq_rel atomic
            even when nobody uses its result.
        barrier_after_used_result: A CTA barrier follows any scalar atomic whose
            result is used.
    """

    name: str
    barrier_before_release: bool
    barrier_after_acquire: bool
    barrier_after_used_result: bool = True


LOWERINGS: dict[str, Lowering] = {
    profile.name: profile
    for profile in (
        Lowering(name="triton-3.6", barrier_before_release=False, barrier_after_acquire=False),
        Lowering(name="triton-3.9", barrier_before_release=True, barrier_after_acquire=True),
    )
}


def resolve_lowering(name: str) -> Lowering:
    """Return the profile called ``name``.

    Raises:
        InputError: No profile has that name.
    """
    if name not in LOWERINGS:
        raise InputError(
            "lowering profile",
            value=name,
            limit=f"known profiles are {', '.join(LOWERINGS)}",
            remedy="name one of them",
        )
    return LOWERINGS[name]
