"""Where a kernel comes from: process, folders compiled ahead of time, cache, compiler."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tiebreak.errors import InputError, KernelFileError, MissingBackendError
from tiebreak.impl import kernel_store
from tiebreak.impl.kernel_binary import KernelBinary, KernelRecipe
from tiebreak.impl.kernel_files import read_kernel, write_kernel
from tiebreak.impl.kernel_store import fingerprint_sources, obtain_kernel

PTX = ".visible .entry fill(\n.param .u64 fill_param_0\n)\n"


def make_binary(registers: int) -> KernelBinary:
    return KernelBinary("fill-64", "sm_90a", "fill", b"\x7fELF", PTX, registers, 0, 0, 0)


class Compiler:
    """Stands in for the compiler; counts its runs in the registers of what it makes."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, recipe: KernelRecipe) -> KernelBinary:
        self.runs += 1
        return make_binary(self.runs)


class Place:
    """A machine with empty folders."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.ahead, self.cache = folder / "kernel.py", folder / "ahead", folder / "cache"
        self.source.write_text("first")
        self.monkeypatch = monkeypatch
        self.compiler = Compiler()
        monkeypatch.setenv("TIEBREAK_CACHE", str(self.cache))
        monkeypatch.delenv("TIEBREAK_KERNELS", raising=False)
        monkeypatch.setattr(kernel_store, "compile_kernel", self.compiler)
        self.install("4.8.1")
        self.forget()

    def install(self, version: str | None) -> None:
        self.monkeypatch.setattr(kernel_store, "find_compiler", lambda: version)

    def forget(self) -> None:
        """Start a process anew."""
        self.monkeypatch.setattr(kernel_store, "_known", {})

    def obtain(self) -> int:
        return obtain_kernel(KernelRecipe("fill-64", "sm_90a", (self.source,), lambda options: None)).registers


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_a_process_compiles_once_and_the_next_reads_the_cache(place):
    assert (place.obtain(), place.obtain(), place.compiler.runs) == (1, 1, 1)
    place.forget()
    assert (place.obtain(), place.compiler.runs) == (1, 1)


def test_the_cache_belongs_to_sources_and_compiler(place):
    assert place.obtain() == 1
    place.source.write_text("second")
    place.forget()
    assert place.obtain() == 2
    place.install("4.9.0")
    place.forget()
    assert place.obtain() == 3
    place.source.write_text("first")
    place.install("4.8.1")
    place.forget()
    assert place.obtain() == 1


def test_folders_come_before_the_cache_and_need_no_compiler(place):
    assert place.obtain() == 1
    write_kernel(place.ahead, make_binary(77), fingerprint_sources([place.source]))
    place.cache.joinpath("empty").mkdir()
    place.monkeypatch.setenv("TIEBREAK_KERNELS", f"{place.cache / 'empty'}:{place.ahead}")
    place.install(None)
    assert place.obtain() == 1, "a process keeps what it has"
    place.forget()
    assert (place.obtain(), place.compiler.runs) == (77, 1)


def test_a_folder_without_the_kernel_leaves_it_to_the_compiler(place):
    place.ahead.mkdir()
    place.monkeypatch.setenv("TIEBREAK_KERNELS", str(place.ahead))
    assert place.obtain() == 1


def test_a_folder_from_other_sources_is_refused(place):
    write_kernel(place.ahead, make_binary(77), fingerprint_sources([place.source]))
    place.monkeypatch.setenv("TIEBREAK_KERNELS", str(place.ahead))
    place.source.write_text("second")
    with pytest.raises(KernelFileError, match=r"fingerprint in .*fill-64\.sm_90a\.json"):
        place.obtain()
    assert place.compiler.runs == 0


def test_a_damaged_cache_is_refused(place):
    place.obtain()
    place.forget()
    (cubin,) = place.cache.glob("*/*.cubin")
    cubin.write_bytes(b"")
    with pytest.raises(KernelFileError, match="cubin is damaged"):
        place.obtain()


def test_a_missing_compiler_names_kernel_folders_and_remedies(place):
    place.install(None)
    with pytest.raises(
        MissingBackendError, match=r"fill-64 for sm_90a .*TIEBREAK_KERNELS is unset; pip install .*cu13"
    ):
        place.obtain()
    place.ahead.mkdir()
    place.monkeypatch.setenv("TIEBREAK_KERNELS", str(place.ahead))
    with pytest.raises(MissingBackendError, match=rf"TIEBREAK_KERNELS is {place.ahead}; .*tiebreak build --arch"):
        place.obtain()


def test_a_folder_that_is_not_there_is_refused(place):
    place.monkeypatch.setenv("TIEBREAK_KERNELS", str(place.ahead))
    with pytest.raises(InputError, match=r"TIEBREAK_KERNELS is .*ahead.*must name folders"):
        place.obtain()


def test_a_cache_that_cannot_be_written_is_refused(place):
    place.cache.write_text("a file")
    with pytest.raises(KernelFileError, match=r"cache folder .*TIEBREAK_CACHE"):
        place.obtain()


def test_threads_compile_once(place):
    threads = [threading.Thread(target=place.obtain) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert place.compiler.runs == 1


def test_a_failed_compilation_gives_the_lock_back_and_leaves_nothing(place):
    def fail(recipe):
        raise MissingBackendError("no compiler")

    place.monkeypatch.setattr(kernel_store, "compile_kernel", fail)
    with pytest.raises(MissingBackendError, match="no compiler"):
        place.obtain()
    place.monkeypatch.setattr(kernel_store, "compile_kernel", place.compiler)
    assert place.obtain() == 1


PROCESS = """
import sys, time
from pathlib import Path
from tiebreak.impl import kernel_store
from tiebreak.impl.kernel_binary import KernelBinary, KernelRecipe

