"""The explorer finds exactly the published numbers of execution classes, none twice and none in vain."""

from __future__ import annotations

import dataclasses

import pytest

from tiebreak.explore.counts import Expectation, read_manifest

MANIFEST = read_manifest()
LARGE = 6_000
"""Classes up to which each is compared with all others."""


@pytest.mark.parametrize("expectation", MANIFEST, ids=str)
def test_count(expectation: Expectation) -> None:
    distinct = (expectation.classes or 0) < LARGE
    assert expectation.judge(expectation.explore(distinct)) == ""


def test_manifest_can_fail() -> None:
    barrier = next(entry for entry in MANIFEST if entry.classes == 463)
    wrong = dataclasses.replace(barrier, classes=464)
    assert wrong.judge(wrong.explore()) == "463 classes instead of 464"


def test_names_are_distinct() -> None:
    assert len({str(entry) for entry in MANIFEST}) == len(MANIFEST) > 100
