"""What clients see at the peak, and how many replicas keep the objectives there."""

import functools
import math

from llmdeploy.plan.load import needed_tokens_per_s, peak_requests_per_s
from llmdeploy.plan.proposal import batched_tokens
from llmdeploy.plan.rules import Broken
from llmdeploy.plan.size import Sized
from llmdeploy.service import Lengths, Service
from llmdeploy.simulate import Lengths as Distribution
from llmdeploy.simulate import Limits, Peak, by_mean, peak
from llmdeploy.simulate.lengths import as_listed
from llmdeploy.units import show_number

MOST_TRIES = 6
"""Counts of replicas tried beyond the first, each a quarter more. Source: own choice."""
LISTED = 400
"""Equally likely values that a histogram is written as. Source: as simulate.lengths."""


def carried(sized: Sized, service: Service, *, most: int) -> tuple[int, Peak] | Broken:
    """Replicas that carry the whole peak within the objectives, at most that many, and what
    clients see then; the broken objective where there is no such count."""
    needed = needed_tokens_per_s(service.workload)
    usable = sized.tokens_per_s * service.objectives.utilisation_ratio
    count = max(1, math.ceil(needed / usable - 1e-9))
    if count > most:
        words = (
            f"the peak needs {show_number(needed)} output tokens/s: {count} replicas of"
            f" {show_number(usable)} each, there is room for {most}"
        )
        return Broken(rule="peak", words=words, times_short=count / max(most, 1e-9))
    rate, tries = peak_requests_per_s(service.workload), 0
    while True:
        tries += 1
        seen = at_rate(sized, service, rate_per_s=rate, replicas=count)
        broken = broken_objective(seen, service)
        if broken is None:
            return count, seen
        if count == most or tries == MOST_TRIES:
            return broken
        count = min(most, max(count + 1, math.ceil(count * 1.25)))


def at_rate(sized: Sized, service: Service, *, rate_per_s: float, replicas: int) -> Peak:
    """What clients see where that many of these replicas share that rate."""
    load = service.workload
    return peak(
        sized.pace,
        rate_per_s=rate_per_s,
        replicas=replicas,
        input_tokens=distribution(load.input_tokens),
        output_tokens=distribution(load.output_tokens),
        limits=limits(sized, service),
    )


def limits(sized: Sized, service: Service) -> Limits:
    """What one replica admits."""
    return Limits(
        kv_cache_tokens=sized.kv_tokens,
        max_num_seqs=sized.batch,
        max_num_batched_tokens=batched_tokens(service),
        max_queue=service.gateway.max_queue,
    )


def broken_objective(seen: Peak, service: Service) -> Broken | None:
    """The first objective that these figures break."""
    promised = service.objectives
    if not seen.stable:
        words = f"the replicas are used at {seen.utilisation_ratio:.0%} of what they sustain"
        return Broken(rule="peak", words=words, times_short=seen.utilisation_ratio)
    if seen.utilisation_ratio > promised.utilisation_ratio:
        words = (
            f"used at {seen.utilisation_ratio:.0%} of what the replicas sustain, promised are"
            f" {promised.utilisation_ratio:.0%}"
        )
        times = seen.utilisation_ratio / promised.utilisation_ratio
        return Broken(rule="utilisation", words=words, times_short=times)
    if seen.tpot_p95_s > promised.tpot_p95_s:
        words = (
            f"{seen.tpot_p95_s:.3g} s a token (p95 at the peak), promised are"
            f" {promised.tpot_p95_s:g} s"
        )
        times = seen.tpot_p95_s / promised.tpot_p95_s
        return Broken(rule="tpot", words=words, times_short=times)
    if seen.ttft_p95_s > promised.ttft_p95_s:
        words = (
            f"{seen.ttft_p95_s:.3g} s to the first token (p95 at the peak), promised are"
            f" {promised.ttft_p95_s:g} s"
        )
        times = seen.ttft_p95_s / promised.ttft_p95_s
        return Broken(rule="ttft", words=words, times_short=times)
    return None


@functools.lru_cache(maxsize=64)
def distribution(lengths: Lengths) -> Distribution:
    """The lengths as the queue takes them: the histogram's own values, else by mean and p95."""
    if lengths.histogram is None:
        return by_mean(lengths.mean, p95=lengths.p95)
    total = sum(bucket.requests for bucket in lengths.histogram)
    values = [
        bucket.tokens
        for bucket in lengths.histogram
        for _ in range(max(1, round(bucket.requests / total * LISTED)))
    ]
    return as_listed(values)
