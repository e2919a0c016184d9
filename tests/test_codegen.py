"""Generated code of every kernel, per architecture: where the barriers and the scopes are.

A process that runs kernels under the interpreter cannot compile them, so the
compiler runs in a process of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiebreak import codegen
from tiebreak.errors import InputError, MissingBackendError
from tiebreak.impl.kernel_binary import read_entry
from tiebreak.impl.kernel_recipes import list_representatives
from tiebreak.impl.kernel_store import find_compiler
from tiebreak.sim.ptx.fidelity import summarise_kernel
from tiebreak.sim.ptx.parser import parse

ARCHITECTURES = codegen.ARCHITECTURES
NAMES = [specimen.name for specimen in codegen.specimens()]
CUTEDSL_NAMES = [recipe.name for recipe in list_representatives("sm_90a")]
PARAMETERS = {"select": "q" * 7 + "i" * 6, "merge": "q" * 16 + "i" * 7}
"""Types of the parameters of CuTeDSL kernels; test_selector and test_fused hold the launches to the same."""


def compile_in_a_process(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the module without the interpreter's switch."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tiebreak.codegen", *arguments]
    return subprocess.run(
        command,
        env={**kept, "COLUMNS": "200", "TRITON_DEFAULT_FP_FUSION": "0", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def outcome(tmp_path_factory) -> tuple[Path, str]:
    """Folder with the PTX of all kernels, and the printed table; without CuTeDSL it says what it leaves out."""
    folder = tmp_path_factory.mktemp("ptx")
    done = compile_in_a_process("--ptx", str(folder))
    left_out = [name for name in CUTEDSL_NAMES if name in done.stderr.replace("\n", "")]
    expected = (0, []) if find_compiler() else (2, CUTEDSL_NAMES)
    assert (done.returncode, left_out) == expected, done.stderr
    return folder, done.stdout


def operations(outcome: tuple[Path, str], name: str, architecture: int) -> list[str]:
    """Return the barriers, atomics and accesses to global memory of a kernel, in text order."""
    text = Path(outcome[0], f"{name}.sm_{architecture}.ptx").read_text()
    return re.findall(r"^\s*(?:@\S+ )?((?:bar|barrier|atom|red|fence|ld\.global|st\.global)\b\S*)", text, re.M)


def is_flag(operation: str, order: str) -> bool:
    """Whether an operation is a flag access of system scope with an order."""
    return {"sys", order} <= set(operation.split("."))


def is_barrier(operation: str) -> bool:
    """Whether an operation makes the threads of the CTA meet."""
    return operation.startswith(("bar.sync", "barrier.sync"))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_compiles(outcome, name, architecture):
    text = Path(outcome[0], f"{name}.sm_{architecture}.ptx").read_text()
    assert f".target sm_{architecture}" in text
    assert re.search(rf"│ {re.escape(name)} +│ sm_{architecture} ", outcome[1])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", PARAMETERS)
def test_cutedsl_kernels_compile_where_there_is_a_compiler(outcome, kind, architecture):
    found = {path.name for path in outcome[0].glob(f"{kind}-*threads=*.sm_{architecture}a.ptx")}
    expected = [name for name in CUTEDSL_NAMES if name.startswith(f"{kind}-") and find_compiler()]
    assert found == {f"{name}.sm_{architecture}a.ptx" for name in expected}
    for name in found:
        text = Path(outcome[0], name).read_text()
        threads = re.search(r"threads=(\d+)", name)[1]
        assert f".target sm_{architecture}a" in text
        assert f".reqntid {threads}" in text
        assert read_entry(text)[1] == PARAMETERS[kind]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_instructions_of_every_kernel_are_exact(outcome, architecture):
    paths = sorted(outcome[0].glob(f"*.sm_{architecture}*.ptx"))
    assert len(paths) >= len(NAMES)
    for path in paths:
        for kernel in parse(path.read_text(), path.name).kernels.values():
            fidelity = summarise_kernel(kernel)
            assert not fidelity.inexact, f"{path.name}: {fidelity.describe()}"
            assert not fidelity.contractions, f"{path.name}: {fidelity.describe()}"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_merges_send_and_poll_whole_packets_and_vote_before_they_read_again(outcome, architecture):
    for name in (name for name in CUTEDSL_NAMES if name.startswith("merge-") and find_compiler()):
        text = Path(outcome[0], f"{name}.sm_{architecture}a.ptx").read_text()

        def find(pattern: str, text: str = text) -> list[int]:
            return [match.start() for match in re.finditer(pattern, text)]

        sends, reads = (find(rf"\b{opcode}\.relaxed\.sys\.global\.(?:v2\.)?b64\b") for opcode in ("st", "ld"))
        votes, bins = find(r"\bbarrier\.cta\.red\b"), find(r"\bred\.shared\.add\b")
        assert sends and len(sends) % 3 == 0, "to the next rank, to this one, and to the others"
        polls = [read for read in reads if read < bins[0]]
        assert polls and sends[-1] < polls[0]
        assert any(polls[-1] < vote < bins[0] for vote in votes), "no row is counted before all of it has come"
        # Whatever a candidate is loaded or stored by is strong: nothing reads or writes one in parts.
        assert not find(r"\bld\.global\.v[24]\.b32\b")
        (release,), (*_, acquire) = find(r"\bst\.release\.sys\b"), find(r"\bld\.acquire\.sys\b")
        assert release < acquire
        assert not find(r"\b(?:ld\.acquire|st\.release)\.(?!sys\b)")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_publish_meets_between_the_row_count_and_the_release(outcome, architecture):
    done = operations(outcome, "publish", architecture)
    (release,) = [place for place, operation in enumerate(done) if is_flag(operation, "release")]
    (store,) = [place for place, operation in enumerate(done) if operation.startswith("st.global")]
    assert any(map(is_barrier, done[store:release]))
    assert not [operation for operation in done if operation.startswith(("atom", "red")) and "sys" not in operation]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["wait", "wait_writable", "wait_returned"])
def test_waits_meet_after_the_last_acquire(outcome, name, architecture):
    done = operations(outcome, name, architecture)
    acquires = [place for place, operation in enumerate(done) if is_flag(operation, "acquire")]
    assert acquires
    assert any(map(is_barrier, done[acquires[-1] :]))
    if name == "wait":
        barrier = max(place for place, operation in enumerate(done) if is_barrier(operation) and place > acquires[-1])
        later = [place for place, operation in enumerate(done) if operation == "ld.global.b64"]
        assert any(place > acquires[-1] for place in later), "the row count is read after the flag"
        first_barrier = next(place for place in range(acquires[-1], barrier + 1) if is_barrier(done[place]))
        assert not [place for place in later if acquires[-1] < place < first_barrier]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_complete_acknowledges_to_every_rank_and_advances_last(outcome, architecture):
    done = operations(outcome, "complete+acknowledge", architecture)
    releases = [place for place, operation in enumerate(done) if is_flag(operation, "release")]
    assert len(releases) == 8
    assert is_barrier(done[-2])
    assert done[-1].startswith("st.global")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_released_or_acquired_below_system_scope(outcome, name, architecture):
    orders = {"release", "acquire", "acq_rel"}
    ordered = [operation for operation in operations(outcome, name, architecture) if orders & set(operation.split("."))]
    assert all("sys" in operation.split(".") for operation in ordered)


def test_misuse_is_refused():
    done = compile_in_a_process("--architectures", "sm_90")
    assert (done.returncode, "architecture is 'sm_90'" in done.stderr) == (2, True)
    done = compile_in_a_process("--architectures", "90", TRITON_INTERPRET="1")
    assert (done.returncode, "TRITON_INTERPRET" in done.stderr) == (2, True)
    with pytest.raises(InputError):
        codegen._parse_architecture("80")


def test_interpreted_kernels_are_refused():
    with pytest.raises(MissingBackendError, match="TRITON_INTERPRET"):
        codegen.compile_specimen(next(codegen.specimens()), 90)
