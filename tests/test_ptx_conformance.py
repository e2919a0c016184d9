"""Instruction conformance: golden vectors of a device, replayed bit for bit, and the machinery that records them."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

from tiebreak.conformance.case import Case
from tiebreak.conformance.cases import make_cases
from tiebreak.conformance.kernel_text import ENTRY, make_kernel, output_bytes
from tiebreak.conformance.operands import draw_operands
from tiebreak.conformance.recorder import DEVICE_TARGET, NOT_RECORDED, HungLaunchError, record
from tiebreak.conformance.replay import FILE, Mismatch, compare, measure_error, run_on_machine
from tiebreak.conformance.vectors import Vectors, read_vectors, write_vectors
from tiebreak.errors import DriverError, InputError
from tiebreak.sim.ptx.form import VIEWS
from tiebreak.sim.ptx.parser import parse
from tiebreak.sim.ptx.table import ENTRIES, Entry, find_entry

CASES = make_cases()
PATH = Path(__file__).resolve().parents[1] / FILE
OPCODES = sorted({case.text.split(".")[0].split()[0] for case in CASES})


@cache
def golden() -> Vectors:
    return read_vectors(CASES, PATH)


def of_opcode(opcode: str) -> list[Case]:
    return [case for case in CASES if case.text.split(".")[0].split()[0] == opcode]


@pytest.mark.parametrize("opcode", OPCODES)
def test_machine_gives_what_the_device_gave(opcode: str) -> None:
    replayed = 0
    for case in of_opcode(opcode):
        if case.name not in golden().results or case.approximate:
            continue
        mismatches = compare(case, golden().results[case.name], run_on_machine(case))
        assert not mismatches, f"{len(mismatches)} results differ; the first: {mismatches[0]}"
        replayed += 1
    assert replayed or all(case.approximate for case in of_opcode(opcode))


def test_every_case_of_the_device_was_recorded() -> None:
    missing = [case.name for case in CASES if case.target == DEVICE_TARGET and case.name not in golden().results]
    assert not missing
    others = {case.name for case in CASES if case.target != DEVICE_TARGET}
    assert set(golden().failures) == others
    assert all(why.startswith(NOT_RECORDED) for why in golden().failures.values())


def test_every_exact_instruction_and_type_of_the_table_has_a_case() -> None:
    tried: set[tuple[Entry, str]] = set()
    for case in CASES:
        for instruction in parse(make_kernel(case)).kernels[ENTRY].body:
            entry = find_entry(instruction)
            types = [part for part in instruction.modifiers if part in VIEWS]
            tried.add((entry, types[-1] if entry.types else ""))
    # A policy is no value, so there is nothing to compare.
    wanted = {
        (entry, kind)
        for entry in ENTRIES
        if entry.kind in ("value", "warp", "atomic") and entry.opcode != "createpolicy"
        for kind in entry.types or ("",)
    }
    assert not wanted - tried


def test_names_of_cases_differ() -> None:
    names = sorted(case.name for case in CASES)
    assert [name for name, group in groupby(names) if len(list(group)) > 1] == []


def test_operands_do_not_change() -> None:
    case = next(case for case in CASES if case.text == "add.u32 d, a, b;")
    first, second = (words[:4].tolist() for words in draw_operands(case))
    assert (first, second) == FIRST_OPERANDS


FIRST_OPERANDS = ([8387, 2, 4096116044, 4150655693], [8387, 143589419, 2, 51321])

SOME = tuple(
    case for case in CASES if case.text.startswith(("add.u32", "add.sat", "and.pred", "st.global.b8", "vote.sync.any"))
)


class FakeDevice:
    """Runs kernels on the PTX machine; refuses, varies or hangs where it is told to."""

    name, driver_version = "fake", 13000

    def __init__(self, refuse: str = "", vary: str = "", hang: str = "") -> None:
        self.refuse, self.vary, self.hang = refuse, vary, hang
        self.runs = self.resets = 0
        self.by_text = {make_kernel(case): case for case in SOME}

    def reset(self) -> None:
        self.resets += 1

    def run(self, text: str, operands: bytes, results: int, threads: int) -> bytes:
        case = self.by_text[text]
        self.runs += 1
        if case.name == self.refuse:
            raise DriverError("compilation failed: no such instruction", name="CUDA_ERROR_INVALID_PTX")
        if case.name == self.hang:
            raise HungLaunchError("a launch did not end")
        given = run_on_machine(case)
        raw = b"".join(words.tobytes() for words in given).ljust(output_bytes(case), b"\0") + bytes([0xA5]) * 256
        return raw if case.name != self.vary else bytes([self.runs % 256]) + raw[1:]


def test_recorder_passes_over_what_fails(tmp_path: Path) -> None:
    refused, varied = SOME[0].name, SOME[1].name
    device = FakeDevice(refuse=refused, vary=varied)
    vectors = record(device, SOME)  # type: ignore[arg-type]
    assert "no such instruction" in vectors.failures[refused]
    assert "second time" in vectors.failures[varied]
    assert device.resets == 1
    assert set(vectors.results) == {case.name for case in SOME[2:]}
    write_vectors(vectors, SOME, tmp_path / "vectors.npz")
    again = read_vectors(SOME, tmp_path / "vectors.npz")
    assert again.failures == vectors.failures
    for case in SOME[2:]:
        assert not compare(case, vectors.results[case.name], again.results[case.name])


def test_recorder_stops_at_a_launch_that_hangs() -> None:
    vectors = record(FakeDevice(hang=SOME[1].name), SOME)  # type: ignore[arg-type]
    assert set(vectors.results) == {SOME[0].name}
    assert set(vectors.failures) == {SOME[1].name}


def test_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    vectors = record(FakeDevice(), SOME)  # type: ignore[arg-type]
    write_vectors(vectors, SOME, tmp_path / "vectors.npz")
    longer = tuple(
        Case(case.text, case.sources, case.destinations, case.domains, case.kind, case.count + 64) for case in SOME
    )
    with pytest.raises(InputError, match="record again"):
        read_vectors(longer, tmp_path / "vectors.npz")


def test_mismatch_names_everything() -> None:
    case = next(case for case in CASES if case.text == "add.u32 d, a, b;")
    expected = run_on_machine(case)
    got = (expected[0].copy(),)
    got[0][5] ^= 1
    (mismatch,) = compare(case, expected, got)
    assert isinstance(mismatch, Mismatch)
    text = str(mismatch)
    for part in ("add.u32 d, a, b;", "thread 5", hex(int(expected[0][5])), hex(int(got[0][5])), "conformance replay"):
        assert part in text


def test_replay_command_is_pasteable() -> None:
    name = "add.u32 d, a, b;"
    command = [sys.executable, "-m", "tiebreak.conformance", "replay", str(PATH), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1 cases replayed, 0 with mismatches"


@pytest.mark.gpu
def test_device_gives_what_was_recorded(tmp_path: Path) -> None:
    # In a process of its own: the recorder resets the device's context.
    path = tmp_path / "vectors.npz"
    command = [sys.executable, "-m", "tiebreak.conformance", "record", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    again = read_vectors(CASES, path)
    for case in CASES:
        if case.name in golden().results and not case.approximate:
            assert not compare(case, golden().results[case.name], again.results[case.name])


SCALED = {"sin": 2.0**-20.5, "cos": 2.0**-20.5, "lg2": 2.0**-22}
"""Bounds of the PTX ISA on the absolute error of results up to 1, and on the relative error of larger ones."""

UNITS = {"rcp": 1, "sqrt": 2, "rsqrt": 2, "div": 2, "ex2": 2, "tanh": 1 << 13}
"""Bounds of the PTX ISA in units in the last place; those of tanh in f32 are a relative error of 2**-11."""


@pytest.mark.parametrize("case", [case for case in CASES if case.approximate], ids=lambda case: case.text)
def test_approximate_instructions_are_within_the_bounds_of_the_isa(case: Case) -> None:
    error = measure_error(case, golden().results[case.name], run_on_machine(case))
    opcode = case.text.split(".")[0]
    if opcode in SCALED:
        assert error.scaled <= SCALED[opcode]
    else:
        half = case.destinations[0].startswith(("f16", "bf16"))
        assert error.units <= (1 if half else UNITS[opcode])


def test_approximate_entries_are_those_of_approximate_cases() -> None:
    marked = {entry for entry in ENTRIES if entry.exactness == "approximate"}
    tried = set()
    for case in CASES:
        body = parse(make_kernel(case)).kernels[ENTRY].body
        entries = {find_entry(instruction) for instruction in body}
        assert bool(entries & marked) == case.approximate, case.name
        tried |= entries & marked
    assert tried == marked
