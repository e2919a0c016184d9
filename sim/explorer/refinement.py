"""What a search took for granted of a program, and found to be otherwise.

A search that leaves things out (``settling``, merged awaits) begins with a
guess, checks it at every class, and begins anew with a finer one where the
guess was wrong.  A refinement says in which respects it was.  Refinements only
grow, and a search that begins with a finer one than it needs is sound as well,
so the parts of a search can be explored with the union of what each of them
found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tiebreak.errors import UnsupportedOperationError


@dataclass(frozen=True)
class Refinement:
    """In which respects a program has to be told apart more finely.

    Attributes:
        apart: Locations, as text, whose awaits tell values apart.
        visible: Locations, as text, that are not settled.
        loud: Teams and phases with visible operations.
        everything: Whether nothing is settled.
    """

    apart: frozenset[str] = frozenset()
    visible: frozenset[str] = frozenset()
    loud: frozenset[tuple[int, int]] = frozenset()
    everything: bool = False

    @classmethod
    def restore(cls, facts: dict[str, Any]) -> Refinement:
        """A refinement of ``facts``."""
        loud = frozenset((team, phase) for team, phase in facts["loud"])
        return cls(frozenset(facts["apart"]), frozenset(facts["visible"]), loud, facts["everything"])

    @property
    def facts(self) -> dict[str, Any]:
        """Its parts, for a file."""
        parts = {"apart": sorted(self.apart), "visible": sorted(self.visible), "loud": sorted(self.loud)}
        return {**parts, "everything": self.everything}

    def __or__(self, other: Refinement) -> Refinement:
        return Refinement(
            self.apart | other.apart,
            self.visible | other.visible,
            self.loud | other.loud,
            self.everything or other.everything,
        )


class RefinedError(UnsupportedOperationError):
    """Raised when part of a search found that all parts have to begin anew, with a finer guess."""
