"""Requests over time: Poisson arrivals that follow the hours of a day."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from llmdeploy.simulate.lengths import Lengths, sample
from llmdeploy.simulate.request import Request

DAY_S = 86400.0

NIGHT_RATIO = 0.2
"""Rate of the quietest moment over the day's mean, for a peak factor above 1.
Source: own choice: chat services keep about a fifth of their mean at night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """How many requests come, when, and how long they are."""

    rate_per_s: float
    """Mean over a day."""
    peak_factor: float
    """Rate at noon of the simulated day over the mean; 1: the same all day."""
    input_tokens: Lengths
    output_tokens: Lengths
    most_tokens: int | None = None
    """Of prompt and output together; longer draws are cut."""


def poisson(
    traffic: Traffic, *, random: Random, begin_s: float = 0.0, duration_s: float = DAY_S
) -> Iterator[Request]:
    """Requests from `begin_s` of the day on, in order of arrival; times count from `begin_s`.

    Poisson arrivals at the highest rate, each kept with the chance rate / highest rate.
    Source: Lewis and Shedler 1979 (thinning).
    """
    exponent = _exponent(traffic.peak_factor)
    highest_per_s = traffic.rate_per_s * traffic.peak_factor
    at_s = random.expovariate(highest_per_s)
    while at_s < duration_s:
        ratio = day_ratio(begin_s + at_s, traffic.peak_factor, exponent=exponent)
        if ratio >= traffic.peak_factor or random.random() * traffic.peak_factor < ratio:
            yield _request(at_s, traffic, random)
        at_s += random.expovariate(highest_per_s)


def day_ratio(time_s: float, peak_factor: float, *, exponent: float | None = None) -> float:
    """Rate at that time of the day over the day's mean: low + (peak - low) x bump^exponent.

    The bump (1 - cos) / 2 is 0 at midnight and 1 at noon; the exponent makes the mean 1.
    """
    if peak_factor <= 1:
        return 1.0
    low = _night_ratio(peak_factor)
    bump = (1 - math.cos(2 * math.pi * time_s / DAY_S)) / 2
    power = _exponent(peak_factor) if exponent is None else exponent
    return low + (peak_factor - low) * math.pow(bump, power)


def _night_ratio(peak_factor: float) -> float:
    return max(NIGHT_RATIO, 2 - peak_factor)


def _exponent(peak_factor: float) -> float:
    """The bump's exponent p: mean of ((1 - cos) / 2)^p is G(p + 1/2) / (sqrt(pi) G(p + 1))."""
    if peak_factor <= 1:
        return 1.0
    low_ratio = _night_ratio(peak_factor)
    needed = math.log((1 - low_ratio) / (peak_factor - low_ratio))
    low, high = 1e-3, 1e6
    for _ in range(80):
        middle = math.sqrt(low * high)
        mean = math.lgamma(middle + 0.5) - math.lgamma(middle + 1) - math.log(math.pi) / 2
        low, high = (middle, high) if mean > needed else (low, middle)
    return high


def _request(at_s: float, traffic: Traffic, random: Random) -> Request:
    most = traffic.most_tokens
    prompt = sample(traffic.input_tokens, random, most_tokens=most - 1 if most else None)
    output = sample(traffic.output_tokens, random, most_tokens=most - prompt if most else None)
    return Request(arrival_s=at_s, input_tokens=prompt, output_tokens=output)
