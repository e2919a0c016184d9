"""Mutants of the exchanges that read between barriers of all ranks, of flags that are reset, and of sentinels."""

from __future__ import annotations

from functools import partial

from tiebreak.sim.protocols.handshakes import RESET, SENTINEL, poll_first_word, send_the_sentinel
from tiebreak.sim.protocols.pull import (
    COUNTERS,
    PADS,
    arrive_by_two_accesses,
    arrive_in_narrow_counter,
    gather_and_reset,
    gather_from_baseline,
    put_at_once,
)
from tiebreak.sim.protocols.steps import GPU, RELAXED

from .protocol_mutant import DEADLOCK, LOST, NEVER, RACE, WRONG, ProtocolMutant

_pads = partial(ProtocolMutant, protocol=PADS)
_counters = partial(ProtocolMutant, protocol=COUNTERS)
_reset = partial(ProtocolMutant, protocol=RESET)
_sentinel = partial(ProtocolMutant, protocol=SENTINEL)

_STALE = (RACE, WRONG)

PAD_MUTANTS = (
    _pads(
        name="no-exit-barrier",
        changed=PADS.drop("put at exit", "take at exit"),
        rule="a buffer is written anew only after all peers have read it",
        source="https://github.com/pytorch/pytorch/pull/137257",
        failures=_STALE,
    ),
    _pads(
        name="no-entry-barrier",
        changed=PADS.drop("put", "take"),
        rule="peers' buffers are read after they have been written",
        source="https://github.com/pytorch/pytorch/issues/191858",
        failures=_STALE,
    ),
    _pads(
        name="relaxed-put",
        changed=PADS.alter("put", order=RELAXED),
        rule="a signal after stores is a release",
        source="https://github.com/pytorch/pytorch/pull/158523",
        failures=_STALE,
    ),
    _pads(
        name="relaxed-take",
        changed=PADS.alter("take", order=RELAXED),
        rule="a signal before loads is an acquire",
        source="https://github.com/vllm-project/vllm/issues/57059",
        failures=_STALE,
    ),
    _pads(
        name="relaxed-put-at-exit",
        changed=PADS.alter("put at exit", order=RELAXED),
        rule="a signal after loads of memory that is written next is a release",
        source="https://github.com/ROCm/aiter/pull/4082",
        failures=_STALE,
    ),
    _pads(
        name="relaxed-take-at-exit",
        changed=PADS.alter("take at exit", order=RELAXED),
        rule="a signal before stores to memory that was read is an acquire",
        source="https://github.com/hw-native-sys/simpler/pull/972",
        failures=_STALE,
    ),
    _pads(
        name="gpu-scope-put",
        changed=PADS.alter("put", scope=GPU),
        rule="a signal for another GPU has system scope",
        source="https://github.com/ROCm/iris/issues/462",
        failures=_STALE,
    ),
    _pads(
        name="put-over-an-untaken-signal",
        changed=PADS.alter("put", action=put_at_once).alter("put at exit", action=put_at_once),
        rule="a place of a pad is signalled again after it was taken",
        source="https://github.com/pytorch/pytorch/pull/158167",
        failures=(LOST, NEVER, DEADLOCK),
    ),
)

COUNTER_MUTANTS = (
    _counters(
        name="no-exit-barrier",
        changed=COUNTERS.drop("arrive at exit", "leave"),
        rule="a buffer is written anew only after all peers have read it",
        source="https://github.com/NVIDIA/nccl/issues/1941",
        failures=(*_STALE, NEVER, DEADLOCK),
    ),
    _counters(
        name="relaxed-arrive",
        changed=COUNTERS.alter("arrive", order=RELAXED),
        rule="arriving is a release",
        source="https://github.com/vllm-project/vllm/pull/8776",
        failures=_STALE,
    ),
    _counters(
        name="gpu-scope-arrive",
        changed=COUNTERS.alter("arrive", scope=GPU).alter("arrive at exit", scope=GPU),
        rule="a counter that several GPUs add to has system scope",
        source="https://github.com/ROCm/iris/issues/462",
        failures=(*_STALE, NEVER, DEADLOCK, LOST),
    ),
    _counters(
        name="lost-update",
        changed=COUNTERS.resize(epochs=1).alter("arrive", action=arrive_by_two_accesses),
        rule="adding to a counter is one atomic operation",
        source="https://github.com/uccl-project/uccl/pull/1052",
        failures=(*_STALE, NEVER, DEADLOCK, LOST),
    ),
    _counters(
        name="one-arrival-too-few",
        changed=COUNTERS.alter("enter", lag=1),
        rule="a barrier waits for every rank",
        source="https://github.com/deepseek-ai/DeepEP/pull/660",
        failures=_STALE,
    ),
    _counters(
        name="equality-on-an-accumulating-counter",
        changed=COUNTERS.alter("enter", comparison="==").alter("leave", comparison="=="),
        rule="a wait for a counter ends at its number or any later one",
        source="https://github.com/uccl-project/uccl/pull/1052",
        failures=(LOST,),
    ),
    _counters(
        name="reset-while-peers-wait",
        changed=COUNTERS.alter("enter", action=gather_and_reset).alter("leave", action=gather_and_reset),
        rule="a counter is not set back once peers may have arrived for the next barrier",
        source="https://github.com/flashinfer-ai/flashinfer/pull/3615",
        failures=(*_STALE, LOST, NEVER, DEADLOCK),
    ),
    _counters(
        name="narrow-counter-turns-over",
        changed=COUNTERS.alter("arrive", action=arrive_in_narrow_counter).alter(
            "arrive at exit", action=arrive_in_narrow_counter
        ),
        rule="counters are compared so that they survive their turn-over",
        source="https://github.com/NVIDIA/nccl/issues/2352",
        failures=(NEVER, DEADLOCK, LOST),
    ),
    _counters(
        name="baseline-read-late",
        changed=COUNTERS.alter("enter", action=gather_from_baseline),
        rule="the number that a wait counts from is taken before the rank arrives",
        source="https://github.com/ROCm/iris/pull/443",
        failures=(NEVER, DEADLOCK, LOST),
    ),
)

