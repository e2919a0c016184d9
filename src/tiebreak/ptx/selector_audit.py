"""Audits of the CuTeDSL selector: one launch for each row of ``selector_rows``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch

from tiebreak.errors import InputError
from tiebreak.impl.selector import find_reciprocal
from tiebreak.impl.specialization import SelectorSpecialization

from .arguments import place
from .audit import Input
from .cutedsl import obtain_selector_code
from .launch import Prepared
from .selector_rows import draw_rows

PREFIX = "select-"
CANDIDATE_BYTES = 8

REQUIRED = ("threads", "vectors")
"""What a name must state; the rest has defaults."""


def parse_specialization(name: str) -> SelectorSpecialization:
    """Return the specialisation that a name states: ``select-threads=128-vectors=1-contract=set``.

    Raises:
        InputError: It states none, or one whose candidates do not lie in one buffer.
    """
    known: dict[str, Any] = {field.name: field.default for field in fields(SelectorSpecialization)}
    stated: dict[str, Any] = {}
    for part in name.removeprefix(PREFIX).split("-"):
        key, _, value = part.partition("=")
        if key not in known:
            raise InputError("part of a selector's name", value=part, limit=f"one of {', '.join(known)}")
        kind = int if key in REQUIRED else type(known[key])
        try:
            stated[key] = value if kind is str else kind(int(value))
        except ValueError as error:
            raise InputError(key, value=value, limit="must be a number that it can have") from error
    missing = set(REQUIRED) - set(stated)
    if missing:
        raise InputError("selector's name", value=name, limit=f"must state {' and '.join(sorted(missing))}")
    specialization = SelectorSpecialization(**stated)
    if specialization.sources != "one" or specialization.stateful:
        raise InputError("sources", value=specialization.sources, limit="an audit takes candidates in one buffer")
    return specialization


def draw_inputs(specialization: SelectorSpecialization, architecture: str, seed: int = 0) -> Iterator[Input]:
    """Yield a launch for every row that leads the selector down another path.

    Raises:
        MissingBackendError: The selector is not compiled, and CuTeDSL is not there.
    """
    code = obtain_selector_code(specialization, architecture)
    for row in draw_rows(specialization, seed):
        # Tensors are aligned as the kernel's vector loads ask for.
        candidates, out = torch.from_numpy(row.candidates).clone(), torch.full((row.k,), -1, dtype=torch.int32)
        count = len(row.ids)
        reciprocal = find_reciprocal(count)
        row_bytes = CANDIDATE_BYTES * count
        values = (candidates, out, 0, 0, row_bytes, 0, row.k, count, count, reciprocal, 1, row.k, 0)
        arguments = tuple(place(value, "argument") for value in values)
        yield Input(row.name, Prepared(code, arguments, (1, 1, 1), (specialization.threads, 1, 1)))
