"""Reports: one record, four forms, and nothing in a message can break any of them."""

from __future__ import annotations

import io
import json
import os
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from rich.console import Console

from tiebreak.errors import InputError
from tiebreak.report import writer
from tiebreak.report.junit import encode_junit
from tiebreak.report.model import (
    Cell,
    Counterexample,
    Failure,
    FaultCount,
    MutantResult,
    Proof,
    Report,
    decode_report,
    encode_report,
    encode_schema,
    schema,
)
from tiebreak.report.page import encode_page
from tiebreak.report.summary import print_summary, verdict
from tiebreak.report.writer import FILES, write_report

HOSTILE = "<script>alert('[red]x')</script> & \"quotes\" \x00\x1b[31m \u2028 ]]>"
LONG_REPLAY = "tiebreak replay 'ranks=2,rows=1' --backend triton-3.9 --schedule replay:" + "0123456789" * 30

FAILURE = Failure(
    property="set",
    backend="simulated",
    message=f"rank 1 lost id 7 {HOSTILE}",
    schedule="0.1.0.1",
    table="rank 0 | rank 1\npush   |\n       | select",
    replay=LONG_REPLAY,
)
CELLS = (
    Cell(property="set", backend="reference", executions=1200, inputs=40, result="passed", seconds=1.25),
    Cell(
        property="set", backend="simulated", executions=7, inputs=2, result="failed", seconds=0.5, failures=(FAILURE,)
    ),
    Cell(property="race freedom", backend="reference", executions=0, inputs=0, result="not applicable", seconds=0.0),
    Cell(property="race freedom", backend="simulated", executions=30, inputs=3, result="passed", seconds=2.0),
)
MUTANTS = (
    MutantResult(
        name="relaxed publish",
        rule="publish releases the pushed candidates",
        killed=True,
        property="race freedom",
        schedule="0.0.1",
        replay="tiebreak replay x --mutant 'relaxed publish'",
        message="a race",
    ),
    MutantResult(
        name="frozen epoch", rule="epochs advance", killed=False, property="", schedule="", replay="", message=""
    ),
)
REPORT = Report(
    tiebreak_version="0.1.0",
    started="2026-01-02T03:04:05+00:00",
    seconds=12.5,
    arguments=("verify", "--seed", "3"),
    versions={"python": "3.11.7", "triton": "3.9.0"},
    seed=3,
    preset="ieee",
    ranks=(1, 2),
    cells=CELLS,
    mutants=MUTANTS,
    inputs=("drawn", HOSTILE),
    exit_status=1,
)
FAULTS = "dies at 1,299 of 1,300 steps; other ranks: PeerLostError 5, PeerTimeoutError 1,234"
EXPLORED = msgspec.structs.replace(
    REPORT,
    cells=(
        msgspec.structs.replace(
            CELLS[3],
            ends={"dies: PeerLostError": 5, "dies: PeerTimeoutError": 1234, "skips: all merges": 7},
            faults=(FaultCount(fault="dies", scenarios=1300, struck=1299, places=1300, hangs=2, wrong=1),),
        ),
    ),
    mutants=(
        msgspec.structs.replace(
            MUTANTS[0],
            checker="explorer",
            seconds=0.25,
            source="https://example.org/bug",
            counterexample=Counterexample(
                switches=3, events=14, candidates=2, replayed=10, attempts=10, table=f"rank 0 | rank 1 {HOSTILE}",
                diagram='<svg xmlns="http://www.w3.org/2000/svg"><line stroke="#d00"/></svg>',
            ),
        ),
    ),
    proofs=(Proof(name="alternating", verdict="PROVED", classes=4096, seconds=0.5),),
)  # fmt: skip
CLEAN = msgspec.structs.replace(REPORT, cells=CELLS[:1], mutants=(), exit_status=0)


def test_json_round_trips() -> None:
    assert decode_report(encode_report(REPORT)) == REPORT
    assert json.loads(encode_report(REPORT))["schema_version"] == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema_version", 2),
        ("exit_status", 3),
        ("seconds", -1.0),
        ("ranks", [0]),
        ("cells", [{"property": "set"}]),
        ("surprise", 1),
    ],
)
def test_json_of_another_form_is_an_input_error(field: str, value: object) -> None:
    changed = {**json.loads(encode_report(REPORT)), field: value}
    with pytest.raises(InputError, match=r"report\.json cannot be read"):
        decode_report(json.dumps(changed).encode())


def test_text_that_is_no_json_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"report\.json cannot be read"):
        decode_report(encode_report(REPORT)[:-20])


def test_published_schema_is_current() -> None:
    published = Path(writer.__file__).with_name("report.schema.json")
    assert published.read_bytes() == encode_schema(), "run python -m tiebreak.report.model"


