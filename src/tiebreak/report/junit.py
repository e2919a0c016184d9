"""The report as JUnit XML, one suite per backend and one for the mutants.

The replay command of a failure is a property of its test case, where CI
services show it, and part of the failure text.  A property that does not apply
to a backend is a skipped case, so that it is not counted as passed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from tiebreak.report.model import Cell, MutantResult, Report

# Characters that XML 1.0 section 2.2 does not allow, not even as references.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def encode_junit(report: Report) -> bytes:
    """Encode a report as JUnit XML."""
    root = Element("testsuites", name="tiebreak verify", time=f"{report.seconds:.3f}")
    for backend in dict.fromkeys(cell.backend for cell in report.cells):
        suite = _add_suite(root, backend, report.started)
        for cell in report.cells:
            if cell.backend == backend:
                _add_cell(suite, cell)
    if report.mutants:
        suite = _add_suite(root, "mutants", report.started)
        for mutant in report.mutants:
            _add_mutant(suite, mutant)
    for suite in root:
        suite.set("tests", str(len(suite.findall("testcase"))))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _add_suite(root: Element, name: str, started: str) -> Element:
    return SubElement(root, "testsuite", name=_clean(name), timestamp=_clean(started), errors="0")


def _add_case(suite: Element, name: str, replays: Iterable[str], seconds: float = 0.0) -> Element:
    classname = f"tiebreak.verify.{suite.get('name')}"
    case = SubElement(suite, "testcase", name=_clean(name), classname=classname, time=f"{seconds:.3f}")
    commands = [command for command in replays if command]
    if commands:
        properties = SubElement(case, "properties")
        for command in commands:
            SubElement(properties, "property", name="replay", value=_clean(command))
    return case


def _add_cell(suite: Element, cell: Cell) -> None:
    case = _add_case(suite, cell.property, (failure.replay for failure in cell.failures), cell.seconds)
    if cell.result == "not applicable":
        SubElement(case, "skipped", message="not applicable to this backend")
    if cell.result == "failed":
        texts = [
            f"{one.message}\n\n{one.table}\n\nschedule: {one.schedule}\nreplay: {one.replay}" for one in cell.failures
        ]
        first = cell.failures[0].message if cell.failures else "failed"
        SubElement(case, "failure", message=_clean(first)).text = _clean("\n\n".join(texts))


def _add_mutant(suite: Element, mutant: MutantResult) -> None:
    case = _add_case(suite, mutant.name, [mutant.replay])
    if not mutant.killed:
        SubElement(case, "failure", message="survived").text = _clean(f"no property noticed: {mutant.rule}")


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
