"""Pieces of a file that know where they stand."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tiebreak.errors import LitmusSyntaxError


@dataclass(frozen=True)
class Text:
    """A piece of a file, without white space around it.

    Attributes:
        content: The piece.
        line: Line on which it starts, from 1.
        name: Name of the file.
    """

    content: str
    line: int
    name: str

    @classmethod
    def of(cls, content: str, name: str) -> Text:
        """A whole file; comments are blanked out and lines kept."""
        blank = re.sub(r"\(\*.*?\*\)", lambda found: re.sub(r"[^\n]", " ", found[0]), content, flags=re.S)
        return cls(blank, 1, name)

    def __getitem__(self, part: slice) -> Text:
        begin, end, _ = part.indices(len(self.content))
        piece = self.content[begin:end]
        stripped = piece.lstrip()
        skipped = begin + len(piece) - len(stripped)
        return Text(stripped.rstrip(), self.line + self.content.count("\n", 0, skipped), self.name)

    def split(self, separator: str) -> list[Text]:
        """The pieces between separators."""
        pieces, begin = [], 0
        for piece in self.content.split(separator):
            pieces.append(self[begin : begin + len(piece)])
            begin += len(piece) + len(separator)
        return pieces

    def end(self) -> Text:
        """The empty piece at the end."""
        return self[len(self.content) :]

    def error(self, what: str, *, limit: str) -> LitmusSyntaxError:
        """An error that names the line and what stands there."""
        first = self.content.split("\n", 1)[0].strip()
        return LitmusSyntaxError(
            f"{self.name}:{self.line}: {what}", value=first[:80] or None, limit=limit, remedy="correct the file"
        )
