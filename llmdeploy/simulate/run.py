"""Requests through equal replicas behind a least-request balancer."""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from llmdeploy.simulate.limits import Limits
from llmdeploy.simulate.pace import Pace
from llmdeploy.simulate.pace_table import PaceTable
from llmdeploy.simulate.replica import Replica, Window
from llmdeploy.simulate.request import Request, Served

CHOICES = 4
"""Replicas drawn for a request, with repetition; the one with the fewest requests gets it.
Source: gateway/clusters.py (Envoy's LEAST_REQUEST with choice_count 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that happened."""

    served: tuple[Served, ...]
    """In order of arrival."""
    rejected_s: tuple[float, ...]
    """Arrival times of requests that found a full queue or do not fit the cache at all."""
    preempted: int
    windows: tuple[tuple[Window, ...], ...]
    """Of each replica, from time 0 on, one every WINDOW_S."""
    kv_most_tokens: int
    """Most that any replica's cache held."""
    end_s: float
    """When the last request was done."""


def simulate(
    requests: Iterable[Request], pace: Pace, *, replicas: int, limits: Limits, random: Random
) -> History:
    """What becomes of the requests, which come in order of arrival; the same seed, the same
    history."""
    table = PaceTable(pace)
    fleet = [Replica(table, limits) for _ in range(replicas)]
    rejected = []
    for request in requests:
        chosen = _chosen(fleet, request.arrival_s, random)
        if not chosen.offer(request):
            rejected.append(request.arrival_s)
    for replica in fleet:
        replica.advance(float("inf"))
    served = sorted(
        (served for replica in fleet for served in replica.served), key=lambda s: s.arrival_s
    )
    end_s = max((replica.now_s for replica in fleet), default=0.0)
    return History(
        served=tuple(served),
        rejected_s=tuple(rejected),
        preempted=sum(replica.preempted for replica in fleet),
        windows=tuple(_windows(replica) for replica in fleet),
        kv_most_tokens=max((replica.kv_most for replica in fleet), default=0),
        end_s=end_s,
    )


def _chosen(fleet: list[Replica], at_s: float, random: Random) -> Replica:
    if len(fleet) == 1:
        fleet[0].advance(at_s)
        return fleet[0]
    best: Replica | None = None
    for _ in range(CHOICES):
        drawn = fleet[int(random.random() * len(fleet))]
        drawn.advance(at_s)
        if best is None or drawn.active < best.active:
            best = drawn
    assert best is not None, "CHOICES is at least 1"
    return best


def _windows(replica: Replica) -> tuple[Window, ...]:
    last = max(replica.windows, default=-1)
    return tuple(replica.windows.get(i) or Window() for i in range(last + 1))
