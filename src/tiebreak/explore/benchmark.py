"""How many classes of executions a second: ``python -m tiebreak.explore.benchmark``."""

from __future__ import annotations

from statistics import median

from rich.console import Console
from rich.table import Table

from tiebreak.sim.explorer.execution import Execution
from tiebreak.sim.explorer.exploration import Exploration, Options
from tiebreak.sim.explorer.families import flag_barrier
from tiebreak.sim.explorer.models import MODELS
from tiebreak.sim.explorer.reexecution import reexecute

REPEATS = 7


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


def main() -> None:
    """Print the rates."""
    table = Table("Model", "Classes", "Classes/s", "Classes/s without the memo")
    for model in MODELS:
        classes, rate = measure(model, memo=True)
        table.add_row(model, f"{classes:,}", f"{rate:,.0f}", f"{measure(model, memo=False)[1]:,.0f}")
    console = Console()
    console.print("Flag barrier, 4 ranks, 2 epochs, on one core")
    console.print(table)


if __name__ == "__main__":
    main()
