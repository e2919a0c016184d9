"""Worker processes that live as long as the caller, and answer requests within a time limit.

A worker is a program of its own, with an environment of its own: whether
kernels are compiled or interpreted, for one, is decided before Triton is
imported and holds for a whole process.  Every request goes to all workers of a
pool; when one of them dies or is late, all are killed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from tiebreak.errors import TiebreakError, WorkerError


class WorkerPool:
    """Processes that each run ``python -m MODULE DESCRIPTOR INDEX ARGUMENTS...``.

    ``DESCRIPTOR`` is the number of an inherited file, over which the worker
    calls ``serve``.  Processes start at once, and import while the caller goes on.

    Args:
        module: Module of the worker program.
        size: Number of workers.
        arguments: Further arguments of every worker.
        environment: Variables to set for the workers.
    """

    def __init__(
        self, module: str, size: int, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._module = module
        self._arguments = tuple(arguments)
        self._environment = {**os.environ, **(environment or {})}
        self._connections: list[Connection[Any, Any]] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        for index in range(size):
            self._start(index)

    def _start(self, index: int) -> None:
        """Start one worker with a socket of its own."""
        mine, theirs = socket.socketpair()
        words = [str(theirs.fileno()), str(index), *self._arguments]
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", self._module, *words], pass_fds=[theirs.fileno()], env=self._environment
            )
        self._processes.append(process)
        self._connections.append(Connection(mine.detach()))

    @property
    def alive(self) -> bool:
        """Whether every worker runs."""
        return bool(self._processes) and all(process.poll() is None for process in self._processes)

    def request(self, method: str, *arguments: Any, timeout: float) -> list[Any]:
        """Call a method on every worker and return their answers, in order.

        Args:
            method: Name of the method, see ``serve``.
            arguments: Its arguments; pickled.
            timeout: Seconds within which all must answer.

        Raises:
            TiebreakError: What the first worker that failed raised.
            WorkerError: A worker raised something else, died, or was late; in the
                latter two cases the pool was killed.
        """
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + timeout
        try:
            for connection in self._connections:
                connection.send((method, arguments))
            while len(answers) < len(self._connections):
                answers.update(self._receive(set(range(len(self._connections))) - set(answers), deadline))
        except TimeoutError as error:
            late = sorted(set(range(len(self._connections))) - set(answers))
            raise self._give_up(f"workers {late} did not answer {method!r} within {timeout:g} s") from error
        except (EOFError, OSError) as error:
            raise self._give_up(f"{type(error).__name__} from a worker that ended") from error
        for index in range(len(answers)):
            if isinstance(answers[index], TiebreakError):
                raise answers[index]
        return [answers[index] for index in range(len(answers))]

    def _receive(self, missing: set[int], deadline: float) -> dict[int, Any]:
        """Return the answers that are there, waiting for at least one until the deadline."""
        pending = {self._connections[index]: index for index in missing}
        ready = wait(list(pending), max(deadline - time.monotonic(), 0.0))
        if not ready:
            raise TimeoutError
        return {index: connection.recv() for connection, index in pending.items() if connection in ready}

    def _give_up(self, reason: str) -> WorkerError:
        """Kill the pool and return the error to raise."""
        processes = self._processes
        self.close()
        codes = [process.returncode for process in processes]
        return WorkerError(
            f"worker pool of {self._module}",
            limit=reason,
            remedy=f"see the workers' output above; their exit codes are {codes}, where -9 was killed for it",
        )

    def close(self) -> None:
        """Kill the workers.  Idempotent."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        for connection in self._connections:
            connection.close()
        self._processes, self._connections = [], []


def serve(descriptor: int, server: object) -> None:
    """Answer requests with the methods of ``server`` until the caller goes away."""
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), Connection(descriptor) as connection:
        while True:
            method, arguments = connection.recv()
            connection.send(_answer(server, method, arguments))


def _answer(server: object, method: str, arguments: tuple[Any, ...]) -> Any:
    """Call a method; return its result, or the error to raise in the caller."""
    try:
        return getattr(server, method)(*arguments)
    except Exception as error:  # Whatever it is, the caller must hear of it.
        return portable_error(error)


def portable_error(error: BaseException) -> TiebreakError:
    """Return an error that another process can load, with the trace of one that is not of this package."""
    if isinstance(error, TiebreakError):
        return error
    trace = "".join(traceback.format_exception(error))
    return WorkerError(f"{type(error).__name__} in a worker", limit=str(error), remedy=f"see\n{trace}")
