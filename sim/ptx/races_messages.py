"""Release and acquire patterns: what strong accesses and fences hand from thread to thread.

As in the PTX ISA, "Memory Consistency Model" ("Release and acquire patterns",
"Observation order", "Synchronizes-with"):

* A release pattern is a release at an address, or a release or a fence followed
  by a strong write of the same thread to it; an acquire pattern mirrors it.
* A read observes a write through any number of atomic read-modify-writes; each
  step must be morally strong, and so must the first operation of the release
  pattern and the last one of the acquire pattern.
* A plain store, and a strong store of another thread, end what can be observed.

``fence.sc`` counts as ``fence.acq_rel``: the order of two such fences alone is
one of the schedule, and would hide races of another one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from .observation import Access, Threads
from .races_clock import Clock
from .races_cta import CtaClock, View
from .races_record import SCOPES

Key: TypeAlias = tuple[int, int]
"""First address and width."""


@dataclass(frozen=True)
class Party:
    """A thread that performs a strong operation at a scope."""

    cta: CtaClock
    thread: int
    scope: int

    def reaches(self, other: Party) -> bool:
        """Tell whether the operation is morally strong with that of ``other``."""
        if self.cta is other.cta and self.thread == other.thread:
            return True
        return min(self.scope, other.scope) >= needed_scope(self.cta, other.cta)


@dataclass(frozen=True)
class Message:
    """What a release pattern published.

    Attributes:
        clock: What its thread knew.
        head: First operation of the pattern.
        carrier: Last write of the chain so far.
    """

    clock: Clock
    head: Party
    carrier: Party


@dataclass(frozen=True)
class Fence:
    """A release fence that a thread performed last at its scope: what it knew, and when."""

    view: View
    now: int
    party: Party

    def publish(self, writer: Party) -> Message:
        """Return the message of a strong write that follows."""
        clock = self.view.clock(np.array([self.party.thread]), self.now)
        return Message(clock, self.party, writer)


class Messages:
    """Messages in memory, and what threads saw of them or may still publish."""

    def __init__(self) -> None:
        self._windows: dict[Hashable, dict[Key, list[Message]]] = {}
        # By CTA, then by thread.
        self._fences: dict[int, dict[int, dict[int, Fence]]] = {}
        self._seen: dict[int, dict[int, list[Message]]] = {}

    def idle(self, window: Hashable, cta: CtaClock) -> bool:
        """Tell whether nothing can be observed in a window, nor published by a relaxed write of a CTA."""
        return cta.index not in self._fences and not self._windows.get(window)

    def overwrite(self, window: Hashable, access: Access) -> None:
        """Perform plain writes."""
        keys = self._windows.get(window)
        if keys:
            low, high = int(access.addresses.min()), int(access.addresses.max()) + access.width
            for key in [key for key in keys if key[0] < high and low < sum(key)]:
                if ((access.addresses < sum(key)) & (key[0] < access.addresses + access.width)).any():
                    del keys[key]

    def observe(self, window: Hashable, cta: CtaClock, access: Access, place: int) -> None:
        """Perform the read of a strong access by one of its threads."""
        keys = self._windows.get(window)
        if not keys:
            return
        thread, reader = _party(cta, access, place)
        for key in _keys(access, place):
            observed = [message for message in keys.get(key, ()) if message.carrier.reaches(reader)]
            if access.order in ("acquire", "acq_rel"):
                for message in observed:
                    if message.head.reaches(reader):
                        cta.learn(access.threads[place : place + 1], message.clock)
            if not observed:
                continue
            seen = self._seen.setdefault(cta.index, {}).setdefault(thread, [])
            known = {id(message.clock) for message in seen}
            seen.extend(message for message in observed if id(message.clock) not in known)

    def write(self, window: Hashable, cta: CtaClock, access: Access, place: int, now: int) -> None:
        """Perform the write of a strong access by one of its threads."""
        keys = self._windows.setdefault(window, {})
        thread, writer = _party(cta, access, place)
        published = [fence.publish(writer) for fence in self._fences.get(cta.index, {}).get(thread, {}).values()]
        if access.order in ("release", "acq_rel"):
            clock = cta.publish(access.threads[place : place + 1], now)
            published.append(Message(clock, writer, writer))
        for key in _keys(access, place):
            kept = [message for message in keys.get(key, ()) if _continues(message, writer, access.kind == "update")]
            for other in [other for other in keys if other[0] < sum(key) and key[0] < sum(other)]:
                del keys[other]
            messages = [replace(message, carrier=writer) for message in kept] + published
            if messages:
                keys[key] = messages

    def fence(self, cta: CtaClock, threads: Threads, order: str, scope: str, now: int) -> None:
        """Perform a fence."""
        for thread in threads.tolist():
            party = Party(cta, thread, SCOPES[scope])
            one = np.array([thread])
            if order != "release":
                for message in self._seen.get(cta.index, {}).get(thread, ()):
                    if message.head.reaches(party):
                        cta.learn(one, message.clock)
        if order != "acquire":
            self._release(cta, threads, scope, now)

    def _release(self, cta: CtaClock, threads: Threads, scope: str, now: int) -> None:
        before = cta.view
        for thread in threads.tolist():
            fences = self._fences.setdefault(cta.index, {}).setdefault(thread, {})
            fences[SCOPES[scope]] = Fence(before, now, Party(cta, thread, SCOPES[scope]))
        cta.advance(now)

    def end(self, cta: CtaClock) -> None:
        """Forget what the threads of a CTA may still publish or acquire."""
        self._fences.pop(cta.index, None)
        self._seen.pop(cta.index, None)


def needed_scope(one: CtaClock, two: CtaClock) -> int:
    """Return the number of the smallest scope that includes both CTAs."""
    if one is two:
        return SCOPES["cta"]
    here, there = one.position, two.position
    if here.rank != there.rank:
        return SCOPES["sys"]
    same = (here.launch, here.cluster) == (there.launch, there.cluster)
    return SCOPES["cluster" if same else "gpu"]


def _continues(message: Message, writer: Party, update: bool) -> bool:
    """Tell whether a message can still be observed in what ``writer`` writes."""
    if update and message.carrier.reaches(writer):
        return True
    return message.head.cta is writer.cta and message.head.thread == writer.thread


def _party(cta: CtaClock, access: Access, place: int) -> tuple[int, Party]:
    thread = int(access.threads[place])
    return thread, Party(cta, thread, SCOPES[access.scope or "gpu"])


def _keys(access: Access, place: int) -> list[Key]:
    width = access.width // access.elements
    address = int(access.addresses[place])
    return [(address + number * width, width) for number in range(access.elements)]
