"""Releases compared at like load: what the old one's latency is with so many requests in flight.

Time per token follows the batch, and two equal releases seldom hold equally many requests: clients
that ask again at once let the split walk at random for minutes. So each latency is divided by
what the old release takes at that load, learnt from its own requests of the present step and of
the minutes before.
"""

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from llmdeploy.document import Document

LEAST_ANSWERS = 12
"""Old answers without which nothing is learnt, and latencies are compared as they are.

Source: own choice: two medians of six."""

BIN_ANSWERS = 6
"""Answers at least behind one point of the curve. Source: own choice: a median of six."""

MOST_POINTS = 16
"""Points of the curve at most. Source: own choice."""


class LoadCurve(Document):
    """The old release's latency by requests in flight: points of rising load and latency."""

    loads: tuple[float, ...]
    latencies_s: tuple[float, ...]
    p95_ratio: float = 1.0
    """95th percentile of an answer's latency over the curve's at its load."""

    def at(self, load: float) -> float:
        """The latency at `load`, seconds.

        Below the loads seen it is the lowest one's: a new release with less load then looks
        faster than it is, and is convicted only by later steps. Above them it grows as the
        load does, which is the most that a batch can cost.
        """
        place = bisect_right(self.loads, load)
        if place == 0:
            return self.latencies_s[0]
        if place == len(self.loads):
            return self.latencies_s[-1] * max(1.0, load / self.loads[-1])
        low, high = self.loads[place - 1], self.loads[place]
        part = (load - low) / (high - low)
        return self.latencies_s[place - 1] * (1 - part) + self.latencies_s[place] * part


def curve_of(seen: Iterable[tuple[float, float]]) -> LoadCurve | None:
    """The curve through (requests in flight, latency in seconds); None under LEAST_ANSWERS.

    Medians of answers of like load, made to rise with load by pooling neighbours.

    Source: isotonic regression by pool adjacent violators (Barlow, Bartholomew, Bremner, Brunk,
    "Statistical inference under order restrictions", 1972), on logarithms.
    """
    ordered = sorted((load, s) for load, s in seen if s > 0)
    if len(ordered) < LEAST_ANSWERS:
        return None
    size = max(BIN_ANSWERS, math.ceil(len(ordered) / MOST_POINTS))
    starts = range(0, len(ordered) - size + 1, size)
    bins = [ordered[at : at + size] for at in starts]
    bins[-1] = ordered[starts[-1] :]
    pooled = _rising([_center(one) for one in bins])
    curve = LoadCurve(
        loads=tuple(load for load, _, _ in pooled),
        latencies_s=tuple(math.exp(log_s) for _, log_s, _ in pooled),
    )
    spread = statistics.quantiles((s / curve.at(load) for load, s in ordered), n=20)
    return curve.model_copy(update={"p95_ratio": spread[-1]})


def _center(answers: Sequence[tuple[float, float]]) -> tuple[float, float, int]:
    """Mean load, median logarithm of the latency, and how many answers."""
    load = statistics.fmean(load for load, _ in answers)
    return load, statistics.median(math.log(s) for _, s in answers), len(answers)


def _rising(points: Sequence[tuple[float, float, int]]) -> list[tuple[float, float, int]]:
    """The points, neighbours pooled until the second value rises with the first."""
    pools: list[tuple[float, float, int]] = []
    for load, log_s, count in points:
        pools.append((load, log_s, count))
        while len(pools) > 1 and (pools[-1][1] <= pools[-2][1] or pools[-1][0] <= pools[-2][0]):
            (load_b, log_b, n_b), (load_a, log_a, n_a) = pools.pop(), pools.pop()
            total = n_a + n_b
            pools.append(
                ((load_a * n_a + load_b * n_b) / total, (log_a * n_a + log_b * n_b) / total, total)
            )
    return pools
