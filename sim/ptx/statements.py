"""PTX text cut into statements: one pass of a regular expression per statement.

The cutting knows the outer form only (PTX ISA, chapter 4): braces, labels,
directives, and instructions up to their semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tiebreak.errors import PtxSyntaxError

Kind = Literal["label", "instruction", "brace", "directive"]

_COMMENT = re.compile(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_INLINE = re.compile(r"// begin inline asm.*?// end inline asm", re.DOTALL)
_LOC_LINE = re.compile(r"^[ \t]*\.loc\b[^\n]*", re.MULTILINE)
_BODY = re.compile(
    r"""\s*(?:
      (?P<label> [A-Za-z_$%][\w$]* ) \s* : (?!:)
    | (?:@ (?P<negated>!?) \s* (?P<guard>[\w$%]+) \s+)? (?P<name>[a-z][\w.:]*) (?P<operands>[^;]*) ;
    | (?P<brace> [{}] )
    | (?P<directive> \.loc\b [^\n]* | \.[a-z] [^;]* ; )
    )""",
    re.VERBOSE,
)
_KINDS: dict[str, Kind] = {"label": "label", "operands": "instruction", "brace": "brace", "directive": "directive"}


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a function body.

    Attributes:
        kind: What it is.
        text: The label, the operands of an instruction, the brace, or the directive without its semicolon.
        line: Line it starts on, from 1.
        name: Full name of an instruction, else an empty string.
        guard: Predicate of a guarded instruction, with ``!`` before it if negated, else an empty string.
    """

    kind: Kind
    text: str
    line: int
    name: str = ""
    guard: str = ""


class Source:
    """PTX text without its comments, which knows where its lines start.

    Args:
        text: PTX text.
        name: File or kernel that it came from, for messages.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._original = text.split("\n")
        # In inline assembly LLVM adds the line of the assembly to that of the source; the position before it holds.
        text = _INLINE.sub(lambda found: _LOC_LINE.sub("", found[0]), text)
        self.text = _COMMENT.sub(lambda found: found[1] or "\n" * found[0].count("\n") or " ", text)

    def line(self, position: int) -> int:
        """Number of the line that holds a position, from 1."""
        return self.text.count("\n", 0, position) + 1

    def error(self, line: int, limit: str) -> PtxSyntaxError:
        """What to raise about a line."""
        shown = self._original[line - 1].strip() if line <= len(self._original) else ""
        return PtxSyntaxError(f"{self.name}:{line}", value=shown, limit=limit)

    def statements(self, start: int) -> Iterator[Statement]:
        """Statements of a body, from after its opening brace at ``start`` up to and with its closing one."""
        text, position, line, depth = self.text, start, self.line(start), 1
        while depth:
            found = _BODY.match(text, position)
            if found is None:
                raise self.error(line + _blank_lines(text, position), "not a label, directive or instruction")
            kind = found.lastgroup or ""
            first = found.start(kind if kind != "operands" else "name")
            line += text.count("\n", position, first)
            yield _statement(found, kind, line)
            if kind == "brace":
                depth += 1 if found["brace"] == "{" else -1
            line += text.count("\n", first, found.end())
            position = found.end()
        self.end = position


def _statement(found: re.Match[str], kind: str, line: int) -> Statement:
    if kind == "operands":
        guard = found["negated"] + found["guard"] if found["guard"] else ""
        return Statement("instruction", found["operands"].strip(), line, found["name"], guard)
    return Statement(_KINDS[kind], found[kind].rstrip(";").strip(), line)


def _blank_lines(text: str, position: int) -> int:
    rest = text[position:]
    return rest[: len(rest) - len(rest.lstrip())].count("\n")
