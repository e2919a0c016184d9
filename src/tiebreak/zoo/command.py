"""``tiebreak zoo``: which broken kernels are caught, and that nothing is said about the correct ones."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from tiebreak.errors import InputError
from tiebreak.sim.ptx.findings import Finding

from . import BROKEN_KERNELS, SOUND_KERNELS
from .examination import Examination, examine
from .specimen import Specimen, list_broken, list_sound


def examine_all(name: str = "", schedule: str = "lockstep") -> Iterator[Examination]:
    """Yield the examinations of the kernels of the zoo, the correct ones first.

    Args:
        name: A kernel, or an empty string for all.
        schedule: Order of the warps.

    Raises:
        InputError: There is no kernel of that name.
    """
    found = False
    for specimen in _list_specimens():
        if name in ("", specimen.name):
            found = True
            yield from (examine(specimen, trial, schedule) for trial in specimen.trials.values())
    if not found:
        raise InputError("kernel", value=name, limit="there is none of that name", remedy="see tiebreak zoo")


def _list_specimens() -> Iterator[Specimen]:
    yield from list_sound(SOUND_KERNELS)
    yield from list_broken(BROKEN_KERNELS)


def print_zoo(name: str, schedule: str, console: Console) -> int:
    """Print a table of the zoo, or everything about one kernel; returns 1 if one was judged wrongly."""
    examinations = list(examine_all(name, schedule))
    if name:
        for examination in examinations:
            _print_findings(examination, console)
    table = Table("kernel", "in", "rule that it breaks", "reported", "PTX lines", "output", "")
    for each in examinations:
        expectation = each.specimen.expectation
        shown = each.expected[:1] or list(each.findings[:1])
        table.add_row(
            each.specimen.name,
            each.specimen.language,
            expectation.rule if expectation else "",
            ", ".join(finding.kind for finding in shown),
            "; ".join(map(_list_lines, shown)),
            "wrong" if each.differences and each.ended else "right" if each.ended else "none",
            "" if each.passed else "MISSED" if expectation else "FALSE REPORT",
        )
    console.print(table)
    failed = [each for each in examinations if not each.passed]
    broken = [each for each in examinations if each.specimen.expectation is not None]
    caught = sum(each.passed for each in broken)
    console.print(f"{caught} of {len(broken)} broken kernels caught; {_count_false(examinations)}")
    return 1 if failed else 0


def _print_findings(examination: Examination, console: Console) -> None:
    expectation = examination.specimen.expectation
    if expectation is not None:
        console.print(f"{expectation.rule}: {expectation.source}", markup=False)
    for finding in examination.findings:
        console.print(str(finding), markup=False)


def _list_lines(finding: Finding) -> str:
    return ", ".join(map(str, sorted(set(finding.lines))))


def _count_false(examinations: list[Examination]) -> str:
    sound = [each for each in examinations if each.specimen.expectation is None]
    failed = sum(not each.passed for each in sound)
    return f"{failed} false reports in {len(sound)} launches of correct kernels"
