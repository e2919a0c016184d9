"""Shards on the workers of a Dask cluster, or of any other executor.

The scheduler of ``dask.distributed`` hands out shards, and hands out those of a
worker that died again.  What travels is described in ``shards``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from dataclasses import dataclass
from typing import Any

import msgspec

from tiebreak.errors import MissingBackendError, TiebreakError, WorkerError

from .shards import Part, Task, close_program, explore_shard, identify
from .union import Union

FIRST_SECONDS, MOST_SECONDS = 5.0, 60.0
"""After so long a worker sends back a checkpoint, so that no more than that is lost with it: soon, then less often."""

LOOK_SECONDS = 0.5
"""Time between two looks at Ctrl-C and the clock."""

CONNECT_SECONDS = 10.0
"""Time for a scheduler to answer."""

SHARDS_PER_WORKER = 4
"""More shards than workers, so that those that are done early go on with another one."""


@dataclass(frozen=True)
class Cluster:
    """Where shards are explored.

    Attributes:
        executor: Takes the tasks.
        workers: How many it has now.
        address: Where its scheduler is.
    """

    executor: Executor
    workers: int
    address: str


@contextlib.contextmanager
def open_cluster(address: str = "", workers: int | None = None) -> Iterator[Cluster]:
    """The workers of a Dask scheduler, or without an address a cluster of this machine with a process per core.

    Raises:
        MissingBackendError: ``dask.distributed`` is not installed.
        WorkerError: No scheduler answers at the address.
    """
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError:
        raise MissingBackendError(
            "package distributed", limit="shards run on a Dask cluster", remedy="pip install 'tiebreak[cluster]'"
        ) from None
    with contextlib.ExitStack() as stack:
        scheduler: object = address
        if not address:
            scheduler = stack.enter_context(
                LocalCluster(
                    n_workers=workers or len(os.sched_getaffinity(0)),
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                )
            )
        try:
            client = stack.enter_context(Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False))
        except (OSError, TimeoutError, ValueError) as error:
            raise WorkerError(
                "cluster",
                value=address,
                limit=f"a Dask scheduler that answers: {error}",
                remedy="run dask scheduler there, or leave --cluster out for the cores of this machine",
            ) from error
        if address:
            _check_scheduler(client)
            stack.callback(client.run, close_program, on_error="ignore")
        yield Cluster(client.get_executor(), len(client.nthreads()), client.scheduler.address)


def _check_scheduler(client: Any) -> None:
    """Refuse a scheduler that cannot read what it is sent, and would be silent about it.

    Raises:
        WorkerError: This package is not installed there.
    """
    try:
        client.run_on_scheduler(identify)
    except ImportError as error:
        raise _lack(client.scheduler.address, error) from error


def _lack(place: str, error: ImportError) -> WorkerError:
    """Error about a place where packages are missing."""
    return WorkerError(place, value=str(error), limit="has this package", remedy="install tiebreak[cluster] there")


class Distribution:
    """Shards on their way to workers and back.

    Args:
        union: Takes what comes back, and knows what is left to do.
        executor: Explores.
        first: Seconds after which a worker sends back a checkpoint at first.
    """

    def __init__(self, union: Union, executor: Executor, first: float = FIRST_SECONDS) -> None:
        self.union, self._executor, self._first = union, executor, first
        self._pending: dict[Future[bytes], int] = {}

    def run(
        self,
        seconds: float = float("inf"),
        is_stopped: Callable[[], bool] = lambda: False,
        report: Callable[[Union], None] = lambda union: None,
    ) -> None:
        """Explore until every shard came to its end, was lost, or does not matter any more, or it is to be stopped.

        Raises:
            TiebreakError: A worker has other sources, or cannot open the program.
        """
        start, before = time.monotonic(), self.union.seconds
        try:
            self._submit_all()
            while self._pending and time.monotonic() - start < seconds and not is_stopped():
                done, _ = wait(self._pending, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    self._receive(future)
                self.union.seconds = before + time.monotonic() - start
                if self.union.is_decided:
                    break
                if self.union.is_outdated:
                    self._cancel()
                    self.union.begin_anew()
                    self._submit_all()
                report(self.union)
        finally:
            self._cancel()

    def _submit_all(self) -> None:
        """Hand out all that is left to do."""
        for task in self.union.list_tasks(self._first):
            self._submit(task)

    def _submit(self, task: Task) -> None:
        self._pending[self._executor.submit(explore_shard, msgspec.json.encode(task))] = task.shard

    def _receive(self, future: Future[bytes]) -> None:
        """Take over what a worker sent, and go on with a shard that is not done."""
        shard = self._pending.pop(future)
        try:
            part = msgspec.json.decode(future.result(), type=Part)
        except TiebreakError:
            raise
        except ImportError as error:
            raise _lack("a worker", error) from error
        except (Exception, CancelledError) as error:
            self.union.lost[shard] = f"{type(error).__name__}: {error}"
            return
        self.union.add(part)
        if part.state and not part.refined:
            seconds = min(MOST_SECONDS, max(self._first, part.counts.seconds))
            self._submit(Task(self.union.plan, shard, seconds, part.state))

    def _cancel(self) -> None:
        """Let go of what was not done yet."""
        for future in self._pending:
            future.cancel()
        self._pending.clear()
