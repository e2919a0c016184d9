"""What a CUDA run needs and no GPU: names, the pool of workers, ranks as streams, and what it may import."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tiebreak.backends import Outcome, collect_results, cuda
from tiebreak.backends.cuda import CudaBackend
from tiebreak.backends.local import StreamBackend
from tiebreak.backends.pool import WorkerPool
from tiebreak.backends.registry import CUDA, expand_names, form_of, make_backend
from tiebreak.backends.streams import StreamFabric, StreamWorld
from tiebreak.errors import InputError, MissingBackendError, PeerTimeoutError, WorkerError, WorkspaceError
from tiebreak.verify.command import require_clean
from tiebreak.verify.differential import Selection, require_same
from tiebreak.verify.judgement import judge
from tiebreak.verify.scenario import Scenario

WORKER = """
import os, sys, time
from tiebreak.backends.pool import serve
from tiebreak.errors import PeerTimeoutError

class Server:
    def __init__(self, index): self.index = index
    def whoami(self): return self.index, os.getpid(), os.environ["PURPOSE"], sys.argv[3:]
    def add(self, left, right): return left + right
    def fail(self): raise PeerTimeoutError("rank 0", peer=1, epoch=2, flag="published", limit="too late")
    def stumble(self): return 1 // 0
    def hang(self): time.sleep(600 * (self.index == 1))
    def die(self): os._exit(3)

