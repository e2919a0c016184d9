"""Entries of instructions that are more than a function of registers: memory, barriers, control, address windows."""

from __future__ import annotations

from .form import Entry, Kind

_CACHES = "caches are not modelled: cache operators and hints have no effect"


def _entries(kind: Kind, *rows: tuple[str, str] | tuple[str, str, str]) -> tuple[Entry, ...]:
    """Entries whose title is their opcode, or starts with it (``bar.warp.sync``)."""
    return tuple(
        Entry(title.split(".")[0], title, section, kind, marks=tuple(title.split(".")[1:2]), note="".join(note))
        for title, section, *note in rows
    )


MACHINE_ENTRIES: tuple[Entry, ...] = (
    *_entries(
        "warp",
        ("shfl", "9.7.9.6"),
        ("vote", "9.7.13.9"),
        ("match", "9.7.13.10"),
        ("activemask", "9.7.13.11"),
        ("redux", "9.7.13.12"),
        ("elect", "9.7.13.14"),
        ("movmatrix", "9.7.14.5.17"),
    ),
    *_entries(
        "address",
        ("isspacep", "9.7.9.19"),
        ("cvta", "9.7.9.20"),
        ("mapa", "9.7.9.23"),
        ("getctarank", "9.7.9.24"),
    ),
    *_entries(
        "memory",
        ("ld", "9.7.9.8", _CACHES),
        ("ldu", "9.7.9.10", _CACHES),
        ("st", "9.7.9.11", _CACHES),
        ("prefetch", "9.7.9.15", "no effect"),
        ("prefetchu", "9.7.9.15", "no effect"),
        ("applypriority", "9.7.9.16", "no effect"),
        ("discard", "9.7.9.17", "no effect; the values may be lost in the ISA and are kept here"),
        ("ldmatrix", "9.7.14.5.15"),
        ("stmatrix", "9.7.14.5.16"),
    ),
    *_entries("atomic", ("atom", "9.7.13.5"), ("red", "9.7.13.6")),
    *_entries(
        "barrier",
        ("bar", "9.7.13.1"),
        ("bar.warp", "9.7.13.2"),
        ("barrier", "9.7.13.1"),
        ("barrier.cluster", "9.7.13.3"),
    ),
    *_entries("fence", ("membar", "9.7.13.4"), ("fence", "9.7.13.4")),
    *_entries(
        "control",
        ("bra", "9.7.12.3"),
        ("brx", "9.7.12.4"),
        ("call", "9.7.12.5"),
        ("ret", "9.7.12.6"),
        ("exit", "9.7.12.7"),
        ("trap", "9.7.19.4"),
        ("brkpt", "9.7.19.1"),
        ("pmevent", "9.7.19.3", "no effect"),
        ("nanosleep", "9.7.19.2", "time is not modelled: other threads may run, nothing else happens"),
        ("setmaxnreg", "9.7.19.5", "no effect"),
        ("griddepcontrol", "9.7.13.13"),
    ),
    *_entries("async", ("cp", "9.7.9.25"), ("mbarrier", "9.7.13.15")),
)
"""Such entries."""
