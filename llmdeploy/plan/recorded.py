"""A service whose lengths come from past requests rather than from its own words."""

from collections.abc import Sequence
from itertools import pairwise

from llmdeploy.service import Bucket, Lengths, Service, summary
from llmdeploy.simulate.request import Request

BUCKETS = 40
"""Of equally many requests each. Source: own choice: the 95th percentile stays within 1 %."""


def with_recorded(service: Service, requests: Sequence[Request]) -> Service:
    """The service with the lengths of those requests as histograms; its rate stays."""
    lengths = {
        "input_tokens": _lengths([request.input_tokens for request in requests]),
        "output_tokens": _lengths([request.output_tokens for request in requests]),
    }
    return service.model_copy(update={"workload": service.workload.model_copy(update=lengths)})


def _lengths(tokens: Sequence[int]) -> Lengths:
    """Histogram of equally filled buckets, each at its mean; mean and quantiles of all."""
    ordered = sorted(tokens)
    count = min(BUCKETS, len(ordered))
    edges = [len(ordered) * n // count for n in range(count + 1)]
    parts = [ordered[low:high] for low, high in pairwise(edges)]
    buckets = tuple(
        Bucket(tokens=round(sum(part) / len(part), 1), requests=float(len(part))) for part in parts
    )
    whole = summary([(float(count), 1.0) for count in ordered])
    return Lengths.model_construct(
        mean=whole["mean"], p50=whole["p50"], p95=whole["p95"], histogram=buckets
    )