serve(int(sys.argv[1]), Server(int(sys.argv[2])))
"""


@pytest.fixture
def pool(tmp_path: Path):
    (tmp_path / "fake_worker.py").write_text(WORKER)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    pool = WorkerPool("fake_worker", 2, ["more"], {"PYTHONPATH": path, "PURPOSE": "test"})
    yield pool
    pool.close()


def test_workers_live_between_requests(pool: WorkerPool) -> None:
    first, second = (pool.request("whoami", timeout=60) for _ in range(2))
    assert first == second
    assert [answer[0] for answer in first] == [0, 1]
    assert all(answer[2] == "test" and answer[3] == ["more"] for answer in first)
    assert pool.request("add", np.ones(3), 2, timeout=60)[1].tolist() == [3, 3, 3]


def test_an_error_of_a_worker_is_raised_here_and_the_pool_lives_on(pool: WorkerPool) -> None:
    with pytest.raises(PeerTimeoutError, match="too late") as caught:
        pool.request("fail", timeout=60)
    assert (caught.value.peer, caught.value.epoch, caught.value.flag) == (1, 2, "published")
    with pytest.raises(WorkerError, match=r"(?s)ZeroDivisionError.*in stumble"):
        pool.request("stumble", timeout=60)
    assert pool.alive
    assert pool.request("add", 1, 2, timeout=60) == [3, 3]


@pytest.mark.parametrize(
    ("method", "reason"), [("hang", r"workers \[1\] did not answer 'hang'"), ("die", r"ended.*codes are \[.*3")]
)
def test_a_late_or_dead_worker_ends_the_pool(pool: WorkerPool, method: str, reason: str) -> None:
    pool.request("add", 1, 2, timeout=60)
    processes = list(pool._processes)
    with pytest.raises(WorkerError, match=reason):
        pool.request(method, timeout=1 if method == "hang" else 60)
    assert not pool.alive
    assert all(process.poll() is not None for process in processes)


def test_errors_travel_between_processes() -> None:
    error = PeerTimeoutError("rank 1", peer=2, epoch=3, flag="published", limit="late", remedy="wait")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.__dict__) == (PeerTimeoutError, str(error), error.__dict__)


class FakePool:
    """Stands in for workers: answers as told and counts how often it was closed."""

    def __init__(self, answers: list[Any] | WorkerError) -> None:
        self.answers = answers
        self.closed = 0
        self.requests: list[tuple[Any, ...]] = []

    def request(self, *request: Any, timeout: float) -> list[Any]:
        self.requests.append(request)
        if isinstance(self.answers, WorkerError):
            raise self.answers
        return self.answers

    def close(self) -> None:
        self.closed += 1


def fake_run(
    monkeypatch: pytest.MonkeyPatch, answers: list[Any] | WorkerError, name: str, devices: int, **fields: Any
) -> tuple[Outcome, FakePool, tuple[str, int]]:
    pool, obtained = FakePool(answers), []
    monkeypatch.setattr(cuda, "obtain_pool", lambda *key: obtained.append(key) or pool)
    monkeypatch.setattr(cuda, "count_devices", lambda: devices)
    outcome = CudaBackend(name).run(Scenario(**fields), "default")
    return outcome, pool, obtained[0]


def test_ranks_are_processes_where_there_are_enough_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [([np.zeros((1, 1), np.int32)], None)] * 2
    outcome, pool, key = fake_run(monkeypatch, results, "cuda:alternating", 2)
    assert (key, len(outcome.outputs), pool.closed) == (("processes", 2), 2, 0)
    assert pool.requests == [("run", Scenario(transport="symmetric"), "-")]
    answers = [collect_results(results)]
    assert fake_run(monkeypatch, answers, "cuda:alternating", 1)[2] == ("streams", 1)
    assert fake_run(monkeypatch, answers, "cuda:streams:alternating", 2)[2] == ("streams", 1)
    assert fake_run(monkeypatch, answers, "cuda:alternating", 2, ranks=1)[2] == ("streams", 1)
    with pytest.raises(MissingBackendError, match="2 GPUs"):
        fake_run(monkeypatch, results, "cuda:processes:alternating", 1)


def test_only_the_fault_that_needs_it_may_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for fields in ({"fault": "rendezvous"}, {"transport": "all-gather"}, {"ranks": 1}):
        _, pool, _ = fake_run(monkeypatch, [([], None)] * 2, "cuda:processes:alternating", 2, **fields)
        assert pool.requests == [("run", Scenario(**fields), "-")]


def test_a_lost_pool_is_a_finding_that_can_be_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, pool, _ = fake_run(monkeypatch, WorkerError("worker pool", limit="late"), "cuda:alternating", 2)
    assert pool.closed == 1
    assert outcome.violations == [("worker", "worker pool; late")]
    with pytest.raises(AssertionError, match=r"replay: tiebreak replay skew=7 --backend cuda:alternating"):
        require_clean(CudaBackend("cuda:alternating"), Scenario(skew=7), "default")


def test_ranks_that_failed_on_their_own_are_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [([], InputError("k")), ([], None)]
    outcome, pool, _ = fake_run(monkeypatch, results, "cuda:alternating", 2)
    assert (pool.closed, outcome.violations) == (1, [("host-error", "rank 0: k")])
    assert fake_run(monkeypatch, results, "cuda:alternating", 2, fault="geometry")[1].closed == 0


def test_names_of_cuda_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "count_devices", lambda: 1)
    assert expand_names(["cuda"]) == list(CUDA)
    assert expand_names(["cuda:streams", "spec"]) == [f"cuda:streams:{name.partition(':')[2]}" for name in CUDA] + [
        "spec"
    ]
    assert [form_of(name) for name in ("spec", "cuda:all-gather", "cuda:streams:acknowledged")] == [
        "alternating",
        "all-gather",
        "acknowledged",
    ]
    assert isinstance(make_backend("cuda:processes:acknowledged"), CudaBackend)
    with pytest.raises(InputError, match="backends are"):
        expand_names(["cuda:threads"])


@pytest.mark.parametrize("name", ["cuda", "cuda:streams", "cuda:processes:alternating"])
def test_a_machine_without_a_gpu_is_told_so(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(cuda, "count_devices", lambda: 0)
    with pytest.raises(MissingBackendError, match="torch sees none"):
        expand_names([name])


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        (["--backend", "spec", "--backend", "sim"], {"passed": 7, "deselected": 2}),
        (["--backend", "spec"], {"passed": 2, "deselected": 3}),
        (["--backend", "sim:all-gather", "-m", "backend"], {"passed": 1, "deselected": 4}),
    ],
)
def test_marks_keep_tests_to_the_backends_they_are_about(
    tmp_path: Path, options: list[str], counts: dict[str, int]
) -> None:
    (tmp_path / "test_marks.py").write_text(
        textwrap.dedent("""
            import pytest

            def test_any(backend): pass

            def test_none(): pass

            @pytest.mark.transports("alternating", "acknowledged")
            def test_flags(backend): assert backend.name in ("sim:alternating", "sim:acknowledged")

            @pytest.mark.gpu
            def test_device(backend): raise AssertionError

            @pytest.mark.gpu
            @pytest.mark.transports("all-gather")
            def test_device_fallback(backend): raise AssertionError
        """)
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n")
    command = [sys.executable, "-m", "pytest", "--strict-markers", *options, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    summary = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])}
    assert {name: summary.get(name, 0) for name in counts} == counts, done.stdout


def test_a_cuda_run_needs_no_simulator() -> None:
    """What a GPU machine imports, in a process in which the requirements of simulator and reports cannot be found."""
    program = """
        import sys
        from importlib.abc import MetaPathFinder

        class Blocker(MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name.partition(".")[0] in {"greenlet", "msgspec", "jinja2", "cutlass"}:
                    raise ImportError(f"{name} is blocked")

        sys.meta_path.insert(0, Blocker())
        import tiebreak.pytest_plugin, tiebreak.backends.registry, tiebreak.backends.worker, tiebreak.backends.torchrun
        import tiebreak.backends.sanitize, tiebreak.verify.differential
        import tiebreak.verify.checks, tiebreak.verify.command, tiebreak.verify.families, tiebreak.verify.judgement
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class HostStream:
    """A stream of a device that is always idle."""

    def record_event(self) -> object:
        return object()

    def wait_event(self, event: object) -> None:
        assert event is not None

    def synchronize(self) -> None:
        pass


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(ranks=3, rows=3, epochs=4, row_counts=3, transport="all-gather"),
        Scenario(ranks=2, rows=2, epochs=2, fault="rendezvous", kind="special"),
        Scenario(ranks=1, rows=2, epochs=3, transport="symmetric"),
        Scenario(ranks=1, rows=2, epochs=3, transport="symmetric", discipline="acknowledged"),
        Scenario(ranks=3, fault="geometry"),
        Scenario(ranks=1, rows=0),
    ],
    ids=Scenario.text,
)
def test_host_programs_run_on_streams(scenario: Scenario) -> None:
    """Where no kernel waits for another rank, interpreted kernels and a CPU will do."""
    outcome = StreamBackend(torch.device("cpu"), HostStream).run(scenario, "-")
    assert [str(finding) for finding in judge(scenario, outcome)] == []
    assert len(outcome.outputs) == scenario.ranks


