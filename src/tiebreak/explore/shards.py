"""Shards of an exploration as plain data, so that any machine with this package can explore one.

A task names the program, the options and the part; what comes back is counts,
pictures of a failure, or a checkpoint from which somebody else goes on.  The
*plan* is what all shards of one exploration have in common.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import io
import os
import platform
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

import tiebreak
from tiebreak.environment import prepare_interpreter
from tiebreak.errors import WorkerError
from tiebreak.sim.explorer.checkpoint import pack, resume
from tiebreak.sim.explorer.exploration import Exploration, Options
from tiebreak.sim.explorer.judging import Check
from tiebreak.sim.explorer.program import Program
from tiebreak.sim.explorer.refinement import Refinement
from tiebreak.sim.explorer.verdicts import Counts

from .command import ExploreRequest
from .pictures import Pictures, draw
from .shortest import find_counterexample

PACKAGES = ("numba", "numpy", "triton")
"""Besides tiebreak and Python, what an exploration may depend on."""

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of decisions after which the parts of a search may begin."""

PARTS_PER_SHARD = 8
"""Parts of the search that a shard should consist of, so that shards are of like size."""

NOBODY = 1 << 40
"""As many shards as there are never parts: nothing is dealt to the last one."""


class Subject(msgspec.Struct, frozen=True):
    """What is explored, by name; see ``ExploreRequest``."""

    program: str
    parameters: tuple[str, ...]
    mutant: str
    model: str
    awaits: str
    arrivals: str
    steps: int

    @classmethod
    def name(cls, request: ExploreRequest) -> Subject:
        """The subject of a request."""
        return cls(*(getattr(request, field) for field in cls.__struct_fields__))

    @property
    def request(self) -> ExploreRequest:
        """A request for it."""
        return ExploreRequest(**msgspec.structs.asdict(self))


