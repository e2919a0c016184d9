"""Small litmus programs drawn by Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tiebreak.sim.litmus.program import (
    SCOPES,
    Address,
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
)

_LOAD_ORDERS: tuple[Order, ...] = ("weak", "relaxed", "acquire")
_STORE_ORDERS: tuple[Order, ...] = ("weak", "relaxed", "release")
_UPDATE_ORDERS: tuple[Order, ...] = ("relaxed", "acquire", "release", "acq_rel")
_FENCE_ORDERS: tuple[Order, ...] = ("acquire", "release", "acq_rel", "sc")


def programs(
    *,
    threads: tuple[int, int] = (2, 3),
    length: tuple[int, int] = (1, 3),
    locations: Sequence[str] = ("x", "y"),
    scopes: Sequence[Scope] = SCOPES,
    weak: bool = True,
    updates: bool = True,
    fences: bool = True,
) -> st.SearchStrategy[Program]:
    """Programs without loops.

    Stores write values of their own, so that a value read names the write; some copy a register that the thread
    loaded.  Threads lie in one CTA, in two CTAs of one GPU, or on two GPUs.

    Args:
        threads: Least and most threads.
        length: Least and most instructions of a thread.
        locations: Locations to access.
        scopes: Scopes to draw from.
        weak: Whether accesses may be weak.
        updates: Whether there are atomic read-modify-writes.
        fences: Whether there are fences.
    """

    @st.composite
    def draw_program(draw: st.DrawFn) -> Program:
        count = draw(st.integers(*threads))
        drawn = []
        for index in range(count):
            placement = Placement(cta=draw(st.integers(0, 1)), gpu=draw(st.integers(0, 1)))
            steps = draw_thread(draw, index, draw(st.integers(*length)))
            drawn.append(Thread(f"P{index}", tuple(steps), placement))
        return Program(tuple(drawn))

    def draw_thread(draw: st.DrawFn, index: int, size: int) -> list[Instruction]:
        kinds = ["load", "store", *(["update"] if updates else []), *(["fence"] if fences else [])]
        steps: list[Instruction] = []
        loaded: list[str] = []
        for place in range(size):
            kind = draw(st.sampled_from(kinds))
            register, value = f"r{place}", 10 * (index + 1) + place
            address, scope = Address(draw(st.sampled_from(locations))), draw(st.sampled_from(scopes))
            if kind == "fence":
                steps.append(Fence(draw(st.sampled_from(_FENCE_ORDERS)), scope))
            elif kind == "store":
                sources: list[Operand] = [value, *map(Register, loaded)]
                source = draw(st.sampled_from(sources))
                steps.append(Store(address, source, *draw_strength(draw, _STORE_ORDERS, scope)))
            elif kind == "load":
                steps.append(Load(register, address, *draw_strength(draw, _LOAD_ORDERS, scope)))
                loaded.append(register)
            else:
                steps.append(draw_update(draw, register, address, value, scope))
                loaded.append(register)
        return steps

    def draw_strength(draw: st.DrawFn, orders: Sequence[Order], scope: Scope) -> tuple[Order, Scope]:
        order = draw(st.sampled_from(orders[not weak :]))
        return order, "sys" if order == "weak" else scope

    def draw_update(draw: st.DrawFn, register: str, address: Address, value: int, scope: Scope) -> Update:
        operation = draw(st.sampled_from(["add", "exch", "cas"]))
        operands = (0, value) if operation == "cas" else (value,)
        return Update(register, address, operation, operands, draw(st.sampled_from(_UPDATE_ORDERS)), scope)

    return draw_program()
