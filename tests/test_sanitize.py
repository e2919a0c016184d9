"""The program that runs under sanitizers, and how reports are noticed, with a stand-in for compute-sanitizer."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from tiebreak.backends import sanitize
from tiebreak.backends.reference import SpecBackend
from tiebreak.errors import InputError, MissingBackendError

CLEAN = {
    "memcheck": "========= ERROR SUMMARY: 0 errors",
    "synccheck": "========= ERROR SUMMARY: 0 errors",
    "racecheck": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
}


class Wrong(SpecBackend):
    """A backend that is wrong where there is one slot."""

    def select(self, *arguments: Any) -> Any:
        ids = super().select(*arguments)
        return ids - 1 if ids.shape[1] == 1 else ids


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, output: str, status: int = 0) -> None:
    """Put a compute-sanitizer on the PATH that prints ``output``."""
    tool = folder / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\necho '{output}'\nexit {status}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))


@pytest.mark.parametrize("tool", CLEAN)
def test_a_tool_without_a_report_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tool: str) -> None:
    install(monkeypatch, tmp_path, CLEAN[tool])
    assert sanitize.main([tool]) == 0


@pytest.mark.parametrize(
    ("tool", "output", "status"),
    [
        ("memcheck", CLEAN["memcheck"], 1),
        ("memcheck", "========= ERROR SUMMARY: 2 errors", 0),
        ("synccheck", "========= ERROR SUMMARY: 10 errors", 0),
        ("racecheck", "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)", 0),
        ("racecheck", "========= Error: Device not supported", 0),
    ],
)
def test_any_report_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any, tool: str, output: str, status: int
) -> None:
    install(monkeypatch, tmp_path, output, status)
    assert sanitize.main([tool]) == 1
    assert f"under: {tool}" in capsys.readouterr().out


def test_tools_run_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    install(monkeypatch, tmp_path, "$0 $@ " + CLEAN["memcheck"])
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(tool.read_text().replace("'", '"'))
    assert sanitize.main(["memcheck", "--implementation", "triton"]) == 0
    command = capsys.readouterr().out
    assert "--tool memcheck --error-exitcode 1" in command
    assert "-m tiebreak.backends.sanitize --implementation triton" in command


def test_the_program_alone_says_whether_a_result_was_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitize, "COUNTS", (0, 9))
    for backend, status in ((SpecBackend(), 0), (Wrong(), 1)):
        monkeypatch.setattr(sanitize, "_open_device", lambda backend=backend: backend)
        assert sanitize.main([]) == status


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingBackendError, match="not on the PATH"):
        sanitize.main(["memcheck"])
    with pytest.raises(InputError, match=r"memcheck, synccheck, racecheck, gsan"):
        sanitize.main(["valgrind"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingBackendError, match=r"install Triton 3\.9"):
        sanitize.main(["gsan"])


def test_the_program_reaches_every_contract_arrangement_and_preset() -> None:
    planned = list(sanitize.plan_selections(["cutedsl"]))
    for name, count in (("contract", 2), ("arrangement", 3), ("preset", 4), ("kind", 5), ("k", 4)):
        assert len({getattr(selection, name) for selection in planned}) == count
    assert {merge.discipline for merge in sanitize.plan_merges(["triton"])} == {"alternating", "acknowledged"}


def test_wrong_results_are_counted(capsys: Any) -> None:
    assert sanitize.run_program(SpecBackend(), ["auto"]) == 0
    planned = [selection for selection in sanitize.plan_selections(["auto"]) if selection.k == 1]
    assert sanitize.run_program(Wrong(), ["auto"]) == len(planned)
    assert "expected id" in capsys.readouterr().out
