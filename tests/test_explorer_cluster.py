"""Shards on a Dask cluster: the command, workers that die, and clusters that are not there."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tiebreak.cli import app
from tiebreak.errors import InputError, MissingBackendError, WorkerError
from tiebreak.explore.cluster import Cluster, Distribution, open_cluster
from tiebreak.explore.command import ExploreRequest
from tiebreak.explore.shards import plan_shards
from tiebreak.explore.union import Union
from tiebreak.sim.explorer.verdicts import Verdict

BARRIER = ExploreRequest("flag_barrier", ("ranks=4", "epochs=2"))


DEADLY = """
import os
import signal

from tiebreak.explore.shards import explore_shard


def explore_after_deaths(folder, deaths, message):
    died = len(list(folder.iterdir()))
    if died < deaths:
        (folder / str(died)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return explore_shard(message)
"""
"""A module that workers can import, as they cannot import tests."""


class Deadly(Executor):
    """A cluster of which so many workers die of the first shard."""

    def __init__(self, cluster: Cluster, folder: Path, deaths: int) -> None:
        self.executor, self.folder, self.deaths = cluster.executor, folder, deaths

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        deaths, self.deaths = self.deaths, 0
        explore = importlib.import_module("deadly").explore_after_deaths
        return self.executor.submit(explore, self.folder, deaths, *arguments)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "deadly.py").write_text(DEADLY)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        with open_cluster(workers=2) as cluster:
            yield cluster


def run_command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["explore", *arguments])
    return result.exit_code, result.output


def test_command_proves_the_barrier_on_a_cluster(cluster: Cluster) -> None:
    arguments = ("flag_barrier", "--ranks", "4", "--epochs", "2", "--cluster", cluster.address)
    code, output = run_command(*arguments)
    assert (code, cluster.workers) == (0, 2)
    assert "PROVED" in output and "complete 463" in output and "8 of 8 shards on 2 workers" in output


def test_command_shows_the_failure_of_a_shard(cluster: Cluster, tmp_path: Path) -> None:
    arguments = ("flag_barrier", "--ranks", "2", "--epochs", "2", "--set", "wait===", "--cluster", cluster.address)
    code, output = run_command(*arguments, "--report", str(tmp_path / "report"))
    assert code == 1
    assert "FAILED(progress)" in output and "lost signal" in output and "executed again 10 times out of 10" in output
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "schedule.svg", "schedule.trace.json", "execution.dot",
    }  # fmt: skip


def test_shard_of_a_worker_that_died_is_explored_by_another(cluster: Cluster, tmp_path: Path) -> None:
    union = Union(plan_shards(BARRIER, 4))
    Distribution(union, Deadly(cluster, tmp_path, deaths=1)).run()
    assert len(list(tmp_path.iterdir())) == 1
    assert (str(union.conclusion), union.counts.complete, union.finished) == ("PROVED", 463, 4)


def test_shard_that_kills_its_workers_proves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    union = Union(plan_shards(BARRIER, 1))
    Distribution(union, Deadly(cluster, tmp_path, deaths=99)).run()
    assert union.conclusion.verdict is Verdict.UNKNOWN
    assert "1 of 1 shards are missing, 0 the first: KilledWorker" in str(union.conclusion)
    assert len(list(tmp_path.iterdir())) > 1


def test_command_leaves_a_checkpoint_when_time_is_up(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    arguments = ("flag_barrier", "--ranks", "4", "--epochs", "2", "--cluster", cluster.address)
    code, output = run_command(*arguments, "--seconds", "0", "--checkpoint", str(path))
    assert code == 3 and "UNKNOWN" in output and path.exists()
    code, output = run_command(*arguments, "--checkpoint", str(path))
    assert code == 0 and "complete 463" in output and not path.exists()


@pytest.mark.parametrize("arguments", [("--strategy", "random:3"), ("--shard", "0/2")])
def test_shards_go_with_whole_explorations_only(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["explore", "mp", "--shards", "2", *arguments])
    assert isinstance(result.exception, InputError)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingBackendError, match=r"pip install 'tiebreak\[cluster\]'"), open_cluster():
        pass


def test_cluster_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiebreak.explore.cluster.CONNECT_SECONDS", 0.2)
    with pytest.raises(WorkerError, match="a Dask scheduler that answers"), open_cluster("tcp://127.0.0.1:1"):
        pass
