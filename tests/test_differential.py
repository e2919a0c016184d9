"""GPUs against the spec on drawn inputs, thousands of them every night; what fails goes to the corpus."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tiebreak.backends import Backend
from tiebreak.backends.registry import form_of
from tiebreak.spec.order import PRESETS
from tiebreak.verify.case import KINDS
from tiebreak.verify.differential import ARRANGEMENTS, IDENTITIES, Selection, keep_failure
from tiebreak.verify.families import base_scenario
from tiebreak.verify.scenario import CONTRACTS, Scenario

CORPUS = Path(__file__).parent / "corpus"
DRAWN = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    # Explaining a failure would run hundreds of further examples.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)

SMALL = st.integers(0, 70)
COUNTS = SMALL | st.integers(0, 20_000) | st.sampled_from([512, 1024, 2048, 2049, 4096, 8192, 16_384, 20_000])
SLOTS = st.integers(1, 70) | st.integers(1, 4096) | st.sampled_from([512, 1024, 2047, 2048, 2049, 4096])


@st.composite
def selections(draw: st.DrawFn, preset: str, contract: str, implementation: str) -> Selection:
    """Selections of up to 20,000 candidates per row."""
    ranks, count = draw(st.integers(1, 8)), draw(COUNTS)
    return Selection(
        ranks=ranks,
        rows=draw(st.sampled_from([1, 2, 3, 0, 17, 160])) if count < 5000 else draw(st.integers(1, 4)),
        local=count // ranks,
        k=draw(SLOTS),
        preset=preset,
        contract=contract,
        arrangement=draw(st.sampled_from(ARRANGEMENTS)),
        implementation=implementation,
        kind=draw(st.sampled_from(list(KINDS))),
        identities=draw(st.sampled_from(IDENTITIES)),
        padding=draw(st.sampled_from([0, 0, 20, 95, 100])),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


@st.composite
def merges(draw: st.DrawFn, backend: str, world_size: int, contract: str) -> Scenario:
    """Merges of up to 24 rows, and of up to 2,048 candidates per rank.

    Kernels of the exchange are compiled for every number of local candidates, so there are few of those.
    """
    length = draw(st.integers(1, 100) | st.integers(1, 6000))
    rows, local = draw(st.integers(0, 24 if length <= 100 else 3)), draw(st.sampled_from([1, 3, 4, 16, 64, 512, 2048]))
    flags = form_of(backend) != "all-gather"
    return base_scenario(
        backend,
        ranks=world_size,
        interleave=draw(st.sampled_from([1, 64])),
        rows=rows,
        k=draw(st.integers(1, 40) | st.integers(1, min(local, 2048))),
        local=local,
        length=length,
        kind=draw(st.sampled_from(list(KINDS))),
        preset=draw(st.sampled_from(sorted(PRESETS))),
        contract=contract,
        seed=draw(st.integers(0, 2**16)),
        epochs=draw(st.integers(1, 6)),
        starts=draw(st.booleans()),
        row_counts=draw(st.integers(1, min(rows + 1, 3))),
        mode=draw(st.sampled_from(["eager", "graph"])),
        skew=draw(st.sampled_from([0, 0, 200])),
        owner_rows=draw(st.sampled_from([512, 2])) if flags else 512,
        launches=draw(st.sampled_from(["auto", "separate"])),
    )


@pytest.mark.gpu
@pytest.mark.transports("alternating")
@pytest.mark.parametrize("implementation", ["auto", "triton"])
@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_drawn_selections_are_the_spec_s(backend: Backend, preset: str, contract: str, implementation: str) -> None:
    with keep_failure(CORPUS) as run:
        DRAWN(given(drawn=selections(preset, contract, implementation))(lambda drawn: run(backend, drawn)))()


@pytest.mark.gpu
@pytest.mark.transports("alternating", "acknowledged", "all-gather")
@pytest.mark.parametrize("contract", CONTRACTS)
def test_drawn_merges_are_the_spec_s(backend: Backend, world_size: int, contract: str) -> None:
    with keep_failure(CORPUS) as run:
        DRAWN(given(drawn=merges(backend.name, world_size, contract))(lambda drawn: run(backend, drawn)))()
