"""Threads that are interchangeable, explored in one order of theirs; compiled.

Where some threads may be permuted, with their locations and values, every
execution has images that need not be explored.  Take an order in which the
events of an execution may happen, and permute the threads so that they come to
a certain point, the *anchor*, one after the other.  So there is an image in
which the anchor of a thread may come after those of all interchangeable threads
before it; only such images are explored, by having the anchors before it among
what an event needs.  An anchor is that a thread enters a block, or performs the
one operation of a block.  The order is one of program order and reads-from, and
under ``sc`` of coherence and from-reads too; the edges between anchors agree
with it, so an image that has them exists under every model.

A thread that could go on, but for the anchor of one that never reaches it, is
held: the image in which the others come first is explored elsewhere.
"""

from __future__ import annotations

from .compiled import compiled
from .events import at, put, set_at, thread_at, unite
from .layout import ANCHOR, BEFORE, BLOCK, BLOCK_NOW, KIND, LAST, PARTNER, PERFORMED, PREFIX, TWIN, WRITE, Array


@compiled
def is_half(m: Array, f: int, event: int) -> bool:
    """Whether an event is the write of an update."""
    return m[at(m, f, event) + KIND] == WRITE and m[at(m, f, event) + PARTNER] >= 0


@compiled
def is_held(m: Array, f: int, thread: int) -> bool:
    """Whether a thread is at its anchor, and an interchangeable one before it is not yet."""
    there = thread_at(m, f, thread)
    if m[ANCHOR] < 0 or m[there + BLOCK_NOW] != m[ANCHOR]:
        return False
    twin = m[there + TWIN]
    while twin >= 0:
        ahead = thread_at(m, f, twin)
        if m[ahead + BLOCK_NOW] < m[ANCHOR] or (m[PERFORMED] and not _has_performed(m, f, twin)):
            return True
        twin = m[ahead + TWIN]
    return False


@compiled
def _has_performed(m: Array, f: int, thread: int) -> bool:
    """Whether a thread has an event in the block of the anchor."""
    event = m[thread_at(m, f, thread) + LAST]
    while event >= 0:
        if m[at(m, f, event) + BLOCK] == m[ANCHOR]:
            return True
        event = m[at(m, f, event) + BEFORE]
    return False


@compiled
def follow_twins(m: Array, f: int, event: int, thread: int) -> None:
    """Put an event at the anchor of a thread after the anchors of the interchangeable ones before it."""
    if is_half(m, f, event):
        return
    block, prefix = m[ANCHOR] - 1 + m[PERFORMED], set_at(m, f, event, PREFIX)
    twin = m[thread_at(m, f, thread) + TWIN]
    while twin >= 0:
        other = m[thread_at(m, f, twin) + LAST]
        while other >= 0:
            if m[at(m, f, other) + BLOCK] == block and not (m[PERFORMED] and is_half(m, f, other)):
                unite(m, prefix, set_at(m, f, other, PREFIX))
                put(m, prefix, other)
            other = m[at(m, f, other) + BEFORE]
        twin = m[thread_at(m, f, twin) + TWIN]
