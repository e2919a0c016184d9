"""Backends against the spec on drawn inputs: thousands of them on a GPU every night, and all that ever failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tiebreak.backends import Backend
from tiebreak.backends.reference import SpecBackend
from tiebreak.backends.registry import form_of
from tiebreak.errors import InputError
from tiebreak.spec.order import PRESETS
from tiebreak.verify.case import KINDS
from tiebreak.verify.checks import compare_selection
from tiebreak.verify.differential import (
    ARRANGEMENTS,
    IDENTITIES,
    Selection,
    compare_with_spec,
    load_failure,
    require_same,
    rerun,
    save_failure,
)
from tiebreak.verify.families import base_scenario
from tiebreak.verify.scenario import CONTRACTS, Scenario

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(CORPUS.glob("*.txt"))
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
    )


@contextmanager
def kept(folder: Path) -> Iterator[Callable[[Any, Any], None]]:
    """Yield a runner of inputs that saves the last one that failed, which is the smallest, in a corpus."""
    failing: list[Any] = []

    def run(backend: Any, drawn: Any) -> None:
        try:
            rerun(backend, drawn)
        except AssertionError:
            failing.append(drawn)
            raise

    try:
        yield run
    finally:
        if failing:
            save_failure(folder, failing[-1])


@pytest.mark.gpu
@pytest.mark.transports("alternating")
@pytest.mark.parametrize("implementation", ["auto", "triton"])
@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_drawn_selections_are_the_spec_s(backend: Backend, preset: str, contract: str, implementation: str) -> None:
    with kept(CORPUS) as run:
        DRAWN(given(drawn=selections(preset, contract, implementation))(lambda drawn: run(backend, drawn)))()


@pytest.mark.gpu
@pytest.mark.transports("alternating", "acknowledged", "all-gather")
@pytest.mark.parametrize("contract", CONTRACTS)
def test_drawn_merges_are_the_spec_s(backend: Backend, world_size: int, contract: str) -> None:
    with kept(CORPUS) as run:
        DRAWN(given(drawn=merges(backend.name, world_size, contract))(lambda drawn: run(backend, drawn)))()


@pytest.mark.transports("alternating")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_failed_once_passes(backend: Backend, path: Path) -> None:
    rerun(backend, load_failure(path))


def test_the_corpus_holds_selections_and_merges() -> None:
    assert {type(load_failure(path)) for path in FILES} == {Selection, Scenario}


class Wrong(SpecBackend):
    """A backend that loses the best candidate of a row from 5 candidates on."""

    name = "wrong"

    def select(self, *arguments: Any) -> Any:
        ids = super().select(*arguments)
        if arguments[0].shape[-2] >= 5 and ids.size:
            ids[0, 0] = -1
        return ids


def test_a_failure_is_kept_in_its_smallest_form(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="expected id"), kept(tmp_path) as run:
        settings(DRAWN, database=None, max_examples=200, derandomize=True)(
            given(drawn=selections("ieee", "order", "auto"))(lambda drawn: run(Wrong(), drawn))
        )()
    (path,) = tmp_path.iterdir()
    kept_selection = load_failure(path)
    assert isinstance(kept_selection, Selection)
    assert (kept_selection.ranks, kept_selection.rows, kept_selection.local, kept_selection.k) == (1, 1, 5, 1)
    with pytest.raises(AssertionError, match="selection local=5"):
        rerun(Wrong(), kept_selection)
    rerun(SpecBackend(), kept_selection)


def test_a_corpus_file_is_one_line_of_text(tmp_path: Path) -> None:
    for failing in (Selection(ranks=3, kind="bits", seed=7), Scenario(ranks=3, starts=True), Selection()):
        path = save_failure(tmp_path, failing)
        assert path == save_failure(tmp_path, failing)
        assert load_failure(path) == failing
    assert len(list(tmp_path.iterdir())) == 3
    (tmp_path / "odd.txt").write_text("cut 3")
    with pytest.raises(InputError, match="selection or merge"):
        load_failure(tmp_path / "odd.txt")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("identities", IDENTITIES)
def test_drawn_candidates_are_what_the_recipe_says(kind: str, identities: str) -> None:
    selection = Selection(ranks=3, rows=2, local=40, k=9, kind=kind, identities=identities, padding=20, seed=5)
    gathered = selection.draw()
    assert gathered.shape == (3, 2, 40, 2)
    ids = gathered[:, 0, :, 1]
    valid = ids[ids >= 0]
    assert 60 < valid.size < 120
    assert (len(set(valid.tolist())) == valid.size) == (identities != "repeated")
    require_same(SpecBackend(), selection)
    actual = SpecBackend().select(gathered, 9, "ieee", "rank-major")
    assert compare_selection(gathered, 9, "ieee", actual) == ""


def test_the_set_contract_keeps_the_order_of_the_candidates() -> None:
    pairs = np.array([[[[0, 8], [1065353216, 3], [0, -1], [1065353216, 9], [0, 5]]]], dtype=np.int32)
    select = SpecBackend().select
    assert select(pairs, 3, "ieee", "rank-major", "order").tolist() == [[3, 9, 5]]
    assert select(pairs, 3, "ieee", "rank-major", "set").tolist() == [[3, 9, 5]]
    assert select(pairs, 5, "ieee", "rank-major", "set").tolist() == [[8, 3, 9, 5, -1]]
    assert select(pairs[:, :, :0], 2, "ieee", "rank-major", "set").tolist() == [[-1, -1]]


class Refusing(SpecBackend):
    """A backend that runs nothing."""

    def select(self, *arguments: Any) -> Any:
        raise InputError("k", value=3, limit="too many")


def test_an_error_of_the_backend_is_a_difference() -> None:
    assert compare_with_spec(SpecBackend(), Selection()) == ""
    assert compare_with_spec(Refusing(), Selection()) == "InputError: k is 3; too many"
