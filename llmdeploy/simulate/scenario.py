"""A load on a cluster, cut to what is worth simulating, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from llmdeploy.simulate.arrivals import Traffic, poisson
from llmdeploy.simulate.lengths import as_listed
from llmdeploy.simulate.limits import Limits
from llmdeploy.simulate.pace import Pace
from llmdeploy.simulate.queue import Peak, peak
from llmdeploy.simulate.request import Request
from llmdeploy.simulate.result import Result, busiest_hour_s, result
from llmdeploy.simulate.run import simulate

MOST_REQUESTS = 250_000
"""Requests simulated one by one. Source: own measurement: about 10 s on one slow core."""

HOUR_S = 3600.0
FEWEST_REPLICAS, MOST_REPLICAS = 16, 64
"""Replicas simulated of a cluster that has more.

Source: own simulation: with four draws a request, 16 of 64 replicas give the same quantiles to
3 %; the balancer's four draws see a sample in any case (Mitzenmacher 2001, large-system limit)."""

SETTLE_RATIO = 0.1
"""Share of a steady simulation that is not counted. Source: own choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The part of the load that is simulated, and what that leaves out."""

    traffic: Traffic
    replicas: int
    duration_s: float
    approximations: tuple[str, ...]

    @property
    def steady(self) -> bool:
        """Whether the rate is the same all the time."""
        return self.traffic.peak_factor == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What the simulation came to at the peak, beside the queue's closed form."""

    replicas: int
    simulated_replicas: int
    busiest: Result
    """Of the busiest hour, or of the steady part; rates are those of all replicas."""
    whole: Result
    """Of everything simulated; rates are those of all replicas."""
    queue: Peak
    """In closed form, at the busiest hour's rate."""
    approximations: tuple[str, ...]


def cut(traffic: Traffic, *, replicas: int) -> Cut:
    """The whole day on all replicas where that is few enough; else the peak hour, and of a large
    cluster a sample of replicas with their share of the requests."""
    if traffic.rate_per_s * 86400 <= MOST_REQUESTS and replicas <= MOST_REPLICAS:
        return Cut(traffic=traffic, replicas=replicas, duration_s=86400, approximations=())
    said = ["the peak rate, held for an hour, stands for the day"]
    rate_per_s = traffic.rate_per_s * traffic.peak_factor
    kept, duration_s = replicas, HOUR_S
    if replicas > MOST_REPLICAS or rate_per_s * duration_s > MOST_REQUESTS:
        fitting = int(MOST_REQUESTS / (rate_per_s / replicas * duration_s))
        kept = min(replicas, max(FEWEST_REPLICAS, min(MOST_REPLICAS, fitting)))
    if kept < replicas:
        said.append(f"{kept} of {replicas} replicas with their share of the requests")
        rate_per_s *= kept / replicas
    if rate_per_s * duration_s > MOST_REQUESTS:
        duration_s = MOST_REQUESTS / rate_per_s
        said.append(f"{duration_s:.0f} s of that hour")
    steady = replace(traffic, rate_per_s=rate_per_s, peak_factor=1.0)
    return Cut(traffic=steady, replicas=kept, duration_s=duration_s, approximations=tuple(said))


def answer(
    traffic: Traffic, pace: Pace, *, replicas: int, limits: Limits, seed: int = 0
) -> Simulated:
    """The traffic's day, or what is cut of it, on these replicas.

    The same seed gives the same answer.
    """
    part = cut(traffic, replicas=replicas)
    requests = poisson(part.traffic, random=Random(seed), duration_s=part.duration_s)
    history = simulate(
        requests, pace, replicas=part.replicas, limits=limits, random=Random(seed + 1)
    )
    if part.steady:
        begin_s, end_s = SETTLE_RATIO * part.duration_s, part.duration_s
    else:
        begin_s = busiest_hour_s(history)
        end_s = begin_s + HOUR_S
    busiest = result(history, limits=limits, begin_s=begin_s, end_s=end_s)
    queue = peak(
        pace,
        rate_per_s=max(1, busiest.requests) / (end_s - begin_s),
        replicas=part.replicas,
        input_tokens=traffic.input_tokens,
        output_tokens=traffic.output_tokens,
        limits=limits,
    )
    whole = result(history, limits=limits, end_s=part.duration_s)
    return _scaled(busiest, whole, queue, replicas=replicas, cut_to=part)


def replay(
    requests: Sequence[Request], pace: Pace, *, replicas: int, limits: Limits, seed: int = 0
) -> Simulated:
    """The recorded requests as they came; the queue's figures are for their busiest hour."""
    history = simulate(requests, pace, replicas=replicas, limits=limits, random=Random(seed + 1))
    last_s = max(requests[-1].arrival_s, 1e-3)
    begin_s = busiest_hour_s(history)
    end_s = max(begin_s + 1e-3, min(begin_s + HOUR_S, last_s + 1e-6))
    busiest = result(history, limits=limits, begin_s=begin_s, end_s=end_s)
    queue = peak(
        pace,
        rate_per_s=max(1, busiest.requests) / (end_s - begin_s),
        replicas=replicas,
        input_tokens=as_listed([r.input_tokens for r in requests]),
        output_tokens=as_listed([r.output_tokens for r in requests]),
        limits=limits,
    )
    return Simulated(
        replicas=replicas,
        simulated_replicas=replicas,
        busiest=busiest,
        whole=result(history, limits=limits, end_s=last_s + 1e-6),
        queue=queue,
        approximations=(),
    )


def _scaled(
    busiest: Result, whole: Result, queue: Peak, *, replicas: int, cut_to: Cut
) -> Simulated:
    """Rates of the simulated replicas, brought up to all."""
    times = replicas / cut_to.replicas

    def scaled(found: Result) -> Result:
        return replace(found, output_tokens_per_s=found.output_tokens_per_s * times)

    return Simulated(
        replicas=replicas,
        simulated_replicas=cut_to.replicas,
        busiest=scaled(busiest),
        whole=scaled(whole),
        queue=replace(
            queue,
            output_tokens_per_s=queue.output_tokens_per_s * times,
            sustained_rate_per_s=queue.sustained_rate_per_s * times,
        ),
        approximations=cut_to.approximations,
    )
