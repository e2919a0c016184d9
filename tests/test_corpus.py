"""The corpus of inputs that failed once, on every backend, and the means that keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiebreak.backends import Backend
from tiebreak.backends.reference import SpecBackend
from tiebreak.errors import InputError
from tiebreak.verify.case import KINDS
from tiebreak.verify.checks import compare_selection
from tiebreak.verify.differential import (
    IDENTITIES,
    Selection,
    compare_with_spec,
    keep_failure,
    load_failure,
    require_same,
    rerun,
    save_failure,
)
from tiebreak.verify.scenario import Scenario

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(CORPUS.glob("*.txt"))


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
    drawn = st.builds(Selection, ranks=st.integers(1, 3), local=st.integers(0, 40), k=st.integers(1, 9))
    wrong = Wrong()
    with pytest.raises(AssertionError, match="expected id"), keep_failure(tmp_path) as run:
        settings(database=None, derandomize=True)(given(drawn=drawn)(lambda drawn: run(wrong, drawn)))()
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
