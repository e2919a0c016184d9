"""Every mutant is killed by a property it was meant to break, and its replay kills it again."""

from __future__ import annotations

import pytest

from tiebreak.backends.simulated import SimulatedBackend
from tiebreak.errors import InputError
from tiebreak.mutants.catalogue import MUTANTS
from tiebreak.mutants.loader import Edit, apply_edits, load_mutated
from tiebreak.verify.judgement import judge
from tiebreak.verify.mutation import mutated_backend, run_mutant
from tiebreak.verify.scenario import parse_scenario

REQUIRED = {
    "no-wait-before-overwrite",
    "acknowledge-before-select",
    "publish-before-push",
    "no-wait-for-publish",
    "relaxed-publish",
    "relaxed-wait",
    "gpu-scope-publish",
    "gpu-scope-wait",
    "epoch-frozen-at-capture",
    "one-buffer-where-two-are-needed",
    "empty-shard-skips-the-merge",
    "equality-wait",
    "plain-comparison-at-wrap",
    "id-through-fp32",
    "padding-scores-zero",
    "tie-to-highest-id",
    "ties-at-the-cut-by-position",
    "stale-rows-of-a-shorter-peer",
    "returned-published-before-ids",
    "no-wait-for-returned",
    "relaxed-returned",
    "gpu-scope-returned",
    "ids-returned-to-the-first-rows",
}


def test_the_catalogue_covers_every_rule_of_the_protocol() -> None:
    assert set(MUTANTS) >= REQUIRED
    assert all(mutant.source.startswith("https://") and mutant.rule for mutant in MUTANTS.values())


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_killed_and_stays_killed_on_replay(name: str) -> None:
    result = run_mutant(name)
    assert result.killed, result.message
    assert result.property in MUTANTS[name].properties
    words = result.replay.split()
    scenario = parse_scenario(words[2])
    found = judge(scenario, mutated_backend(MUTANTS[name]).run(scenario, f"replay:{result.schedule}"))
    assert result.property in [finding.property for finding in found]
    clean = judge(scenario, SimulatedBackend(scenario.backend).run(scenario, "default"))
    assert clean == []


def test_a_race_shows_its_events_in_a_column_per_rank() -> None:
    mutant = MUTANTS["relaxed-publish"]
    outcome = mutated_backend(mutant).run(mutant.scenario, "default")
    assert outcome.violations[0][0] == "race"
    header = next(line for line in outcome.table.splitlines() if "step |" in line)
    assert [column.strip() for column in header.split(" | ")] == ["step", "rank 0", "rank 1"]
    assert "atomic xchg relaxed.sys" in outcome.table


def test_a_stale_edit_is_refused() -> None:
    with pytest.raises(InputError, match="occurs 0 times"):
        apply_edits("kernels", "a = 1", [Edit("kernels", "b = 1", "b = 2")])
    with pytest.raises(InputError, match="occurs 2 times"):
        apply_edits("kernels", "a = 1; a = 1", [Edit("kernels", "a = 1", "a = 2")])
    with pytest.raises(InputError, match="no such module"):
        load_mutated("nowhere", [Edit("nowhere", "a", "b")])


def test_a_mutant_leaves_the_original_as_it_is() -> None:
    mutant = MUTANTS["tie-to-highest-id"]
    assert judge(mutant.scenario, mutated_backend(mutant).run(mutant.scenario, "default")) != []
    assert judge(mutant.scenario, SimulatedBackend(mutant.scenario.backend).run(mutant.scenario, "default")) == []
