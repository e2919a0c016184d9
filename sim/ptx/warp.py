"""Instructions that exchange values between the lanes of a warp.

PTX ISA: "shfl.sync", "vote.sync", "match.sync", "redux.sync", "activemask",
"elect.sync", and the layout of ``ldmatrix`` and ``stmatrix``.  Arrays have the
shape [warps, 32].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .extremes import extreme
from .floats import FORMATS
from .form import VIEWS, Array, Entry, Form, storage_of, stored
from .module import Instruction, Kernel
from .table import find_entry

LANES = np.arange(32, dtype=np.int64)
_BIT = (np.uint32(1) << LANES.astype(np.uint32)).astype(np.uint32)


@dataclass(frozen=True)
class WarpOperation:
    """What an instruction of kind ``warp`` computes.

    Attributes:
        entry: The entry of the table.
        sources: NumPy type in which each source is read (see ``table.split_operands``); the membermask is among them.
        destinations: Storage of each destination.
        membermask: Place of the membermask among the sources, or -1.
        evaluate: ``evaluate(active, *sources)``: the destination, or a tuple of them; lanes that are not active get
            values without meaning.  ``active`` is [warps, 32] of bool: lanes that perform the instruction together.
        reads: ``reads(*sources)``: the lane that each lane reads (shfl), or None.
    """

    entry: Entry
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    membermask: int
    evaluate: Callable[..., Any]
    reads: Callable[..., Array] | None = None

    def problems(self, active: Array, *sources: Array) -> list[tuple[Array, str]]:
        """Lanes whose use of the instruction is undefined, as [warps, 32] of bool, each with the reason in words."""
        if self.membermask < 0:
            return []
        masks = np.broadcast_to(sources[self.membermask], active.shape)
        present = pack_lanes(active)[:, None]
        found = [
            (active & (masks & _BIT == 0), "the membermask does not name the lane itself"),
            (active & (masks & ~present != 0), "the membermask names a lane that does not perform the instruction"),
            (active & _disagree(active, masks), "lanes that perform it together give different membermasks"),
        ]
        if self.reads is not None:
            source = np.broadcast_to(self.reads(*sources), active.shape)
            found.append(
                (active & ~np.take_along_axis(active, source, 1), "the lane that it reads does not perform it")
            )
        return [(lanes, text) for lanes, text in found if lanes.any()]


def _disagree(active: Array, masks: Array) -> Array:
    """Lanes whose mask names an active lane with another mask."""
    named = (masks[:, :, None] & _BIT) != 0
    return np.asarray((named & active[:, None, :] & (masks[:, :, None] != masks[:, None, :])).any(2))


def pack_lanes(lanes: Array) -> Array:
    """Bit mask of each warp, ``uint32`` [warps], of [warps, 32] of bool."""
    return np.where(lanes, _BIT, 0).sum(1, dtype=np.uint32)


def _members(active: Array, masks: Array) -> Array:
    """Whether lane ``j`` takes part in what lane ``i`` computes: [warps, 32, 32]."""
    return ((np.broadcast_to(masks, active.shape)[:, :, None] & _BIT) != 0) & active[:, None, :]


def resolve_warp(instruction: Instruction, kernel: Kernel) -> WarpOperation:
    """What an instruction of kind ``warp`` computes.

    Raises:
        UnknownInstructionError: The table has no such instruction, or not in this form.
    """
    entry = find_entry(instruction, kernel.name)
    form = Form(instruction, kernel, entry)
    rule = _RULES.get(entry.opcode)
    if entry.kind != "warp" or rule is None:
        form.reject(f"it is of kind {entry.kind}")
        raise AssertionError
    if entry.opcode != "activemask":
        form.require("sync")
    return rule(form)


def _shuffle(form: Form) -> WarpOperation:
    mode = form.require("up", "down", "bfly", "idx")
    form.require("b32")

    def locate(_values: Array, operand: Array, clamp: Array, _mask: Array) -> tuple[Array, Array]:
        operand, clamp = operand.astype(np.int64), clamp.astype(np.int64)
        distance, segment, bound = operand & 31, clamp >> 8 & 31, clamp & 31
        last = (LANES & segment) | (bound & ~segment)
        if mode == "up":
            source = LANES - distance
            return source, source >= last
        if mode == "idx":
            source = (LANES & segment) | (distance & ~segment)
        else:
            source = LANES + distance if mode == "down" else LANES ^ distance
        return source, source <= last

    def reads(*sources: Array) -> Array:
        source, inside = locate(*sources)
        return np.where(inside, source, LANES)

    def evaluate(active: Array, *sources: Array) -> Array | tuple[Array, Array]:
        source, inside = locate(*sources)
        lanes = np.broadcast_to(np.where(inside, source, LANES), active.shape)
        values = np.take_along_axis(np.broadcast_to(sources[0], active.shape), lanes, 1)
        return (values, np.broadcast_to(inside, active.shape)) if len(form.destination_operands) == 2 else values

    destinations = ("uint32", "bool")[: len(form.destination_operands)]
    return _build(form, evaluate, ("uint32",) * 4, destinations, 3, reads)


def _build(
    form: Form,
    evaluate: Callable[..., Any],
    sources: tuple[str, ...],
    destinations: tuple[str, ...],
    membermask: int,
    reads: Callable[..., Array] | None = None,
) -> WarpOperation:
    """Finish, with the checks of ``Form.build``."""
    checked = form.build(evaluate, sources, destinations)
    return WarpOperation(form.entry, checked.sources, checked.destinations, membermask, evaluate, reads)


def _vote(form: Form) -> WarpOperation:
    mode = form.require("all", "any", "uni", "ballot")
    form.require("b32" if mode == "ballot" else "pred")

    def evaluate(active: Array, truth: Array, masks: Array) -> Array:
        members = _members(active, masks)
        said = members & np.broadcast_to(truth, active.shape)[:, None, :]
        if mode == "ballot":
            return np.where(said, _BIT, 0).sum(2, dtype=np.uint32)
        everyone, anyone = said.sum(2) == members.sum(2), said.any(2)
        return np.asarray({"all": everyone, "any": anyone, "uni": everyone | ~anyone}[mode])

    return _build(form, evaluate, ("bool", "uint32"), ("uint32" if mode == "ballot" else "bool",), 1)


def _match(form: Form) -> WarpOperation:
    mode, kind = form.require("any", "all"), form.require("b32", "b64")
    two = len(form.destination_operands) == 2

    def evaluate(active: Array, values: Array, masks: Array) -> Array | tuple[Array, Array]:
        values = np.broadcast_to(values, active.shape)
        members = _members(active, masks)
        same = members & (values[:, :, None] == values[:, None, :])
        found = np.where(same, _BIT, 0).sum(2, dtype=np.uint32)
        if mode == "any":
            return found
        everyone = same.sum(2) == members.sum(2)
        found = np.where(everyone, found, 0).astype(np.uint32)
        return (found, everyone) if two else found

    return _build(form, evaluate, (storage_of(kind), "uint32"), ("uint32", "bool")[: 1 + two], 1)


_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


def _reduce(form: Form) -> WarpOperation:
    operation, kind = form.require(*_REDUCTIONS), form.take_type()
    if kind == "f32":
        return _reduce_floats(form, operation)
    if kind != "b32" if operation in ("and", "or", "xor") else kind not in ("u32", "s32"):
        form.reject(f"there is no .{operation} of .{kind}")
    view, ufunc = VIEWS[kind], _REDUCTIONS[operation]
    bounds = np.iinfo(view)
    neutral = {"min": bounds.max, "max": bounds.min, "and": 0xFFFFFFFF}.get(operation, 0)

    def evaluate(active: Array, values: Array, masks: Array) -> Array:
        values = np.broadcast_to(values, active.shape)[:, None, :]
        taken = np.where(_members(active, masks), values, np.dtype(view).type(neutral))
        return stored(ufunc.reduce(taken, axis=2, dtype=view))

    return _build(form, evaluate, (view, "uint32"), ("uint32",), 1)


def _reduce_floats(form: Form, operation: str) -> WarpOperation:
    """Redux of f32 (sm_100a): smallest or largest number; a NaN only where all are, or where one is with ``.NaN``."""
    magnitude, nan = form.take("abs"), form.take("NaN")
    if operation not in ("min", "max"):
        form.reject("f32 has .min and .max only")
    pick = extreme(operation, "f32", nan=bool(nan))
    number = FORMATS["f32"]

    def evaluate(active: Array, values: Array, masks: Array) -> Array:
        values = np.broadcast_to(values, active.shape)
        if magnitude:
            values = values & np.uint32(number.sign - 1)
        members = _members(active, masks)
        # A lane that takes no part repeats the value of the lane that asks, which takes part.
        taken = np.where(members, values[:, None, :], values[:, :, None])
        return pick(*(taken[:, :, lane] for lane in range(32)))

    return _build(form, evaluate, ("uint32", "uint32"), ("uint32",), 1)


def _activemask(form: Form) -> WarpOperation:
    form.require("b32")
    # The only instruction without a source: split_operands finds none.
    return _build(form, lambda active: np.broadcast_to(pack_lanes(active)[:, None], active.shape), (), ("uint32",), -1)


def _elect(form: Form) -> WarpOperation:
    """Elect: the lowest lane of the membermask leads, which the ISA leaves open."""

    def evaluate(active: Array, masks: Array) -> tuple[Array, Array]:
        leader = _members(active, masks).argmax(2)
        return leader.astype(np.uint32), leader == LANES

    return _build(form, evaluate, ("uint32",), ("uint32", "bool"), 0)


def _transpose(form: Form) -> WarpOperation:
    """Movmatrix: a matrix of 8 by 8 halves, two neighbours of a row in each lane, is transposed."""
    for word in ("aligned", "m8n8", "trans", "b16"):
        form.require(word)

    def evaluate(active: Array, values: Array) -> Array:
        packed = np.ascontiguousarray(np.broadcast_to(values, active.shape)).reshape(-1, 8, 4)
        return np.ascontiguousarray(packed.view(np.uint16).swapaxes(1, 2)).view(np.uint32).reshape(-1, 32)

    return _build(form, evaluate, ("uint32",), ("uint32",), -1)


_RULES: dict[str, Callable[[Form], WarpOperation]] = {
    "shfl": _shuffle,
    "vote": _vote,
    "match": _match,
    "redux": _reduce,
    "activemask": _activemask,
    "elect": _elect,
    "movmatrix": _transpose,
}


def distribute_matrices(rows: Array, transposed: bool) -> tuple[Array, ...]:
    """Registers that ``ldmatrix.m8n8`` of ``.b16`` gives each lane.

    Args:
        rows: ``uint16`` [warps, matrices, 8, 8] as read; the address of row ``r`` of matrix ``m`` is lane 8 m + r's.
        transposed: Whether ``.trans`` is given.

    Returns:
        One ``uint32`` [warps, 32] per matrix.
    """
    matrices = rows.swapaxes(2, 3) if transposed else rows
    packed = np.ascontiguousarray(matrices).view(np.uint32)
    return tuple(packed[:, matrix].reshape(-1, 32) for matrix in range(packed.shape[1]))


def gather_matrices(registers: tuple[Array, ...], transposed: bool) -> Array:
    """Rows that ``stmatrix.m8n8`` of ``.b16`` writes, the inverse of ``distribute_matrices``."""
    packed = np.ascontiguousarray(np.stack([part.reshape(-1, 8, 4) for part in registers], axis=1))
    rows = packed.view(np.uint16)
    return rows.swapaxes(2, 3) if transposed else rows
