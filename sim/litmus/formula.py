r"""Reads the formulas of conditions: ``(P0:r1 == 0 /\ ~(x != 2)) \/ [y] > 1``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tiebreak.sim.litmus.program import Address, Compare, Every, Formula, Not, Some, Value
from tiebreak.sim.litmus.text import Text

_TOKEN = re.compile(
    r"\s*(?:(?P<register>P?\d+\s*:\s*\w+)|(?P<number>-?(?:0x[0-9a-fA-F]+|\d+)\b)|(?P<word>&?[A-Za-z_]\w*)"
    r"|(?P<symbol>/\\|\\/|==|!=|<=|>=|[=<>~()\[\]]))"
)


def parse_formula(text: Text) -> Formula:
    r"""Read a formula; ``/\`` binds more closely than ``\/``.

    Raises:
        LitmusSyntaxError: It is not a formula.
    """
    return _Parser(text).parse()


def rename_locations(formula: Formula, names: Mapping[str, str]) -> Formula:
    """Replace names of locations."""
    if isinstance(formula, Compare):
        left, right = (
            names.get(side, side) if isinstance(side, str) else side for side in (formula.left, formula.right)
        )
        return Compare(formula.comparison, left, right)
    if isinstance(formula, Not):
        return Not(rename_locations(formula.inner, names))
    return type(formula)(tuple(rename_locations(part, names) for part in formula.parts))


class _Parser:
    """A recursive-descent parser."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, Text]] = []
        self._next = 0
        content = text.content.rstrip().removesuffix(";").rstrip()
        at = 0
        while at < len(content):
            found = _TOKEN.match(content, at)
            if found is None or found.lastgroup is None:
                raise text[at:].error("condition", limit="has a sign that means nothing here")
            self._tokens.append((found.lastgroup, found[found.lastgroup], text[found.start() :]))
            at = found.end()

    def parse(self) -> Formula:
        formula = self._disjunction()
        if self._next < len(self._tokens):
            raise self._error("must end here")
        return formula

    def _disjunction(self) -> Formula:
        parts = [self._conjunction()]
        while self._accept("\\/"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _conjunction(self) -> Formula:
        parts = [self._negation()]
        while self._accept("/\\"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _negation(self) -> Formula:
        if self._accept("~") or self._accept("not"):
            return Not(self._negation())
        if self._accept("("):
            inner = self._disjunction()
            self._expect(")")
            return inner
        left = self._side()
        _, sign, _ = self._peek()
        if sign not in {"=", "==", "!=", "<", "<=", ">", ">="}:
            raise self._error("must be a comparison")
        self._next += 1
        return Compare("==" if sign == "=" else sign, left, self._side())

    def _side(self) -> tuple[str, str] | str | Value:
        kind, token, _ = self._peek()
        self._next += 1
        if kind == "number":
            return int(token, 0)
        if kind == "register":
            thread, register = (part.strip() for part in token.split(":"))
            return ("P" + thread.removeprefix("P"), register)
        if kind == "word":
            return Address(token[1:]) if token.startswith("&") else token
        if token == "[":
            _, name, _ = self._peek()
            self._next += 1
            self._expect("]")
            return name
        self._next -= 1
        raise self._error("must be a register, a location or a number")

    def _peek(self) -> tuple[str, str, Text]:
        if self._next < len(self._tokens):
            return self._tokens[self._next]
        return ("end", "", self._text.end())

    def _accept(self, token: str) -> bool:
        if self._peek()[1] != token:
            return False
        self._next += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._error(f"must have {token} here")

    def _error(self, limit: str) -> Exception:
        return self._peek()[2].error("condition", limit=limit)
