"""Where in the source of a kernel an operation stands, and whether its result is used."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from types import FrameType

import triton

from .trace import Site

_TRITON = os.path.dirname(triton.__file__)
_OWN = os.path.dirname(os.path.abspath(__file__))


def find_site() -> Site:
    """Return the innermost frame that is neither the interpreter's nor the simulator's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_machinery(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return Site("?", "?", 0)
    return Site(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)


@functools.cache
def _is_machinery(filename: str) -> bool:
    return filename.startswith(_TRITON) or os.path.dirname(os.path.abspath(filename)) == _OWN


def result_is_used(site: Site) -> bool:
    """Tell whether the operation at ``site`` is more than a statement of its own.

    A call whose value is dropped is an expression statement; the compiler then
    has no result to hand to the other threads.  Unreadable source counts as
    unused, which is the stricter reading.
    """
    return site.line not in _dropped_lines(site.file)


@functools.cache
def _dropped_lines(file: str) -> frozenset[int]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        tree = ast.Module(body=[], type_ignores=[])
    if not tree.body:
        return frozenset(range(1_000_000))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    return frozenset(line for node in calls for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))
