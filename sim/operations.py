"""Memory operations of programs: announce, wait for the turn, perform, account."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton.language as tl
from triton._C.libtriton import interpreter as native
from triton.runtime import interpreter

from .agent import Agent, Pending, Program
from .device import Launch
from .machine import Machine
from .observer import Touch
from .shadow import CTA, GPU, SYS
from .source import find_site, result_is_used
from .trace import Site, Violation

Handler = Callable[..., Any]
"""Handles one operation: (operations, perform, arguments of the interpreter's method) -> its result."""

_STRENGTH = {"cta": CTA, "gpu": GPU, "sys": SYS, "system": SYS}
_SEMANTICS = {"acquire_release": "acq_rel"}
_NEUTRAL = {"add", "or", "xor", "umax"}


def _dtype(pointers: Any) -> np.dtype[Any]:
    """NumPy's type for what pointers point to; Triton looks through all of them every time."""
    element = pointers.get_element_ty()
    # Types of pointers cannot be hashed.
    found: np.dtype[Any] = (_find_dtype if type(element) is tl.dtype else interpreter._get_np_dtype)(element)
    return found


_find_dtype = functools.cache(interpreter._get_np_dtype)


def _mask(mask: Any, pointers: Any) -> npt.NDArray[np.bool_]:
    return np.ones_like(pointers.data, dtype=bool) if mask is None else np.asarray(mask.data, dtype=bool)


def _peek(pointers: Any, mask: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Read memory as it is now, unobserved."""
    dtype = _dtype(pointers)
    shape = np.shape(pointers.data)
    whole = mask if mask.shape == shape else np.ascontiguousarray(np.broadcast_to(mask, shape))
    values: npt.NDArray[Any] = native.load(pointers.data, whole, np.zeros(shape, dtype=dtype), dtype)
    return values


def _show(values: Any) -> str:
    array = np.asarray(values)
    return str(array.reshape(-1)[0]) if array.size == 1 else ""


class Operations:
    """The operations of the agents of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._fresh = [0] * machine.ranks

    # -- programs ------------------------------------------------------------------------------------------------

    def run_program(self, kernel: Callable[..., Any], arguments: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """Run the current program.

        Args:
            kernel: The kernel as the interpreter runs it.
            arguments: Its arguments in the interpreter's form.
            given: Its arguments as the host gave them.
        """
        kernel(**arguments)

    def issue(self, handler: Handler, perform: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Perform a memory operation of the current program, and return what it reads."""
        return handler(self, perform, *arguments)

    def find_site(self) -> Site:
        """Position in the source of the operation that the current program performs."""
        return find_site()

    # -- launches and allocations --------------------------------------------------------------------------------

    def launch(self, launch: Launch) -> None:
        """Put a launch on the current stream of the current host's rank."""
        rank = self._agent.rank
        self.machine.enqueue(rank, self.machine.current_stream[rank], launch)

    def adopt_arguments(self, arguments: dict[str, Any]) -> None:
        """Track tensors that the host made itself; they count as initialised."""
        rank = self._agent.rank
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor):
                self.machine.memory.register(value, name=f"r{rank}.{name}", rank=rank)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the host's as its device memory holds it."""
        return self.machine.place(self._agent.rank, tensor)

    def adopt_fresh(self, tensor: torch.Tensor) -> None:
        """Track a tensor from ``torch.empty``; nothing wrote it yet."""
        rank = self._agent.rank
        self._fresh[rank] += 1
        self.machine.memory.register(tensor, name=f"r{rank}.empty{self._fresh[rank]}", rank=rank, initialised=False)

    # -- plain accesses ------------------------------------------------------------------------------------------

    def load(self, pointers: Any, mask: Any, perform: Callable[[], Any]) -> Any:
        """Perform a plain load."""
        site = self.find_site()
        touch = self._touch(pointers, _mask(mask, pointers), site)
        if touch is None:
            return perform()
        self._point(touch, "load", site)
        result = perform()
        if self._announces(touch):
            self.machine.record("load", place=touch.place, value=_show(result.data), site=site)
        self.machine.observer.load(self._program, touch, site, self.machine.step)
        return result

    def store(self, pointers: Any, mask: Any, value: Any, perform: Callable[[], Any]) -> Any:
        """Perform a plain store."""
        site = self.find_site()
        touch = self._touch(pointers, _mask(mask, pointers), site)
        if touch is None:
            return perform()
        self._point(touch, "store", site)
        result = perform()
        self._note_effect(touch, "store", _show(value.data), site, self._announces(touch))
        self.machine.observer.store(self._program, touch, site, self.machine.step)
        return result

    # -- atomics -------------------------------------------------------------------------------------------------

    def rmw(
        self, op: str, pointers: Any, value: Any, mask: Any, sem: str, scope: str, perform: Callable[[], Any]
    ) -> Any:
        """Perform an atomic read-modify-write."""
        given = np.asarray(value.data)

        def poll(current: npt.NDArray[Any]) -> bool:
            return op in _NEUTRAL and not given.any()

        return self._atomic(f"atomic {op}", pointers, _mask(mask, pointers), sem, scope, perform, poll, True)

    def cas(self, pointers: Any, compare: Any, sem: str, scope: str, perform: Callable[[], Any]) -> Any:
        """Perform an atomic compare-and-swap; a failing one is a poll."""
        expected = np.asarray(compare.data)

        def poll(current: npt.NDArray[Any]) -> bool:
            return bool((current != expected).all())

        return self._atomic("atomic cas", pointers, _mask(None, pointers), sem, scope, perform, poll, True)

    def atomic_load(self, pointers: Any, mask: Any, sem: str, scope: str) -> Any:
        """Perform an atomic load."""
        active = _mask(mask, pointers)
        element = pointers.get_element_ty()

        def perform() -> Any:
            return interpreter.TensorHandle(_peek(pointers, active), element)

        return self._atomic("atomic load", pointers, active, sem, scope, perform, lambda current: True, False)

    def atomic_store(self, pointers: Any, value: Any, mask: Any, sem: str, scope: str) -> Any:
        """Perform an atomic store."""
        active = _mask(mask, pointers)

        def perform() -> Any:
            return native.store(pointers.data, value.data, active)

        return self._atomic("atomic store", pointers, active, sem, scope, perform, lambda current: False, True)

    def atomic_poll(self, pointers: Any, expected: Any, bounded: bool, sem: str, scope: str) -> npt.NDArray[np.bool_]:
        """Poll until the expected value is there; a bounded poll may give up when time passes.

        Polls are relaxed; the one that finds the value is followed by the acquire.
        """
        active = _mask(None, pointers)
        while True:
            self._atomic("atomic poll", pointers, active, "relaxed", scope, lambda: None, lambda current: True, False)
            found = np.asarray(_peek(pointers, active) == np.asarray(expected.data), dtype=bool)
            if found.all():
                self._account(pointers, active, sem, scope, writes=False)
            if found.all() or (bounded and self.machine.settings.tolerate_stalls and self._agent.waited_out):
                return found

    def barrier(self) -> None:
        """Perform a CTA barrier."""
        self._program.synchronise()

    def _atomic(
        self,
        action: str,
        pointers: Any,
        mask: npt.NDArray[np.bool_],
        sem: str,
        scope: str,
        perform: Callable[[], Any],
        poll: Callable[[npt.NDArray[Any]], bool],
        writes: bool,
    ) -> Any:
        site = self.find_site()
        touch = self._touch(pointers, mask, site)
        if touch is None:
            return perform()
        sem = _SEMANTICS.get(sem, sem)
        name = f"{action} {sem}.{'sys' if scope == 'system' else scope}"

        def fruitless() -> object | None:
            current = _peek(pointers, mask)
            return current.reshape(-1).tolist() if poll(current) else None

        pending = Pending(name, tuple(touch.addresses[:4].tolist()), value=fruitless, site=site)
        self.machine.reach(pending)
        value = fruitless()
        result = perform()
        shown = _show(_peek(pointers, mask))
        if value is None:
            self._note_effect(touch, name, shown, site, True)
        else:
            self._agent.note_poll(pending.key, value)
            self.machine.record(name, place=touch.place, value=shown, site=site)
        self._account(pointers, mask, sem, scope, writes=writes)
        return result

    def _account(self, pointers: Any, mask: npt.NDArray[np.bool_], sem: str, scope: str, *, writes: bool) -> None:
        """Tell the memory model about an atomic that was just performed."""
        site = self.find_site()
        touch = self._touch(pointers, mask, site)
        if touch is not None:
            used = result_is_used(site)
            self.machine.observer.atomic(
                self._program, touch, sem, _STRENGTH[scope], used=used, writes=writes, site=site, step=self.machine.step
            )

    # -- shared steps --------------------------------------------------------------------------------------------

    @property
    def _agent(self) -> Agent:
        agent = self.machine.current
        assert agent is not None
        return agent

    @property
    def _program(self) -> Program:
        program = self.machine.program
        assert program is not None
        return program

    def _touch(self, pointers: Any, mask: npt.NDArray[np.bool_], site: Site) -> Touch | None:
        """Resolve addresses; an access outside every allocation ends the execution."""
        itemsize = _dtype(pointers).itemsize
        touch, bad = self.machine.observer.touch(pointers.data, mask, itemsize)
        if bad is not None:
            near = self.machine.memory.nearest(bad)
            message = (
                f"{self._program.agent.name} accesses {itemsize} bytes at {near}, outside every allocation, at {site}"
            )
            self.machine.report(Violation("out-of-bounds", message, self.machine.step))
            self.machine.halt()
        return touch

    def _announces(self, touch: Touch) -> bool:
        return touch.shared and self.machine.settings.data_points

    def _point(self, touch: Touch, action: str, site: Site) -> None:
        if self._announces(touch):
            self.machine.reach(Pending(action, (int(touch.addresses[0]),), site=site))

    def _note_effect(self, touch: Touch, action: str, value: str, site: Site, recorded: bool) -> None:
        self._agent.note_effect()
        if recorded:
            self.machine.record(action, place=touch.place, value=value, site=site)
            self.machine.last_writes[int(touch.addresses[0])] = f"{self._agent.name} at step {self.machine.step}"
