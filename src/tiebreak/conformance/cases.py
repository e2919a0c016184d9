"""All conformance cases."""

from __future__ import annotations

from functools import cache

from .case import Case
from .floating_cases import make_floating_cases
from .integer_cases import make_integer_cases
from .machine_cases import make_machine_cases
from .shared_cases import make_shared_cases


@cache
def make_cases() -> tuple[Case, ...]:
    """Every case, each text and state space once."""
    return (*make_integer_cases(), *make_floating_cases(), *make_machine_cases(), *make_shared_cases())
