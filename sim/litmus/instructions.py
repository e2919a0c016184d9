"""Reads single instructions of litmus tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tiebreak.errors import UnsupportedOperationError
from tiebreak.sim.litmus import program as p
from tiebreak.sim.litmus.text import Text
from tiebreak.sim.litmus.values import OPERATIONS

_PROXIES: dict[str, p.Proxy] = {"": "generic", "t": "texture", "su": "surface", "co": "constant"}
_LOADS: dict[str, p.Proxy] = {prefix + "ld": proxy for prefix, proxy in _PROXIES.items()}
_STORES: dict[str, p.Proxy] = {"st": "generic", "sust": "surface"}
_UPDATES: dict[str, p.Proxy] = {"atom": "generic", "suatom": "surface", "red": "generic", "sured": "surface"}
_ORDERS: dict[str, p.Order] = {order: order for order in ("weak", "relaxed", "acquire", "release", "acq_rel", "sc")}
_SCOPES: dict[str, p.Scope] = {scope: scope for scope in p.SCOPES}
_OLD_FENCES: dict[str, p.Scope] = {"cta": "cta", "gl": "gpu", "sys": "sys"}
_BRANCHES = {"beq": "==", "bne": "!=", "blt": "<", "ble": "<=", "bgt": ">", "bge": ">="}
_ATOMIC = OPERATIONS | {"exch", "cas"}


def parse_operand(text: str, cell: Text) -> p.Operand:
    """A number, a register (``r0``) or a location (``x``, ``&x``, ``[x]``).

    Raises:
        LitmusSyntaxError: It is none of these.
    """
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].strip()
    if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", text):
        return int(text, 0)
    if re.fullmatch(r"r\d+", text):
        return p.Register(text)
    if re.fullmatch(r"&?[A-Za-z_]\w*", text):
        return p.Address(text.removeprefix("&"))
    raise cell.error("operand", limit="must be a number, a register or a location")


def parse_instruction(cell: Text) -> p.Instruction:
    """Read an instruction.

    Raises:
        LitmusSyntaxError: It is not one, or its parts do not fit together.
        UnsupportedOperationError: No model here defines it.
    """
    name, _, rest = cell.content.partition(" ")
    opcode, *modifiers = name.strip().split(".")
    operands = rest.replace("\n", " ").split(",") if rest.strip() else []
    return _Reader(cell, opcode, modifiers, operands).read()


class _Reader:
    """One instruction, taken apart."""

    def __init__(self, cell: Text, opcode: str, modifiers: Sequence[str], operands: Sequence[str]) -> None:
        self.cell, self.opcode, self.modifiers = cell, opcode, list(modifiers)
        self.texts = operands

    def read(self) -> p.Instruction:
        """The instruction."""
        opcode = self.opcode
        if opcode in _LOADS:
            return self._load()
        if opcode in _STORES:
            address, value = self._operands(2)
            order, scope = self._strength(("weak", "relaxed", "release"))
            return p.Store(self._location(address), value, order, scope, _STORES[opcode])
        if opcode in _UPDATES:
            return self._update()
        if opcode in {"fence", "membar"}:
            return self._fence()
        if opcode in {"bar", "barrier"}:
            return self._barrier()
        if opcode in _BRANCHES or opcode in {"goto", "bra"}:
            return self._branch()
        if opcode in {"mov", *OPERATIONS}:
            return self._local()
        raise UnsupportedOperationError(self._name())

    def _load(self) -> p.Instruction:
        target, source = self._operands(2)
        order, scope = self._strength(("weak", "relaxed", "acquire"))
        register = self._register(target)
        if isinstance(source, int):
            return p.Move(register, source)
        return p.Load(register, source, order, scope, _LOADS[self.opcode])

    def _update(self) -> p.Update:
        operation = self._take(dict.fromkeys(_ATOMIC, "")) or ""
        order, scope = self._strength(("relaxed", "acquire", "release", "acq_rel"), "relaxed", "gpu")
        if not operation:
            raise UnsupportedOperationError(self._name())
        has_result = "atom" in self.opcode
        operands = self._operands(1 + has_result + (2 if operation == "cas" else 1))
        register = self._register(operands.pop(0)) if has_result else None
        address = self._location(operands.pop(0))
        return p.Update(register, address, operation, tuple(operands), order, scope, _UPDATES[self.opcode])

    def _fence(self) -> p.Instruction:
        self._operands(0)
        if self.opcode == "membar":
            scope = self._take(_OLD_FENCES)
            self._finish()
            if scope is None:
                raise self.cell.error("membar", limit="must name cta, gl or sys")
            return p.Fence("sc", _OLD_FENCES[scope])
        if "proxy" in self.modifiers:
            kinds: dict[str, str] = dict.fromkeys(("alias", *_PROXIES.values()), "")
            self.modifiers.remove("proxy")
            proxy = self._take(kinds)
            if proxy is None or self.modifiers:
                raise UnsupportedOperationError(self._name())
            return p.ProxyFence(proxy)  # type: ignore[arg-type]
        order, scope_ = self._strength(("acquire", "release", "acq_rel", "sc"), "acq_rel")
        return p.Fence(order, scope_)

    def _barrier(self) -> p.Barrier:
        kind = self._take({"sync": "", "arrive": ""})
        self._take({"cta": ""})
        self._finish()
        if kind is None:
            raise UnsupportedOperationError(self._name())
        if not 1 <= len(self.texts) <= 3:
            raise self.cell.error("barrier", limit="takes one to three operands: instance, identifier, quorum")
        operands = self._operands(len(self.texts))
        return p.Barrier(tuple(operands[:2]), operands[2] if len(operands) == 3 else None, kind == "sync")

    def _branch(self) -> p.Branch:
        self._finish()
        if self.opcode in {"goto", "bra"}:
            return p.Branch(self._label(self.texts, 1))
        comparison = _BRANCHES[self.opcode]
        label = self._label(self.texts, 3)
        left, right = (parse_operand(text, self.cell) for text in self.texts[:2])
        return p.Branch(label, comparison, left, right)

    def _label(self, texts: Sequence[str], count: int) -> str:
        if len(texts) != count or not re.fullmatch(r"\s*[A-Za-z_]\w*\s*", texts[-1]):
            raise self.cell.error(self.opcode, limit=f"takes {count} operands, the last of them a label")
        return texts[-1].strip()

    def _local(self) -> p.Instruction:
        self._finish()
        if self.opcode == "mov":
            target, value = self._operands(2)
            return p.Move(self._register(target), value)
        target, left, right = self._operands(3)
        return p.Compute(self._register(target), self.opcode, left, right)

    def _strength(
        self, allowed: Sequence[p.Order], order: p.Order = "weak", scope: p.Scope | None = None
    ) -> tuple[p.Order, p.Scope]:
        """Order and scope, from modifiers in any order."""
        if "volatile" in self.modifiers:
            self.modifiers.remove("volatile")
            self._finish()
            return "relaxed", "sys"
        named = self._take(_ORDERS)
        reach = self._take(_SCOPES)
        self._finish()
        order = _ORDERS[named] if named else order
        if order not in allowed:
            raise self.cell.error(self._name(), limit=f"must be one of {', '.join(allowed)}")
        if order == "weak":
            if reach is not None:
                raise self.cell.error(self._name(), limit="has a scope, which a weak access has not")
            return order, "sys"
        if reach is None and scope is None:
            raise self.cell.error(self._name(), limit="must name a scope: cta, cluster, gpu or sys")
        return order, _SCOPES[reach] if reach else (scope or "sys")

    def _take(self, names: Mapping[str, object]) -> str | None:
        """Remove and return the modifier that is one of these names."""
        for modifier in self.modifiers:
            if modifier in names:
                self.modifiers.remove(modifier)
                return modifier
        return None

    def _finish(self) -> None:
        if self.modifiers:
            raise UnsupportedOperationError(self._name())

    def _name(self) -> str:
        return self.cell.content.split()[0]

    def _operands(self, count: int) -> list[p.Operand]:
        if len(self.texts) != count:
            raise self.cell.error(self._name(), limit=f"takes {count} operands")
        return [parse_operand(text, self.cell) for text in self.texts]

    def _register(self, operand: p.Operand) -> str:
        if not isinstance(operand, p.Register):
            raise self.cell.error(self._name(), limit="must have a register (r0, r1, ...) first")
        return operand.name

    def _location(self, operand: p.Operand) -> p.Operand:
        if isinstance(operand, int):
            raise self.cell.error(self._name(), limit="must name a location")
        return operand
