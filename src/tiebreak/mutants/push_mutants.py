"""Mutants of the exchanges that push: order, scope, barriers, waits, slots and epochs of flags."""

from __future__ import annotations

from functools import partial

from tiebreak.sim.explorer.operations import Order
from tiebreak.sim.protocols.push import ACKNOWLEDGED, ALTERNATING, FENCED, publish_to_all_but_one, wait_for_one
from tiebreak.sim.protocols.steps import (
    ACQUIRE,
    CTA,
    GPU,
    RELAXED,
    begin_frozen,
    begin_on_host,
)

from .protocol_mutant import LOST, NEVER, RACE, WRONG, ProtocolMutant

_alternating = partial(ProtocolMutant, protocol=ALTERNATING)
_acknowledged = partial(ProtocolMutant, protocol=ACKNOWLEDGED)
_fenced = partial(ProtocolMutant, protocol=FENCED)

_STALE = (RACE, WRONG)

ALTERNATING_MUTANTS = (
    _alternating(
        name="relaxed-publish",
        changed=ALTERNATING.alter("publish", order=RELAXED),
        rule="publishing an epoch is a release",
        source="https://github.com/vllm-project/vllm/issues/8404",
        failures=_STALE,
    ),
    _alternating(
        name="plain-publish",
        changed=ALTERNATING.alter("publish", order=Order.WEAK),
        rule="a flag is written by a strong store",
        source="https://github.com/ROCm/aiter/pull/3290",
        failures=_STALE,
    ),
    _alternating(
        name="acquire-for-release",
        changed=ALTERNATING.alter("publish", order=ACQUIRE),
        rule="what publishes an epoch orders the accesses before it, not those after it",
        source="https://github.com/triton-lang/triton/pull/11081",
        failures=_STALE,
    ),
    _alternating(
        name="relaxed-wait",
        changed=ALTERNATING.alter("wait", order=RELAXED),
        rule="waiting for an epoch is an acquire",
        source="https://github.com/NVIDIA/nvshmem/issues/75",
        failures=_STALE,
    ),
    _alternating(
        name="plain-wait",
        changed=ALTERNATING.alter("wait", order=Order.WEAK),
        rule="a flag is polled by strong loads",
        source="https://github.com/meta-pytorch/torchcomms/pull/2318",
        failures=_STALE,
    ),
    _alternating(
        name="gpu-scope-publish",
        changed=ALTERNATING.alter("publish", scope=GPU),
        rule="a flag for another GPU is written at system scope",
        source="https://github.com/ROCm/iris/issues/462",
        failures=_STALE,
    ),
    _alternating(
        name="gpu-scope-wait",
        changed=ALTERNATING.alter("wait", scope=GPU),
        rule="a flag from another GPU is read at system scope",
        source="https://github.com/ROCm/aiter/pull/4786",
        failures=_STALE,
    ),
    _alternating(
        name="cta-scope-publish",
        changed=ALTERNATING.alter("publish", scope=CTA),
        rule="a flag for another GPU is not written at the scope of its own CTA",
        source="https://github.com/NVIDIA/cutlass/issues/3324",
        failures=_STALE,
    ),
    _alternating(
        name="cta-scope-wait",
        changed=ALTERNATING.alter("wait", scope=CTA),
        rule="a flag from another GPU is not read at the scope of the reader's CTA",
        source="https://github.com/NVIDIA/cutlass/pull/3647",
        failures=_STALE,
    ),
    _alternating(
        name="gpu-scope-both",
        changed=ALTERNATING.alter("publish", scope=GPU).alter("wait", scope=GPU),
        rule="two sides at one scope that is too narrow do not synchronise either",
        source="https://github.com/triton-lang/triton/pull/5580",
        failures=_STALE,
    ),
    _alternating(
        name="flag-before-data",
        changed=ALTERNATING.move("publish", before="push"),
        rule="an epoch is published after its candidates were pushed",
        source="https://github.com/NVIDIA/nvshmem/pull/36",
        failures=_STALE,
    ),
    _alternating(
        name="no-wait",
        changed=ALTERNATING.drop("wait"),
        rule="a selection waits until every peer has published",
        source="https://github.com/ROCm/rocm-systems/pull/8954",
        failures=_STALE,
    ),
    _alternating(
        name="wait-after-read",
        changed=ALTERNATING.move("wait", before="settle"),
        rule="the wait comes before what is read because of it",
        source="https://github.com/facebookexperimental/CUTracer/pull/106",
        failures=_STALE,
    ),
    _alternating(
        name="wait-for-one-peer",
        changed=ALTERNATING.resize(ranks=3, lanes=1).alter("wait", action=wait_for_one),
        rule="a selection waits for every peer, not for one",
        source="https://github.com/uccl-project/uccl/pull/1052",
        failures=_STALE,
    ),
    _alternating(
        name="a-peer-is-not-told",
        changed=ALTERNATING.resize(ranks=3, lanes=1).alter("publish", action=publish_to_all_but_one),
        rule="every peer is told the epoch",
        source="https://github.com/NVIDIA/nccl/issues/2119",
        failures=(NEVER,),
    ),
    _alternating(
        name="one-lane-signals-for-many",
        changed=ALTERNATING.drop("gather"),
        rule="a barrier of the CTA comes between the stores of all lanes and the release of one",
        source="https://github.com/triton-lang/triton/pull/10816",
        failures=_STALE,
    ),
    _alternating(
        name="one-lane-waits-for-many",
        changed=ALTERNATING.drop("spread"),
        rule="a barrier of the CTA comes between the acquire of one lane and the loads of all",
        source="https://github.com/local-inference-lab/b12x/pull/198",
        failures=_STALE,
    ),
    _alternating(
        name="silent-no-op-barrier",
        changed=ALTERNATING.drop("gather", "spread", "settle"),
        rule="a barrier does something",
        source="https://github.com/pytorch/pytorch/issues/191858",
        failures=_STALE,
    ),
    _alternating(
        name="one-slot",
        changed=ALTERNATING.resize(slots=1),
        rule="without acknowledgements, consecutive epochs use different slots",
        source="https://github.com/pytorch/pytorch/pull/137257",
        failures=_STALE,
    ),
    _alternating(
        name="equality-on-a-lapping-counter",
        changed=ALTERNATING.alter("wait", comparison="=="),
        rule="a wait ends at its epoch or any later one",
        source="https://github.com/vllm-project/vllm/issues/8404",
        failures=(LOST,),
    ),
    _alternating(
        name="wait-for-the-epoch-before",
        changed=ALTERNATING.alter("wait", lag=1),
        rule="the epoch awaited is that of this exchange",
        source="https://github.com/deepseek-ai/DeepEP/pull/660",
        failures=_STALE,
    ),
    _alternating(
        name="wait-for-the-epoch-after",
        changed=ALTERNATING.alter("wait", lag=-1),
        rule="no epoch is awaited that nobody publishes before this one has been read",
        source="https://github.com/NVIDIA/nccl/issues/2352",
        failures=("deadlock", NEVER),
    ),
    _alternating(
        name="host-epoch-frozen-at-capture",
        changed=ALTERNATING.alter("begin", action=begin_frozen),
        rule="a replayed graph takes its epoch from device memory",
        source="https://github.com/vllm-project/vllm/pull/46913",
        failures=_STALE,
    ),
    _alternating(
        name="slot-by-host-parity",
        changed=ALTERNATING.alter("begin", action=begin_on_host),
        rule="a slot follows from what all ranks count alike, not from calls that one host has made",
        source="https://github.com/lightseekorg/tokenspeed/pull/1440",
        failures=_STALE,
    ),
    _alternating(
        name="epoch-advanced-before-it-is-read",
        changed=ALTERNATING.drop("boundary"),
        rule="the epoch is read after the kernel before has advanced it",
        source="https://github.com/microsoft/mscclpp/pull/875",
        failures=_STALE,
    ),
    _alternating(
        name="epoch-advanced-by-a-reader",
        changed=ALTERNATING.move("advance", before="push"),
        rule="the epoch is advanced after every lane has read it",
        source="https://github.com/microsoft/mscclpp/pull/875",
        failures=_STALE,
    ),
)