runs = Path(sys.argv[1], "runs")

def compile_slowly(recipe):
    with runs.open("a") as file:
        file.write("run\\n")
    time.sleep(0.2)
    return KernelBinary("fill-64", "sm_90a", "fill", b"x" * 1_000_000, sys.argv[2], 8, 0, 0, 0)

kernel_store.compile_kernel = compile_slowly
kernel_store.find_compiler = lambda: "4.8.1"
print("ready", flush=True)
sys.stdin.readline()
recipe = KernelRecipe("fill-64", "sm_90a", (Path(sys.argv[1], "kernel.py"),), lambda options: None)
print(len(kernel_store.obtain_kernel(recipe).cubin))
"""


def test_processes_that_start_together_compile_once(place):
    folder = place.source.parent
    command = [sys.executable, "-c", PROCESS, str(folder), PTX]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    outputs = []
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        outputs.append(process.communicate(timeout=60)[0])
    assert outputs == ["1000000\n"] * 3
    assert folder.joinpath("runs").read_text() == "run\n"


def test_the_fingerprint_covers_names_content_and_versions(tmp_path):
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("ab")
    other.write_text("c")
    first = fingerprint_sources([one, other])
    assert fingerprint_sources([other, one]) == first
    assert fingerprint_sources([one, other], "4.8.1") != first
    one.write_text("a")
    other.write_text("bc")
    assert fingerprint_sources([one, other]) != first
    assert fingerprint_sources([one]) != fingerprint_sources([other])


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("TIEBREAK_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kernel_store.locate_cache() == tmp_path / ".cache" / "tiebreak"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert kernel_store.locate_cache() == tmp_path / "xdg" / "tiebreak"
    monkeypatch.setenv("TIEBREAK_CACHE", str(tmp_path / "own"))
    assert kernel_store.locate_cache() == tmp_path / "own"


def test_the_compiler_is_found_without_importing_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cutlass", None)
    assert kernel_store.find_compiler() is None
    monkeypatch.setitem(sys.modules, "cutlass", sys)
    monkeypatch.setattr(kernel_store.importlib.metadata, "version", lambda name: f"{name} 1")
    assert kernel_store.find_compiler() == "nvidia-cutlass-dsl 1"

    def refuse(name):
        raise kernel_store.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(kernel_store.importlib.metadata, "version", refuse)
    assert kernel_store.find_compiler() is None


def test_a_read_kernel_is_the_written_one(place):
    place.obtain()
    (folder,) = place.cache.iterdir()
    fingerprint = fingerprint_sources([place.source], "4.8.1")
    assert folder.name == fingerprint[:16]
    assert read_kernel(folder, "fill-64", "sm_90a", fingerprint) == make_binary(1)
