"""Drawn programs with branches, loops, guards and exits: many threads at a time against one thread after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.sim.ptx.fragments import run_fragment

REGISTERS = 5
"""Registers %r1 to %r5 of a program; they start as multiples of the thread's number."""

WORD = 1 << 32
Registers = list[int]

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add.s32": lambda a, b: (a + b) % WORD,
    "sub.s32": lambda a, b: (a - b) % WORD,
    "mul.lo.s32": lambda a, b: a * b % WORD,
    "xor.b32": lambda a, b: a ^ b,
    "min.u32": min,
    "max.u32": max,
}


class _Exit(Exception):  # noqa: N818 - a thread leaves, which is no error
    pass


@dataclass(frozen=True)
class Operation:
    """``target = name(first, second)``, where ``guard`` bits of a register are zero, if there is a guard."""

    name: str
    target: int
    first: int
    second: int
    guard: tuple[int, int] | None

    def run(self, registers: Registers) -> None:
        if self.guard is None or registers[self.guard[0]] & self.guard[1] == 0:
            registers[self.target] = OPERATIONS[self.name](registers[self.first], registers[self.second])

    def write(self, labels: Iterator[int]) -> str:
        text = f"{self.name} %r{self.target}, %r{self.first}, %r{self.second};"
        if self.guard is None:
            return text
        return f"and.b32 %r20, %r{self.guard[0]}, {self.guard[1]}; setp.eq.u32 %p1, %r20, 0; @%p1 {text}"


@dataclass(frozen=True)
class Branch:
    """One of two blocks, by bits of a register."""

    register: int
    bits: int
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]

    def run(self, registers: Registers) -> None:
        for statement in self.then if registers[self.register] & self.bits else self.otherwise:
            statement.run(registers)

    def write(self, labels: Iterator[int]) -> str:
        label = next(labels)
        then, otherwise = (" ".join(one.write(labels) for one in part) for part in (self.then, self.otherwise))
        return (
            f"and.b32 %r20, %r{self.register}, {self.bits}; setp.ne.u32 %p1, %r20, 0; @%p1 bra THEN{label}; "
            f"{otherwise} bra.uni JOIN{label}; THEN{label}: {then} JOIN{label}: "
        )


@dataclass(frozen=True)
class Loop:
    """A block, as often as two bits of a register say when the loop starts; counters are nested by depth."""

    register: int
    depth: int
    body: tuple[Statement, ...]

    def run(self, registers: Registers) -> None:
        for _ in range(registers[self.register] & 3):
            for statement in self.body:
                statement.run(registers)

    def write(self, labels: Iterator[int]) -> str:
        label, counter = next(labels), f"%r{10 + self.depth}"
        body = " ".join(one.write(labels) for one in self.body)
        return (
            f"and.b32 {counter}, %r{self.register}, 3; LOOP{label}: setp.eq.u32 %p2, {counter}, 0; "
            f"@%p2 bra END{label}; {body} sub.s32 {counter}, {counter}, 1; bra.uni LOOP{label}; END{label}: "
        )


@dataclass(frozen=True)
class Exit:
    """Threads leave where bits of a register are all set."""

    register: int
    bits: int

    def run(self, registers: Registers) -> None:
        if registers[self.register] & self.bits == self.bits:
            raise _Exit

    def write(self, labels: Iterator[int]) -> str:
        return f"and.b32 %r20, %r{self.register}, {self.bits}; setp.eq.u32 %p3, %r20, {self.bits}; @%p3 exit; "


Statement = Operation | Branch | Loop | Exit
numbers = st.integers(1, REGISTERS)
bits = st.sampled_from([1, 2, 4, 8, 5, 48])


@st.composite
def statements(draw: st.DrawFn, depth: int = 0) -> tuple[Statement, ...]:
    """Draw a block; blocks within it are less deep."""
    drawn: list[Statement] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["operation"] * 3 + ([] if depth == 3 else ["branch", "loop"]) + ["exit"]))
        if kind == "operation":
            guard = draw(st.none() | st.tuples(numbers, bits))
            drawn.append(
                Operation(draw(st.sampled_from(list(OPERATIONS))), draw(numbers), draw(numbers), draw(numbers), guard)
            )
        elif kind == "branch":
            inner = statements(depth=depth + 1)
            drawn.append(Branch(draw(numbers), draw(bits), draw(inner), draw(inner)))
        elif kind == "loop":
            drawn.append(Loop(draw(numbers), depth, draw(statements(depth=depth + 1))))
        elif draw(st.booleans()):
            drawn.append(Exit(draw(numbers), draw(st.sampled_from([7, 24, 63]))))
    return tuple(drawn)


def run_one_by_one(program: tuple[Statement, ...], threads: int) -> np.ndarray:
    """Return the registers of each thread at its end, or zeros for one that exited."""
    out = np.zeros((threads, REGISTERS), np.uint32)
    for thread in range(threads):
        registers = [0, *((thread * factor + factor) % WORD for factor in range(1, REGISTERS + 1))]
        try:
            for statement in program:
                statement.run(registers)
        except _Exit:
            continue
        out[thread] = registers[1:]
    return out


def run_together(program: tuple[Statement, ...], threads: int, schedule: str) -> np.ndarray:
    """Return the same from the PTX machine."""
    out = np.zeros((threads, REGISTERS), np.uint32)
    labels = iter(range(10_000))
    start = " ".join(f"mad.lo.s32 %r{n}, %r30, {n}, {n};" for n in range(1, REGISTERS + 1))
    end = " ".join(f"st.global.b32 [%rd3+{4 * (n - 1)}], %r{n};" for n in range(1, REGISTERS + 1))
    body = " ".join(statement.write(labels) for statement in program)
    run_fragment(
        f"""ld.param.b64 %rd1, [p0]; mov.u32 %r30, %tid.x; mul.wide.u32 %rd2, %r30, {4 * REGISTERS};
        add.s64 %rd3, %rd1, %rd2; {start} {body} {end} ret;""",
        [out],
        block=threads,
        schedule=schedule,
    )
    return out


@pytest.mark.parametrize("schedule", ["lockstep", "random:3"])
@given(program=statements(), threads=st.sampled_from([1, 32, 45, 96]))
def test_threads_together_do_what_each_does_alone(schedule: str, program: tuple[Statement, ...], threads: int) -> None:
    assert (run_together(program, threads, schedule) == run_one_by_one(program, threads)).all()