ACKNOWLEDGED_MUTANTS = (
    _acknowledged(
        name="no-wait-before-overwrite",
        changed=ACKNOWLEDGED.drop("wait writable"),
        rule="a slot is overwritten only after its reader acknowledged it",
        source="https://github.com/ROCm/aiter/pull/4082",
        failures=_STALE,
    ),
    _acknowledged(
        name="acknowledge-before-read",
        changed=ACKNOWLEDGED.move("acknowledge", before="read"),
        rule="an epoch is acknowledged after it has been read",
        source="https://github.com/vllm-project/vllm/pull/47348",
        failures=_STALE,
    ),
    _acknowledged(
        name="acknowledged-one-too-early",
        changed=ACKNOWLEDGED.alter("wait writable", lag=2),
        rule="the acknowledgement awaited is that of the epoch before",
        source="https://github.com/deepseek-ai/DeepEP/issues/657",
        failures=_STALE,
    ),
    _acknowledged(
        name="acknowledgement-forgotten",
        changed=ACKNOWLEDGED.drop("acknowledge"),
        rule="a reader acknowledges",
        source="https://github.com/lightseekorg/tokenspeed/pull/1017",
        failures=("deadlock", NEVER),
    ),
    _acknowledged(
        name="relaxed-acknowledge",
        changed=ACKNOWLEDGED.alter("acknowledge", order=RELAXED),
        rule="an acknowledgement is a release",
        source="https://github.com/pytorch/pytorch/pull/158523",
        failures=_STALE,
    ),
    _acknowledged(
        name="relaxed-wait-writable",
        changed=ACKNOWLEDGED.alter("wait writable", order=RELAXED),
        rule="waiting for an acknowledgement is an acquire",
        source="https://github.com/vllm-project/vllm/issues/57059",
        failures=_STALE,
    ),
    _acknowledged(
        name="gpu-scope-acknowledge",
        changed=ACKNOWLEDGED.alter("acknowledge", scope=GPU),
        rule="an acknowledgement for another GPU is written at system scope",
        source="https://github.com/ROCm/iris/issues/462",
        failures=_STALE,
    ),
    _acknowledged(
        name="gpu-scope-wait-writable",
        changed=ACKNOWLEDGED.alter("wait writable", scope=GPU),
        rule="an acknowledgement from another GPU is read at system scope",
        source="https://github.com/ROCm/aiter/pull/4786",
        failures=_STALE,
    ),
    _acknowledged(
        name="acknowledged-by-one-lane-for-many",
        changed=ACKNOWLEDGED.drop("settle"),
        rule="a barrier of the CTA comes between the loads of all lanes and the acknowledgement of one",
        source="https://github.com/NVIDIA/cccl/pull/10627",
        failures=_STALE,
    ),
)

