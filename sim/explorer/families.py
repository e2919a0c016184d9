"""Programs whose numbers of executions are known: litmus tests, scalable families, and the flag barrier.

Shapes are those of the test suites of GenMC (https://github.com/MPI-SWS/genmc)
and Nidhugg (https://github.com/nidhugg/nidhugg), written down anew.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from tiebreak.errors import InputError

from .operations import (
    Await,
    Lanes,
    Load,
    Operation,
    Order,
    Store,
    add,
    at_least,
    compare_and_swap,
    equal_to,
)
from .program import Body, Program, Symmetry, Thread, parallel

Steps = Generator[Operation | Lanes, Any, Any]

ACQUIRE, RELEASE = Order.ACQUIRE, Order.RELEASE


def straight(*operations: Operation | Lanes) -> Body:
    """A thread that issues operations one after the other and returns what it loaded."""

    def body() -> Steps:
        loaded = []
        for operation in operations:
            value = yield operation
            if isinstance(operation, Load):
                loaded.append(value)
        return tuple(loaded)

    return body


def mp() -> Program:
    """Message passing."""
    return parallel("MP", straight(Store("x", 1), Store("y", 1)), straight(Load("y"), Load("x")))


def sb() -> Program:
    """Store buffering."""
    return sb_ring(2)


def sb_ring(n: int) -> Program:
    """Each thread writes its own location and reads the next one's."""
    return parallel(f"SB({n})", *[straight(Store(i, 1), Load((i + 1) % n)) for i in range(n)])


def lb() -> Program:
    """Load buffering."""
    return parallel("LB", straight(Load("x"), Store("y", 1)), straight(Load("y"), Store("x", 1)))


def iriw() -> Program:
    """Independent reads of independent writes, with acquire loads."""
    reads = [straight(Load(a, ACQUIRE), Load(b, ACQUIRE)) for a, b in ("xy", "yx")]
    return parallel("IRIW", straight(Store("x", 1)), straight(Store("y", 1)), *reads)


def two_plus_two_w() -> Program:
    """Two threads write two locations in opposite order."""
    return parallel("2+2W", straight(Store("x", 1), Store("y", 2)), straight(Store("y", 1), Store("x", 2)))


def corr() -> Program:
    """Two writes and two reads of one location."""
    return parallel("CoRR", straight(Store("x", 1), Store("x", 2)), straight(Load("x"), Load("x")))


def wrc() -> Program:
    """Write-to-read causality, relaxed, with dependencies."""
    threads = straight(Store("x", 1)), straight(Load("x"), Store("y", 1)), straight(Load("y"), Load("x"))
    return parallel("WRC+dep", *threads)


def isa2() -> Program:
    """Message passing through a third thread, with release and acquire."""
    return parallel(
        "ISA2",
        straight(Store("x", 1), Store("y", 1, RELEASE)),
        straight(Load("y", ACQUIRE), Store("z", 1, RELEASE)),
        straight(Load("z", ACQUIRE), Load("x")),
    )


def readers(n: int) -> Program:
    """One writer, n readers."""
    alike = Symmetry(tuple(range(1, n + 1)))
    return parallel(f"readers({n})", straight(Store("x", 1)), *[straight(Load("x")) for _ in range(n)], symmetry=alike)


def last_write(n: int) -> Program:
    """N writers of one location."""
    return parallel(f"lastwrite({n})", *[straight(Store("x", i + 1)) for i in range(n)], symmetry=_number_writers(n))


def floating_read(n: int) -> Program:
    """N writers and one reader of one location."""
    writers = [straight(Store("x", i + 1)) for i in range(n)]
    return parallel(f"floating_read({n})", *writers, straight(Load("x")), symmetry=_number_writers(n))


def _number_writers(n: int) -> Symmetry:
    """Threads that each write a number one larger than their own."""
    return Symmetry(tuple(range(n)), rename_value=lambda places, value: places[value - 1] + 1 if value else value)


def last_zero(n: int) -> Program:
    """Each of n threads counts on from its left neighbour's entry; one looks for the last zero from the right."""

    def search() -> Steps:
        index = n
        while (yield Load(index)) != 0:
            index -= 1
        return index

    def count(index: int) -> Body:
        def body() -> Steps:
            value = yield Load(index - 1)
            yield Store(index, value + 1)

        return body

    return parallel(f"lastzero({n})", search, *[count(index) for index in range(1, n + 1)])


def ainc(n: int) -> Program:
    """N atomic additions to one counter."""
    return parallel(f"ainc({n})", *[straight(add("x", 1)) for _ in range(n)], symmetry=Symmetry(tuple(range(n))))


def inc(n: int) -> Program:
    """N increments by a load and a store."""

    def body() -> Steps:
        value = yield Load("x")
        yield Store("x", value + 1)

    return parallel(f"inc({n})", *[body] * n, symmetry=Symmetry(tuple(range(n))))


def casrot(n: int) -> Program:
    """N threads of which each takes a number one further, if its turn has come."""
    return parallel(f"casrot({n})", *[straight(compare_and_swap("x", i, i + 1)) for i in range(n)])


def wcas(n: int) -> Program:
    """One store, and n threads that compete to replace its value."""
    swaps = [straight(compare_and_swap("x", 1, 2)) for _ in range(n)]
    return parallel(f"wcas({n})", straight(Store("x", 1)), *swaps, symmetry=Symmetry(tuple(range(1, n + 1))))


def flag_barrier(ranks: int, epochs: int, wait: str = ">=", slots: int = 1, lanes: bool = False) -> Program:
    """Every rank tells every peer its epoch, then waits for every peer's, epoch after epoch.

    Args:
        ranks: World size.
        epochs: Rounds.
        wait: ``>=`` or ``==``.
        slots: Flags per pair of ranks, used in turn.
        lanes: Whether the stores of an epoch, and its waits, have no order
            among them, as the lanes of a block store or load.
    """
    waits: dict[str, Callable[..., Await]] = {">=": at_least, "==": equal_to}
    if wait not in waits:
        raise InputError("wait", value=wait, limit="'>=' or '=='")

    def rank(own: int) -> Body:
        peers = [peer for peer in range(ranks) if peer != own]

        def body() -> Steps:
            for epoch in range(1, epochs + 1):
                slot = epoch % slots
                stores: list[Operation] = [Store((peer, own, slot), epoch, RELEASE) for peer in peers]
                ends: list[Operation] = [waits[wait]((own, peer, slot), epoch) for peer in peers]
                if lanes:
                    yield Lanes(tuple(stores))
                    yield Lanes(tuple(ends))
                else:
                    yield from (*stores, *ends)

        return body

    name = f"flag barrier, {ranks} ranks, {epochs} epochs, {wait}, {slots} slots{', lanes' if lanes else ''}"
    threads = tuple(Thread(rank(own), f"rank {own}", gpu=own) for own in range(ranks))
    return Program(threads, name=name, symmetry=Symmetry(tuple(range(ranks)), _permute_ranks))


def _permute_ranks(places: Mapping[int, int], location: tuple[int, int, int]) -> tuple[int, int, int]:
    """A flag of the same slot, between the ranks in the places of others."""
    peer, own, slot = location
    return places[peer], places[own], slot


FAMILIES: dict[str, Callable[..., Program]] = {
    family.__name__: family
    for family in (
        mp, sb, lb, iriw, two_plus_two_w, corr, wrc, isa2, sb_ring, readers, last_write, floating_read, last_zero, ainc,
        inc, casrot, wcas, flag_barrier,
    )
}  # fmt: skip
