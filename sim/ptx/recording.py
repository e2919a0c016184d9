"""An observer that keeps what it is told."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from .findings import Finding
from .module import Instruction, Kernel
from .observation import Access, Position, Scope, Threads


class Recorder:
    """Keeps accesses, synchronisation and findings in the order of the execution.

    Attributes:
        events: What happened, as tuples that start with its kind: ``("synchronise", "cta", [0, 1, ...])``.
        accesses: The accesses among them.
        findings: What the executor reported.
    """

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.accesses: list[Access] = []
        self.findings: list[Finding] = []

    def begin(self, position: Position, kernel: Kernel) -> None:
        """Keep that a CTA starts."""
        self.events.append(("begin", position.cta))

    def access(self, access: Access) -> None:
        """Keep an access."""
        self.accesses.append(access)
        self.events.append((access.kind, access.space, access.threads.tolist(), access.addresses.tolist()))

    def synchronise(self, position: Position, threads: Threads, instruction: Instruction, scope: str) -> None:
        """Keep a barrier that completed."""
        self.events.append(("synchronise", scope, threads.tolist()))

    def join_cluster(self, positions: tuple[Position, ...], instruction: Instruction) -> None:
        """Keep a barrier of a cluster that completed."""
        self.events.append(("join", [position.cta for position in positions]))

    def release(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """Keep what threads release."""
        self.events.append(("release", threads.tolist(), token))

    def acquire(self, position: Position, threads: Threads, instruction: Instruction, token: Hashable) -> None:
        """Keep what threads acquire."""
        self.events.append(("acquire", threads.tolist(), token))

    def fence(self, position: Position, threads: Threads, instruction: Instruction, order: str, scope: Scope) -> None:
        """Keep a fence."""
        self.events.append(("fence", order, scope))

    def end(self, position: Position) -> None:
        """Keep that a CTA ended."""
        self.events.append(("end", position.cta))

    def report(self, finding: Finding) -> None:
        """Keep a finding."""
        self.findings.append(finding)
