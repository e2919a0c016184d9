"""Fragments of PTX: a body in a frame that declares parameters and registers, to try instructions out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .executor import Report, execute
from .parser import parse

FRAME = """
.version 9.0
.target sm_100a
.address_size 64
{module}
.visible .entry fragment({parameters}) {directives}
{{
    .reg .pred %p<16>;
    .reg .b16 %h<16>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<32>;
    {body}
}}
"""


def run_fragment(
    body: str,
    arguments: Sequence[Any] = (),
    *,
    grid: int | Sequence[int] = 1,
    block: int | Sequence[int] = 32,
    kinds: Sequence[str] | None = None,
    module: str = "",
    directives: str = "",
    **options: Any,
) -> Report:
    """Execute a fragment.

    Args:
        body: Statements; registers ``%p``, ``%h``, ``%r`` and ``%rd`` are declared.
        arguments: Values of the parameters ``p0``, ``p1``, ...
        grid: CTAs.
        block: Threads of a CTA.
        kinds: Type of each parameter; by default ``u64`` for arrays and ``u32`` for numbers.
        module: Declarations of module variables.
        directives: Performance directives of the kernel.
        options: Further arguments of ``Launch``.

    Raises:
        PtxSyntaxError: The fragment is not PTX.
        FindingError: The execution cannot go on.
    """
    if kinds is None:
        kinds = ["u64" if isinstance(argument, np.ndarray) else "u32" for argument in arguments]
    parameters = ", ".join(f".param .{kind} p{number}" for number, kind in enumerate(kinds))
    text = FRAME.format(module=module, parameters=parameters, directives=directives, body=body)
    parsed = parse(text, "<fragment>")
    return execute(parsed.kernels["fragment"], parsed, grid, block, arguments, **options)