FENCED_MUTANTS = (
    _fenced(
        name="no-fence-before-flag",
        changed=FENCED.drop("fence before publish"),
        rule="a fence comes between the data and a relaxed flag",
        source="https://github.com/ROCm/aiter/pull/3290",
        failures=_STALE,
    ),
    _fenced(
        name="no-fence-after-poll",
        changed=FENCED.drop("fence after wait"),
        rule="a fence comes between a relaxed poll and the data",
        source="https://github.com/ROCm/rocm-systems/pull/8954",
        failures=_STALE,
    ),
    _fenced(
        name="fence-after-flag",
        changed=FENCED.move("fence before publish", before="wait"),
        rule="the fence comes before the flag",
        source="https://github.com/ROCm/aiter/pull/4812",
        failures=_STALE,
    ),
    _fenced(
        name="fence-before-poll",
        changed=FENCED.move("fence after wait", before="wait"),
        rule="the fence comes after the poll that succeeded",
        source="https://github.com/triton-lang/triton/pull/11650",
        failures=_STALE,
    ),
    _fenced(
        name="fence-of-every-lane-before-the-barrier",
        changed=FENCED.move("fence before publish", before="gather").alter("fence before publish", lane=None),
        rule="the lane that stores the flag fences after the barrier of the CTA",
        source="https://github.com/vllm-project/vllm/pull/8558",
        failures=_STALE,
    ),
    _fenced(
        name="fence-of-another-lane",
        changed=FENCED.alter("fence before publish", lane=1),
        rule="the lane that stores the flag is the one that fences",
        source="https://github.com/deepseek-ai/DeepEP/pull/215",
        failures=_STALE,
    ),
    _fenced(
        name="gpu-scope-fence",
        changed=FENCED.alter("fence before publish", scope=GPU),
        rule="the fence before a flag for another GPU has system scope",
        source="https://github.com/ROCm/aiter/pull/4294",
        failures=_STALE,
    ),
    _fenced(
        name="gpu-scope-fence-after-poll",
        changed=FENCED.alter("fence after wait", scope=GPU),
        rule="the fence after a poll of another GPU's flag has system scope",
        source="https://github.com/ROCm/aiter/pull/4786",
        failures=_STALE,
    ),
)
