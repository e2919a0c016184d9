"""Writes litmus programs as text that ``reader`` reads."""

from __future__ import annotations

from functools import singledispatch
from itertools import zip_longest

from tiebreak.errors import UnsupportedOperationError
from tiebreak.sim.litmus import program as p

_LOADS: dict[p.Proxy, str] = {"generic": "ld", "texture": "tld", "surface": "suld", "constant": "cold"}
_BRANCHES = {"==": "beq", "!=": "bne", "<": "blt", "<=": "ble", ">": "bgt", ">=": "bge"}


def write(program: p.Program) -> str:
    """Write a program that has a condition.

    Raises:
        UnsupportedOperationError: The format has no words for a part of it.
    """
    entries = [f"{name}={_operand(value)}" for name, value in program.memory.items()]
    entries += [f"{name} @ {alias.proxy} aliases {alias.target}" for name, alias in program.aliases.items()]
    entries += [
        f"{thread.name}:{name}={_operand(value)}" for thread in program.threads for name, value in thread.registers
    ]
    columns = [[_heading(thread), *map(_instruction, thread.instructions)] for thread in program.threads]
    widths = [max(map(len, column)) for column in columns]
    rows = [
        " " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " ;"
        for row in zip_longest(*columns, fillvalue="")
    ]
    start = "{ " + " ".join(entry + ";" for entry in entries) + " }"
    return "\n".join([f"PTX {program.name or 'program'}", start, *rows, *_condition(program.condition)]) + "\n"


def _heading(thread: p.Thread) -> str:
    place = thread.placement
    cluster = "" if place.cluster is None else f"cluster {place.cluster},"
    return f"{thread.name}@cta {place.cta},{cluster}gpu {place.gpu}"


@singledispatch
def _instruction(step: object) -> str:
    raise UnsupportedOperationError(type(step).__name__)


@_instruction.register
def _(step: p.Move) -> str:
    return f"mov {step.register}, {_operand(step.value)}"


@_instruction.register
def _(step: p.Compute) -> str:
    return f"{step.operation} {step.register}, {_operand(step.left)}, {_operand(step.right)}"


@_instruction.register
def _(step: p.Load) -> str:
    return f"{_LOADS[step.proxy]}.{_strength(step)} {step.register}, {_operand(step.address)}"


@_instruction.register
def _(step: p.Store) -> str:
    opcode = {"generic": "st", "surface": "sust"}.get(step.proxy)
    if opcode is None:
        raise UnsupportedOperationError(f"store through the {step.proxy} proxy")
    return f"{opcode}.{_strength(step)} {_operand(step.address)}, {_operand(step.value)}"


@_instruction.register
def _(step: p.Update) -> str:
    surface = "su" if step.proxy == "surface" else ""
    target = "" if step.register is None else f"{step.register}, "
    opcode = surface + ("red" if step.register is None else "atom")
    operands = ", ".join(map(_operand, (step.address, *step.operands)))
    return f"{opcode}.{_strength(step)}.{step.operation} {target}{operands}"


@_instruction.register
def _(step: p.Fence) -> str:
    return f"fence.{step.order}.{step.scope}"


@_instruction.register
def _(step: p.ProxyFence) -> str:
    return f"fence.proxy.{step.proxy}"


@_instruction.register
def _(step: p.Barrier) -> str:
    quorum = () if step.quorum is None else (step.quorum,)
    return f"bar.cta.{'sync' if step.waits else 'arrive'} " + ", ".join(map(_operand, (*step.key, *quorum)))


@_instruction.register
def _(step: p.Branch) -> str:
    if step.comparison is None:
        return f"goto {step.label}"
    return f"{_BRANCHES[step.comparison]} {_operand(step.left)}, {_operand(step.right)}, {step.label}"


@_instruction.register
def _(step: p.Label) -> str:
    return f"{step.name}:"


def _strength(step: p.Load | p.Store | p.Update) -> str:
    return "weak" if step.order == "weak" else f"{step.order}.{step.scope}"


def _operand(operand: p.Operand) -> str:
    if isinstance(operand, p.Register):
        return operand.name
    return operand.location if isinstance(operand, p.Address) else str(operand)


def _condition(condition: p.Condition | None) -> list[str]:
    if condition is None:
        return ["forall (0 == 0)"]
    kept = [] if condition.filter is None else [f"filter {_formula(condition.filter)}"]
    return [*kept, f"{condition.quantifier} {_formula(condition.formula)}"]


def _formula(formula: p.Formula) -> str:
    if isinstance(formula, p.Compare):
        return f"{_side(formula.left)} {formula.comparison} {_side(formula.right)}"
    if isinstance(formula, p.Not):
        return f"~({_formula(formula.inner)})"
    sign, empty = ("/\\", "0 == 0") if isinstance(formula, p.Every) else ("\\/", "0 == 1")
    return f" {sign} ".join(f"({_formula(part)})" for part in formula.parts) or empty


def _side(side: tuple[str, str] | str | p.Value) -> str:
    if isinstance(side, tuple):
        return ":".join(side)
    return f"&{side.location}" if isinstance(side, p.Address) else str(side)
