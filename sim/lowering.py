"""Which CTA barriers the Triton compiler inserts around atomics, per version.

A Triton program runs on many threads.  A scalar atomic is issued by one of
them, so its release covers the stores of the *other* threads only across a CTA
barrier (PTX ISA, Memory Consistency Model: causality order includes barriers).
Before Triton 3.9 the compiler inserts no barrier in front of a release and
none behind an acquire whose result is unused; since 3.9 it does both
(triton-lang/triton#10816).  A scalar result that is used reaches the other
threads through shared memory, and so across a barrier; but since 3.9 a program
of one warp shuffles it, which orders no memory accesses, unless it acquired.

A profile states these facts for the simulator, and only what holds for every
target and number of warps; they follow from audited PTX (``tiebreak.lowering``).
A kernel that leans on a compiler is reported under the other profile.
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
            result is used, a relaxed one too.
    """

    name: str
    barrier_before_release: bool
    barrier_after_acquire: bool
    barrier_after_used_result: bool


LOWERINGS: dict[str, Lowering] = {
    profile.name: profile
    for profile in (
        Lowering(
            name="triton-3.6",
            barrier_before_release=False,
            barrier_after_acquire=False,
            barrier_after_used_result=True,
        ),
        Lowering(
            name="triton-3.9",
            barrier_before_release=True,
            barrier_after_acquire=True,
            barrier_after_used_result=False,
        ),
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
