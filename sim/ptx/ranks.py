"""CTAs of compiled kernels as programs of simulated ranks.

A program of the machine (``sim.machine``) may run PTX instead of an interpreted
kernel: a launch puts ``RankDevices.run`` on a stream as its body.  Strong
accesses to global memory, and plain ones to memory that peers can reach, are
scheduling points; a poll that would read what it read before is not scheduled.
Everything else is that of simulated ranks: streams, residency, schedulers,
replay, stalls.  Races are judged by the detector of the PTX machine, which
knows what a compiler left of barriers, orders and scopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..agent import Pending, Program
from ..machine import Machine
from ..trace import Site, Violation
from .executor import Launch
from .findings import Finding, FindingError
from .memory import Array, Region
from .module import Instruction, Kernel, Module
from .observation import Access
from .races import RaceDetector
from .rank_memory import RankMemory

Operands: TypeAlias = tuple[npt.NDArray[Any], ...]

_PROPERTIES = {"race": "race", "uninitialised": "uninitialised-read", "out-of-bounds": "out-of-bounds"}
"""Violations of simulated ranks by the kind of a finding; other findings are errors of a kernel."""

_NEUTRAL = ("add", "or", "xor")
_SHOWN_ADDRESSES = 4


class RankDevices:
    """The devices of one machine, running PTX.

    Args:
        machine: The machine; collectives of its hosts and streams order what ranks did.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._memory = RankMemory(machine.memory)
        self._detector = RaceDetector(ranks=machine.ranks, place=self._memory.place)
        self._reported = 0
        machine.agree = self._detector.settle

    def run(
        self,
        kernel: Kernel,
        module: Module,
        block: tuple[int, int, int],
        arguments: Sequence[int],
        *,
        shared_bytes: int = 0,
    ) -> None:
        """Run the CTA that the current program stands for.

        Args:
            kernel: The kernel.
            module: Its module.
            block: Threads of a CTA in x, y and z.
            arguments: Bits of each parameter.
            shared_bytes: Dynamic shared memory of a CTA.
        """
        program = self._machine.program
        assert program is not None
        self._memory.refresh()
        launch = Launch(
            kernel,
            module,
            program.grid,
            block,
            arguments,
            shared_bytes=shared_bytes,
            observer=self._detector,
            memory=self._memory.space,
            rank=program.agent.rank,
            number=program.launch,
            gate=_Gate(self._machine, self._memory, program.kernel),
        )
        try:
            launch.run([_number_cta(program)])
        except FindingError as error:
            self._report(error.finding)
            self._machine.halt()
        self._report_new()

    def _report_new(self) -> None:
        """Report what the detector found since the last time."""
        findings = self._detector.findings
        while self._reported < len(findings):
            self._reported += 1
            self._report(findings[self._reported - 1])

    def _report(self, finding: Finding) -> None:
        name = _PROPERTIES.get(finding.kind, "kernel-error")
        self._machine.report(Violation(name, str(finding), self._machine.step))


def _number_cta(program: Program) -> int:
    """Return the number of a program's CTA in its launch, the first axis fastest."""
    (x, y, z), (width, height, _) = program.index, program.grid
    return x + width * (y + height * z)


@dataclass(frozen=True)
class _Polled:
    """What a poll reads, and what other polls of the CTA since its last effect would read.

    A loop may poll several places, and goes on when any of them changes.
    """

    own: object
    others: object

    def __repr__(self) -> str:
        return repr(self.own)


