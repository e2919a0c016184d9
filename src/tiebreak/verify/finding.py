"""What is wrong with an execution."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One broken property of one execution."""

    property: str
    message: str
