"""The manifest: what implements each flag operation, per compiler, kernel and target, as text that people read.

An entry says what stands in the source, the instruction, its order and scope,
which threads perform it, and what lies between it and the nearest CTA barriers
on every path: ``before`` up to stores of other threads, ``after`` up to their
accesses.  Entries have no line numbers, so that edits elsewhere in a file
change nothing.
"""

from __future__ import annotations

import ast
import difflib
import json
import linecache
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tiebreak.errors import InputError
from tiebreak.sim.ptx.flags import FlagOperation, Surroundings, find_flag_operations
from tiebreak.sim.ptx.module import Instruction, Kernel, Location

PATH = Path(__file__).with_name("manifest.toml")
COMMAND = "tiebreak lowering --update"
_HEADER = f"""# What compilers make of each flag operation; tests/test_lowering_audit.py holds the installed ones to it.
# Written by: {COMMAND}
"""

Entry: TypeAlias = dict[str, Any]
Manifest: TypeAlias = dict[str, dict[str, list[Entry]]]
"""Entries by compiler and kernel."""


def load_manifest(path: Path = PATH) -> Manifest:
    """Return the manifest of the repository."""
    content: Manifest = tomllib.loads(path.read_text())
    return content


def save_manifest(manifest: Manifest, path: Path = PATH) -> None:
    """Write a manifest."""
    parts = [_HEADER, *(render(compiler, manifest[compiler]) for compiler in sorted(manifest))]
    path.write_text("\n".join(parts))


def render(compiler: str, kernels: dict[str, list[Entry]]) -> str:
    """Return the entries of one compiler as TOML, in which they are stored and compared."""
    tables = [
        "\n".join((f"[[{_quote(compiler)}.{_quote(name)}]]", *map(_assign, entry.items()), ""))
        for name, entries in kernels.items()
        for entry in entries
    ]
    return "\n".join(tables)


def _assign(item: tuple[str, Any]) -> str:
    """Return a key and its value; strings of JSON are strings of TOML too."""
    return f"{item[0]} = {_quote(item[1])}"


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def describe_kernels(kernels: Iterable[tuple[str, str, Kernel]]) -> dict[str, list[Entry]]:
    """Return the entries of kernels by name; equal ones of several targets or in a row are one.

    Args:
        kernels: Name, target and code of each.
    """
    entries: dict[str, list[Entry]] = {}
    for name, target, kernel in kernels:
        own = entries.setdefault(name, [])
        for entry in _describe_kernel(kernel):
            same = next((other for other in own if {**other, "targets": None} == {**entry, "targets": None}), None)
            if same is None:
                own.append({"targets": [target], **entry})
            elif target not in same["targets"]:
                same["targets"].append(target)
    return {name: own for name, own in entries.items() if own}


def compare(manifest: Manifest, compiler: str, found: dict[str, list[Entry]]) -> str:
    """Return the difference between the manifest and what a compiler does now, empty if there is none.

    Raises:
        InputError: The manifest knows nothing of the compiler.
    """
    if compiler not in manifest:
        raise InputError(
            "compiler",
            value=compiler,
            limit=f"the manifest of lowerings knows {', '.join(manifest)}",
            remedy=f"look at what it does and run: {COMMAND}",
        )
    before, after = (render(compiler, part).splitlines() for part in (manifest[compiler], found))
    lines = difflib.unified_diff(before, after, "manifest", compiler, lineterm="", n=12)
    return "\n".join(lines)


def _describe_kernel(kernel: Kernel) -> list[Entry]:
    """Return the entries of one kernel in text order, each with how often it occurs."""
    entries: list[Entry] = []
    for operation in find_flag_operations(kernel):
        entry = _describe_operation(operation)
        same = next((other for other in entries if {**other, "times": 1} == entry), None)
        if same is None:
            entries.append(entry)
        else:
            same["times"] += 1
    return entries


def _describe_operation(operation: FlagOperation) -> Entry:
    instruction = operation.instruction
    return {
        "statement": read_statement(instruction.location),
        "instruction": instruction.name,
        "times": 1,
        "order": operation.order,
        "scope": operation.scope,
        "performed_by": operation.performed_by,
        "before": _describe_surroundings(operation.before, instruction, "the kernel starts"),
        "after": _describe_surroundings(operation.after, instruction, "the kernel ends"),
    }


def _describe_surroundings(found: Surroundings, operation: Instruction, end: str) -> list[str]:
    """Return the accesses up to the nearest barriers, then the barriers."""
    accesses = [f"{access.name} {read_statement(access.location)}".strip() for access in found.accesses]
    barriers = [_describe_barrier(barrier, operation) for barrier in found.barriers]
    return list(dict.fromkeys([*accesses, *barriers, *([end] if found.open else [])]))


def _describe_barrier(barrier: Instruction, operation: Instruction) -> str:
    """Return a barrier, and whether it stands in the source or comes from the compiler."""
    if barrier.location is None:
        return barrier.name
    if _is_inserted(barrier, operation):
        return f"{barrier.name}, inserted by the compiler"
    return f"{barrier.name}, of {read_statement(barrier.location)}"


def _is_inserted(barrier: Instruction, operation: Instruction) -> bool:
    """Tell whether a barrier has the source position of the operation, so that the source does not ask for it."""
    here, there = barrier.location, operation.location
    return here is not None and there is not None and (here.file, here.line) == (there.file, there.line)


def read_statement(location: Location | None) -> str:
    """Return the statement of a source position in one line; empty where the position or the source is unknown."""
    return _read_line(location.file, location.line) if location is not None else ""


@cache
def _read_line(file: str, line: int) -> str:
    """Return the innermost statement that covers a line."""
    lines = linecache.getlines(file)
    if not 0 < line <= len(lines):
        return ""
    tree = ast.parse("".join(lines))
    covering = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _covers(node, line)]
    if not covering:
        return ""
    found = max(covering, key=lambda node: node.lineno)
    return " ".join(_statement_lines(lines, found)).strip()


def _covers(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _statement_lines(lines: Sequence[str], node: ast.stmt) -> list[str]:
    """Return the lines of a statement; of one with a body, the first."""
    last = node.lineno if hasattr(node, "body") else node.end_lineno or node.lineno
    return [line.strip() for line in lines[node.lineno - 1 : last]]
