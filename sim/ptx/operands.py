"""Operand text as operand values (PTX ISA, chapters 4.5 and 6)."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TypeAlias

from .module import Address, Coordinates, Immediate, Operand, Pair, Register, Symbol, Vector

Resolve: TypeAlias = Callable[[str], Register | None]
"""Gives the register that a name stands for, or None for a name that is no register."""

_PART = re.compile(r"\[[^\]]*\]|\{[^}]*\}|\([^)]*\)|[^,\s\[{(][^,\[{(]*")
_BRACKET = re.compile(r"[\[{(]")
_INTEGER = re.compile(r"(-?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|(0[0-7]*)|([1-9]\d*))U?$")
_DECIMAL = re.compile(r"-?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?$")
_ADDRESS = re.compile(r"([%\w$.]+)\s*(?:([+-])\s*(-?\w+))?$")
_COORDINATES = re.compile(r"([^,]+),\s*(\{.*\})$", re.DOTALL)


def split_operands(text: str) -> list[str]:
    """Operands of an instruction, as written.

    Raises:
        ValueError: Something other than one comma stands between two operands.
    """
    if not text:
        return []
    if not _BRACKET.search(text):
        return [part.strip() for part in text.split(",")]
    parts = [part.strip() for part in _PART.findall(text)]
    if "".join(_PART.sub("", text).split()) != "," * (len(parts) - 1):
        raise ValueError(f"{text!r} is no list of operands")
    return parts


def parse_immediate(text: str) -> Immediate | None:
    """A constant, or None if the text is none.

    Integers are decimal, ``0x``, ``0b`` or octal, with an optional minus sign and ``U``; floats are
    ``0f`` and ``0d`` with their bits, or decimal, which PTX keeps in 64 bits (PTX ISA, 4.5.1 and 4.5.2).
    """
    if found := _INTEGER.match(text):
        sign, hexadecimal, binary, octal, decimal = found.groups()
        digits, base = (
            (hexadecimal, 16) if hexadecimal else (binary, 2) if binary else (octal, 8) if octal else (decimal, 10)
        )
        return Immediate(text, int(digits, base) * (-1 if sign else 1))
    if re.match(r"-?0[fF][0-9a-fA-F]{8}$", text):
        return Immediate(text, int(text[-8:], 16) ^ (0x80000000 if text[0] == "-" else 0), 32)
    if re.match(r"-?0[dD][0-9a-fA-F]{16}$", text):
        return Immediate(text, int(text[-16:], 16) ^ (1 << 63 if text[0] == "-" else 0), 64)
    if _DECIMAL.match(text):
        return Immediate(text, struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    return Immediate(text, 32) if text == "WARP_SZ" else None


def parse_operand(text: str, resolve: Resolve) -> Operand:
    """An operand.

    Braces around a single element are dropped, since ``{%r1}`` and ``%r1`` mean the same.  The
    parenthesised lists of ``call`` stay one symbol.

    Raises:
        ValueError: The text is no operand.
    """
    if not text:
        raise ValueError("an operand is missing")
    if constant := parse_immediate(text):
        return constant
    if text[0] == "[":
        return _parse_memory(text[1:-1].strip(), resolve)
    if text[0] == "{":
        elements = tuple(_parse_element(part.strip(), resolve) for part in text[1:-1].split(","))
        return elements[0] if len(elements) == 1 else Vector(elements)
    if "|" in text:
        first, second = (_parse_destination(part.strip(), resolve) for part in text.split("|"))
        return Pair(first, second)
    if text[0] == "(":
        return Symbol(text)
    if text[0] == "!":
        register = resolve(text[1:].strip())
        if register is None:
            raise ValueError(f"{text} negates no register")
        return Register("!" + register.name)
    if (found := _ADDRESS.match(text)) and found[2] and resolve(found[1]) is None:
        return _parse_address(text, resolve)
    return _parse_element(text, resolve)


def _parse_element(text: str, resolve: Resolve) -> Register | Immediate | Symbol | None:
    if text == "_":
        return None
    if constant := parse_immediate(text):
        return constant
    if not re.match(r"[%\w$][\w$.]*$", text):
        raise ValueError(f"{text!r} is no operand")
    return resolve(text) or Symbol(text)


def _parse_destination(text: str, resolve: Resolve) -> Register | None:
    if text == "_":
        return None
    register = resolve(text)
    if register is None:
        raise ValueError(f"{text!r} is no register")
    return register


def _parse_memory(text: str, resolve: Resolve) -> Address | Coordinates:
    if found := _COORDINATES.match(text):
        elements = tuple(_parse_element(part.strip(), resolve) for part in found[2][1:-1].split(","))
        return Coordinates(_parse_address(found[1].strip(), resolve), Vector(elements))
    return _parse_address(text, resolve)


def _parse_address(text: str, resolve: Resolve) -> Address:
    found = _ADDRESS.match(text)
    if found is None:
        raise ValueError(f"[{text}] is no address")
    base, sign, written = found.groups()
    offset = parse_immediate(written) if written else Immediate("0", 0)
    element = _parse_element(base, resolve)
    if element is None or offset is None or offset.floating:
        raise ValueError(f"[{text}] is no address")
    return Address(element, -offset.bits if sign == "-" else offset.bits)
