"""Every barrier of the CuTeDSL selector is needed, as a race without it shows, or proven to order nothing."""

from dataclasses import replace
from functools import cache

import pytest

from tiebreak.impl.specialization import SelectorSpecialization
from tiebreak.ptx.audit import NEEDED, UNREACHED, audit_kernel
from tiebreak.ptx.representatives import draw_inputs, list_open
from tiebreak.ptx.selector_rows import draw_rows
from tiebreak.sim.ptx.findings import FindingError
from tiebreak.sim.ptx.races import RaceDetector
from tiebreak.sim.ptx.removal import remove_instruction

pytestmark = pytest.mark.cutedsl

ARCHITECTURE = "sm_100a"
SELECTORS = {
    "set": SelectorSpecialization(threads=128, vectors=1),
    "order": SelectorSpecialization(threads=128, vectors=1, contract="order", slots=256),
}
WITNESSES = (
    "normal, best 1", "normal, best 128", "eight levels, best 128", "eight levels, best 255", "all equal",
    "all equal, one id", "all equal, few ids", "all equal, ids in clusters", "4 twins at the cut, best one",
    "12 twins at the cut", "65 at the cut", "65 tied at the cut", "100 tied beside others at the cut",
    "many magnitudes",
)  # fmt: skip
"""Rows that show what is needed, full, with a NaN and short; the others have shown no more on these selectors."""


@cache
def list_inputs(contract):
    named = {f"{name}{form}" for name in WITNESSES for form in ("", "; a NaN", "; not full")}
    inputs = [each for each in draw_inputs(SELECTORS[contract].name, ARCHITECTURE) if each.name in named]
    # Without source positions, for which the kernel would be compiled once more.
    code = replace(inputs[0].prepared.code, explain=None)
    return [replace(each, prepared=replace(each.prepared, code=code)) for each in inputs]


@cache
def audit(contract):
    return audit_kernel(list_inputs(contract))


def list_barriers(contract, role="barrier"):
    return [each for each in audit(contract).verdicts if each.edge.role == role]


@pytest.mark.parametrize("contract", SELECTORS)
def test_the_selector_has_no_findings_as_it_is(contract):
    assert audit(contract).findings == ()


@pytest.mark.parametrize("contract", SELECTORS)
def test_every_barrier_is_needed_or_proven_redundant(contract):
    barriers = list_barriers(contract)
    assert any(each.status == NEEDED for each in barriers)
    assert [(each.edge.instruction.line, each.argument) for each in list_open(barriers)] == []


@pytest.mark.parametrize("contract", SELECTORS)
def test_barriers_of_warps_order_nothing_on_any_row(contract):
    # They let diverged lanes come together, which votes are faster after; no lane reads what another one wrote.
    warps = list_barriers(contract, "warp barrier")
    assert warps and all(each.status not in (NEEDED, UNREACHED) for each in warps)


@pytest.mark.parametrize("contract", SELECTORS)
def test_what_is_redundant_is_so_together(contract):
    assert audit(contract).together is None


def test_a_kernel_without_a_needed_barrier_races_when_it_is_run():
    needed = [each for each in list_barriers("set") if each.status == NEEDED]
    inputs = list_inputs("set")
    for verdict in (needed[0], needed[len(needed) // 2], needed[-1]):
        prepared = inputs[int(verdict.shown_by.split()[1]) - 1].prepared
        kernel = remove_instruction(prepared.code.kernel, verdict.edge.instruction.index)
        detector = RaceDetector()
        try:
            prepared.perform(prepared.place_arguments(), detector, kernel)
        except FindingError:
            detector.finish()
        assert any(finding.kind == "race" for finding in detector.findings)


def test_rows_are_repeatable_and_lead_everywhere():
    first, second = ([row.candidates.tobytes() for row in draw_rows(SELECTORS["set"], seed)] for seed in (0, 0))
    assert first == second
    names = [row.name for row in draw_rows(SELECTORS["set"])]
    assert len(names) == len(set(names)) and {f"{name}; a NaN" for name in WITNESSES} - set(names) == set()
    assert all(len(row.ids) % 2 == 0 and row.k >= 1 for row in draw_rows(SELECTORS["order"]))
