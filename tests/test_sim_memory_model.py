"""The memory model of the simulated ranks: which edges exist, and which accesses race."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from tiebreak.sim.fabric import SimulatedFabric, SymmetricBuffer, simulate
from tiebreak.sim.machine import Execution, Settings
from tiebreak.sim.schedulers.registry import make_scheduler

LANES = 4
DATA = 256


@triton.jit
def send(table, rank, peer, ORDER: tl.constexpr, SCOPE: tl.constexpr, BARRIER: tl.constexpr, N: tl.constexpr):
    """Store a tile at a peer, then publish its flag."""
    base = tl.load(table + peer)
    data = (base + 256).to(tl.pointer_type(tl.int32))
    lanes = tl.arange(0, N)
    tl.store(data + lanes, lanes + 10 * (rank + 1))
    if BARRIER:
        tl.debug_barrier()
    tl.atomic_xchg(base.to(tl.pointer_type(tl.int64)), 1, sem=ORDER, scope=SCOPE)


@triton.jit
def receive(base, out, ORDER: tl.constexpr, SCOPE: tl.constexpr, N: tl.constexpr):
    """Wait for the flag, then read the tile."""
    flag = base.to(tl.pointer_type(tl.int64))
    seen = tl.atomic_add(flag, 0, sem=ORDER, scope=SCOPE)
    while seen < 1:
        seen = tl.atomic_add(flag, 0, sem=ORDER, scope=SCOPE)
    lanes = tl.arange(0, N)
    tl.store(out + lanes, tl.load((base + 256).to(tl.pointer_type(tl.int32)) + lanes))


@triton.jit
def receive_unused(base, out, BARRIER: tl.constexpr, N: tl.constexpr):
    """Wait with relaxed polls, then acquire once more and drop the result."""
    flag = base.to(tl.pointer_type(tl.int64))
    while tl.atomic_add(flag, 0, sem="relaxed", scope="sys") < 1:
        pass
    tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    if BARRIER:
        tl.debug_barrier()
    lanes = tl.arange(0, N)
    tl.store(out + lanes, tl.load((base + 256).to(tl.pointer_type(tl.int32)) + lanes))


@triton.jit
def touch_flag(table, peer, PLAIN: tl.constexpr):
    """Wait for the flag of a peer, then pass over it: read-modify-write, or plain store."""
    flag = tl.load(table + peer).to(tl.pointer_type(tl.int64))
    while tl.atomic_add(flag, 0, sem="relaxed", scope="sys") < 1:
        pass
    if PLAIN:
        tl.store(flag, 2)
    else:
        tl.atomic_add(flag, 1, sem="relaxed", scope="sys")


@triton.jit
def receive_second(base, out, N: tl.constexpr):
    """Wait for the value that a third rank put over the flag."""
    flag = base.to(tl.pointer_type(tl.int64))
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") < 2:
        pass
    lanes = tl.arange(0, N)
    tl.store(out + lanes, tl.load((base + 256).to(tl.pointer_type(tl.int32)) + lanes))


@triton.jit
def write_then_read(scratch, out, SHIFT: tl.constexpr, BARRIER: tl.constexpr, N: tl.constexpr):
    """Let each lane read what a lane SHIFT further wrote."""
    lanes = tl.arange(0, N)
    tl.store(scratch + lanes, lanes)
    if BARRIER:
        tl.debug_barrier()
    tl.store(out + lanes, tl.load(scratch + (lanes + SHIFT) % N))


@triton.jit
def count(counter, SCOPE: tl.constexpr):
    """Add one."""
    tl.atomic_add(counter, 1, sem="relaxed", scope=SCOPE)


def zeroed(fabric: SimulatedFabric, byte_count: int) -> SymmetricBuffer:
    """Return symmetric memory that every rank has zeroed before any peer can write."""
    buffer = fabric.rendezvous(byte_count)
    fabric.write(buffer.local, torch.zeros_like(buffer.local))
    fabric.gather_objects("zeroed")
    return buffer


def pass_message(
    *,
    send_order: str = "release",
    send_scope: str = "sys",
    receive_order: str = "acquire",
    receive_scope: str = "sys",
    barrier: bool = True,
) -> list[Callable[[SimulatedFabric], Any]]:
    """Return host programs that pass one tile from rank 0 to rank 1."""

    def sender(fabric: SimulatedFabric) -> None:
        buffer = zeroed(fabric, DATA + 4 * LANES)
        send[(1,)](buffer.peer_addresses, 0, 1, send_order, send_scope, barrier, LANES)
        fabric.synchronize()

    def receiver(fabric: SimulatedFabric) -> list[int]:
        buffer = zeroed(fabric, DATA + 4 * LANES)
        out = torch.empty(LANES, dtype=torch.int32)
        receive[(1,)](buffer.local.data_ptr(), out, receive_order, receive_scope, LANES)
        fabric.synchronize()
        return out.tolist()

    return [sender, receiver]


def run(
    hosts: list[Callable[[SimulatedFabric], Any]], lowering: str = "triton-3.6", schedule: str = "default"
) -> Execution:
    scheduler = make_scheduler(schedule)
    scheduler.begin()
    return simulate(hosts, scheduler, Settings(lowering=lowering))


def found(execution: Execution) -> list[str]:
    return [violation.property for violation in execution.violations]


@pytest.mark.parametrize("schedule", ["default", "round-robin", "random:5", "pct:5"])
@pytest.mark.parametrize("lowering", ["triton-3.6", "triton-3.9"])
def test_release_and_acquire_pass_a_tile(lowering: str, schedule: str) -> None:
    execution = run(pass_message(), lowering, schedule)
    assert found(execution) == []
    assert execution.results[1] == [10, 11, 12, 13]


@pytest.mark.parametrize(
    "change",
    [
        {"send_order": "relaxed"},
        {"receive_order": "relaxed"},
        {"send_scope": "gpu"},
        {"receive_scope": "gpu"},
        {"send_scope": "gpu", "receive_scope": "gpu"},
        {"send_scope": "cta"},
    ],
    ids=str,
)
@pytest.mark.parametrize("lowering", ["triton-3.6", "triton-3.9"])
def test_a_weaker_order_or_narrower_scope_races(change: dict[str, Any], lowering: str) -> None:
    assert found(run(pass_message(**change), lowering)) == ["race"]


def test_one_thread_releases_for_the_others_only_across_a_barrier() -> None:
    hosts = pass_message(barrier=False)
    execution = run(hosts, "triton-3.6")
    assert found(execution) == ["race"]
    assert "send" in execution.violations[0].message and "receive" in execution.violations[0].message
    assert found(run(hosts, "triton-3.9")) == []


@pytest.mark.parametrize(("barrier", "old"), [(True, []), (False, ["race"])])
def test_an_acquire_with_unused_result_reaches_the_others_only_across_a_barrier(barrier: bool, old: list[str]) -> None:
    hosts = pass_message()

    def receiver(fabric: SimulatedFabric) -> None:
        buffer = zeroed(fabric, DATA + 4 * LANES)
        out = torch.empty(LANES, dtype=torch.int32)
        receive_unused[(1,)](buffer.local.data_ptr(), out, barrier, LANES)
        fabric.synchronize()

    assert found(run([hosts[0], receiver], "triton-3.6")) == old
    assert found(run([hosts[0], receiver], "triton-3.9")) == []


@pytest.mark.parametrize(("plain", "expected"), [(False, []), (True, ["race"])])
def test_a_third_rank_keeps_the_chain_by_read_modify_write_and_breaks_it_by_a_store(
    plain: bool, expected: list[str]
) -> None:
    def sender(fabric: SimulatedFabric) -> None:
        buffer = zeroed(fabric, DATA + 4 * LANES)
        send[(1,)](buffer.peer_addresses, 0, 1, "release", "sys", True, LANES)
        fabric.synchronize()

    def receiver(fabric: SimulatedFabric) -> list[int]:
        buffer = zeroed(fabric, DATA + 4 * LANES)
        out = torch.empty(LANES, dtype=torch.int32)
        receive_second[(1,)](buffer.local.data_ptr(), out, LANES)
        fabric.synchronize()
        return out.tolist()

    def third(fabric: SimulatedFabric) -> None:
        buffer = zeroed(fabric, DATA + 4 * LANES)
        touch_flag[(1,)](buffer.peer_addresses, 1, plain)
        fabric.synchronize()

    assert found(run([sender, receiver, third])) == expected


@pytest.mark.parametrize(("shift", "barrier", "expected"), [(0, False, []), (1, False, ["race"]), (1, True, [])])
def test_lanes_of_one_program_are_ordered_by_barriers_only(shift: int, barrier: bool, expected: list[str]) -> None:
    def host(fabric: SimulatedFabric) -> None:
        scratch = torch.empty(LANES, dtype=torch.int32)
        out = torch.empty(LANES, dtype=torch.int32)
        write_then_read[(1,)](scratch, out, shift, barrier, LANES)
        fabric.synchronize()

    execution = run([host])
    assert found(execution) == expected
    if expected:
        assert "no CTA barrier" in execution.violations[0].message


def test_launches_of_one_stream_are_ordered_and_of_two_streams_are_not() -> None:
    def host(fabric: SimulatedFabric, streams: tuple[int, int]) -> None:
        scratch = torch.empty(LANES, dtype=torch.int32)
        outs = [torch.empty(LANES, dtype=torch.int32) for _ in streams]
        for stream, out in zip(streams, outs, strict=True):
            with fabric.stream(stream):
                write_then_read[(1,)](scratch, out, 0, True, LANES)
        fabric.synchronize()

    assert found(run([lambda fabric: host(fabric, (0, 0))])) == []
    assert found(run([lambda fabric: host(fabric, (0, 1))])) == ["race"]


@pytest.mark.parametrize(("scope", "expected"), [("sys", []), ("gpu", ["race"])])
def test_atomics_of_two_ranks_need_system_scope(scope: str, expected: list[str]) -> None:
    def host(fabric: SimulatedFabric) -> None:
        buffer = zeroed(fabric, 64)
        count_at[(1,)](int(buffer.peer_addresses[0]), scope)
        fabric.synchronize()

    assert found(run([host, host])) == expected


@triton.jit
def count_at(address, SCOPE: tl.constexpr):
    """Add one to the counter at an address."""
    tl.atomic_add(address.to(tl.pointer_type(tl.int64)), 1, sem="relaxed", scope=SCOPE)


def test_a_plain_access_races_with_an_atomic() -> None:
    def host(fabric: SimulatedFabric) -> None:
        counter = torch.zeros(1, dtype=torch.int64)
        with fabric.stream(0):
            count[(1,)](counter, "sys")
        with fabric.stream(1):
            plain_read[(1,)](counter, torch.empty(1, dtype=torch.int64))
        fabric.synchronize()

    assert found(run([host])) == ["race"]


@triton.jit
def plain_read(counter, out):
    """Copy a counter without an atomic."""
    tl.store(out, tl.load(counter))


def test_memory_that_nothing_wrote_is_poisoned_and_reported() -> None:
    def host(fabric: SimulatedFabric) -> None:
        fresh = torch.empty(1, dtype=torch.int32)
        assert fresh.item() == 0x7FA5A5A5
        plain_read[(1,)](fresh, torch.empty(1, dtype=torch.int32))
        fabric.synchronize()

    execution = run([host])
    assert found(execution) == ["uninitialised-read"]
    assert "plain_read" in execution.violations[0].message


def test_an_access_outside_every_allocation_is_reported_and_not_performed() -> None:
    def host(fabric: SimulatedFabric) -> None:
        small = torch.zeros(2, dtype=torch.int32)
        plain_read_at[(1,)](small, 1 << 20, torch.empty(1, dtype=torch.int32))
        fabric.synchronize()

    execution = run([host])
    assert found(execution) == ["out-of-bounds"]
    assert "plain_read_at" in execution.violations[0].message


@triton.jit
def plain_read_at(source, offset, out):
    """Copy one element at an offset."""
    tl.store(out, tl.load(source + offset))


@triton.jit
def send_with_store(table, peer, N: tl.constexpr):
    """Store a tile at a peer, then publish its flag with an atomic store."""
    base = tl.load(table + peer)
    lanes = tl.arange(0, N)
    tl.store((base + 256).to(tl.pointer_type(tl.int32)) + lanes, lanes)
    tl.atomic_store(base.to(tl.pointer_type(tl.int64)), 1, sem="release", scope="sys")


@triton.jit
def receive_with_poll(base, out, EXPECTED: tl.constexpr, N: tl.constexpr):
    """Poll until the flag holds a value, then read the tile."""
    tl.atomic_poll(base.to(tl.pointer_type(tl.int64)), EXPECTED, sem="acquire", scope="sys")
    lanes = tl.arange(0, N)
    tl.store(out + lanes, tl.load((base + 256).to(tl.pointer_type(tl.int32)) + lanes))


@triton.jit
def receive_with_load(base, out, ORDER: tl.constexpr, N: tl.constexpr):
    """Poll with atomic loads of an order, then read the tile."""
    flag = base.to(tl.pointer_type(tl.int64))
    while tl.atomic_load(flag, sem=ORDER, scope="sys") < 1:
        pass
    lanes = tl.arange(0, N)
    tl.store(out + lanes, tl.load((base + 256).to(tl.pointer_type(tl.int32)) + lanes))


def pass_with(receiver: Any, argument: Any) -> list[Callable[[SimulatedFabric], Any]]:
    """Return host programs that publish with an atomic store and receive with ``receiver``."""

    def host(fabric: SimulatedFabric) -> list[int] | None:
        buffer = zeroed(fabric, DATA + 4 * LANES)
        if fabric.rank == 0:
            send_with_store[(1,)](buffer.peer_addresses, 1, LANES)
            fabric.synchronize()
            return None
        out = torch.empty(LANES, dtype=torch.int32)
        receiver[(1,)](buffer.local.data_ptr(), out, argument, LANES)
        fabric.synchronize()
        return out.tolist()

    return [host, host]


@pytest.mark.parametrize("schedule", ["default", "round-robin", "random:5"])
@pytest.mark.parametrize(
    ("receiver", "argument"), [(receive_with_poll, 1), (receive_with_load, "acquire")], ids=["poll", "load"]
)
def test_atomic_store_load_and_poll_pass_a_tile(receiver: Any, argument: Any, schedule: str) -> None:
    execution = run(pass_with(receiver, argument), "triton-3.9", schedule)
    assert found(execution) == []
    assert execution.results[1] == list(range(LANES))


def test_a_relaxed_atomic_load_races_and_a_poll_for_another_value_is_a_deadlock() -> None:
    assert found(run(pass_with(receive_with_load, "relaxed"), "triton-3.9")) == ["race"]
    assert found(run(pass_with(receive_with_poll, 2), "triton-3.9")) == ["deadlock"]


@triton.jit
def poll_for_a_while(flag, out):
    """Poll with a time-out, and store whether the value came."""
    tl.store(out, tl.atomic_poll(flag, 1, sem="acquire", scope="sys", timeout_ns=1000).to(tl.int32))


def test_a_poll_with_a_time_out_gives_up_when_time_passes() -> None:
    def host(fabric: SimulatedFabric) -> int:
        flag, out = torch.zeros(1, dtype=torch.int64), torch.empty(1, dtype=torch.int32)
        poll_for_a_while[(1,)](flag, out)
        fabric.synchronize()
        return int(out)

    scheduler = make_scheduler("default")
    scheduler.begin()
    execution = simulate([host], scheduler, Settings(lowering="triton-3.9", tolerate_stalls=True))
    assert found(execution) == []
    assert execution.results == [0]
    assert execution.stalls == 1
    assert found(run([host], "triton-3.9")) == ["deadlock"]


@triton.jit
def send_to_all(table, BARRIER: tl.constexpr, W: tl.constexpr, N: tl.constexpr):
    """Store a tile at every peer, then let one lane per peer publish."""
    lanes = tl.arange(0, N)
    for peer in tl.static_range(W):
        tl.store((tl.load(table + peer) + 256).to(tl.pointer_type(tl.int32)) + lanes, lanes)
    if BARRIER:
        tl.debug_barrier()
    flags = tl.load(table + tl.arange(0, W)).to(tl.pointer_type(tl.int64))
    tl.atomic_xchg(flags, tl.full((W,), 1, tl.int64), sem="release", scope="sys")


@triton.jit
def receive_by_lanes(base, out, BARRIER: tl.constexpr, W: tl.constexpr, N: tl.constexpr):
    """Let several lanes poll, and all of them read the tile."""
    flags = base.to(tl.pointer_type(tl.int64)) + tl.zeros((W,), tl.int32)
    seen = tl.atomic_add(flags, tl.zeros((W,), tl.int64), sem="acquire", scope="sys")
    while tl.min(seen, axis=0) < 1:
        seen = tl.atomic_add(flags, tl.zeros((W,), tl.int64), sem="acquire", scope="sys")
    if BARRIER:
        tl.debug_barrier()
    lanes = tl.arange(0, N)
    tl.store(out + lanes, tl.load((base + 256).to(tl.pointer_type(tl.int32)) + lanes))


@pytest.mark.parametrize(
    ("before", "after", "expected"), [(True, True, []), (False, True, ["race"]), (True, False, ["race"])]
)
def test_lanes_that_release_and_acquire_need_barriers_around(before: bool, after: bool, expected: list[str]) -> None:
    def host(fabric: SimulatedFabric) -> None:
        buffer = zeroed(fabric, DATA + 4 * LANES)
        if fabric.rank == 0:
            send_to_all[(1,)](buffer.peer_addresses, before, 2, LANES)
        else:
            receive_by_lanes[(1,)](buffer.local.data_ptr(), torch.empty(LANES, dtype=torch.int32), after, 2, LANES)
        fabric.synchronize()

    for lowering in ("triton-3.6", "triton-3.9"):
        assert found(run([host, host], lowering)) == expected


@triton.jit
def read_one_address_by_many_lanes(source, out, N: tl.constexpr):
    """Let every lane of every program read the same element."""
    lanes = tl.arange(0, N)
    tl.store(out + tl.program_id(0) * N + lanes, tl.load(source + lanes * 0))


@triton.jit
def overwrite(target, N: tl.constexpr):
    """Overwrite a tile."""
    lanes = tl.arange(0, N)
    tl.store(target + lanes, lanes)


@pytest.mark.parametrize(("streams", "expected"), [((0, 0), []), ((0, 1), ["race"])])
def test_every_one_of_many_unordered_readers_is_remembered(streams: tuple[int, int], expected: list[str]) -> None:
    def host(fabric: SimulatedFabric) -> None:
        source = torch.ones(LANES, dtype=torch.int32)
        out = torch.empty(3 * LANES, dtype=torch.int32)
        with fabric.stream(streams[0]):
            read_one_address_by_many_lanes[(3,)](source, out, LANES)
        with fabric.stream(streams[1]):
            overwrite[(1,)](source, LANES)
            overwrite[(1,)](source, LANES)
        fabric.synchronize()

    for schedule in ("default", "round-robin", "random:1"):
        assert found(run([host], schedule=schedule)) == expected
