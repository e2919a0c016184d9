"""Where CuTeDSL instructions come from: the whole path of calls, as PTX line tables state it.

CuTeDSL writes the innermost Python line only, so that every load of a helper
has one and the same position.  While a kernel is traced, each operation is
given the number of its path of calls as an inlined position; afterwards the
numbers in the text become ``.loc`` directives, one per call from the outside
in, in the form that LLVM writes (PTX ISA, "Debugging Directives: .loc").
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

MARK = 9_999
"""Column that tells a numbered path from a position; Python lines are shorter."""

_NUMBERED = re.compile(
    rf"^(\s*\.loc\s+\d+ \d+ \d+), function_name (\S+), inlined_at \d+ (\d+) {MARK}\b[^\n]*$", re.MULTILINE
)
_ANY_LOC = re.compile(rf"^\s*\.loc\s+\d+ (\d+) {MARK}\b[^\n]*\n", re.MULTILINE)
_FILE = re.compile(r'^\s*\.file\s+(\d+) "([^"]*)"', re.MULTILINE)

Call = tuple[str, int, int]
"""A position: file, line, column."""


class CallPaths:
    """Paths of calls that led to operations, by number.

    Args:
        inside: Tells whether a file belongs to the kernel's code.

    Attributes:
        numbers: Number of each path: calls around an operation, innermost first.
    """

    def __init__(self, inside: Callable[[str], bool]) -> None:
        self._inside = inside
        self.numbers: dict[tuple[Call, ...], int] = {}
        self._locations: dict[int, Any] = {}

    @contextmanager
    def record(self) -> Iterator[None]:
        """Number the paths of the operations that are traced inside."""
        from cutlass._mlir import ir
        from cutlass._mlir_helpers.op import loc_transform

        def extend(location: Any) -> Any:
            calls = self._find_calls(sys._getframe(1))
            if location is None or not calls:
                return location
            number = self.numbers.setdefault(calls, len(self.numbers) + 1)
            return ir.Location.callsite(location, [ir.Location.file("calls", number, MARK)])

        with loc_transform(extend):
            yield

    def _find_calls(self, frame: FrameType | None) -> tuple[Call, ...]:
        """Calls around the innermost line of the kernel's code, innermost first."""
        calls: list[Call] = []
        while frame is not None:
            call = (frame.f_code.co_filename, frame.f_lineno, 1)
            # CuTeDSL makes a function of every branch and loop: its call stands on the same line as its caller's.
            if self._inside(call[0]) and call not in calls[-1:]:
                calls.append(call)
            frame = frame.f_back
        return tuple(calls[1:])

    def expand(self, ptx: str) -> str:
        """The text with every numbered path written out, from the kernel inwards."""
        paths = self._list_paths()
        files = {path: int(number) for number, path in _FILE.findall(ptx)}
        known = set(files)
        for path in paths.values():
            for file, _, _ in path:
                files.setdefault(file, max(files.values(), default=0) + 1)
        previous = 0

        def write(found: re.Match[str]) -> str:
            nonlocal previous
            number, lines, outer = int(found[3]), [], ""
            for file, line, column in reversed(paths[number]):
                lines.append(f"\t.loc\t{files[file]} {line} {column}{outer}")
                outer = f", function_name {found[2]}, inlined_at {files[file]} {line} {column}"
            repeated, previous = number == previous, number
            return "\n".join([*([] if repeated else lines), found[1] + outer])

        added = [f'\t.file\t{number} "{path}"\n' for path, number in files.items() if path not in known]
        return _NUMBERED.sub(write, _ANY_LOC.sub("", ptx)) + "".join(added)

    def _list_paths(self) -> dict[int, tuple[Call, ...]]:
        """Paths by number, without what all have in common: the host code that launches the kernel."""
        shared = 0
        longest = min(map(len, self.numbers), default=0)
        while shared < longest and len({path[-1 - shared] for path in self.numbers}) == 1:
            shared += 1
        return {number: path[: len(path) - shared] for path, number in self.numbers.items()}
