"""What the workload asks for at its peak."""

import math

from llmdeploy.service import Workload

SECONDS_A_DAY = 86400


def peak_requests_per_s(workload: Workload) -> float:
    """Requests per second at the peak: requests a day / 86400 x peak factor."""
    return workload.requests_per_day / SECONDS_A_DAY * workload.peak_factor


def needed_tokens_per_s(workload: Workload) -> float:
    """Output tokens per second at the peak: peak rate x mean output."""
    return peak_requests_per_s(workload) * workload.output_tokens.mean


def replicas(workload: Workload, *, tokens_per_s: float, utilisation_ratio: float) -> int:
    """Replicas that carry the peak at that utilisation: ceil(needed / (predicted x utilisation)).

    Source: the documents: aim at 85 % use of the accelerators.
    """
    usable_tokens_per_s = tokens_per_s * utilisation_ratio
    return max(1, math.ceil(needed_tokens_per_s(workload) / usable_tokens_per_s - 1e-9))
