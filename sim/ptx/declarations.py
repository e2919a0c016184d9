"""Declarations: parameters, variables, registers and performance directives (PTX ISA, chapters 5.4 and 11)."""

from __future__ import annotations

import re
import struct
from math import prod

from .module import Parameter, Variable
from .operands import parse_immediate

_VARIABLE = re.compile(
    r"""
    \.(?P<space>param|shared|global|const|local) (?:\s*::\s*\w+)? \s+
    (?P<attributes> (?: \.(?:align\s+\d+|ptr|global|const|shared|local|param|generic|attribute\([^)]*\)) \s* )* )
    (?: \.(?P<vector>v[248]) \s* )?
    \.(?P<kind>[a-z]\w*) \s+
    (?P<attributes_after> (?: \.(?:align\s+\d+|ptr|global|const|shared|local|param|generic) \s* )* )
    (?P<declarators> .*)
    """,
    re.VERBOSE | re.DOTALL,
)
_DECLARATOR = re.compile(r"([\w$%]+)\s*((?:\[\s*\w*\s*\]\s*)*)(?:=\s*(\{.*?\}|[^,]+))?\s*(?:,|$)", re.DOTALL)
_REGISTERS = re.compile(r"\.reg\s+(?:\.align\s+\d+\s*)?\.(\w+)\s+(.*)", re.DOTALL)
_RANGE = re.compile(r"([\w$%]+)(?:<(\d+)>)?$")
_OPAQUE = {"texref": 8, "samplerref": 8, "surfref": 8}


def find_width(kind: str) -> int:
    """Size in bytes of one element of a fundamental type (PTX ISA, 5.2).

    Raises:
        ValueError: There is no such type.
    """
    bits = re.match(r"[a-z]+?(\d+)(?:x(\d+))?$", kind)
    if bits is None and kind not in _OPAQUE:
        raise ValueError(f".{kind} is no type of a variable")
    return _OPAQUE[kind] if bits is None else int(bits[1]) * int(bits[2] or 1) // 8


def parse_registers(text: str) -> dict[str, str]:
    """Type of each register that ``.reg .b32 %r<5>, %x`` declares.

    Raises:
        ValueError: The text declares no registers.
    """
    found = _REGISTERS.match(text)
    if found is None:
        raise ValueError("not a declaration of scalar registers")
    registers: dict[str, str] = {}
    for part in found[2].split(","):
        name = _RANGE.match(part.strip())
        if name is None:
            raise ValueError(f"{part.strip()!r} is no name of a register")
        names = [f"{name[1]}{number}" for number in range(int(name[2]))] if name[2] else [name[1]]
        registers.update(dict.fromkeys(names, found[1]))
    return registers


def parse_variables(text: str) -> list[Variable]:
    """Variables of one declaration: ``.shared .align 16 .b8 x[64], y``.

    Raises:
        ValueError: The text declares no variables.
    """
    found = _VARIABLE.match(text)
    if found is None:
        raise ValueError("not a declaration of variables")
    width = find_width(found["kind"]) * int((found["vector"] or "v1")[1:])
    stated = re.findall(r"align\s+(\d+)", found["attributes"])
    alignment = int(stated[0]) if stated else width
    variables = []
    for name, dimensions, initial in _DECLARATOR.findall(found["declarators"]):
        lengths = [_parse_length(part) for part in re.findall(r"\[\s*(\w*)\s*\]", dimensions)]
        values = _pack(initial, found["kind"]) if initial else b""
        size = width * prod(lengths) if 0 not in lengths else len(values)
        variables.append(
            Variable(name, found["space"], found["kind"], size, alignment, values.ljust(size, b"\0") if values else b"")
        )
    if not variables:
        raise ValueError("a declaration without a name")
    return variables


def parse_parameters(text: str) -> tuple[Parameter, ...]:
    """Parameters of a kernel, from the text between its parentheses.

    Raises:
        ValueError: The text is no list of parameters.
    """
    parameters: list[Parameter] = []
    end = 0
    for part in re.split(r",(?=\s*\.param)", text.strip()) if text.strip() else []:
        (variable,) = parse_variables(part.strip())
        offset = -(-end // variable.alignment) * variable.alignment
        parameters.append(Parameter(variable.name, variable.kind, variable.size, variable.alignment, offset))
        end = offset + variable.size
    return tuple(parameters)


def parse_directives(text: str) -> dict[str, tuple[int, ...]]:
    """Performance directives between a kernel's parameters and its body, each with its numbers."""
    found = re.findall(r"\.(\w+)((?:\s*,?\s*\d+)*)", text)
    return {name: tuple(int(number) for number in re.findall(r"\d+", numbers)) for name, numbers in found}


def _parse_length(text: str) -> int:
    constant = parse_immediate(text) if text else None
    return constant.bits if constant else 0


def _pack(initial: str, kind: str) -> bytes:
    """Bytes of an initialiser; addresses of other variables are not supported."""
    width = find_width(kind)
    packed = b""
    for part in re.findall(r"[^\s,{}]+", initial):
        constant = parse_immediate(part)
        if constant is None:
            raise ValueError(f"initial value {part!r} is no constant")
        bits = constant.bits
        if constant.floating == 64 and width == 4:
            bits = struct.unpack("<I", struct.pack("<f", struct.unpack("<d", struct.pack("<Q", bits))[0]))[0]
        packed += (bits % (1 << 8 * width)).to_bytes(width, "little")
    return packed