RESET_MUTANTS = (
    _reset(
        name="reset-after-peers-may-have-signalled",
        changed=RESET.move("reset ready", before="wait done"),
        rule="a flag is set back before the peer is told that it may set it again",
        source="https://github.com/vllm-project/vllm/pull/8558",
        failures=(LOST,),
    ),
    _reset(
        name="no-done-flag",
        changed=RESET.drop("set done", "wait done", "reset done"),
        rule="a flag is set again only after its reader has set it back",
        source="https://github.com/lightseekorg/tokenspeed/pull/1017",
        failures=(*_STALE, LOST),
    ),
    _reset(
        name="relaxed-done",
        changed=RESET.alter("set done", order=RELAXED),
        rule="what tells a peer that it may go on is a release",
        source="https://github.com/vllm-project/vllm/issues/8404",
        failures=(*_STALE, LOST),
    ),
    _reset(
        name="flag-never-reset",
        changed=RESET.drop("reset ready"),
        rule="a flag without a version is set back before the next exchange",
        source="https://github.com/ROCm/iris/issues/465",
        failures=_STALE,
    ),
    _reset(
        name="zeroed-after-handles-were-exchanged",
        changed=RESET.move("zero", before="launch"),
        rule="flags are zeroed before a peer can know their address",
        source="https://github.com/apache/tvm/pull/16797",
        failures=(*_STALE, LOST),
    ),
)

SENTINEL_MUTANTS = (
    _sentinel(
        name="relaxed-send",
        changed=SENTINEL.alter("send", order=RELAXED),
        rule="a buffer has been cleared, for everybody, before its sender can go on",
        source="https://github.com/flashinfer-ai/flashinfer/pull/1111",
        failures=(*_STALE, LOST),
    ),
    _sentinel(
        name="relaxed-poll",
        changed=SENTINEL.alter("poll", order=RELAXED),
        rule="who sends into a buffer again has acquired that it was cleared",
        source="https://github.com/flashinfer-ai/flashinfer/pull/1111",
        failures=(*_STALE, LOST),
    ),
    _sentinel(
        name="gpu-scope-send",
        changed=SENTINEL.resize(epochs=2).alter("send", scope=GPU),
        rule="words for another GPU are written at system scope",
        source="https://github.com/ROCm/iris/issues/462",
        failures=(*_STALE, LOST),
    ),
    _sentinel(
        name="two-buffers",
        changed=SENTINEL.resize(slots=2),
        rule="the buffer that is cleared is not the one that peers send to next",
        source="https://github.com/flashinfer-ai/flashinfer/issues/1986",
        failures=(*_STALE, LOST),
    ),
    _sentinel(
        name="buffer-never-cleared",
        changed=SENTINEL.drop("clear"),
        rule="a buffer is cleared before it is used again",
        source="https://github.com/flashinfer-ai/flashinfer/issues/1986",
        failures=_STALE,
    ),
    _sentinel(
        name="sentinel-in-the-data",
        changed=SENTINEL.alter("send", action=send_the_sentinel),
        rule="no payload is the sentinel",
        source="https://github.com/flashinfer-ai/flashinfer/issues/3053",
        failures=(NEVER, DEADLOCK),
    ),
    _sentinel(
        name="one-word-tells-for-two",
        changed=SENTINEL.alter("poll", action=poll_first_word),
        rule="every word that is stored by itself is polled by itself",
        source="https://github.com/vllm-project/vllm/pull/2760",
        failures=_STALE,
    ),
)
