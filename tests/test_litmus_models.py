"""The axioms against published tables, published counts, a brute-force interleaver, and one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.litmus.strategies import programs
from tiebreak.sim.litmus.evaluation import Outcome, count_executions, outcomes
from tiebreak.sim.litmus.program import (
    Address,
    Compute,
    Fence,
    Instruction,
    Load,
    Operand,
    Order,
    Placement,
    Program,
    Register,
    Scope,
    Store,
    Thread,
    Update,
    Value,
)
from tiebreak.sim.litmus.reader import parse
from tiebreak.sim.litmus.values import calculate
from tiebreak.sim.litmus.writer import write

# Shapes: what each thread does (W location value, R location), then the bad outcome (values read, in order, by
# thread, and final values).  Rows: whether it is allowed (A) or forbidden (F) with weak accesses, weak ones around
# fence.acq_rel and fence.sc, relaxed ones the same three ways, and releases and acquires the same three ways; every
# thread is on a GPU of its own and every scope is that of the system.  The table was computed from the axioms of the
# ASPLOS 2019 paper by another program than this one.
SHAPES: dict[str, tuple[Sequence[str], dict[str, Sequence[int]], dict[str, int], str]] = {
    "SB": (["Wx1 Ry", "Wy1 Rx"], {"P0": [0], "P1": [0]}, {}, "AAFAAFAAF"),
    "MP": (["Wx1 Wy1", "Ry Rx"], {"P1": [1, 0]}, {}, "AAFAFFFFF"),
    "LB": (["Rx Wy1", "Ry Wx1"], {"P0": [1], "P1": [1]}, {}, "AAFAFFFFF"),
    "S": (["Wx2 Wy1", "Ry Wx1"], {"P1": [1]}, {"x": 2}, "AAFAFFFFF"),
    "R": (["Wx1 Wy1", "Wy2 Rx"], {"P1": [0]}, {"y": 2}, "AAFAAFAAF"),
    "2+2W": (["Wx1 Wy2", "Wy1 Wx2"], {}, {"x": 1, "y": 1}, "AAFAAFAAF"),
    "WRC": (["Wx1", "Rx Wy1", "Ry Rx"], {"P1": [1], "P2": [1, 0]}, {}, "AAAAFFFFF"),
    "ISA2": (["Wx1 Wy1", "Ry Wz1", "Rz Rx"], {"P1": [1], "P2": [1, 0]}, {}, "AAFAFFFFF"),
    "RWC": (["Wx1", "Rx Ry", "Wy1 Rx"], {"P1": [1, 0], "P2": [0]}, {}, "AAAAAFAAF"),
    "IRIW": (["Wx1", "Wy1", "Rx Ry", "Ry Rx"], {"P2": [1, 0], "P3": [1, 0]}, {}, "AAAAAFAAF"),
    "CoRR": (["Wx1", "Rx Rx"], {"P1": [1, 0]}, {}, "AAAFFFFFF"),
    "CoRR2": (["Wx1", "Wx2", "Rx Rx", "Rx Rx"], {"P2": [1, 2], "P3": [2, 1]}, {}, "AAAFFFFFF"),
    "CoWW": (["Wx1 Wx2", "Rx Rx"], {"P1": [2, 1]}, {}, "AAAFFFFFF"),
}

STYLES: list[tuple[Order, Order, Order | None]] = [
    (store, load, fence)
    for store, load in (("weak", "weak"), ("relaxed", "relaxed"), ("release", "acquire"))
    for fence in (None, "acq_rel", "sc")
]


def build(code: Sequence[str], style: tuple[Order, Order, Order | None], scope: Scope) -> Program:
    """A program of a shape, each thread on its own GPU."""
    store, load, fence = style
    threads = []
    for index, accesses in enumerate(code):
        steps: list[Instruction] = []
        for place, access in enumerate(accesses.split()):
            if place and fence is not None:
                steps.append(Fence(fence, scope))
            location = Address(access[1])
            if access[0] == "W":
                steps.append(Store(location, int(access[2:]), store, scope))
            else:
                steps.append(Load(f"r{place}", location, load, scope))
        threads.append(Thread(f"P{index}", tuple(steps), Placement(index, index)))
    return Program(tuple(threads))


def is_bad(outcome: Outcome, code: Sequence[str], reads: dict[str, Sequence[int]], finals: dict[str, int]) -> bool:
    """Whether a final state is the bad outcome of a shape."""
    state = dict(outcome)
    for thread, values in reads.items():
        names = [f"{thread}:r{at}" for at, access in enumerate(code[int(thread[1:])].split()) if access[0] == "R"]
        if [state[name] for name in names] != list(values):
            return False
    return all(state[location] == value for location, value in finals.items())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("style", range(9))
def test_every_shape_in_every_style_across_gpus(shape: str, style: int):
    code, reads, finals, verdicts = SHAPES[shape]
    found = outcomes(build(code, STYLES[style], "sys"), "ptx")
    assert any(is_bad(outcome, code, reads, finals) for outcome in found) is (verdicts[style] == "A")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("style", range(9))
def test_gpu_scope_across_gpus_forbids_nothing(shape: str, style: int):
    code, reads, finals, _ = SHAPES[shape]
    found = outcomes(build(code, STYLES[style], "gpu"), "ptx")
    assert any(is_bad(outcome, code, reads, finals) for outcome in found)


X, Y, Z = Address("x"), Address("y"), Address("z")


def store(location: Address, value: Operand = 1, order: Order = "relaxed") -> Store:
    return Store(location, value, order, "sys")


def load(location: Address, register: str = "r0", order: Order = "relaxed") -> Load:
    return Load(register, location, order, "sys")


def update(operation: str, *operands: int) -> Update:
    return Update("r0", X, operation, operands, "relaxed", "sys")


def threads_of(*code: Sequence[Instruction]) -> Program:
    return Program(tuple(Thread(f"P{index}", tuple(steps), Placement(index)) for index, steps in enumerate(code)))


def ring(size: int) -> Program:
    names = [Address(f"x{index}") for index in range(size)]
    return threads_of(*([store(names[index]), load(names[index - 1])] for index in range(size)))


INCREMENT = [load(X), Compute("r1", "add", Register("r0"), 1), store(X, Register("r1"))]

# Numbers of execution graphs under sc and rc11 that GenMC and Nidhugg publish for these programs.
COUNTS: dict[str, tuple[Program, int, int]] = {
    "SB": (threads_of([store(X), load(Y)], [store(Y), load(X)]), 3, 4),
    "LB": (threads_of([load(X), store(Y)], [load(Y), store(X)]), 3, 3),
    "2+2W": (threads_of([store(X, 1), store(Y, 2)], [store(Y, 1), store(X, 2)]), 3, 4),
    "S": (threads_of([store(X, 2), store(Y)], [load(Y), store(X)]), 3, 4),
    "CoRR": (threads_of([store(X, 1), store(X, 2)], [load(X), load(X, "r1")]), 6, 6),
    "WRC+dep": (threads_of([store(X)], [load(X), store(Y, Register("r0"))], [load(Y), load(X, "r1")]), 7, 8),
    "IRIW": (
        threads_of(
            [store(X)],
            [store(Y)],
            [load(X, "r0", "acquire"), load(Y, "r1", "acquire")],
            [load(Y, "r0", "acquire"), load(X, "r1", "acquire")],
        ),
        15,
        16,
    ),
    "ISA2": (
        threads_of(
            [store(X), store(Y, 1, "release")],
            [load(Y, "r0", "acquire"), store(Z, 1, "release")],
            [load(Z, "r0", "acquire"), load(X, "r1")],
        ),
        7,
        7,
    ),
    "ring(3)": (ring(3), 7, 8),
    "ring(4)": (ring(4), 15, 16),
    "readers(5)": (threads_of([store(X)], *[[load(X)]] * 5), 32, 32),
    "lastwrite(5)": (threads_of(*([store(X, value)] for value in range(5))), 120, 120),
    "floating_read(4)": (threads_of([load(X)], *([store(X, value)] for value in range(4))), 120, 120),
    "ainc(4)": (threads_of(*[[update("add", 1)]] * 4), 24, 24),
    "inc(3)": (threads_of(*[INCREMENT] * 3), 36, 36),
    "casrot(4)": (threads_of(*([update("cas", value, value + 1)] for value in range(4))), 14, 14),
}


@pytest.mark.parametrize("name", COUNTS)
def test_published_numbers_of_executions(name: str):
    program, sequential, rc11 = COUNTS[name]
    assert (count_executions(program, "sc"), count_executions(program, "rc11")) == (sequential, rc11)


def interleave(program: Program) -> frozenset[Outcome]:
    """Final states of all interleavings, one instruction after another: what ``sc`` means, without axioms."""
    found: set[Outcome] = set()
    locations = {step.address for thread in program.threads for step in thread.instructions if hasattr(step, "address")}
    start: dict[str, Value] = {address.location: 0 for address in locations}
    for thread in program.threads:
        for step in thread.instructions:
            if isinstance(step, Load | Update) and step.register is not None:
                start[f"{thread.name}:{step.register}"] = 0
    pending = [((0,) * len(program.threads), start)]
    while pending:
        counters, state = pending.pop()
        if all(at == len(thread.instructions) for at, thread in zip(counters, program.threads, strict=True)):
            found.add(tuple(sorted(state.items())))
        for index, thread in enumerate(program.threads):
            if counters[index] < len(thread.instructions):
                after = dict(state)
                execute(thread.instructions[counters[index]], thread.name, after)
                pending.append(((*counters[:index], counters[index] + 1, *counters[index + 1 :]), after))
    return frozenset(found)


def execute(step: Instruction, thread: str, state: dict[str, Value]) -> None:
    """Execute one instruction at once."""

    def value(operand: Operand) -> Value:
        return state[f"{thread}:{operand.name}"] if isinstance(operand, Register) else operand

    if isinstance(step, Store):
        state[step.address.location] = value(step.value)
    elif isinstance(step, Load):
        state[f"{thread}:{step.register}"] = state[step.address.location]
    elif isinstance(step, Update):
        old = state[step.address.location]
        if step.operation == "exch":
            state[step.address.location] = value(step.operands[0])
        elif step.operation == "add":
            state[step.address.location] = calculate("add", old, value(step.operands[0]))
        elif old == value(step.operands[0]):
            state[step.address.location] = value(step.operands[1])
        state[f"{thread}:{step.register}"] = old


@given(programs())
def test_sequential_consistency_is_interleaving(program: Program):
    assert outcomes(program, "sc") == interleave(program)


@given(programs())
def test_weaker_models_allow_what_stronger_ones_do(program: Program):
    sequential = outcomes(program, "sc")
    assert sequential <= outcomes(program, "rc11")
    assert sequential <= outcomes(program, "ptx")


@given(programs(weak=False, scopes=("sys",)))
def test_strong_accesses_at_system_scope_are_no_stronger_than_rc11(program: Program):
    assert outcomes(program, "rc11") <= outcomes(program, "ptx")


STRONGER: dict[Order, Sequence[Order]] = {
    "weak": ("relaxed",),
    "relaxed": ("acquire", "release"),
    "acquire": ("acq_rel",),
    "release": ("acq_rel",),
    "acq_rel": ("sc",),
    "sc": (),
}


def strengthenings(program: Program) -> Iterator[Program]:
    """Programs with one order stronger or one scope wider."""
    for index, thread in enumerate(program.threads):
        for place, step in enumerate(thread.instructions):
            if isinstance(step, Load | Store | Update | Fence):
                for changed in stronger(step):
                    steps = (*thread.instructions[:place], changed, *thread.instructions[place + 1 :])
                    others = list(program.threads)
                    others[index] = replace(thread, instructions=steps)
                    yield replace(program, threads=tuple(others))


def stronger(step: Load | Store | Update | Fence) -> Iterator[Instruction]:
    allowed: set[Order] = {"acquire", "release", "acq_rel", "sc"}
    if isinstance(step, Load):
        allowed = {"relaxed", "acquire"}
    elif isinstance(step, Store):
        allowed = {"relaxed", "release"}
    elif isinstance(step, Update):
        allowed = {"acquire", "release", "acq_rel"}
    for order in STRONGER[step.order]:
        if order in allowed:
            yield replace(step, order=order)
    if step.order != "weak" and step.scope != "sys":
        yield replace(step, scope="sys")


@given(programs(threads=(2, 2)), st.data())
def test_a_stronger_order_or_wider_scope_adds_no_outcome(program: Program, data: st.DataObject):
    options = list(strengthenings(program))
    if options:
        changed = data.draw(st.sampled_from(options))
        assert outcomes(changed, "ptx") <= outcomes(program, "ptx")


@given(programs())
def test_what_is_written_is_read_as_the_same_threads(program: Program):
    assert parse(write(program)).threads == program.threads


def test_programs_of_a_size_are_drawn_with_all_their_parts():
    kinds = set()
    number = count()

    @given(programs())
    def look(program: Program) -> None:
        next(number)
        kinds.update(type(step) for thread in program.threads for step in thread.instructions)

    look()
    assert kinds == {Load, Store, Update, Fence}
    assert next(number) > 10