class _Gate:
    """Announces accesses of one CTA to the machine, before they take effect.

    Args:
        machine: The machine.
        memory: Its memory.
        kernel: Name of the kernel.
    """

    def __init__(self, machine: Machine, memory: RankMemory, kernel: str) -> None:
        self._machine = machine
        self._memory = memory
        self._kernel = kernel
        self._polled: dict[tuple[int, ...], _Observation] = {}

    def __call__(self, access: Access, operands: Operands) -> None:
        """Wait for this CTA's turn to perform an access."""
        machine = self._machine
        strong = access.order != "weak"
        allocation = machine.memory.find(int(access.addresses[0]))
        assert allocation is not None and machine.current is not None
        if not strong and not (allocation.shared and machine.settings.data_points):
            if access.kind != "read":
                self._note_effect()
            return
        addresses = access.addresses.copy()
        site = _find_site(self._kernel, access.instruction)
        region = self._memory.space.find(int(addresses[0]))
        assert region is not None
        observation = _Observation(access, addresses, operands, region)

        def find_poll() -> object | None:
            own = observation.find_poll()
            return None if own is None else _Polled(own, [other.current().tolist() for other in self._polled.values()])

        key = tuple(addresses.tolist())
        pending = Pending(_name(access), key[:_SHOWN_ADDRESSES], value=find_poll if strong else None, site=site)
        machine.reach(pending)
        value = find_poll() if strong else None
        if value is not None:
            machine.current.note_poll(pending.key, value)
            self._polled[key] = observation
        elif access.kind != "read":
            self._note_effect()
            machine.last_writes[int(addresses[0])] = f"{machine.current.name} at step {machine.step}"
        place = allocation.place(int(addresses[0])) + (f"[{addresses.size}]" if addresses.size > 1 else "")
        machine.record(_name(access), place=place, value=observation.show(), site=site)

    def _note_effect(self) -> None:
        """Forget the polls: the CTA did something else than polling."""
        assert self._machine.current is not None
        self._machine.current.note_effect()
        self._polled.clear()


class _Observation:
    """What an access finds in memory when it is performed.

    Args:
        access: The access.
        addresses: Its addresses.
        operands: Its source operands, one array each.
        region: The memory.
    """

    def __init__(self, access: Access, addresses: Array, operands: Operands, region: Region) -> None:
        self._access = access
        self._addresses = addresses
        self._operands = operands
        self._region = region
        self._width = min(access.width, 8)

    def current(self) -> Array:
        """Return the values in memory now, of vectors the first element."""
        stride = self._access.width // self._width
        dtype = np.dtype(f"uint{8 * self._width}").type
        found: Array = self._region.read(self._addresses, dtype, stride)
        return found if stride == 1 else found[:, 0]

    def find_poll(self) -> object | None:
        """Return what the access reads if it changes nothing, and so may be a poll that fails; else None."""
        access = self._access
        if access.kind == "read":
            return self.current().tolist()
        if access.kind == "update" and self._changes_nothing(access.instruction.modifiers):
            return self.current().tolist()
        return None

    def _changes_nothing(self, modifiers: tuple[str, ...]) -> bool:
        if "cas" in modifiers:
            return bool((self.current() != self._operands[0]).all())
        return any(name in modifiers for name in _NEUTRAL) and not self._operands[0].any()

    def show(self) -> str:
        """Return the value that is read, or written, where there is one."""
        if self._addresses.size > 1 or self._access.width > 8:
            return ""
        if self._access.kind == "read" or not self._operands:
            return str(int(self.current()[0]))
        return str(int(np.asarray(self._operands[-1]).reshape(-1)[0]))


def _name(access: Access) -> str:
    """Return an access in words: ``load``, ``store``, ``atom.exch release.sys``."""
    words: dict[str, str] = {"read": "load", "write": "store"}
    if access.order == "weak":
        return words[access.kind]
    word = words.get(access.kind) or access.instruction.opcode + "." + _operation(access.instruction)
    return f"{word} {access.order}.{access.scope}"


def _operation(instruction: Instruction) -> str:
    names = ("add", "exch", "cas", "min", "max", "and", "or", "xor", "inc", "dec")
    return next((part for part in instruction.modifiers if part in names), "")


def _find_site(kernel: str, instruction: Instruction) -> Site:
    """Return the position of an instruction in the kernel's source, or its line in the PTX text."""
    location = instruction.location
    while location is not None and location.inlined_at is not None:
        location = location.inlined_at
    if location is None or not location.line:
        return Site(f"{kernel}.ptx", "", instruction.line)
    return Site(kernel, location.file, location.line)
