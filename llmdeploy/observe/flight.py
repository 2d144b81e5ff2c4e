"""How many requests each release had in flight, and how many there were beside each request.

The access log tells of a request only when it has ended, so the gateway is also asked at each look
how many are in flight; the log answers for the time before the first look.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from llmdeploy.edge import Http
from llmdeploy.errors import Unreachable
from llmdeploy.gateway.process import in_flight
from llmdeploy.observe.requests import RequestRecord
from llmdeploy.release.layout import ServiceLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """Requests in flight at one moment."""

    at_s: float
    """Seconds since 1970."""
    by_release: Mapping[str, int]


def flight(layout: ServiceLayout, *, http: Http, at_s: float) -> Flight | None:
    """What is in flight now; None where the gateway does not say."""
    try:
        counts = in_flight(layout, http=http)
    except Unreachable:
        return None
    return Flight(at_s=at_s, by_release=counts) if counts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """One release's requests in flight over time: steps, and their integral up to each."""

    times_s: Sequence[float]
    counts: Sequence[int]
    integrals: Sequence[float]

    def mean(self, start_s: float, end_s: float) -> float:
        """The mean over a time, itself included: at least 1."""
        if end_s <= start_s:
            return max(1.0, self._at(start_s))
        return max(1.0, (self._integral(end_s) - self._integral(start_s)) / (end_s - start_s))

    def _at(self, time_s: float) -> float:
        place = bisect_right(self.times_s, time_s) - 1
        return float(self.counts[place]) if place >= 0 else 0.0

    def _integral(self, time_s: float) -> float:
        place = bisect_right(self.times_s, time_s) - 1
        if place < 0:
            return 0.0
        return self.integrals[place] + self.counts[place] * (time_s - self.times_s[place])


def in_flight_of(
    release: str, records: Iterable[RequestRecord], flights: Sequence[Flight]
) -> InFlight:
    """The release's requests in flight, from ended ones up to the first of `flights`, then from
    those (oldest first): each holds from halfway after the one before."""
    first_s = flights[0].at_s if flights else float("inf")
    changes: list[tuple[float, int]] = []
    for record in records:
        if release in (record.release, record.served_by) and record.started_s < first_s:
            changes += (record.started_s, 1), (record.started_s + record.duration_s, -1)
    steps: list[tuple[float, int]] = []
    count = 0
    for time_s, change in sorted(changes):
        count += change
        if time_s < first_s:
            steps.append((time_s, count))
    befores = [first_s, *((a.at_s + b.at_s) / 2 for a, b in pairwise(flights))]
    steps += [
        (since_s, one.by_release.get(release, 0))
        for since_s, one in zip(befores, flights, strict=False)
    ]
    integrals = [0.0] * len(steps)
    for place, ((start_s, held), (end_s, _)) in enumerate(pairwise(steps)):
        integrals[place + 1] = integrals[place] + held * (end_s - start_s)
    return InFlight(
        times_s=[time_s for time_s, _ in steps],
        counts=[count for _, count in steps],
        integrals=integrals,
    )
