"""How many classes of executions a second: ``python -m tiebreak.explore.benchmark``."""

from __future__ import annotations

from statistics import median

from rich.console import Console
from rich.table import Table

from tiebreak.environment import prepare_interpreter
from tiebreak.sim.explorer.execution import Execution
from tiebreak.sim.explorer.exploration import Exploration, Options
from tiebreak.sim.explorer.families import flag_barrier
from tiebreak.sim.explorer.models import MODELS
from tiebreak.sim.explorer.reexecution import reexecute

REPEATS = 7
EPOCHS = 4
"""Of the exchange: 15,625 classes at three ranks."""
WARM = 3
"""Classes before the clock starts."""
LIMIT = 30.0
"""Seconds after which a search of the exchange is stopped."""


def measure(model: str, memo: bool) -> tuple[int, float]:
    """Classes of the flag barrier of four ranks and two epochs, and how many of them a second.

    Without ``memo`` every thread of every class is run from its beginning, as
    an explorer without the memo of histories has to.
    """
    program = flag_barrier(4, 2)

    def rerun(execution: Execution) -> None:
        assert reexecute(program, execution, execution.events) is not None

    def explore() -> Exploration:
        exploration = Exploration(program, Options(model=model), visit=None if memo else rerun)
        exploration.run()
        return exploration

    explore()  # The first one compiles.
    runs = [explore() for _ in range(REPEATS if memo else 1)]
    return runs[0].counts.complete, median(run.counts.complete / run.seconds for run in runs)


def measure_exchange(settle: bool, memo: bool) -> tuple[int, float]:
    """Classes of the Triton exchange of three ranks, and how many of them a second once every history is known.

    Without ``memo`` the interpreter runs every kernel anew for each class.
    """
    from tiebreak.verify.families import base_scenario

    from .merges import open_merge

    sizes = {"rows": 1, "k": 1, "local": 1, "length": 1}
    with open_merge(base_scenario("sim:alternating", ranks=3, epochs=EPOCHS, **sizes)) as (program, check):

        def rerun(execution: Execution) -> None:
            assert reexecute(program, execution, execution.events) is not None

        options = Options("ptx", races=True, settle=settle)
        exploration = Exploration(program, options, check, visit=None if memo else rerun)
        exploration.run(pause=lambda: exploration.counts.complete >= WARM)
        started = exploration.counts
        exploration.run(seconds=LIMIT)
    counts = exploration.counts
    return counts.complete, (counts.complete - started.complete) / (counts.seconds - started.seconds)


def main() -> None:
    """Print the rates."""
    prepare_interpreter()
    console = Console()
    table = Table("Model", "Classes", "Classes/s", "Classes/s without the memo")
    for model in MODELS:
        classes, rate = measure(model, memo=True)
        table.add_row(model, f"{classes:,}", f"{rate:,.0f}", f"{measure(model, memo=False)[1]:,.0f}")
    console.print("Flag barrier, 4 ranks, 2 epochs, on one core")
    console.print(table)
    table = Table("Search", "Classes", "Classes/s", "Classes/s without the memo")
    for settle in (True, False):
        classes, rate = measure_exchange(settle, memo=True)
        slow = measure_exchange(settle, memo=False)[1]
        table.add_row("settled" if settle else "whole", f"{classes:,}", f"{rate:,.0f}", f"{slow:,.1f}")
    console.print(
        f"Triton exchange, 3 ranks, {EPOCHS} epochs, under ptx with awaits distinguished; at most {LIMIT:.0f} s"
    )
    console.print(table)


if __name__ == "__main__":
    main()
