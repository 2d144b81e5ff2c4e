"""Token counts of requests as distributions: lognormal, bins of a histogram, or as listed."""

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Protocol

from llmdeploy.errors import InputError

_NORMAL = NormalDist()
_Z95 = _NORMAL.inv_cdf(0.95)
SPREAD_MOST = _Z95
"""Largest sigma of a lognormal by mean and p95: past it p95 / mean falls again.

Source: own derivation: ln(p95 / mean) = z s - s^2 / 2 is largest at s = z (ratio 3.87)."""

TAIL_SPREAD = 1.0
"""Sigma of the long requests where p95 / mean is past what one lognormal can be.
Source: own choice: the shape of chat prompts."""

FEWEST_LONG = 0.15
"""Smallest share of long requests tried: there p95 / mean is largest, 6.2.
Source: own computation with TAIL_SPREAD."""

POINTS = 400
"""Equally likely values a computed mixture is written as. Source: own choice."""


class Lengths(Protocol):
    """A distribution of token counts."""

    @property
    def mean_tokens(self) -> float: ...

    @property
    def square_mean(self) -> float:
        """Mean of the squared token count."""
        ...

    def quantile_tokens(self, share: float) -> float:
        """The count that this share of requests does not exceed."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """Tokens whose logarithm is normal: what chat traffic looks like."""

    mean_tokens: float
    sigma: float

    @property
    def square_mean(self) -> float:
        """Mean of the squared token count."""
        return self.mean_tokens**2 * math.exp(self.sigma**2)

    def quantile_tokens(self, share: float) -> float:
        """The count that this share of requests does not exceed."""
        z = _NORMAL.inv_cdf(share)
        return self.mean_tokens * math.exp(self.sigma * z - self.sigma**2 / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Bins from low to high with shares; a bin whose ends are equal is that one value."""

    lows: tuple[float, ...]
    highs: tuple[float, ...]
    ends: tuple[float, ...]
    """Share of requests up to and with each bin; the last is 1."""

    @property
    def mean_tokens(self) -> float:
        return sum(w * (low + high) / 2 for w, low, high in self._bins())

    @property
    def square_mean(self) -> float:
        """Mean of the squared token count."""
        return sum(w * (a * a + a * b + b * b) / 3 for w, a, b in self._bins())

    def quantile_tokens(self, share: float) -> float:
        """The count that this share of requests does not exceed."""
        index = min(bisect.bisect_left(self.ends, share), len(self.ends) - 1)
        begin = self.ends[index - 1] if index else 0.0
        width = self.ends[index] - begin
        within = (share - begin) / width if width else 1.0
        return self.lows[index] + within * (self.highs[index] - self.lows[index])

    def _bins(self) -> Sequence[tuple[float, float, float]]:
        begins = (0.0, *self.ends[:-1])
        shares = [end - begin for begin, end in zip(begins, self.ends, strict=True)]
        return list(zip(shares, self.lows, self.highs, strict=True))


def by_mean(mean: float, *, p95: float) -> Lengths:
    """The distribution with that mean and 95th percentile: one lognormal where there is one, else
    short requests of one token and a lognormal share of long ones."""
    if not 0 < mean <= p95:
        raise InputError(
            f"lengths: found mean {mean:g} and p95 {p95:g}, needed 0 < mean <= p95",
            fix="give the mean and the 95th percentile of the token counts",
        )
    room = SPREAD_MOST**2 - 2 * math.log(p95 / mean)
    if room >= 0:
        return Lognormal(mean_tokens=mean, sigma=SPREAD_MOST - math.sqrt(room))
    return _with_short(mean, p95)


def by_bins(edges: Sequence[float], weights: Sequence[float]) -> Histogram:
    """The histogram with those bin edges, one more than weights; weights need not sum to 1."""
    rising = all(a < b for a, b in itertools.pairwise(edges))
    total = sum(weights)
    if len(edges) != len(weights) + 1 or not rising or min(weights, default=0) < 0 or total <= 0:
        raise InputError(
            f"histogram: found {len(edges)} edges and {len(weights)} weights, needed rising edges,"
            " one more than weights, and weights of 0 or more that are not all 0",
            fix="give N + 1 rising edges in tokens and N weights",
        )
    kept = [(a, b, w) for a, b, w in zip(edges, edges[1:], weights, strict=False) if w > 0]
    return _histogram(kept)


def as_listed(values: Sequence[float]) -> Histogram:
    """The distribution of the values themselves, each as likely."""
    if not values:
        raise InputError("lengths: found no request, needed one", fix="give a file with requests")
    counts: dict[float, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return _histogram([(value, value, counts[value]) for value in sorted(counts)])


def sample(lengths: Lengths, random: Random, *, most_tokens: int | None = None) -> int:
    """A whole token count of at least 1, drawn from the distribution."""
    tokens = max(1, round(lengths.quantile_tokens(random.random() or 0.5)))
    return tokens if most_tokens is None else min(tokens, most_tokens)


def _histogram(bins: Sequence[tuple[float, float, float]]) -> Histogram:
    total, seen, ends = sum(weight for *_, weight in bins), 0.0, []
    for *_, weight in bins:
        seen += weight
        ends.append(seen / total)
    ends[-1] = 1.0
    return Histogram(
        lows=tuple(low for low, *_ in bins), highs=tuple(b for _, b, _ in bins), ends=tuple(ends)
    )


def _with_short(mean: float, p95: float) -> Histogram:
    """Shares of one-token and of lognormal requests that keep both; InputError where none do."""
    few, all_long = FEWEST_LONG, 1.0
    most = _mixed_tokens(mean, few, 0.95)
    if most < p95:
        raise InputError(
            f"lengths: found p95 {p95:g} with mean {mean:g}, needed a p95 of at most {most:.0f}:"
            " no usual distribution is that wide",
            fix="check the two, or give a histogram or a CSV of requests",
        )
    for _ in range(50):
        middle = (few + all_long) / 2
        wide = _mixed_tokens(mean, middle, 0.95) >= p95
        few, all_long = (middle, all_long) if wide else (few, middle)
    values = [_mixed_tokens(mean, few, (i + 0.5) / POINTS) for i in range(POINTS)]
    values[-1] += max(0.0, mean * POINTS - sum(values))  # the tail past the last point
    return as_listed(values)


def _mixed_tokens(mean: float, long_share: float, share: float) -> float:
    """Quantile of the mixture: the long ones' mean makes up for the one-token ones."""
    within = (share - (1 - long_share)) / long_share
    if within <= 0:
        return 1.0
    long_mean = (mean - (1 - long_share)) / long_share
    return Lognormal(mean_tokens=long_mean, sigma=TAIL_SPREAD).quantile_tokens(within)
