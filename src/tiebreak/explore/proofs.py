"""Larger explorations of the merge than tests have time for: ``python -m tiebreak.explore.proofs``."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from rich.console import Console

from tiebreak.environment import prepare_interpreter
from tiebreak.sim.explorer.exploration import Exploration, Options


@dataclass(frozen=True)
class Proof:
    """An exploration of the exchange under ``ptx``, with the smallest merge, that must prove it.

    Attributes:
        ranks, epochs, mode, discipline: Of the scenario.
        merged: Whether all values that end a wait are one class.
        classes: How many there must be, by the counts of the flag barrier with
            unordered lanes: 25 and 543 for each two consecutive epochs of three
            and four ranks.
    """

    ranks: int
    epochs: int
    mode: str = "eager"
    discipline: str = "alternating"
    merged: bool = True
    classes: int = 1

    def explore(self) -> Exploration:
        """Explore it to the end or the first failure."""
        from tiebreak.verify.families import base_scenario

        from .merges import explore_merge

        sizes = {"rows": 1, "k": 1, "local": 1, "length": 1}
        scenario = base_scenario(
            f"sim:{self.discipline}", ranks=self.ranks, epochs=self.epochs, mode=self.mode, **sizes
        )
        return explore_merge(scenario, Options("ptx", merge_awaits=self.merged, races=True, settle=True))

    def __str__(self) -> str:
        awaits = "merged" if self.merged else "distinct"
        return f"{self.ranks} ranks, {self.epochs} epochs, {self.mode}, {self.discipline}, awaits {awaits}"


@dataclass(frozen=True)
class FusedProof:
    """An exploration of the fused merge as it is compiled, under ``ptx``, that must prove it.

    Attributes:
        ranks, epochs, mode: Of the scenario.
        merged: Whether one order in which the CTAs of a rank finish stands for all.
    """

    ranks: int
    epochs: int
    mode: str = "eager"
    merged: bool = True

    @property
    def classes(self) -> int:
        """How many there must be: in each epoch the two CTAs of a rank finish in either order."""
        return 1 if self.merged else 1 << self.ranks * self.epochs

    def explore(self) -> Exploration:
        """Explore it to the end or the first failure."""
        from .compiled import explore_compiled
        from .fused import fused_scenario

        scenario = fused_scenario((f"ranks={self.ranks}", f"epochs={self.epochs}", f"mode={self.mode}"))
        return explore_compiled(scenario, Options("ptx", merge_awaits=True, races=True), take_turns=self.merged)

    def __str__(self) -> str:
        arrivals = "merged" if self.merged else "distinct"
        return f"fused merge of {self.ranks} ranks, {self.epochs} epochs, {self.mode}, arrivals {arrivals}"


PROOFS: tuple[Proof | FusedProof, ...] = (
    *(
        Proof(ranks, 3, mode, discipline)
        for ranks in (2, 3, 4)
        for mode in ("eager", "graph")
        for discipline in ("alternating", "acknowledged")
    ),
    Proof(8, 2),
    Proof(8, 2, "graph", "acknowledged"),
    Proof(8, 4),
    Proof(3, 4, merged=False, classes=25**3),
    Proof(4, 2, merged=False, classes=543),
    Proof(4, 3, merged=False, classes=543**2),
    *(FusedProof(ranks, 3, mode) for ranks in (2, 3, 4) for mode in ("eager", "graph")),
    *(FusedProof(8, 2, mode) for mode in ("eager", "graph")),
    *(FusedProof(ranks, 3, merged=False) for ranks in (2, 3, 4)),
)


def main() -> int:
    """Explore all; 0 if everything is proved and has its number of classes."""
    prepare_interpreter()
    console = Console(soft_wrap=True)
    failed = 0
    for proof in PROOFS:
        start = time.perf_counter()
        exploration = proof.explore()
        complete, wanted = exploration.counts.complete, proof.classes
        failed += str(exploration.conclusion) != "PROVED" or complete != wanted
        seconds = time.perf_counter() - start
        console.print(f"{proof}: {exploration.conclusion}, {complete:,} classes of {wanted:,}, {seconds:.1f} s")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
