"""The anchor by which the fewest executions are explored, see ``twins``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tiebreak.errors import InputError, UnsupportedOperationError

from .exploration import Exploration, Options
from .orbits import Anchor
from .pilot import Pilot, number_teams
from .program import Program
from .traces import Traces

MOST_BLOCKS = 24
"""Blocks of operations of a thread that are tried."""

MOST_CLASSES = 200
"""Classes after which the number of all is estimated."""


def choose_anchor(program: Program, options: Options) -> Anchor:
    """The anchor by which there seem to be the fewest executions.

    Raises:
        InputError: The program does not state which threads may be permuted.
        UnsupportedOperationError: They may not.
    """
    if program.symmetry is None:
        raise InputError("symmetry", value=program.name, limit="a program that states which threads may be permuted")
    return min(_list_anchors(program), key=lambda anchor: _estimate(program, options, anchor))


def _list_anchors(program: Program) -> Iterator[Anchor]:
    """Anchors of the interchangeable threads, as one execution goes."""
    assert program.symmetry is not None
    paths = Pilot(Traces(program), number_teams(program)).paths
    taken = [
        [len(node.operations) for node in paths[thread] for _ in range(node.blocks)]
        for thread in program.symmetry.threads
    ]
    for block in range(min(MOST_BLOCKS, *map(len, taken))):
        yield Anchor(block, performed=False)
        if all(path[block] == 1 for path in taken):
            yield Anchor(block, performed=True)


def _estimate(program: Program, options: Options, anchor: Anchor) -> float:
    """About how many classes there are."""
    exploration = Exploration(program, replace(options, symmetry=str(anchor), stop=False))
    assert exploration.orbits is not None
    exploration.orbits.counts_images = False
    exploration.run(pause=lambda: exploration.counts.classes >= MOST_CLASSES)
    if exploration.unsupported:
        raise UnsupportedOperationError(exploration.unsupported)
    return exploration.estimate if exploration.progress else float("inf")
