"""Barriers of warps, CTAs and clusters.

Threads count one by one, as since Volta; ``bar.arrive`` counts without waiting
(PTX ISA, "bar, barrier" and "barrier.cluster").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .executor_faults import fail
from .executor_groups import BARRIER, Group, Unit
from .executor_registers import LANES
from .memory import Array
from .module import Immediate, Instruction, Operand, Register

if TYPE_CHECKING:
    from .executor_cta import Cta

BARRIERS = 16
"""Barriers of a CTA."""


@dataclass
class _Barrier:
    """One barrier of a CTA.

    Attributes:
        expected: Threads that it takes this time.
        arrived: Threads that arrived, waiting or not.
        passing: Whether some of them do not wait.
        waiting: Groups that wait, with their predicates of ``bar.red``.
        phase: How often it completed.
    """

    expected: int = 0
    arrived: int = 0
    passing: bool = False
    waiting: list[tuple[Group, Array | None]] = field(default_factory=list)
    phase: int = 0


class CtaBarriers:
    """The barriers of a CTA and of its warps.

    Args:
        cta: The CTA.
    """

    def __init__(self, cta: Cta) -> None:
        self._cta = cta
        self._barriers: dict[int, _Barrier] = {}

    def meet_warps(self, group: Group, instruction: Instruction) -> None:
        """Perform ``bar.warp.sync``: the lanes of each mask are there."""
        cta = self._cta
        group.place += 1
        if cta.observer is None:
            return
        masks = self._values(instruction.operands[0], group) & 0xFFFFFFFF
        for mask in np.unique(masks).tolist():
            threads = group.threads if (masks == mask).all() else group.threads[masks == mask]
            cta.observer.synchronise(cta.position, threads, instruction, "warp")

    def meet(self, unit: Unit, group: Group, instruction: Instruction) -> None:
        """Perform ``bar`` or ``barrier``: sync, arrive or red.

        Raises:
            FindingError: The barrier or its count is not one that can be.
        """
        words = instruction.modifiers
        operands = list(instruction.operands)
        reduces = "red" in words
        truth = operands.pop() if reduces else None
        numbers = self._values(operands[1 if reduces else 0], group)
        if numbers.min() != numbers.max():
            # Threads of another barrier come here again by themselves.
            part = np.zeros(len(group.active), bool)
            part[group.threads[numbers == numbers[0]]] = True
            group, _ = unit.split(group, part, group.place, group.place)
        predicate = self._predicate(truth, group) if reduces else None
        operands = operands[1:] if reduces else operands
        barrier = self._find(group, instruction, int(numbers[0]), operands[1] if len(operands) > 1 else None)
        barrier.arrived += group.count
        if "arrive" in words:
            self._pass(barrier, group, instruction, int(numbers[0]))
        else:
            group.wait(BARRIER, instruction)
            barrier.waiting.append((group, predicate))
        if barrier.arrived > barrier.expected:
            missing = f"{barrier.arrived} threads arrive where {barrier.expected} are expected"
            self._fail(group, instruction, int(numbers[0]), missing)
        if barrier.arrived == barrier.expected:
            self._complete(barrier, int(numbers[0]), instruction)

    def _find(self, group: Group, instruction: Instruction, number: int, count: Operand) -> _Barrier:
        expected = self._cta.launch.threads
        if count is not None:
            expected = int(self._values(count, group)[0])
            if expected <= 0 or expected % LANES:
                self._fail(group, instruction, number, f"its count {expected} is no multiple of {LANES}")
        if number >= BARRIERS:
            self._fail(group, instruction, number, f"a CTA has {BARRIERS} barriers")
        barrier = self._barriers.setdefault(number, _Barrier())
        if barrier.arrived and barrier.expected != expected:
            self._fail(group, instruction, number, f"counts differ: {barrier.expected} and {expected}")
        barrier.expected = expected
        return barrier

    def _pass(self, barrier: _Barrier, group: Group, instruction: Instruction, number: int) -> None:
        cta = self._cta
        barrier.passing = True
        group.place += 1
        if cta.observer is not None:
            token = ("bar", cta.position.rank, cta.position.launch, cta.position.cta, number, barrier.phase)
            cta.observer.release(cta.position, group.threads, instruction, token)

    def _complete(self, barrier: _Barrier, number: int, instruction: Instruction) -> None:
        cta, waiting = self._cta, barrier.waiting
        if cta.observer is not None and waiting:
            threads = waiting[0][0].threads
            # Whose barrier it is, should it be an arrival that completes it.
            instruction = waiting[0][0].instruction or instruction
            if len(waiting) > 1:
                threads = np.sort(np.concatenate([group.threads for group, _ in waiting]))
            cta.observer.synchronise(cta.position, threads, instruction, "cta")
            if barrier.passing:
                token = ("bar", cta.position.rank, cta.position.launch, cta.position.cta, number, barrier.phase)
                cta.observer.acquire(cta.position, threads, instruction, token)
        predicates = [predicate for _, predicate in waiting if predicate is not None]
        for group, predicate in waiting:
            if predicate is not None and group.instruction is not None:
                self._write_reduction(group, group.instruction, np.concatenate(predicates))
            group.resume(group.place + 1)
        self._barriers[number] = _Barrier(phase=barrier.phase + 1)
        cta.launch.version += 1

    def _write_reduction(self, group: Group, instruction: Instruction, truth: Array) -> None:
        words, target = instruction.modifiers, instruction.operands[0]
        value = int(np.count_nonzero(truth)) if "popc" in words else truth.all() if "and" in words else truth.any()
        assert isinstance(target, Register)
        self._cta.file.array(target.name)[group.threads] = value

    def _predicate(self, operand: Operand, group: Group) -> Array:
        if isinstance(operand, Register) and operand.name.startswith("!"):
            return ~self._cta.file.array(operand.name[1:])[group.threads]
        return self._values(operand, group).astype(bool)

    def _values(self, operand: Operand, group: Group) -> Array:
        if isinstance(operand, Immediate):
            return np.full(group.count, operand.bits, np.int64)
        assert isinstance(operand, Register)
        return self._cta.file.array(operand.name)[group.threads].astype(np.int64)

    def _fail(self, group: Group, instruction: Instruction, number: int, missing: str) -> None:
        fail(self._cta, "divergent-barrier", instruction, group.threads[:1], "arrives", f"barrier {number}", missing)


class ClusterBarrier:
    """The barrier of a cluster, whose arrival and wait are two instructions.

    Attributes:
        phase: How often it completed.
    """

    def __init__(self) -> None:
        self.phase = 0
        self._ctas: list[Cta] = []
        self._arrived: dict[int, Array] = {}
        self._waiting: list[tuple[Cta, Group]] = []

    def join(self, ctas: list[Cta]) -> None:
        """State the CTAs of the cluster, once all are there."""
        self._ctas = ctas
        # Phase that each thread waits to see completed; those that have arrived wait for the present one.
        self._arrived = {cta.position.cta: np.full(len(cta.alive), -1, np.int64) for cta in ctas}

    def meet(self, cta: Cta, group: Group, instruction: Instruction) -> None:
        """Perform ``barrier.cluster.arrive`` or ``barrier.cluster.wait``.

        Raises:
            FindingError: A thread arrives twice, or waits without having arrived.
        """
        arrived = self._arrived[cta.position.cta]
        if "wait" in instruction.modifiers:
            self._wait(cta, group, instruction, arrived)
            return
        if (arrived[group.threads] == self.phase).any():
            fail(cta, "divergent-barrier", instruction, group.threads[:1], "arrives", "cluster barrier",
                 "a thread arrives again before the others have")  # fmt: skip
        arrived[group.threads] = self.phase
        group.place += 1
        if cta.observer is not None and "relaxed" not in instruction.modifiers:
            cta.observer.release(cta.position, group.threads, instruction, self._token(cta, self.phase))
        self.complete(group.threads)

    def complete(self, threads: Array) -> None:
        """See whether every thread that has not exited has arrived, after ``threads`` have or exited."""
        if not self._ctas or not any((self._arrived[cta.position.cta] == self.phase).any() for cta in self._ctas):
            return
        if all((self._arrived[cta.position.cta][cta.alive] == self.phase).all() for cta in self._ctas):
            self.phase += 1
            waiting, self._waiting = self._waiting, []
            for cta, group in waiting:
                assert group.instruction is not None
                self._leave(cta, group, group.instruction)

    def _wait(self, cta: Cta, group: Group, instruction: Instruction, arrived: Array) -> None:
        phases = arrived[group.threads]
        if (phases < 0).any():
            fail(cta, "divergent-barrier", instruction, group.threads[:1], "waits", "cluster barrier",
                 "a thread waits that has not arrived")  # fmt: skip
        if (phases < self.phase).all():
            self._leave(cta, group, instruction)
        else:
            group.wait(BARRIER, instruction)
            self._waiting.append((cta, group))

    def _leave(self, cta: Cta, group: Group, instruction: Instruction) -> None:
        group.resume(group.place + 1)
        cta.launch.version += 1
        if cta.observer is not None:
            cta.observer.acquire(cta.position, group.threads, instruction, self._token(cta, self.phase - 1))

    def _token(self, cta: Cta, phase: int) -> tuple[object, ...]:
        return ("barrier.cluster", cta.position.rank, cta.position.launch, cta.position.cluster, phase)
