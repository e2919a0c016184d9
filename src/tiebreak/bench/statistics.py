"""What is kept of repeated timings of one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tiebreak.errors import InputError


@dataclass(frozen=True)
class Statistics:
    """Median and spread of the time of one launch, in microseconds.

    Attributes:
        median: Half of the samples are at most this.
        p10: Tenth percentile.
        p90: Ninetieth percentile.
        count: Samples, each of them the mean of the launches of one graph.
    """

    median: float
    p10: float
    p90: float
    count: int


def summarise(samples: Sequence[float]) -> Statistics:
    """Return the statistics of samples in microseconds.

    Raises:
        InputError: There is no sample, or one that is no time.
    """
    if not samples:
        raise InputError("number of samples", value=0, limit="must be at least 1")
    for sample in samples:
        if not (math.isfinite(sample) and sample >= 0):
            raise InputError("sample", value=sample, limit="must be a finite time of at least 0")
    ordered = sorted(samples)
    return Statistics(quantile(ordered, 0.5), quantile(ordered, 0.1), quantile(ordered, 0.9), len(ordered))


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return a quantile of rising samples, interpolated between neighbours.

    Source:
        Definition 7 of Hyndman and Fan, Sample quantiles in statistical packages (1996), NumPy's default.
    """
    place = fraction * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
