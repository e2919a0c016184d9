r"""Reads litmus tests for PTX in the format of herd and Dartagnan.

A file names the language and the test, may quote a description, initialises locations and registers between braces,
lists one column of instructions per thread, and ends with a condition::

    PTX MP
    { x=0; flag=0; P1:r0=0; }
     P0@cta 0,gpu 0          | P1@cta 1,gpu 0          ;
     st.weak x, 1            | ld.acquire.gpu r0, flag ;
     st.release.gpu flag, 1  | ld.weak r1, x           ;
    ~exists (P1:r0 == 1 /\ P1:r1 == 0)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Literal

from tiebreak.sim.litmus import program as p
from tiebreak.sim.litmus.candidates import locations_of
from tiebreak.sim.litmus.conditions import locations_in, registers_in
from tiebreak.sim.litmus.formula import parse_formula, rename_locations
from tiebreak.sim.litmus.instructions import parse_instruction, parse_operand
from tiebreak.sim.litmus.text import Text

_CONDITION = re.compile(
    r"(?:(?<=;)|(?<=\})|^)\s*(filter|locations|~\s*exists|not\s+exists|exists|forall|final)\b", re.M
)
_THREAD = re.compile(r"(P?\d+)\s*@\s*cta\s+(\d+)\s*,\s*(?:cluster\s+(\d+)\s*,\s*)?gpu\s+(\d+)")
_ALIAS = re.compile(r"(\w+)\s*@\s*(\w+)\s+aliases\s+(\w+)")
_REGISTER = re.compile(r"(P?\d+)\s*:\s*(\w+)\s*=\s*(.+)", re.S)
_LOCATION = re.compile(r"(\w+)\s*=\s*(.+)", re.S)
_LABEL = re.compile(r"([A-Za-z_]\w*)\s*:\s*")


@dataclass
class _Start:
    """What stands between the braces."""

    memory: dict[str, p.Value] = field(default_factory=dict)
    aliases: dict[str, p.Alias] = field(default_factory=dict)
    registers: dict[str, list[tuple[str, p.Value]]] = field(default_factory=dict)


def parse(text: str, name: str = "<litmus>") -> p.Program:
    """Read a litmus test.

    Args:
        text: The file's text.
        name: Its name, for messages.

    Raises:
        LitmusSyntaxError: It is not a litmus test for PTX; names the line and what stands there.
        UnsupportedOperationError: It has an instruction that the models do not define.
    """
    whole = Text.of(text, name)
    heading, braces, rest = _split_parts(whole)
    language = re.match(r"\s*(PTX|ptx)\s+(\S+)", heading.content)
    if language is None:
        raise heading.error("first line", limit="must name the language, PTX, and the test")
    start = _parse_start(braces)
    found = _CONDITION.search(rest.content)
    if found is None:
        raise rest.end().error("condition", limit="is missing: end the test with exists, ~exists or forall")
    threads = _parse_threads(rest[: found.start(1)], start)
    program = p.Program(tuple(threads), start.memory, start.aliases, name=language[2])
    condition = _parse_condition(rest[found.start(1) :], program)
    return replace(program, condition=condition)


def _split_parts(whole: Text) -> tuple[Text, Text, Text]:
    """The heading, what stands between the braces, and the rest."""
    opening = whole.content.find("{")
    if opening < 0:
        raise whole.error("initial state", limit="is missing: write { } before the threads")
    closing = whole.content.find("}", opening)
    if closing < 0:
        raise whole[opening:].error("brace", limit="is never closed")
    return whole[:opening], whole[opening + 1 : closing], whole[closing + 1 :]


def _parse_start(text: Text) -> _Start:
    start = _Start()
    for entry in text.split(";"):
        if not entry.content:
            continue
        if alias := _ALIAS.fullmatch(entry.content):
            start.aliases[alias[1]] = p.Alias(alias[3], _proxy(alias[2], entry))
        elif register := _REGISTER.fullmatch(entry.content):
            value = _constant(register[3], entry)
            start.registers.setdefault(_thread_name(register[1]), []).append((register[2], value))
        elif location := _LOCATION.fullmatch(entry.content):
            start.memory[location[1]] = _constant(location[2], entry)
        else:
            raise entry.error(
                "initial value", limit="must be location=value, P0:register=value or name @ proxy aliases name"
            )
    return start


def _proxy(name: str, entry: Text) -> p.Proxy:
    proxies: dict[str, p.Proxy] = {proxy: proxy for proxy in ("generic", "texture", "surface", "constant")}
    if name not in proxies:
        raise entry.error("proxy", limit=f"must be one of {', '.join(proxies)}")
    return proxies[name]


def _constant(text: str, entry: Text) -> p.Value:
    operand = parse_operand(text.strip(), entry)
    if isinstance(operand, p.Register):
        raise entry.error("initial value", limit="must be a number or a location")
    return operand


def _thread_name(text: str) -> str:
    return "P" + text.removeprefix("P")


def _parse_threads(text: Text, start: _Start) -> list[p.Thread]:
    """Read the table of instructions, one column per thread."""
    *rows, tail = text.split(";")
    if tail.content:
        raise tail.error("row of instructions", limit="must end with a semicolon")
    rows = [row for row in rows if row.content]
    if not rows:
        raise text.error("threads", limit="are missing: write P0@cta 0,gpu 0 ; and their instructions")
    threads = [_parse_heading(cell) for cell in rows[0].split("|")]
    columns: list[list[p.Instruction]] = [[] for _ in threads]
    for row in rows[1:]:
        cells = row.split("|")
        if len(cells) > len(threads):
            raise row.error("row of instructions", limit=f"has {len(cells)} columns for {len(threads)} threads")
        for column, cell in zip(columns, cells, strict=False):
            column.extend(_parse_cell(cell))
    names = [thread.name for thread in threads]
    if unknown := sorted(set(start.registers) - set(names)):
        raise text.error(f"thread {unknown[0]}", limit="has initial values but no instructions")
    if len(set(names)) < len(names):
        raise rows[0].error("thread", limit="is declared twice")
    for thread, column in zip(threads, columns, strict=True):
        labels = {step.name for step in column if isinstance(step, p.Label)}
        if missing := sorted({step.label for step in column if isinstance(step, p.Branch)} - labels):
            raise text.error(f"label {missing[0]}", limit=f"is a target of {thread.name} and nowhere in it")
    return [
        replace(thread, instructions=tuple(column), registers=tuple(start.registers.get(thread.name, ())))
        for thread, column in zip(threads, columns, strict=True)
    ]


def _parse_heading(cell: Text) -> p.Thread:
    found = _THREAD.fullmatch(cell.content)
    if found is None:
        raise cell.error("thread", limit="must read P0@cta 0,gpu 0")
    cluster = None if found[3] is None else int(found[3])
    return p.Thread(_thread_name(found[1]), (), p.Placement(int(found[2]), int(found[4]), cluster))


def _parse_cell(cell: Text) -> list[p.Instruction]:
    """An instruction, with any labels in front."""
    steps: list[p.Instruction] = []
    while label := _LABEL.match(cell.content):
        steps.append(p.Label(label[1]))
        cell = cell[label.end() :]
    if cell.content:
        steps.append(parse_instruction(cell))
    return steps


def _parse_condition(text: Text, program: p.Program) -> p.Condition:
    """Read ``filter``, ``locations`` and the condition itself."""
    kept = None
    quantifier, formula = _next_clause(text)
    while quantifier in {"filter", "locations"}:
        following = _CONDITION.search(text.content, len(quantifier)) or re.search(
            r"(?<!\w)(~\s*exists|not\s+exists|exists|forall|final)\b", text.content
        )
        if following is None:
            raise text.end().error("condition", limit="is missing: end the test with exists, ~exists or forall")
        if quantifier == "filter":
            kept = parse_formula(text[len(quantifier) : following.start(1)])
        text = text[following.start(1) :]
        quantifier, formula = _next_clause(text)
    quantifiers: dict[str, Literal["exists", "~exists", "forall"]] = {
        "exists": "exists",
        "~exists": "~exists",
        "notexists": "~exists",
        "forall": "forall",
    }
    if quantifier not in quantifiers:
        raise text.error(f"condition {quantifier}", limit="must be exists, ~exists or forall")
    condition = p.Condition(quantifiers[quantifier], parse_formula(formula), kept)
    _check_names(condition, program, text)
    rename = {name: program.physical(name) for name in program.aliases}
    return p.Condition(
        condition.quantifier,
        rename_locations(condition.formula, rename),
        None if kept is None else rename_locations(kept, rename),
    )


def _next_clause(text: Text) -> tuple[str, Text]:
    found = _CONDITION.match(text.content)
    assert found is not None
    return re.sub(r"\s+", "", found[1]), text[found.end(1) :]


def _check_names(condition: p.Condition, program: p.Program, text: Text) -> None:
    """Names that the program does not have are slips: they would hold 0 for ever."""
    threads = {thread.name for thread in program.threads}
    if unknown := sorted(set(registers_in(condition)) - threads):
        raise text.error(f"thread {unknown[0]}", limit="is in the condition and nowhere in the program")
    known = {*locations_of(replace(program, condition=None)), *program.aliases}
    if missing := sorted(set(locations_in(condition)) - known):
        raise text.error(f"location {missing[0]}", limit="is in the condition and nowhere in the program")