class Plan(msgspec.Struct, frozen=True):
    """How an exploration is divided.

    Attributes:
        subject: What is explored.
        shards: Into how many parts.
        split: Decisions after which parts are dealt to the shards.
        refinement: What is known of the program beforehand.
        identity: Versions by which a worker explores the same, see ``identify``.
    """

    subject: Subject
    shards: int
    split: int
    refinement: Refinement
    identity: dict[str, str]

    @property
    def digest(self) -> str:
        """Fingerprint of all of it."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()

    def make_options(self, shard: int) -> Options:
        """Options of a shard."""
        return replace(self.subject.request.build_options(), shard=shard, shards=self.shards, split=self.split)


class Task(msgspec.Struct, frozen=True):
    """A shard to be explored for some time.

    Attributes:
        plan: What it is a shard of.
        shard: Which one.
        seconds: How long to explore before a checkpoint is sent back.
        state: Checkpoint to go on from, or nothing.
    """

    plan: Plan
    shard: int
    seconds: float
    state: bytes = b""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """How far the exploration of a shard has come.

    Attributes:
        plan: Digest of the plan.
        shard: Which one.
        counts: What was counted so far.
        progress: Part of the shard's search that is done.
        dealt: Into how many parts the search was divided, and their fingerprint.
        found: What is known of the program now.
        refined: Whether that is more than the plan says, so that all shards begin anew.
        unsupported: What the program does that has no meaning, or an empty string.
        failure: The property that breaks, or an empty string.
        pictures: Of the failure.
        state: Checkpoint to go on from; empty if there is nothing left to do.
    """

    plan: str
    shard: int
    counts: Counts
    progress: float
    dealt: tuple[int, int]
    found: Refinement
    refined: bool = False
    unsupported: str = ""
    failure: str = ""
    pictures: Pictures | None = None
    state: bytes = b""


class Opener:
    """Keeps the last program open: that takes long, and what was found out about its threads serves other shards.

    Programs are opened by replacing functions of the packages they use, so one
    of a process is open at a time; and its threads live in the thread that
    opened it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._key: tuple[Subject, int] | None = None
        self._opened: tuple[Program, Check | None] | None = None

    @contextlib.contextmanager
    def open(self, subject: Subject) -> Iterator[tuple[Program, Check | None]]:
        """The program of a subject, and what must hold of its executions."""
        with self._lock:
            key = subject, threading.get_ident()
            if key != self._key or self._opened is None:
                self._close()
                self._opened, self._key = self._stack.enter_context(subject.request.open()), key
            yield self._opened

    def close(self) -> None:
        """Let go of the program."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._key = self._opened = None
        self._stack.close()


OPENER = Opener()


def close_program() -> None:
    """Let go of what shards left open in this process."""
    OPENER.close()


@functools.cache
def identify() -> dict[str, str]:
    """Versions that must be the same wherever shards are explored, the sources of this package among them."""
    python = ".".join(platform.python_version_tuple()[:2])
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"tiebreak": tiebreak.__version__, "sources": _digest_sources(), "python": python, **versions}


def _digest_sources() -> str:
    """Fingerprint of the sources of this package, wherever it is installed, and whether by links or not."""
    root, digest = Path(tiebreak.__file__).parent, hashlib.sha256()
    folders = os.walk(root, followlinks=True)
    for source in sorted(Path(folder, name) for folder, _, names in folders for name in names if name.endswith(".py")):
        digest.update(source.relative_to(root).as_posix().encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def check_identity(wanted: dict[str, str]) -> None:
    """Refuse what another version asks for.

    Raises:
        WorkerError: It would not explore the same.
    """
    here = identify()
    different = sorted(name for name in here | wanted if here.get(name) != wanted.get(name))
    if different:
        there = {name: wanted.get(name) for name in different}
        raise WorkerError(
            f"a worker on {platform.node()}",
            value={name: here.get(name) for name in different},
            limit=f"where the exploration was started it is {there}",
            remedy="install the same packages in both places",
        )


def plan_shards(request: ExploreRequest, shards: int, exactly: bool = True) -> Plan:
    """Divide an exploration so that each shard has several parts, if there are as many.

    Args:
        request: What to explore.
        shards: Into how many shards.
        exactly: Whether there must be so many, and not fewer where the search has fewer parts.

    Raises:
        InputError: There is no such program or option.
    """
    plan = Plan(Subject.name(request), shards, SPLITS[0], Refinement(), identify())
    most = 0
    with request.open() as (program, check):
        for split, count, found in _look_ahead(plan, program, check):
            plan = msgspec.structs.replace(plan, refinement=found)
            if count > most:
                plan, most = msgspec.structs.replace(plan, split=split), count
            if most >= PARTS_PER_SHARD * shards:
                break
    return plan if exactly else msgspec.structs.replace(plan, shards=max(1, min(shards, most)))


def _look_ahead(plan: Plan, program: Program, check: Check | None) -> Iterator[tuple[int, int, Refinement]]:
    """Explore up to where shards would begin.

    Yields:
        After how many decisions, how many parts there are, and what was found out about the program.
    """
    options = replace(plan.make_options(0), shard=NOBODY - 1, shards=NOBODY)
    probe, before = Exploration(program, options, check), (-1, 0)
    for split in SPLITS:
        probe.options = replace(options, split=split)
        probe.begin()
        while probe.run() and probe.refined:
            probe = Exploration(program, probe.options, check, refinement=probe.found)
        yield split, probe.dealt[0], probe.found
        # Where the same is dealt out again, nothing but whole classes is.
        if probe.dealt == before:
            return
        before = probe.dealt


def explore_shard(message: bytes) -> bytes:
    """Explore a shard for some time: a ``Task`` as JSON; returns a ``Part`` as JSON.

    Raises:
        WorkerError: The versions here are others than those of the plan.
    """
    prepare_interpreter()
    task = msgspec.json.decode(message, type=Task)
    check_identity(task.plan.identity)
    with OPENER.open(task.plan.subject) as (program, check):
        if task.state:
            exploration = resume(io.BytesIO(task.state), program, check)
        else:
            options = task.plan.make_options(task.shard)
            exploration = Exploration(program, options, check, refinement=task.plan.refinement)
        exploration.run(task.seconds)
        return msgspec.json.encode(_describe(task, exploration, program, check))


def _describe(task: Task, exploration: Exploration, program: Program, check: Check | None) -> Part:
    """What became of a shard."""
    left = not exploration.finished and not exploration.unsupported
    pictures = None
    if exploration.failures:
        enough = task.plan.subject.request.enough_failures
        example = find_counterexample(program, exploration.options, check, exploration.failures, enough)
        pictures = draw(program, example)
    return Part(
        plan=task.plan.digest,
        shard=task.shard,
        counts=exploration.counts,
        progress=exploration.progress,
        dealt=exploration.dealt,
        found=exploration.found,
        refined=exploration.refined,
        unsupported=exploration.unsupported,
        failure=exploration.failures[0].property if exploration.failures else "",
        pictures=pictures,
        state=pack(exploration) if left else b"",
    )
