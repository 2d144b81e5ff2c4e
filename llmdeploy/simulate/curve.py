"""Latency as the load grows: the queue's figures at rates up to what a replica sustains."""

from dataclasses import dataclass

from llmdeploy.simulate.lengths import Lengths
from llmdeploy.simulate.limits import Limits
from llmdeploy.simulate.pace import Pace
from llmdeploy.simulate.queue import Peak, peak

SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98)
"""Of the sustained rate. Source: own choice: close where the curves bend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What clients of one kind of replica see at growing rates."""

    name: str
    replicas: int
    points: tuple[Peak, ...]
    """Of all these replicas together, at rising rates."""
    planned_batch: float
    """Requests decoded together on a replica at the planned peak."""


def curve(
    pace: Pace,
    *,
    name: str,
    rate_per_s: float,
    replicas: int,
    lengths: tuple[Lengths, Lengths],
    limits: Limits,
) -> Curve:
    """The curve of equal replicas whose planned peak is that rate; `lengths` are those of prompts
    and of outputs."""

    def at(wanted_per_s: float) -> Peak:
        return peak(
            pace,
            rate_per_s=wanted_per_s,
            replicas=replicas,
            input_tokens=lengths[0],
            output_tokens=lengths[1],
            limits=limits,
        )

    planned = at(rate_per_s)
    points = tuple(at(share * planned.sustained_rate_per_s) for share in SHARES)
    return Curve(name=name, replicas=replicas, points=points, planned_batch=planned.batch)
