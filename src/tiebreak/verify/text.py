"""Inputs as one line of text, ``field=value,...``, that a person can paste and a file can keep."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from tiebreak.errors import InputError

Given = TypeVar("Given")


def format_fields(given: Any) -> str:
    """Return the fields of a dataclass that differ from their defaults, ``-`` if none does."""
    pairs = [(f.name, getattr(given, f.name), f.default) for f in fields(given)]
    return ",".join(f"{name}={value}" for name, value, default in pairs if value != default) or "-"


def parse_fields(kind: type[Given], text: str) -> Given:
    """Return the dataclass that ``format_fields`` wrote; all its fields have a default.

    Raises:
        InputError: A part is not ``field=value``, or the value does not fit the field.
    """
    described: Any = kind
    known: dict[str, Any] = {f.name: f.default for f in fields(described)}
    given: dict[str, Any] = {}
    for part in [] if text == "-" else text.split(","):
        name, separator, value = part.partition("=")
        if not separator or name not in known:
            raise InputError(
                "scenario",
                value=part,
                limit=f"parts are FIELD=VALUE with fields {', '.join(known)}",
                remedy="paste the text exactly as the failure printed it",
            )
        given[name] = _convert(name, value, type(known[name]))
    return kind(**given)


def _convert(name: str, value: str, kind: type) -> Any:
    try:
        if kind is bool:
            return {"True": True, "False": False}[value]
        return int(value) if kind is int else value
    except (KeyError, ValueError) as error:
        raise InputError(
            name, value=value, limit=f"a value of type {kind.__name__} is needed", remedy="correct the scenario"
        ) from error
