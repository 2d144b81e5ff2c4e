"""What a simulation came to, over all of it or a part of its time."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmdeploy.simulate.limits import Limits
from llmdeploy.simulate.replica import WINDOW_S
from llmdeploy.simulate.run import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and quantiles of times."""

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Figures over the requests that arrived from `begin_s` to `end_s`, and over that time."""

    begin_s: float
    end_s: float
    requests: int
    rejected: int
    preempted: int
    """Over the whole simulation: how often a request was sent back to the queue."""
    ttft: Spread | None
    """None where no request was served."""
    tpot: Spread | None
    """None where no request had two output tokens."""
    e2e: Spread | None
    output_tokens_per_s: float
    """Of all replicas, over the time."""
    busy_ratio: float
    """Share of time a replica has work; close to 1 long before it is full."""
    batch: float
    """Mean of requests decoded together on one replica, over its whole time."""
    kv_used_ratio: float
    kv_most_ratio: float
    """The fullest that any replica's cache was, over the whole simulation."""


def result(
    history: History, *, limits: Limits, begin_s: float = 0.0, end_s: float | None = None
) -> Result:
    """The figures of that part; busy time and occupancy are those of the whole windows in it."""
    until_s = history.end_s if end_s is None else end_s
    served = [s for s in history.served if begin_s <= s.arrival_s < until_s]
    rejected = sum(begin_s <= at_s < until_s for at_s in history.rejected_s)
    first, last = int(begin_s // WINDOW_S), int(-(-until_s // WINDOW_S))
    windows = [w for replica in history.windows for w in replica[first:last]]
    time_s = max(1e-9, (min(until_s, last * WINDOW_S) - first * WINDOW_S) * len(history.windows))
    return Result(
        begin_s=begin_s,
        end_s=until_s,
        requests=len(served) + rejected,
        rejected=rejected,
        preempted=history.preempted,
        ttft=_spread([s.ttft_s for s in served]),
        tpot=_spread([s.tpot_s for s in served if s.tpot_s is not None]),
        e2e=_spread([s.e2e_s for s in served]),
        output_tokens_per_s=sum(w.tokens for w in windows) / time_s * len(history.windows),
        busy_ratio=min(1.0, sum(w.busy_s for w in windows) / time_s),
        batch=sum(w.batch_s for w in windows) / time_s,
        kv_used_ratio=sum(w.kv_tokens_s for w in windows) / time_s / limits.kv_cache_tokens,
        kv_most_ratio=history.kv_most_tokens / limits.kv_cache_tokens,
    )


def busiest_hour_s(history: History) -> float:
    """Start of the hour, in seconds, in which most requests came."""
    counts: dict[int, int] = {}
    for at_s in [*(s.arrival_s for s in history.served), *history.rejected_s]:
        hour = int(at_s // WINDOW_S)
        counts[hour] = counts.get(hour, 0) + 1
    return max(counts, key=lambda hour: (counts[hour], -hour), default=0) * WINDOW_S


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    ordered = sorted(values)
    return Spread(
        mean_s=sum(ordered) / len(ordered),
        p50_s=_quantile_s(ordered, 0.5),
        p95_s=_quantile_s(ordered, 0.95),
        p99_s=_quantile_s(ordered, 0.99),
    )


def _quantile_s(ordered: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
