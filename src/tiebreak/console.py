"""Where tables are printed."""

from __future__ import annotations

import sys

from rich.console import Console

WIDTH_WITHOUT_TERMINAL = 240
"""Columns: the names of kernels are long, and a table takes no more than it needs."""


def open_console() -> Console:
    """Return a console on standard output; tables in a file or a log are as wide as they need."""
    return Console() if sys.stdout.isatty() else Console(width=WIDTH_WITHOUT_TERMINAL)
