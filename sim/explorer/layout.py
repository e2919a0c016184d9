"""The memory of the compiled search: one array of int64, and where everything is in it.

The memory starts with the header.  After it come the frames, one above the
other along the current path of the search: each is one execution graph with
the choices still open for its next event.  Compiled functions take the memory
and the address of a frame.  In a frame stand, in this order, its scalars, the
set of slots in use, the threads, the last event of each location, the sequence
of the events, the events, and the choices.  A set of events is a row of words,
one bit per slot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]

# Operations; to take is to await and be given the value.
LOAD, STORE, UPDATE, AWAIT, FENCE, ARRIVE, DEPART, TAKE = range(8)
# Events; an update is a read, and a write if it writes.  A wait that never ends is starved.
READ, WRITE, FENCED, ARRIVED, DEPARTED, STARVED = range(6)
# Why the search came back.
DONE, LEAF, MISSING, FAILED_THREAD, FULL, PAUSED, UNSTABLE = range(7)
# Of parts of the search: go on; an operation that cannot be issued now.
NONE, UNREADY = 7, 8
# What is looked up in the table: the state after a value, whether a value ends a wait, what an update writes.
FOLD, TEST, CHANGE = range(3)
# Number of operations of a state in which a thread has ended.
FINISHED, BROKEN, CUT = 0, -1, -2
# Choices for an event.
FORWARD, REVISIT, LAPSE = range(3)

SC_ORDER = 5
"""The order sc, see ``operations.Order``."""

# Memory models.
SEQUENTIAL, RC11, PTX = range(3)

INITIAL = -1
"""Stands for the event that wrote a location's initial value."""
NOTHING = -1
"""What an update that does not write looks up."""

# Header: the layout.
CAPACITY, WORDS, RECORD, THREADS, LOCATIONS, CHOICES, FRAMES, FRAME = range(8)
AT_USED, AT_THREADS, AT_LOCATIONS, AT_SEQUENCE, AT_EVENTS, AT_CHOICES, AT_SCRATCH, AT_CAUSES = range(8, 16)
AT_ORDERS, AT_TURNS = 16, 17
# Header: the search.
TOP, MISS_KIND, MISS_ID, MISS_VALUE, MODEL, SHARD, SHARDS, SPLIT, TICKET, UNSTABLE_AT = range(18, 28)
FAIR, VERDICT, SEED, TOO_MANY, ONWARD, FINGERPRINT, ANCHOR, PERFORMED, HELD = range(28, 37)
# Header: counters.
COMPLETE, STUCK, BLOCKED, CUT_SHORT, STEPS, REJECTED, LAPSED, SKIPPED = range(37, 45)
HEADER = 45

# Scalars of a frame: numbers of events, of slots ever in use, of decisions on the way here, of choices offered and
# taken (-1 while the next event is unknown), and the next event; then the choice to begin with, and the number of
# events of order sc.
SIZE, HIGH, BRANCHES, OFFERED, TAKEN, NEXT_THREAD, NEXT_LANE, NEXT_OPERATION, NEXT_KIND, NEXT_PARTNER = range(10)
ORIGIN, STRONGEST = 10, 11
SCALARS = 12

# A thread: block and state, lanes that were issued, updates whose write is missing, whether a lane waits for ever, its
# last event, and the interchangeable thread before it, see ``twins``.
BLOCK_NOW, STATE_NOW, ISSUED, PENDING, FROZEN, LAST, TWIN = range(7)
THREAD_RECORD = 7

# An event.  STATE is that of the thread when it issued the event, SOURCE the write that a read reads, PARTNER the
# other half of an update or -1, WAITS whether it is the end of a wait (2: leaving open which value ended it); BEFORE
# and BEFORE_THERE are the events added before it by its thread and at its location.
OPERATION, LOCATION, THREAD, BLOCK, LANE, STATE, KIND, SOURCE, PARTNER, VALUE = range(10)
ORDER, SCOPE, CTA_OF, GPU_OF, WAITS, BEFORE, BEFORE_THERE, STRANDS = range(10, 18)
# Then four sets: events before it by program order, reads-from and barriers; those that happen before it (PTX: in base
# causality order, without that of fences); those that synchronise with an acquire of it (PTX: the first events of the
# release patterns that it observes); writes before it in coherence order.
PREFIX, HAPPENS, RELEASED, EARLIER = range(4)
FIELDS, SETS = 18, 4

SCRATCH_SETS = 4
"""Sets that are needed for a moment; after them come two sets per event."""

