"""Moves between registers (PTX ISA, "Data Movement and Conversion Instructions: mov")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .form import Array, Entry, Form, ValueOperation, storage_of
from .module import Vector

MOV = Entry(
    "mov", "mov", "9.7.9.3",
    types=("pred", "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"),
)  # fmt: skip
CREATEPOLICY = Entry(
    "createpolicy", "createpolicy", "9.7.9.18", types=("b64",),
    note="a policy is a hint to caches; its value here is 0",
)  # fmt: skip


def _move(form: Form) -> ValueOperation:
    """mov, and its forms that pack a vector into a word or take one apart (9.7.9.4)."""
    storage = storage_of(form.take_type())
    count = len(form.destination_operands)
    if len(form.source_operands) > 1:
        return _pack(form, storage)
    if count == 1 and not isinstance(form.instruction.operands[0], Vector):
        return form.build(lambda a: a, (storage,), (storage,))
    part = _part(form, storage, count)
    width = 8 * np.dtype(part).itemsize

    def evaluate(a: Array) -> tuple[Array, ...]:
        return tuple((a >> a.dtype.type(width * place)).astype(part) for place in range(count))

    return form.build(evaluate, (storage,), (part,) * count)


def _pack(form: Form, storage: str) -> ValueOperation:
    count = len(form.source_operands)
    part = _part(form, storage, count)
    width = 8 * np.dtype(part).itemsize

    def evaluate(*parts: Array) -> Array:
        word = parts[0].astype(storage)
        for place, value in enumerate(parts[1:], 1):
            word = word | (value.astype(storage) << np.dtype(storage).type(width * place))
        return word

    return form.build(evaluate, (part,) * count, (storage,))


def _part(form: Form, storage: str, count: int) -> str:
    """Storage of one of ``count`` equal parts of a word."""
    bits = 8 * np.dtype(storage).itemsize
    if storage == "bool" or count not in (2, 4) or bits // count < 16:
        form.reject(f"a vector of {count} does not make {storage}")
    return f"uint{bits // count}"


def _create_policy(form: Form) -> ValueOperation:
    """createpolicy: any kind and number of sources, and a value that nothing depends on."""
    for part in form.instruction.modifiers[:-1]:
        form.take(part)
    form.take_type()
    sources = tuple(form.storage(operand) or "uint32" for operand in form.source_operands)
    return form.build(lambda *_sources: np.zeros(1, np.uint64), sources, ("uint64",))


RULES: dict[Entry, Callable[[Form], ValueOperation]] = {MOV: _move, CREATEPOLICY: _create_policy}
"""How each instruction of this module is resolved."""
