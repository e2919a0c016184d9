"""All mutants of protocols, by protocol and name."""

from __future__ import annotations

from tiebreak.sim.protocols.protocol import Protocol

from .barrier_mutants import COUNTER_MUTANTS, PAD_MUTANTS, RESET_MUTANTS, SENTINEL_MUTANTS
from .group_mutants import GROUP_MUTANTS, LOCK_MUTANTS, RELAY_MUTANTS, ROW_MUTANTS
from .protocol_mutant import ProtocolMutant
from .push_mutants import ACKNOWLEDGED_MUTANTS, ALTERNATING_MUTANTS, FENCED_MUTANTS

PROTOCOL_MUTANTS: dict[str, ProtocolMutant] = {
    mutant.title: mutant
    for mutants in (
        ALTERNATING_MUTANTS, ACKNOWLEDGED_MUTANTS, FENCED_MUTANTS, PAD_MUTANTS, COUNTER_MUTANTS, RESET_MUTANTS,
        SENTINEL_MUTANTS, RELAY_MUTANTS, GROUP_MUTANTS, LOCK_MUTANTS, ROW_MUTANTS,
    )
    for mutant in mutants
}  # fmt: skip

PROTOCOLS: dict[str, Protocol] = {mutant.protocol.name: mutant.protocol for mutant in PROTOCOL_MUTANTS.values()}
