"""The machine: determinism, replay, streams, residency, graphs, collectives, and why nothing moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.runtime import interpreter

from tiebreak.errors import InputError, MissingBackendError, ReplayError
from tiebreak.sim.fabric import SimulatedFabric, SymmetricBuffer, simulate
from tiebreak.sim.machine import Execution, Machine, Settings
from tiebreak.sim.schedulers import Scheduler
from tiebreak.sim.schedulers.depth_first import DepthFirst
from tiebreak.sim.schedulers.registry import make_scheduler
from tiebreak.sim.schedulers.replay import decode, encode

Host = Callable[[SimulatedFabric], Any]


@triton.jit
def append(log, cursor, value):
    """Append a value to a shared log, at the place that an atomic counter gives."""
    base = cursor.to(tl.pointer_type(tl.int64))
    place = tl.atomic_add(base, 1, sem="acq_rel", scope="sys")
    tl.store(log.to(tl.pointer_type(tl.int64)) + place, value)


@triton.jit
def append_to(log, cursor, value):
    """Append a value to a log of this device."""
    tl.store(log + tl.atomic_add(cursor, 1, sem="acq_rel", scope="gpu"), value)


@triton.jit
def write_scalar(out, value):
    """Store a host scalar."""
    tl.store(out, value)


@triton.jit
def add_one(out):
    """Add one to a number in device memory, one thread after the other."""
    value = tl.load(out)
    tl.debug_barrier()
    tl.store(out, value + 1)


@triton.jit
def wait_for(address, value):
    """Poll a flag until it holds a value."""
    while tl.atomic_add(address.to(tl.pointer_type(tl.int64)), 0, sem="acquire", scope="sys") != value:
        pass


@triton.jit
def set_flag(address, value):
    """Publish a flag."""
    tl.atomic_xchg(address.to(tl.pointer_type(tl.int64)), value, sem="release", scope="sys")


@triton.jit
def chase(address, mine, other):
    """Undo what the other one does, until a third value appears that nobody writes."""
    flag = address.to(tl.pointer_type(tl.int64))
    while tl.atomic_cas(flag, mine, other, sem="relaxed", scope="sys") != 77:
        pass


@triton.jit
def last_signals_first(address, programs):
    """Let every program wait for the last one."""
    flag = address.to(tl.pointer_type(tl.int64))
    if tl.program_id(0) == programs - 1:
        tl.atomic_xchg(flag, 1, sem="release", scope="gpu")
    while tl.atomic_add(flag, 0, sem="acquire", scope="gpu") < 1:
        pass


def zeroed(fabric: SimulatedFabric, byte_count: int) -> SymmetricBuffer:
    """Return symmetric memory that every rank has zeroed before any peer can write."""
    buffer = fabric.rendezvous(byte_count)
    fabric.write(buffer.local, torch.zeros_like(buffer.local))
    fabric.gather_objects("zeroed")
    return buffer


def race_to_append(fabric: SimulatedFabric) -> list[int]:
    """Append own rank twice to the log of rank 0."""
    buffer = zeroed(fabric, 256)
    base = int(buffer.peer_addresses[0])
    for value in (fabric.rank, 10 + fabric.rank):
        append[(1,)](base + 64, base, value)
    fabric.synchronize()
    fabric.gather_objects(None)
    return buffer.local[64 : 64 + 8 * 2 * fabric.world_size].view(torch.int64).tolist()


def append_from_two_streams(fabric: SimulatedFabric) -> list[int]:
    """Append two values from each of two streams to one log."""
    log, cursor = torch.zeros(4, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    for stream in (0, 1):
        with fabric.stream(stream):
            for value in (10 * stream, 10 * stream + 1):
                append_to[(1,)](log, cursor, value)
    fabric.synchronize()
    return log.tolist()


def execute(hosts: list[Host], schedule: str | Scheduler = "default", settings: Settings | None = None) -> Execution:
    scheduler = make_scheduler(schedule) if isinstance(schedule, str) else schedule
    scheduler.begin()
    return simulate(hosts, scheduler, settings)


def found(execution: Execution) -> list[str]:
    return [violation.property for violation in execution.violations]


@settings(max_examples=15)
@given(st.integers(0, 2**20), st.sampled_from(["random", "pct"]))
def test_the_same_seed_gives_the_same_trace_and_its_schedule_replays_it(seed: int, strategy: str) -> None:
    first = execute([race_to_append] * 3, f"{strategy}:{seed}")
    again = execute([race_to_append] * 3, f"{strategy}:{seed}")
    replayed = execute([race_to_append] * 3, f"replay:{first.schedule}")
    for other in (again, replayed):
        assert other.results == first.results
        assert [event.text().split(" = ")[0] for event in other.trace.events] == [
            event.text().split(" = ")[0] for event in first.trace.events
        ]
        assert other.schedule == first.schedule


def test_different_schedules_reach_different_orders() -> None:
    orders = {tuple(execute([race_to_append] * 2, f"random:{seed}").results[0]) for seed in range(20)}
    assert len(orders) > 2


def test_depth_first_search_reaches_every_order_of_appends_and_ends() -> None:
    search = DepthFirst(preemptions=4, executions=5000)
    orders = set()
    while search.begin():
        execution = simulate([append_from_two_streams], search)
        assert found(execution) == []
        orders.add(tuple(execution.results[0]))
    assert search.complete
    # Two appends of each stream in their own order: 4 choose 2 interleavings.
    assert len(orders) == 6


def test_a_bounded_search_says_that_it_was_cut() -> None:
    search = DepthFirst(preemptions=4, executions=3)
    while search.begin():
        simulate([race_to_append] * 2, search)
    assert not search.complete


def test_a_schedule_of_another_program_is_refused() -> None:
    with pytest.raises(ReplayError, match=r"step 3 .* is 'r9.p0'"):
        execute([race_to_append] * 2, "replay:3:r9.p0")


@pytest.mark.parametrize("text", ["12", "x:r0.p0", "3:", "3:a,,"])
def test_a_malformed_schedule_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="schedule is"):
        decode(text)


@given(st.dictionaries(st.integers(0, 10**6), st.sampled_from(["h0", "r1.p0", "r2.s1.p7"])))
def test_schedule_texts_round_trip(deviations: dict[int, str]) -> None:
    assert decode(encode(deviations)) == deviations


@pytest.mark.parametrize("text", ["", "fast", "random:x", "random:1:2:3", "pct:-1", "replay:nonsense"])
def test_an_unknown_scheduler_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        make_scheduler(text)


@pytest.mark.parametrize("text", ["round-robin", "random:3:4", "pct:3:4:5", "dfs:2:10", "replay:3:h0"])
def test_a_scheduler_describes_itself_in_the_form_it_is_made_from(text: str) -> None:
    assert make_scheduler(text).describe() == text


def test_a_graph_keeps_host_scalars_and_rereads_device_memory() -> None:
    def host(fabric: SimulatedFabric) -> list[int]:
        number = torch.zeros(1, dtype=torch.int64)
        scalar = torch.zeros(1, dtype=torch.int64)
        with fabric.capture() as graph:
            write_scalar[(1,)](scalar, len(graph.work) + 5)
            add_one[(1,)](number)
        assert number.item() == 0
        seen = []
        for _ in range(3):
            fabric.replay(graph)
            fabric.synchronize()
            seen += [int(number), int(scalar)]
        return seen

    execution = execute([host])
    assert found(execution) == []
    assert execution.results == [[1, 5, 2, 5, 3, 5]]


def test_the_fallback_collective_gathers_in_stream_order() -> None:
    def host(fabric: SimulatedFabric) -> list[int]:
        mine = torch.zeros(1, dtype=torch.int64)
        write_scalar[(1,)](mine, fabric.rank + 1)
        gathered = torch.empty((fabric.world_size, 1), dtype=torch.int64)
        fabric.all_gather(gathered, mine)
        add_one[(1,)](gathered)
        fabric.synchronize()
        return gathered.reshape(-1).tolist()

    for schedule in ("default", "random:1", "random:2"):
        execution = execute([host] * 3, schedule)
        assert found(execution) == []
        assert execution.results == [[2, 2, 3]] * 3


def test_a_collective_that_one_rank_skips_is_a_deadlock_that_names_it() -> None:
    def host(fabric: SimulatedFabric) -> None:
        if fabric.rank == 0:
            fabric.all_gather(torch.zeros(2), torch.zeros(1))
            fabric.synchronize()

    execution = execute([host] * 2)
    assert found(execution) == ["deadlock"]
    assert "rank 0 waits in all-gather" in execution.violations[0].message
    assert "h1 ended" in execution.violations[0].message


def test_a_flag_that_nobody_sets_is_a_deadlock_that_names_the_wait() -> None:
    def host(fabric: SimulatedFabric) -> None:
        buffer = zeroed(fabric, 64)
        if fabric.rank == 0:
            set_flag[(1,)](int(buffer.peer_addresses[1]), 2)
        else:
            wait_for[(1,)](int(buffer.peer_addresses[1]), 1)
        fabric.synchronize()

    execution = execute([host] * 2)
    assert found(execution) == ["deadlock"]
    message = execution.violations[0].message
    assert "r1.p0 polls r1.symmetric0+0 (value [2], last written by r0.p0" in message
    assert "wait_for" in message


def test_a_cycle_of_changing_flags_is_a_livelock() -> None:
    def host(fabric: SimulatedFabric) -> None:
        buffer = zeroed(fabric, 64)
        chase[(1,)](int(buffer.peer_addresses[0]), fabric.rank, 1 - fabric.rank)
        fabric.synchronize()

    assert found(execute([host] * 2, "round-robin", Settings(budget=400))) == ["livelock"]


def test_a_program_that_only_takes_long_exhausts_its_budget() -> None:
    def host(fabric: SimulatedFabric) -> None:
        buffer = zeroed(fabric, 8 * 300)
        for index in range(200):
            set_flag[(1,)](int(buffer.peer_addresses[0]) + 8 * index, index)
        fabric.synchronize()

    assert found(execute([host], settings=Settings(budget=150))) == ["budget"]
    assert found(execute([host], settings=Settings(budget=5000))) == []


@pytest.mark.parametrize(("residency", "expected"), [(4, []), (3, ["deadlock"])])
def test_programs_that_wait_for_one_that_cannot_start_are_a_deadlock(residency: int, expected: list[str]) -> None:
    def host(fabric: SimulatedFabric) -> None:
        buffer = zeroed(fabric, 64)
        last_signals_first[(4,)](int(buffer.peer_addresses[0]), 4)
        fabric.synchronize()

    execution = execute([host], settings=Settings(residency=residency))
    assert found(execution) == expected
    if expected:
        assert "wait for a free slot" in execution.violations[0].message


def test_an_exception_of_one_host_is_reported_with_those_it_leaves_behind() -> None:
    def host(fabric: SimulatedFabric) -> None:
        if fabric.rank == 1:
            raise ValueError("broken")
        fabric.gather_objects(None)

    execution = execute([host] * 2)
    assert isinstance(execution.errors[1], ValueError)
    assert found(execution) == ["deadlock", "host-error"]
    assert "ranks [1] to gather" in execution.violations[0].message


@pytest.mark.parametrize("bad", [{"ranks": 0}, {"residency": 0}, {"budget": 0}, {"lowering": "triton-2"}])
def test_impossible_machines_are_refused(bad: dict[str, Any]) -> None:
    ranks = bad.pop("ranks", 2)
    with pytest.raises(InputError):
        Machine(ranks, replace(Settings(), **bad))


def test_the_table_has_a_column_per_rank_and_folds_spins() -> None:
    def host(fabric: SimulatedFabric) -> None:
        buffer = zeroed(fabric, 64)
        address = int(buffer.peer_addresses[1])
        if fabric.rank == 0:
            set_flag[(1,)](address, 1)
        else:
            wait_for[(1,)](address, 2)
        fabric.synchronize()

    lines = execute([host] * 2).trace.table(2).splitlines()
    assert lines[0].split(" | ")[1].strip() == "rank 0" and lines[0].split(" | ")[2].strip() == "rank 1"
    assert any("atomic xchg release.sys" in line.split(" | ")[1] for line in lines[2:] if line.count("|") > 1)
    assert any("(x2)" in line and "atomic add acquire.sys" in line for line in lines)


def test_an_interpreter_that_does_not_fit_numpy_is_refused_and_leaves_nothing_patched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(value: object) -> object:
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")

    original = tl.load
    with monkeypatch.context() as patch:
        patch.setattr(interpreter, "_implicit_cvt", refuse)
        with pytest.raises(MissingBackendError, match="does not work with NumPy"):
            execute([race_to_append])
    assert tl.load is original
    assert found(execute([race_to_append])) == []
