"""Timing of launches in CUDA graphs.

The launches of one graph go over the input sets in rotation and follow one
another on one stream.  One replay between two events, divided by the launches,
is a sample: what a launch costs in steady state inside a larger graph.  With
one launch per graph, events enclose the latency of a graph launch too, which
is several times that of an empty kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch

from .contenders import Launch
from .model import Method
from .statistics import Statistics, summarise

WARM_REPLAYS = 3
"""Replays before the first timed one; the first uploads the graph."""

HEAD_START_CYCLES = 4_000_000
"""Cycles (about 2 ms) for which the stream waits, so that the host queues replays faster than they run."""


def capture_graphs(launches: Sequence[Launch], method: Method) -> list[torch.cuda.CUDAGraph]:
    """Capture the launches, one per input set, after running each once.

    Returns:
        One graph that holds all launches of the method, or one graph per input set if it holds one launch.
    """
    for launch in launches:
        launch.run()
    torch.cuda.synchronize()
    if method.launches == 1:
        return [capture([launch.run]) for launch in launches]
    return [capture([launch.run for launch in launches] * (method.launches // len(launches)))]


def replay_once(graphs: Sequence[torch.cuda.CUDAGraph]) -> None:
    """Replay every graph."""
    for graph in graphs:
        graph.replay()


def time_graphs(
    graphs: Sequence[torch.cuda.CUDAGraph], method: Method, meet: Callable[[], object] = lambda: None
) -> Statistics:
    """Return the time of one launch, in microseconds.

    Args:
        graphs: From ``capture_graphs``.
        method: How often, and how many launches a graph holds.
        meet: Called straight before the replays; a barrier where several ranks take part.
    """
    rotation = itertools.cycle(graphs)
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(method.samples)]
    torch.cuda.synchronize()
    meet()
    for _ in range(WARM_REPLAYS * len(graphs)):
        next(rotation).replay()
    delay_stream(HEAD_START_CYCLES)
    for start, end in events:
        start.record()
        next(rotation).replay()
        end.record()
    torch.cuda.synchronize()
    return summarise([1000 * start.elapsed_time(end) / method.launches for start, end in events])


def delay_stream(cycles: int) -> None:
    """Let the current stream wait for about so many cycles of the GPU."""
    torch.cuda._sleep(cycles)


def capture(runs: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """Capture launches, one after another, into one graph."""
    graph = torch.cuda.CUDAGraph()
    # Other threads, such as the watchdog of a process group, may go on using the device meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for run in runs:
            run()
    return graph
