"""TTFT, TPOT and utilisation at a steady peak, in closed form: no simulation, under 1 ms."""

import math
from dataclasses import dataclass

from llmdeploy.simulate.crowd import crowd
from llmdeploy.simulate.lengths import Lengths
from llmdeploy.simulate.limits import Limits
from llmdeploy.simulate.pace import Pace
from llmdeploy.simulate.steps import Steps, steps
from llmdeploy.simulate.waiting import ttft_quantiles_s
from llmdeploy.simulate.weave import tpot_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What clients see at that rate, held until nothing changes any more."""

    ttft_mean_s: float
    """As all times: infinite where the replicas cannot keep up (`stable` is False)."""
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    """Of a request's output tokens after the first, prompts between them included."""
    tpot_p95_s: float
    utilisation_ratio: float
    """Rate over the most that all replicas together sustain; above 1 where not stable."""
    sustained_rate_per_s: float
    """Requests per second that all replicas together can serve at most."""
    output_tokens_per_s: float
    """Of all replicas; at most what they sustain."""
    batch: float
    """Mean of requests decoded together on one replica."""
    most_batch: float
    """What slots, KV cache and step tokens allow on one replica."""
    kv_used_ratio: float
    """Mean share of the KV cache that holds tokens."""
    waiting_ratio: float
    """Share of requests that find every slot taken."""
    stable: bool


def peak(
    pace: Pace,
    *,
    rate_per_s: float,
    replicas: int,
    input_tokens: Lengths,
    output_tokens: Lengths,
    limits: Limits,
) -> Peak:
    """The figures of equal replicas behind a balancer that picks the least busy of four.

    Decoding is a processor-sharing queue whose speed depends on its batch; what finds no slot
    waits first come first served; prompts are served in groups between decoding steps.
    Source: own derivation (crowd.py, waiting.py); tests/simulate/test_queue.py compares it with
    the simulation.
    """
    load = steps(
        pace,
        rate_per_s=rate_per_s / replicas,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        limits=limits,
    )
    used_ratio = load.rate_per_s / load.sustained_rate_per_s
    if used_ratio >= 1:
        return _overrun(load, replicas=replicas, used_ratio=used_ratio)
    seen = crowd(load, replicas=replicas)
    mean_s, (p50_s, p95_s, p99_s) = ttft_quantiles_s(
        load, seen, shares=(0.5, 0.95, 0.99), replicas=replicas
    )
    tpot_mean_s, tpot_p95_s = tpot_s(load, seen, output_tokens, replicas=replicas)
    return Peak(
        ttft_mean_s=mean_s,
        ttft_p50_s=p50_s,
        ttft_p95_s=p95_s,
        ttft_p99_s=p99_s,
        tpot_mean_s=tpot_mean_s,
        tpot_p95_s=tpot_p95_s,
        utilisation_ratio=used_ratio,
        sustained_rate_per_s=load.sustained_rate_per_s * replicas,
        output_tokens_per_s=rate_per_s * output_tokens.mean_tokens,
        batch=seen.batch,
        most_batch=load.room.most_batch,
        kv_used_ratio=min(1.0, seen.batch * load.room.context_tokens / limits.kv_cache_tokens),
        waiting_ratio=seen.waiting_ratio,
        stable=True,
    )


def _overrun(load: Steps, *, replicas: int, used_ratio: float) -> Peak:
    sustained = load.sustained_rate_per_s * replicas
    full_step_s = load.step_s(load.room.most_batch, load.sustained_rate_per_s)
    return Peak(
        ttft_mean_s=math.inf,
        ttft_p50_s=math.inf,
        ttft_p95_s=math.inf,
        ttft_p99_s=math.inf,
        tpot_mean_s=full_step_s,
        tpot_p95_s=full_step_s,
        utilisation_ratio=used_ratio,
        sustained_rate_per_s=sustained,
        output_tokens_per_s=sustained * load.output_tokens,
        batch=load.room.most_batch,
        most_batch=load.room.most_batch,
        kv_used_ratio=1.0,
        waiting_ratio=1.0,
        stable=False,
    )