# Rows of ``Tables.operations``; a barrier's location is its name, its value the number of participants.
OP_KIND, OP_LOCATION, OP_ORDER, OP_SCOPE, OP_VALUE, OP_STRANDS = range(6)
# Rows of ``Tables.states``: the first operation and how many there are.
FIRST, COUNT = range(2)
# Rows of ``Tables.places``: a thread's first state, and where it runs.
ROOT, CTA, GPU = range(3)
# Rows of ``Tables.locations``: a location's first value, and whether its awaits leave open which value ended them.
START, MERGED = range(2)


class Tables(NamedTuple):
    """What is known of the program so far.

    Attributes:
        operations, states, places, locations: One column per operation, state
            of a thread, thread and location.
        keys, results: Hash table of what values lead to.
    """

    operations: Array
    states: Array
    places: Array
    locations: Array
    keys: Array
    results: Array


@dataclass(frozen=True)
class Shape:
    """Room for a search.

    Attributes:
        threads: Threads of the program.
        events: Events of a graph.
        locations: Locations and barriers.
        choices: Choices for an event.
        frames: Decisions on a path.
    """

    threads: int
    events: int = 64
    locations: int = 16
    choices: int = 32
    frames: int = 32

    def write_header(self, memory: Array) -> int:
        """Write the layout; returns the words needed."""
        words = (self.events + 63) // 64
        record = FIELDS + SETS * words
        used = SCALARS
        threads = used + words
        locations = threads + THREAD_RECORD * self.threads
        sequence = locations + self.locations
        events = sequence + self.events
        choices = events + self.events * record
        frame = choices + 3 * self.choices
        scratch = HEADER + frame * self.frames
        causes = scratch + SCRATCH_SETS * words
        orders = causes + self.events * words
        turns = orders + self.events * words
        layout = (self.events, words, record, self.threads, self.locations, self.choices, self.frames, frame,
                  used, threads, locations, sequence, events, choices, scratch, causes, orders, turns)  # fmt: skip
        memory[: len(layout)] = layout
        return turns + self.threads


def make_memory(shape: Shape) -> Array:
    """Memory without content."""
    header = np.zeros(HEADER, np.int64)
    memory = np.zeros(shape.write_header(header), np.int64)
    memory[:HEADER] = header
    memory[memory[AT_TURNS] :] = np.arange(shape.threads)
    return memory


def double(shape: Shape, axis: str) -> Shape:
    """Twice the room along one axis."""
    return replace(shape, **{axis: 2 * getattr(shape, axis)})


def move(memory: Array, old: Shape, new: Shape) -> Array:
    """The same search in a larger memory."""
    larger = make_memory(new)
    larger[TOP:HEADER] = memory[TOP:HEADER]
    larger[larger[AT_TURNS] :] = memory[memory[AT_TURNS] :]
    for number in range(old.frames):
        before = memory[HEADER + number * memory[FRAME] :]
        after = larger[HEADER + number * larger[FRAME] :]
        after[: memory[AT_LOCATIONS] - memory[AT_THREADS] + larger[AT_THREADS]][larger[AT_THREADS] :] = before[
            memory[AT_THREADS] : memory[AT_LOCATIONS]
        ]
        after[:SCALARS] = before[:SCALARS]
        for place, count in (
            (AT_USED, memory[WORDS]), (AT_SEQUENCE, old.events), (AT_CHOICES, 3 * old.choices),
        ):  # fmt: skip
            after[larger[place] : larger[place] + count] = before[memory[place] : memory[place] + count]
        after[larger[AT_LOCATIONS] : larger[AT_LOCATIONS] + new.locations] = INITIAL
        after[larger[AT_LOCATIONS] : larger[AT_LOCATIONS] + old.locations] = before[
            memory[AT_LOCATIONS] : memory[AT_LOCATIONS] + old.locations
        ]
        _move_events(memory, before, larger, after)
    return larger


def _move_events(memory: Array, before: Array, larger: Array, after: Array) -> None:
    """Move the events of a frame."""
    events, record, words = int(memory[CAPACITY]), int(memory[RECORD]), int(memory[WORDS])
    source = before[memory[AT_EVENTS] : memory[AT_EVENTS] + events * record].reshape(events, record)
    start, size = int(larger[AT_EVENTS]), int(larger[RECORD])
    target = after[start : start + events * size].reshape(events, size)
    target[:, :FIELDS] = source[:, :FIELDS]
    for which in range(SETS):
        place = FIELDS + which * int(larger[WORDS])
        target[:, place : place + words] = source[:, FIELDS + which * words : FIELDS + (which + 1) * words]
