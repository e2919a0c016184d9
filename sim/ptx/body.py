"""The body of a kernel: scopes, labels, source positions, instructions."""

from __future__ import annotations

import re

from .declarations import parse_registers, parse_variables
from .module import Guard, Instruction, Kernel, Location, Operand, Parameter, Register, Variable
from .operands import parse_operand, split_operands
from .statements import Source, Statement

_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)(?:\s+(\d+))?(?:\s*,.*?inlined_at\s+(\d+)\s+(\d+)(?:\s+(\d+))?)?")


class _Scope:
    """A block ``{ ... }``: the registers and labels declared in it, by their unique names.

    Registers keep their names in the body itself; inner ones get the number of their block.
    """

    def __init__(self, parent: _Scope | None, number: int) -> None:
        self.parent = parent
        self._suffix = f"${number}" if parent else ""
        self.registers: dict[str, Register] = {}
        self.labels: dict[str, str] = {}
        self.operands: dict[str, Operand] = {}

    def declare(self, names: dict[str, str]) -> dict[str, str]:
        """Declare registers; returns their types by unique name."""
        self.registers.update((name, Register(name + self._suffix)) for name in names)
        return {name + self._suffix: kind for name, kind in names.items()}

    def declare_label(self, name: str) -> None:
        self.labels[name] = name + self._suffix

    def resolve(self, name: str) -> Register | None:
        scope: _Scope | None = self
        while scope is not None:
            if found := scope.registers.get(name):
                return found
            scope = scope.parent
        # Special registers are not declared.
        return Register(name) if name.startswith("%") else None

    def resolve_label(self, name: str) -> str:
        scope: _Scope | None = self
        while scope is not None and name not in scope.labels:
            scope = scope.parent
        return scope.labels[name] if scope else name

    def parse(self, text: str) -> Operand:
        """An operand; equal texts in one scope are one value, which makes long kernels fast to read."""
        if text not in self.operands:
            self.operands[text] = parse_operand(self.resolve_label(text), self.resolve)
        return self.operands[text]


class BodyReader:
    """Reads one body.

    Args:
        source: The text.
        files: Paths by their number in ``.file``.
    """

    def __init__(self, source: Source, files: dict[int, str]) -> None:
        self._source = source
        self._files = files
        self._registers: dict[str, str] = {}
        self._variables: list[Variable] = []
        self._instructions: list[Instruction] = []
        self._labels: dict[str, int] = {}
        self._targets: dict[str, tuple[str, ...]] = {}
        self._location: Location | None = None
        self._locations: dict[tuple[int, int, int], Location] = {}
        self._names: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._last_label = ""

    def read(
        self, start: int, name: str, parameters: tuple[Parameter, ...], directives: dict[str, tuple[int, ...]]
    ) -> Kernel:
        """The kernel whose body begins after its opening brace at ``start``.

        Raises:
            PtxSyntaxError: A statement is not PTX; names its line.
        """
        for statement, scope in self._declare(start):
            try:
                self._emit(statement, scope)
            except ValueError as error:
                raise self._source.error(statement.line, str(error)) from error
        return Kernel(
            name,
            parameters,
            self._registers,
            tuple(self._variables),
            tuple(self._instructions),
            self._labels,
            directives,
            self._targets,
        )

    def _declare(self, start: int) -> list[tuple[Statement, _Scope]]:
        """Statements with their scopes, after all registers and labels are known: a branch may go forward."""
        scope: _Scope = _Scope(None, 0)
        statements: list[tuple[Statement, _Scope]] = []
        count = 0
        for statement in self._source.statements(start):
            if statement.kind == "brace":
                count += 1
                scope = _Scope(scope, count) if statement.text == "{" else scope.parent or scope
            elif statement.kind == "label":
                scope.declare_label(statement.text)
                statements.append((statement, scope))
            elif statement.text.startswith(".reg"):
                try:
                    self._registers.update(scope.declare(parse_registers(statement.text)))
                except ValueError as error:
                    raise self._source.error(statement.line, str(error)) from error
            else:
                statements.append((statement, scope))
        return statements

    def _emit(self, statement: Statement, scope: _Scope) -> None:
        if statement.kind == "instruction":
            self._emit_instruction(statement, scope)
        elif statement.kind == "label":
            self._last_label = scope.resolve_label(statement.text)
            self._labels[self._last_label] = len(self._instructions)
        elif statement.text.startswith(".loc") and not statement.text.startswith(".local"):
            self._move(statement.text)
        elif statement.text.startswith(".branchtargets"):
            names = statement.text.removeprefix(".branchtargets").split(",")
            self._targets[self._last_label] = tuple(scope.resolve_label(name.strip()) for name in names)
            del self._labels[self._last_label]
        elif statement.text.startswith((".shared", ".local", ".param", ".global", ".const")):
            self._variables += parse_variables(statement.text)
        elif not statement.text.startswith((".pragma", ".calltargets", ".callprototype")):
            raise ValueError("a directive that does not belong into a body")

    def _emit_instruction(self, statement: Statement, scope: _Scope) -> None:
        if statement.name not in self._names:
            opcode, *modifiers = statement.name.split(".")
            self._names[statement.name] = (opcode, tuple(modifiers))
        opcode, kept = self._names[statement.name]
        operands = tuple([scope.parse(part) for part in split_operands(statement.text)])
        self._instructions.append(
            Instruction(
                len(self._instructions),
                opcode,
                kept,
                operands,
                _find_guard(statement.guard, scope) if statement.guard else None,
                statement.line,
                self._location,
            )
        )

    def _move(self, text: str) -> None:
        """Follow a ``.loc``; the position of an inlined call is the last one seen there, with its own callers."""
        found = _LOC.match(text)
        if found is None:
            raise ValueError("not a source position")
        file, line, column, *call = (int(number or 0) for number in found.groups())
        caller = None
        if call[0]:
            key = (call[0], call[1], call[2])
            caller = self._locations.get(key) or self._locate(key, None)
        self._location = self._locations[file, line, column] = self._locate((file, line, column), caller)

    def _locate(self, place: tuple[int, int, int], caller: Location | None) -> Location:
        return Location(self._files.get(place[0], f"file {place[0]}"), place[1], place[2], caller)


def _find_guard(text: str, scope: _Scope) -> Guard:
    register = scope.resolve(text.lstrip("!"))
    if register is None:
        raise ValueError(f"guard {text} is no register")
    return Guard(register.name, text.startswith("!"))
