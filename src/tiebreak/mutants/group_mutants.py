"""Mutants of relays, of two exchanges at once, and of the merge in one launch."""

from __future__ import annotations

from functools import partial

from tiebreak.sim.protocols.locks import LOCKS, take_or_give_way, take_own_first
from tiebreak.sim.protocols.relays import (
    CHAIN,
    GROUPS,
    RELAY,
    count_by_store,
    exchange_in_opposite_order,
    exchange_on_one_channel,
)
from tiebreak.sim.protocols.rows import ROWS, finish_as_first, wait_for_first_row
from tiebreak.sim.protocols.steps import GPU, RELAXED

from .protocol_mutant import DEADLOCK, LIVELOCK, LOST, NEVER, RACE, STARVED, WRONG, ProtocolMutant

_relay = partial(ProtocolMutant, protocol=RELAY)
_chain = partial(ProtocolMutant, protocol=CHAIN)
_groups = partial(ProtocolMutant, protocol=GROUPS)
_locks = partial(ProtocolMutant, protocol=LOCKS)
_rows = partial(ProtocolMutant, protocol=ROWS)

_STALE = (RACE, WRONG)

RELAY_MUTANTS = (
    _relay(
        name="relaxed-signal",
        changed=RELAY.alter("signal", order=RELAXED),
        rule="whoever hands a signal on releases what it has acquired",
        source="https://github.com/vllm-project/vllm/issues/8404",
        failures=_STALE,
    ),
    _relay(
        name="relaxed-wait",
        changed=RELAY.alter("wait", order=RELAXED),
        rule="whoever hands a signal on has acquired it",
        source="https://github.com/NVIDIA/nvshmem/issues/75",
        failures=_STALE,
    ),
    _relay(
        name="gpu-scope-wait",
        changed=RELAY.alter("wait", scope=GPU),
        rule="every hop between GPUs has system scope",
        source="https://github.com/ROCm/aiter/pull/4786",
        failures=_STALE,
    ),
    _relay(
        name="signal-before-wait",
        changed=RELAY.move("signal", before="wait"),
        rule="a signal is handed on after it has come",
        source="https://github.com/NVIDIA/nvshmem/pull/36",
        failures=_STALE,
    ),
    _chain(
        name="store-over-a-flag",
        changed=CHAIN.alter("count", action=count_by_store),
        rule="a rank that passes a counter on adds to it; a store breaks the chain from the release",
        source="https://github.com/vllm-project/vllm/pull/2760",
        failures=_STALE,
    ),
    _chain(
        name="gpu-scope-count",
        changed=CHAIN.alter("count", scope=GPU),
        rule="a counter that several GPUs add to has system scope",
        source="https://github.com/ROCm/iris/issues/462",
        failures=(*_STALE, NEVER, LOST),
    ),
)

GROUP_MUTANTS = (
    _groups(
        name="opposite-order",
        changed=GROUPS.alter("exchange", action=exchange_in_opposite_order),
        rule="all ranks take part in collectives in one order",
        source="https://github.com/sgl-project/sglang/issues/31117",
        failures=(DEADLOCK,),
    ),
    _groups(
        name="one-channel-for-two-groups",
        changed=GROUPS.alter("exchange", action=exchange_on_one_channel),
        rule="each group has flags and buffers of its own",
        source="https://github.com/pytorch/pytorch/issues/192581",
        failures=_STALE,
    ),
)

LOCK_MUTANTS = (
    _locks(
        name="own-place-first",
        changed=LOCKS.alter("take", action=take_own_first),
        rule="all ranks take places in one order",
        source="https://github.com/ROCm/rccl/issues/2179",
        failures=(DEADLOCK,),
    ),
    _locks(
        name="give-way-for-ever",
        changed=LOCKS.alter("take", action=take_or_give_way),
        rule="of ranks that give way to each other one gets on",
        source="https://github.com/uccl-project/uccl/pull/903",
        failures=(LIVELOCK,),
        steps=18,
    ),
    _locks(
        name="relaxed-free",
        changed=LOCKS.alter("free", order=RELAXED),
        rule="freeing a place is a release",
        source="https://github.com/vllm-project/vllm/issues/8404",
        failures=_STALE,
    ),
    _locks(
        name="gpu-scope-take",
        changed=LOCKS.alter("take", scope=GPU),
        rule="a place that several GPUs take has system scope",
        source="https://github.com/ROCm/iris/issues/462",
        failures=_STALE,
    ),
)

ROW_MUTANTS = (
    _rows(
        name="more-rows-than-a-device-holds",
        changed=ROWS.resize(residency=1),
        rule="a merge in one launch has no more CTAs than every device holds at once",
        source="https://github.com/vllm-project/vllm/pull/41189",
        failures=(STARVED,),
    ),
    _rows(
        name="released-before-sent",
        changed=ROWS.move("release", before="send"),
        rule="a row is released after it was sent",
        source="https://github.com/ROCm/aiter/pull/4812",
        failures=_STALE,
    ),
    _rows(
        name="wait-for-the-first-row",
        changed=ROWS.alter("wait", action=wait_for_first_row),
        rule="a row waits for its own flag",
        source="https://github.com/ROCm/rocm-systems/pull/8954",
        failures=_STALE,
    ),
    _rows(
        name="one-slot",
        changed=ROWS.resize(slots=1, epochs=2),
        rule="consecutive merges use different slots",
        source="https://github.com/pytorch/pytorch/pull/137257",
        failures=_STALE,
    ),
    _rows(
        name="epoch-advanced-by-the-first",
        changed=ROWS.alter("finish", action=finish_as_first),
        rule="the last CTA to finish advances the epoch",
        source="https://github.com/microsoft/mscclpp/pull/875",
        failures=(*_STALE, LOST, DEADLOCK),
    ),
    _rows(
        name="finished-without-order",
        changed=ROWS.alter("finish", order=RELAXED),
        rule="the last CTA has acquired that the others have read the epoch",
        source="https://github.com/microsoft/mscclpp/pull/875",
        failures=_STALE,
    ),
)
