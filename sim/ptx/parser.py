"""PTX text to a ``Module``.

The form follows the PTX ISA, chapters 4, 5 and 11, as nvcc, CuTeDSL and Triton write it.  It is read by a
hand-written reader over regular expressions, since kernels are long: for a selector of 18,400 lines lark's LALR parser
takes 1.0 s before it has made a single value, this reader 0.45 s for all of it.  Functions other than kernels and
debugging sections are skipped.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .body import BodyReader
from .declarations import parse_directives, parse_parameters, parse_variables
from .module import Kernel, Module, Variable
from .statements import Source

_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_SKIPPED = re.compile(
    r"""\s*(?:
      \.file\b[^\n]* | \.section\s+[\w.]+\s*\{[^}]*\} | \.pragma\b[^;]*; | \.address_size\s+\d+ | \.alias\b[^;]*;
    | @@DWARF[^\n]* | \.minnctapersm\s+\d+ | [\w$]+:(?!:) )""",
    re.VERBOSE,
)
_LINKAGE = r"\s*(?:\.(?:visible|extern|weak|common)\s+)*"
_VERSION = re.compile(r"\s*\.version\s+([\d.]+)")
_TARGET = re.compile(r"\s*\.target\s+([\w, ]+)")
_VARIABLE = re.compile(_LINKAGE + r"(\.(?:global|const|shared)\b[^;]*);")
_FUNCTION = re.compile(_LINKAGE + r"\.(entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$%]+)\s*(?:\(([^)]*)\))?([^{;]*)([{;])")


@lru_cache(maxsize=128)
def parse(text: str, name: str = "<ptx>") -> Module:
    """The module that PTX text states; equal texts give one and the same value.

    Args:
        text: PTX text.
        name: File or kernel that it came from, for messages.

    Raises:
        PtxSyntaxError: The text is not PTX; names the line and what stands there.
    """
    return _ModuleReader(Source(text, name), text).read()


class _ModuleReader:
    """Reads one module."""

    def __init__(self, source: Source, original: str) -> None:
        self._source = source
        self._original = original
        self._files = {int(number): path for number, path in _FILE.findall(source.text)}
        self._version = ""
        self._target = ""
        self._kernels: dict[str, Kernel] = {}
        self._variables: list[Variable] = []

    def read(self) -> Module:
        position, text = 0, self._source.text
        while text[position:].strip():
            position = self._read_next(position)
        if not self._version or not self._target:
            raise self._source.error(1, "a module states its .version and its .target")
        return Module(self._version, self._target, self._kernels, tuple(self._variables), self._original)

    def _read_next(self, position: int) -> int:
        """Read what stands at a position; returns where the next thing stands."""
        text = self._source.text
        if found := _SKIPPED.match(text, position):
            return found.end()
        if found := _FUNCTION.match(text, position):
            return self._read_function(found)
        if found := _VARIABLE.match(text, position):
            try:
                self._variables += parse_variables(found[1].strip())
            except ValueError as error:
                raise self._source.error(self._source.line(found.start(1)), str(error)) from error
            return found.end()
        if found := _VERSION.match(text, position):
            self._version = found[1]
            return found.end()
        if found := _TARGET.match(text, position):
            self._target = found[1].split(",")[0].strip()
            return found.end()
        start = len(text) - len(text[position:].lstrip())
        raise self._source.error(self._source.line(start), "not a directive of a module")

    def _read_function(self, found: re.Match[str]) -> int:
        kind, name, parameters, directives, opening = found.groups()
        if opening == ";":
            return found.end()
        if kind == "func":
            for _ in self._source.statements(found.end()):
                pass
            return self._source.end
        try:
            stated = parse_parameters(parameters or "")
        except ValueError as error:
            raise self._source.error(self._source.line(found.start(2)), str(error)) from error
        reader = BodyReader(self._source, self._files)
        self._kernels[name] = reader.read(found.end(), name, stated, parse_directives(directives))
        return self._source.end
