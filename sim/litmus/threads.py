"""Runs a thread of a litmus program as far as the values read so far allow, and lists its events.

A thread does not wait for a value before an instruction needs it: reads return unknowns, and only a branch on an
unknown stops.  That is what lets a later store be read before an earlier load is answered (load buffering), and why
no value can come out of thin air.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from tiebreak.errors import InputError
from tiebreak.sim.litmus import program as p
from tiebreak.sim.litmus.values import Term, Unknown, combine, is_known, settle

Kind = Literal["read", "write", "fence", "proxy fence", "barrier"]

INITIAL_THREAD = -1


@dataclass(frozen=True)
class Event:
    """An event of an execution.

    Attributes:
        number: Place in the list of events.
        thread: Index of its thread; ``INITIAL_THREAD`` for the write that initialises a location.
        kind: What it is.
        order: Order; of half a read-modify-write, that half's.
        scope: Scope.
        proxy: Proxy; of a proxy fence, what it fences (``alias`` included).
        address: Address of a read or write.
        value: Value of a write.
        exists: 0 if there is no such event: the write of a comparison that failed.
        partner: Of the write of a read-modify-write, the number of its read; else -1.
        barrier: Of a barrier, the parts of its key.
        quorum: Of a barrier, its quorum.
        waits: Of a barrier, whether it waits.
    """

    number: int
    thread: int
    kind: Kind
    order: p.Order = "weak"
    scope: p.Scope = "sys"
    proxy: str = "generic"
    address: Term = 0
    value: Term = 0
    exists: Term = 1
    partner: int = -1
    barrier: tuple[Term, ...] = ()
    quorum: Term | None = None
    waits: bool = True

    @property
    def shape(self) -> tuple[object, ...]:
        """All but the value: what relations other than reads-from depend on."""
        return (
            *(self.thread, self.kind, self.order, self.scope, self.proxy, self.address, self.partner),
            *(self.barrier, self.quorum, self.waits),
        )


@dataclass
class Control:
    """Where a thread stands."""

    counter: int = 0
    registers: dict[str, Term] = field(default_factory=dict)
    visits: dict[str, int] = field(default_factory=dict)
    marks: dict[str, tuple[int, dict[str, Term]]] = field(default_factory=dict)

    def copy(self) -> Control:
        """A copy that shares nothing that changes."""
        return Control(self.counter, dict(self.registers), dict(self.visits), dict(self.marks))


class LoopBoundError(Exception):
    """A loop ran more often than allowed: the execution is left out, and a result is bounded."""


class StutterError(Exception):
    """An iteration changed nothing: the same execution without it is listed anyway."""


class ThreadRunner:
    """Runs one thread.

    Args:
        index: Index of the thread.
        thread: The thread.
        observed: Registers whose final value counts.
        bound: How often a backward branch to one label may be taken.

    Raises:
        InputError: A branch goes to a label that is not there.
    """

    def __init__(self, index: int, thread: p.Thread, observed: frozenset[str], bound: int) -> None:
        self.index = index
        self.thread = thread
        self.bound = bound
        self.labels = {step.name: at for at, step in enumerate(thread.instructions) if isinstance(step, p.Label)}
        for step in thread.instructions:
            if isinstance(step, p.Branch) and step.label not in self.labels:
                raise InputError("label", value=step.label, limit=f"is nowhere in {thread.name}", remedy="add it")
        self.live = self._find_live_registers(observed)

    def start(self) -> Control:
        """The state before the first instruction."""
        return Control(registers=dict(self.thread.registers))

    def is_finished(self, control: Control) -> bool:
        """Whether the thread ended."""
        return control.counter >= len(self.thread.instructions)

    def advance(self, control: Control, events: list[Event], values: dict[int, p.Value]) -> None:
        """Run until the end or a branch on an unknown; append the events.

        Raises:
            LoopBoundError: A loop ran too often.
            StutterError: The last iteration of a loop changed nothing.
        """
        while not self.is_finished(control):
            step = self.thread.instructions[control.counter]
            if isinstance(step, p.Branch):
                if not self._branch(step, control, events, values):
                    return
                continue
            control.counter += 1
            self._execute(step, control, events, values)

    def _branch(self, step: p.Branch, control: Control, events: list[Event], values: dict[int, p.Value]) -> bool:
        """Take a branch or pass it; False if its outcome is not known yet."""
        taken: Term = 1
        if step.comparison is not None:
            left, right = self._read(step.left, control), self._read(step.right, control)
            taken = settle(combine(step.comparison, left, right), values)
        if not is_known(taken):
            return False
        if not taken:
            control.counter += 1
            return True
        target = self.labels[step.label]
        if target <= control.counter:
            self._repeat(step.label, control, events, values)
        control.counter = target
        return True

    def _repeat(self, label: str, control: Control, events: list[Event], values: dict[int, p.Value]) -> None:
        """Count an iteration, unless it left everything as it was."""
        live = {name: settle(control.registers.get(name, 0), values) for name in self.live[self.labels[label]]}
        first, before = control.marks.get(label, (0, None))
        if before == live and not any(self._has_effect(event, values) for event in events[first:]):
            raise StutterError
        control.marks[label] = (len(events), live)
        control.visits[label] = control.visits.get(label, 0) + 1
        if control.visits[label] > self.bound:
            raise LoopBoundError

    def _has_effect(self, event: Event, values: dict[int, p.Value]) -> bool:
        if event.thread != self.index or event.kind in {"read", "fence", "proxy fence"}:
            return False
        return settle(event.exists, values) != 0

    def _execute(self, step: p.Instruction, control: Control, events: list[Event], values: dict[int, p.Value]) -> None:
        """Execute an instruction other than a branch."""
        event = Event(len(events), self.index, "fence")
        if isinstance(step, p.Move):
            control.registers[step.register] = self._read(step.value, control)
        elif isinstance(step, p.Compute):
            left, right = self._read(step.left, control), self._read(step.right, control)
            control.registers[step.register] = settle(combine(step.operation, left, right), values)
        elif isinstance(step, p.Fence):
            events.append(replace(event, order=step.order, scope=step.scope))
        elif isinstance(step, p.ProxyFence):
            events.append(replace(event, kind="proxy fence", proxy=step.proxy))
        elif isinstance(step, p.Barrier):
            key = tuple(self._read(part, control) for part in step.key)
            quorum = None if step.quorum is None else self._read(step.quorum, control)
            events.append(replace(event, kind="barrier", barrier=key, quorum=quorum, waits=step.waits))
        elif isinstance(step, p.Load | p.Store | p.Update):
            self._access(step, event, control, events)
        elif isinstance(step, p.Label):
            live = {name: settle(control.registers.get(name, 0), values) for name in self.live[control.counter - 1]}
            control.marks.setdefault(step.name, (len(events), live))

    def _access(self, step: p.Load | p.Store | p.Update, event: Event, control: Control, events: list[Event]) -> None:
        """Append the one or two events of an access."""
        event = replace(
            event, order=step.order, scope=step.scope, proxy=step.proxy, address=self._read(step.address, control)
        )
        if isinstance(step, p.Store):
            events.append(replace(event, kind="write", value=self._read(step.value, control)))
            return
        old = Unknown(event.number)
        if isinstance(step, p.Load):
            events.append(replace(event, kind="read"))
            control.registers[step.register] = old
            return
        operands = [self._read(operand, control) for operand in step.operands]
        exists: Term = 1
        if step.operation == "cas":
            exists, new = combine("==", old, operands[0]), operands[1]
        elif step.operation == "exch":
            new = operands[0]
        else:
            new = combine(step.operation, old, operands[0])
        events.append(replace(event, kind="read", order=read_half(step.order)))
        events.append(
            replace(
                event,
                number=event.number + 1,
                kind="write",
                order=write_half(step.order),
                value=new,
                exists=exists,
                partner=event.number,
            )
        )
        if step.register is not None:
            control.registers[step.register] = old

    def _read(self, operand: p.Operand, control: Control) -> Term:
        if isinstance(operand, p.Register):
            return control.registers.get(operand.name, 0)
        return operand

    def _find_live_registers(self, observed: frozenset[str]) -> list[frozenset[str]]:
        """Registers whose value may still count, before each instruction and at the end."""
        steps = self.thread.instructions
        live = [frozenset[str]()] * len(steps) + [observed]
        changed = True
        while changed:
            changed = False
            for at in range(len(steps) - 1, -1, -1):
                step = steps[at]
                after = live[at + 1]
                if isinstance(step, p.Branch):
                    target = live[self.labels[step.label]]
                    after = target if step.comparison is None else after | target
                now = (after - written(step)) | used(step)
                changed = changed or now != live[at]
                live[at] = now
        return live


def read_half(order: p.Order) -> p.Order:
    """Order of the read of a read-modify-write."""
    return "acquire" if order in {"acquire", "acq_rel"} else "relaxed" if order == "release" else order


def write_half(order: p.Order) -> p.Order:
    """Order of the write of a read-modify-write."""
    return "release" if order in {"release", "acq_rel"} else "relaxed" if order == "acquire" else order


def written(step: p.Instruction) -> frozenset[str]:
    """The register that an instruction sets."""
    register = step.register if isinstance(step, p.Move | p.Compute | p.Load | p.Update) else None
    return frozenset() if register is None else frozenset({register})


def used(step: p.Instruction) -> frozenset[str]:
    """Registers that an instruction reads."""
    operands: tuple[p.Operand | None, ...] = ()
    if isinstance(step, p.Move):
        operands = (step.value,)
    elif isinstance(step, p.Compute | p.Branch):
        operands = (step.left, step.right)
    elif isinstance(step, p.Load):
        operands = (step.address,)
    elif isinstance(step, p.Store):
        operands = (step.address, step.value)
    elif isinstance(step, p.Update):
        operands = (step.address, *step.operands)
    elif isinstance(step, p.Barrier):
        operands = (*step.key, step.quorum)
    return frozenset(operand.name for operand in operands if isinstance(operand, p.Register))
