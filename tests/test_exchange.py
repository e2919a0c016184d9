"""The exchange and the whole merge: one body for every backend, world size and schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiebreak.backends import Backend
from tiebreak.verify.case import KINDS
from tiebreak.verify.command import require_clean
from tiebreak.verify.families import EPOCH_ENDS, Effort, base_scenario, plan_layouts
from tiebreak.verify.judgement import judge
from tiebreak.verify.scenario import CONTRACTS

flags_only = pytest.mark.transports("alternating", "acknowledged")
transports_only = pytest.mark.transports("alternating", "acknowledged", "all-gather")


@pytest.mark.parametrize(
    ("kind", "contract"), [*((kind, "order") for kind in KINDS), ("special", "set"), ("ties", "set")]
)
def test_every_rank_returns_the_best_ids(backend: Backend, world_size: int, kind: str, contract: str) -> None:
    scenario = base_scenario(backend.name, ranks=world_size, kind=kind, seed=3, contract=contract)
    require_clean(backend, scenario, "default")


def test_a_row_of_several_tiles_keeps_the_order_of_the_ranks(backend: Backend, world_size: int) -> None:
    scenario = base_scenario(
        backend.name, ranks=world_size, contract="set", k=9, local=16, length=60, epochs=1, data_points=False
    )
    require_clean(backend, scenario, "random:4")


@pytest.mark.parametrize("lowering", ["triton-3.6", "triton-3.9"])
def test_no_schedule_breaks_a_merge(backend: Backend, world_size: int, schedule: str, lowering: str) -> None:
    require_clean(backend, base_scenario(backend.name, ranks=world_size, lowering=lowering, epochs=3), schedule)


@pytest.mark.parametrize("index", range(23))
def test_public_layouts(backend: Backend, index: int) -> None:
    scenario, schedule = list(plan_layouts(backend.name, Effort()))[index]
    require_clean(backend, scenario, schedule)


def test_rows_that_start_at_a_column(backend: Backend) -> None:
    require_clean(backend, base_scenario(backend.name, starts=True, rows=3, kind="special"), "default")


@pytest.mark.parametrize("mode", ["eager", "graph"])
@flags_only
def test_merges_by_owner_and_at_one_hop_follow_one_another(backend: Backend, world_size: int, mode: str) -> None:
    scenario = base_scenario(
        backend.name, ranks=world_size, mode=mode, epochs=6, rows=3, row_counts=3, owner_rows=2, data_points=False
    )
    require_clean(backend, scenario, "random:6")


@flags_only
def test_one_rank_can_exchange_with_itself(backend: Backend) -> None:
    require_clean(backend, base_scenario(backend.name, ranks=1, transport="symmetric", epochs=3), "random:2")


def test_one_resident_program_at_a_time_is_enough(backend: Backend, schedule: str) -> None:
    require_clean(backend, base_scenario(backend.name, rows=3, residency=1), schedule)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.builds(
        dict,
        ranks=st.integers(1, 3),
        interleave=st.sampled_from([1, 2, 4]),
        rows=st.integers(0, 2),
        k=st.integers(1, 6),
        local=st.integers(1, 6),
        length=st.integers(1, 20),
        kind=st.sampled_from(list(KINDS)),
        preset=st.sampled_from(["ieee", "torch", "vllm-cutedsl", "vllm-triton"]),
        seed=st.integers(0, 2**16),
        epochs=st.integers(1, 3),
        starts=st.booleans(),
        contract=st.sampled_from(CONTRACTS),
    ),
    st.integers(0, 2**16),
    st.sampled_from(["random", "pct"]),
)
def test_drawn_merges_under_drawn_schedules(
    backend: Backend, fields: dict[str, object], seed: int, strategy: str
) -> None:
    require_clean(backend, base_scenario(backend.name, **fields), f"{strategy}:{seed}")


@pytest.mark.parametrize("epochs", [4, 5])
@transports_only
def test_a_replayed_graph_merges_fresh_data(backend: Backend, epochs: int, schedule: str) -> None:
    require_clean(
        backend, base_scenario(backend.name, mode="graph", epochs=epochs, rows=1, data_points=False), schedule
    )


@pytest.mark.parametrize("mode", ["eager", "graph"])
@transports_only
def test_the_number_of_rows_changes_between_merges(backend: Backend, world_size: int, mode: str) -> None:
    scenario = base_scenario(
        backend.name, ranks=world_size, mode=mode, epochs=7, rows=2, row_counts=3, skew=100, data_points=False
    )
    require_clean(backend, scenario, "random:5")


@pytest.mark.parametrize("epoch", EPOCH_ENDS)
@flags_only
def test_counters_survive_their_turn_over(backend: Backend, epoch: int, schedule: str) -> None:
    require_clean(backend, base_scenario(backend.name, epoch=epoch, epochs=5, rows=1, k=2, local=2, length=6), schedule)


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("fault", ["fewer-rows", "dead", "one-fewer", "geometry", "rendezvous"])
@flags_only
def test_survivors_of_a_fault_end_in_the_error_that_names_it(
    backend: Backend, fault: str, mode: str, world_size: int, schedule: str
) -> None:
    scenario = base_scenario(backend.name, fault=fault, mode=mode, ranks=world_size, rows=2, k=2, local=2, length=6)
    outcome = backend.run(scenario, schedule)
    assert judge(scenario, outcome) == []
    reached = [error for error in outcome.errors if error is not None]
    assert bool(reached) == (fault != "rendezvous")


@flags_only
def test_a_dead_peer_is_named_with_its_epoch_and_flag(backend: Backend) -> None:
    scenario = base_scenario(backend.name, fault="dead", epochs=3, rows=1, k=2, local=2, length=6)
    error = backend.run(scenario, "default").errors[0]
    assert "rank 0 waited in vain for rank 1" in str(error)
    assert "'published'" in str(error)
    assert "exchange 3" in str(error)


@flags_only
def test_a_failed_rendezvous_leaves_every_rank_on_the_fallback(backend: Backend) -> None:
    scenario = base_scenario(backend.name, fault="rendezvous", ranks=3)
    outcome = backend.run(scenario, "random:3")
    assert judge(scenario, outcome) == []
    collective = backend.run(replace(scenario, fault="none", transport="all-gather"), "random:3")
    for mine, theirs in zip(outcome.outputs[0], collective.outputs[0], strict=True):
        assert (mine == theirs).all()
