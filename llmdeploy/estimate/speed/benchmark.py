"""How an engine's makers measure a full server, where a case says no load: what then is meant."""

import math
from dataclasses import replace

from llmdeploy.estimate.case import Case

BATCHES: tuple[tuple[float, float], ...] = (
    (512.0, 30000.0), (2750.0, 3000.0), (10000.0, 1500.0), (math.inf, 1000.0),
)  # fmt: skip
"""Requests of TensorRT-LLM's benchmark, all at once, by the most tokens in and out.
Source: TensorRT-LLM 0.19 to 1.2 docs/source/performance/perf-overview.md, `$num_requests`."""
ATTENTION_WORKERS_SINCE = (1, 0)
"""Source: the same page, of 1.0: `enable_attention_dp: true` for mixtures; to 0.20 without."""


def without_load(case: Case) -> bool:
    """Whether the case says neither how many ask at once nor how often."""
    return case.concurrency is None and case.request_rate_per_s is None


def batch_requests(case: Case) -> float | None:
    """Requests that all come at once at a saturated server of that engine, where its makers say
    how many; None where more always wait."""
    if case.engine.name != "tensorrt-llm":
        return None
    tokens = (case.input_tokens or 512.0) + (case.output_tokens or 256.0)
    return next(requests for most, requests in BATCHES if tokens <= most)


def benchmarked(case: Case) -> Case:
    """The case with what makers set for a full server and a case leaves out: TensorRT-LLM's
    mixtures keep each request's attention on one device and share the experts."""
    given = case.data_parallel > 1 or case.expert_parallel or case.tensor_parallel == 1
    if case.engine.name != "tensorrt-llm" or given or not without_load(case):
        return case
    version = case.engine.version
    if case.shape.experts is None or (version is not None and version < ATTENTION_WORKERS_SINCE):
        return case
    return replace(
        case,
        data_parallel=case.tensor_parallel,
        attention_data_parallel=True,
        expert_parallel=True,
    )