def test_selections_run_on_a_stream() -> None:
    backend = StreamBackend(torch.device("cpu"), HostStream)
    for arrangement in ("row-major", "rank-major", "peers"):
        require_same(backend, Selection(ranks=2, rows=2, local=9, k=5, arrangement=arrangement))
    local, counts = backend.localise(np.array([[0, 3, 2, -1]], dtype=np.int32), 1, 2, 1)
    assert (local.tolist(), counts.tolist()) == ([[1, -1, -1, -1]], [1])
    with pytest.raises(InputError, match="k is 0"):
        backend.select(np.zeros((1, 1, 2), dtype=np.int32), 0, "ieee", "row-major")
    with pytest.raises(InputError, match="at most 16 on one device"):
        backend.run(Scenario(ranks=17), "-")


def run_streams(program: Any, ranks: int = 3) -> tuple[list[Any], list[BaseException | None]]:
    """Run a program on every rank of the CPU; return what it returned and raised."""
    world = StreamWorld(torch.device("cpu"), [HostStream() for _ in range(ranks)])
    results: list[Any] = [None] * ranks

    def keep(fabric: StreamFabric) -> None:
        results[fabric.rank] = program(fabric)

    errors = world.run([keep] * ranks)
    assert world.buffers == []
    return results, errors


def test_ranks_of_one_device_gather() -> None:
    def program(fabric: StreamFabric) -> list[list[Any]]:
        return [fabric.gather_objects((fabric.rank, number)) for number in range(50)]

    results, errors = run_streams(program)
    assert errors == [None] * 3
    assert results == [[[(rank, number) for rank in range(3)] for number in range(50)]] * 3


def test_ranks_of_one_device_exchange_addresses() -> None:
    def program(fabric: StreamFabric) -> tuple[int, list[int], set[int]]:
        buffer = fabric.rendezvous(40)
        seen = (buffer.local.data_ptr(), buffer.peer_addresses.tolist(), set(buffer.local.tolist()))
        fabric.free(buffer)
        return seen

    results, errors = run_streams(program)
    assert errors == [None] * 3
    addresses = [address for address, _, _ in results]
    assert len(set(addresses)) == 3
    assert all(table == addresses and content == {0xA5} for _, table, content in results)


def test_ranks_of_one_device_all_gather_in_place_of_a_collective() -> None:
    def program(fabric: StreamFabric) -> tuple[list[list[int]], list[list[int]]]:
        contribution, output = torch.tensor([fabric.rank, 7]), torch.zeros(3, 2, dtype=torch.int64)
        with fabric.launch_alone():
            fabric.all_gather(output, contribution)
        before = output.tolist()
        fabric.all_gather(output, contribution)
        return before, output.tolist()

    results, errors = run_streams(program)
    assert errors == [None] * 3
    assert results == [([[0, 0]] * 3, [[0, 7], [1, 7], [2, 7]])] * 3


def test_a_rank_that_stays_away_is_an_error_of_the_others() -> None:
    def program(fabric: StreamFabric) -> None:
        if fabric.rank == 1:
            raise InputError("k")
        fabric.gather_objects(None)

    _, errors = run_streams(program)
    assert [type(error) for error in errors] == [WorkspaceError, InputError, WorkspaceError]
    assert all("ranks [1] ended before it" in str(errors[rank]) for rank in (0, 2))


def test_a_rendezvous_can_fail_on_one_rank() -> None:
    def program(fabric: StreamFabric) -> bool:
        fabric.fails_rendezvous = fabric.rank == 2
        return fabric.rendezvous(8) is not None

    results, errors = run_streams(program)
    assert results == [True, True, None]
    assert [type(error) for error in errors] == [type(None), type(None), WorkspaceError]
