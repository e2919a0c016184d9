"""What a race looks like in words."""

from __future__ import annotations

from collections.abc import Callable

from .findings import WARP, Actor, Finding
from .races_messages import needed_scope
from .races_proxy import Unpublished
from .races_record import SCOPES, Record
from .races_window import Pair

NAMES = {number: name for name, number in SCOPES.items()}


def explain(pair: Pair, place: Callable[[int], str] | None, replay: str) -> Finding:
    """Return the finding of a racing pair; ``place`` names addresses of global memory, None means shared memory."""
    elements = pair.judge.elements
    sides = [
        (elements.records[int(elements.record[side])], int(elements.thread[side])) for side in (pair.one, pair.two)
    ]
    byte = int(max(elements.start[pair.one], elements.start[pair.two]))
    width = int(min(elements.stop[pair.one], elements.stop[pair.two])) - byte
    where = place(byte) if place is not None else f"shared byte {byte}"
    sides.sort(key=lambda side: side[0].instruction.line)
    actors = tuple(_actor(record, thread) for record, thread in sides)
    return Finding("race", actors, f"{where}, {width} bytes", _missing(sides), replay)


def explain_outliving(record: Record, thread: int, replay: str) -> Finding:
    """Return the finding of an access to shared memory of a CTA that may have ended."""
    address = int(record.addresses[record.threads == thread][0])
    owner = record.owner
    missing = f"no barrier.cluster orders it before the end of CTA {owner}, and of its shared memory"
    place = f"shared byte {address} of CTA {owner}, {record.width} bytes"
    return Finding("race", (_actor(record, thread),), place, missing, replay)


def explain_unpublished(found: Unpublished, place: Callable[[int], str] | None, replay: str) -> Finding:
    """Return the finding of an access that a copy follows without a proxy fence."""
    sides = [(found.access, found.thread), (found.copy, found.issuer)]
    lines = f"between line {found.access.instruction.line} and the copy of line {found.copy.instruction.line}"
    where = place(found.address) if place is not None else f"shared byte {found.address}"
    sides.sort(key=lambda side: side[0].instruction.line)
    actors = tuple(_actor(record, thread) for record, thread in sides)
    return Finding("race", actors, where, f"no fence.proxy.async {lines}", replay)


def _actor(record: Record, thread: int) -> Actor:
    cta = record.view.cta
    position = cta.position
    action = "writes" if record.writes else "reads"
    if record.scope:
        action = f"{action} at scope {NAMES[record.scope]}"
    return Actor(position.rank, position.launch, position.cta, thread, record.instruction, action, cta.kernel.name)


def _missing(sides: list[tuple[Record, int]]) -> str:
    """Name the edge that is missing."""
    (one, first), (two, second) = sides
    needed = needed_scope(one.view.cta, two.view.cta)
    if one.scope and two.scope:
        return _weakness(one, two, needed)
    here, there = one.view.cta.position, two.view.cta.position
    if needed == SCOPES["sys"]:
        return f"no chain of release.sys to acquire.sys between rank {here.rank} and rank {there.rank}"
    if needed > SCOPES["cta"]:
        chain = f"no barrier.cluster, and no release to acquire at scope {NAMES[needed]} or wider,"
        return f"{chain} between CTA {here.cta} and CTA {there.cta}"
    lines = f"between line {one.instruction.line} and line {two.instruction.line}"
    if one.instruction is two.instruction:
        lines = f"between two threads at line {one.instruction.line}"
    if first // WARP == second // WARP:
        return f"no warp-level edge {lines}: lanes {first % WARP} and {second % WARP} share no bar.warp.sync there"
    return f"no bar.sync {lines}: warps {first // WARP} and {second // WARP} are not ordered"


def _weakness(one: Record, two: Record, needed: int) -> str:
    """Name why two strong accesses are not morally strong."""
    narrow = one if one.scope <= two.scope else two
    other = two if narrow is one else one
    if narrow.scope >= needed:
        return f"strong accesses of {one.element} and {two.element} bytes do not overlap completely"
    position = other.view.cta.position
    place = {SCOPES["sys"]: f"rank {position.rank}"}.get(needed, f"CTA {position.cta}")
    return f"scope {NAMES[narrow.scope]} at line {narrow.instruction.line} does not include {place}"