def test_schema_documents_every_field() -> None:
    definitions = schema()["$defs"]
    for struct in (Report, Cell, Failure, MutantResult):
        definition = definitions[struct.__name__]
        assert set(definition["properties"]) == set(struct.__struct_fields__)
        assert all(f"    {field}: " in definition["description"] for field in struct.__struct_fields__)


def test_junit_counts_and_replay_properties() -> None:
    root = ElementTree.fromstring(encode_junit(REPORT))
    counts = {suite.get("name"): [suite.get(key) for key in ("tests", "failures", "skipped")] for suite in root}
    assert counts == {"reference": ["2", "0", "1"], "simulated": ["2", "1", "0"], "mutants": ["2", "1", "0"]}
    replays = [element.get("value") for element in root.iterfind(".//property[@name='replay']")]
    assert replays == [LONG_REPLAY, MUTANTS[0].replay]
    failure = root.find(".//testcase[@name='set']/failure")
    assert failure is not None
    assert "rank 1 lost id 7 <script>" in failure.get("message", "")
    assert FAILURE.table in (failure.text or "")


class Page(HTMLParser):
    """Text by element, and everything that a page could load."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)


def parse_page(report: Report) -> Page:
    page = Page()
    page.feed(encode_page(report).decode())
    page.close()
    assert page.open == []
    return page


def test_page_is_self_contained_and_escapes_what_it_shows() -> None:
    page = parse_page(REPORT)
    assert page.links == []
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "url(" not in "".join(page.text["style"])
    assert any("<script>alert" in text for text in page.text["p"])


def test_page_shows_failures_and_mutants() -> None:
    page = parse_page(REPORT)
    assert FAILURE.table in page.text["pre"]
    assert LONG_REPLAY in page.text["pre"]
    assert FAILURE.schedule in page.text["code"]
    assert {"1,200", "not applicable", "relaxed publish", "killed", "survived"} <= set(page.text["td"])
    assert [heading for heading in page.text["h2"] if heading.strip()] == ["Properties", "Failures", "Mutants", "Run"]
    assert verdict(REPORT) in page.text["p"]


def test_page_draws_what_the_explorer_found() -> None:
    page = parse_page(EXPLORED)
    assert page.links == [] and {"svg", "line"} <= set(page.tags)
    assert any("rank 0 | rank 1 <script>" in text for text in page.text["pre"])
    assert any("switches (3)" in text and "10 times out of 10" in text for text in page.text["p"])
    assert any(FAULTS in text for text in page.text["p"])
    assert {"explorer", "0.25", "PROVED", "4,096"} <= set(page.text["td"])
    assert "https://example.org/bug" in page.text["small"]
    assert "script" not in page.tags


def test_page_of_a_clean_run_has_no_empty_sections() -> None:
    page = parse_page(CLEAN)
    assert page.text["h2"] == ["Properties", "Run"]
    assert "article" not in page.tags


def print_to_text(report: Report, width: int) -> str:
    stream = io.StringIO()
    print_summary(report, Console(file=stream, width=width, color_system=None))
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 100])
def test_terminal_shows_counts_and_unbroken_replay_commands(width: int) -> None:
    text = print_to_text(REPORT, width)
    lines = text.splitlines()
    assert f"replay: {LONG_REPLAY}" in lines
    assert "[red]x" in text
    assert "1,200" in text
    assert "not applicable" in text
    assert "survived" in text
    assert verdict(REPORT) == (
        "checks failed: 1 of 3, judgements: 1,237 in 12 s, mutants killed by the simulator: 1 of 2 in 0 s; "
        "exit status 1"
    )


def test_terminal_shows_kill_rate_time_and_ends() -> None:
    text = print_to_text(EXPLORED, 100)
    assert "correct: alternating: PROVED, 4,096 classes, 0.50 s" in text
    assert "1,300 scenarios, 2 hangs, 1 wrong results" in text
    assert FAULTS in text
    assert "mutants killed by the explorer: 1 of 1 in 0 s" in text
    assert decode_report(encode_report(EXPLORED)) == EXPLORED


def test_terminal_of_a_clean_run() -> None:
    text = print_to_text(CLEAN, 100)
    assert "Mutants" not in text
    assert text.splitlines()[-1] == "checks passed: 1, judgements: 1,200 in 12 s; exit status 0"


def test_folder_holds_the_three_files_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "report"
    write_report(REPORT, folder)
    write_report(CLEAN, folder)
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert decode_report((folder / "report.json").read_bytes()) == CLEAN
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in folder.iterdir())


def test_interrupted_write_leaves_the_previous_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_report(CLEAN, tmp_path)

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", fail)
    with pytest.raises(InputError, match="No space left"):
        write_report(REPORT, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    assert decode_report((tmp_path / "report.json").read_bytes()) == CLEAN


def test_report_folder_that_is_a_file_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="report folder"):
        write_report(REPORT, path)
