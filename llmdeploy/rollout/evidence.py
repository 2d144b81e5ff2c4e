"""The evidence of a gray step, rebuilt from the access log: a killed command loses none of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from llmdeploy.observe.access_log import Cursor, read_new, read_since
from llmdeploy.observe.flight import Flight, InFlight, flight, in_flight_of
from llmdeploy.observe.requests import RequestRecord
from llmdeploy.plan.document import Plan
from llmdeploy.release.site import Site
from llmdeploy.rollout.position import Position, Step
from llmdeploy.verdict.look import Baseline, Look, Pace, baseline_of, pace_of, samples_of

HISTORY_S = 300.0
"""How long before a step the old release's requests still teach its latency by load.

Source: own choice: at the step before, it carried more than now, so that loads are known which the
new release may reach; older minutes may have had another mix of requests."""


MOST_LEARNT = 2000
"""Requests that the pace is learnt from at most, the newest.

Source: own choice: a look at 100 requests a second takes half a second of a core with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Records since the step before the present one began, or earlier, and where to read on."""

    records: tuple[RequestRecord, ...]
    cursor: Cursor
    flights: tuple[Flight, ...] = ()
    """Requests in flight at each look of this command, oldest first."""


def first_reading(position: Position, *, site: Site) -> Reading:
    """Everything since the step before the present one began, and what is in flight."""
    step_s = position.steps[-1].started_s
    since_s = min(step_s - HISTORY_S, *(step.started_s for step in position.steps[-2:]))
    fresh = read_since(site.layout, since_s=since_s, shell=site.shell)
    return Reading(records=fresh.records, cursor=fresh.cursor, flights=_flights(site))


def next_reading(reading: Reading, *, site: Site) -> Reading:
    """The reading with what has ended since, and what is in flight now."""
    fresh = read_new(site.layout, cursor=reading.cursor, shell=site.shell)
    return Reading(
        records=reading.records + fresh.records,
        cursor=fresh.cursor,
        flights=reading.flights + _flights(site),
    )


def look_at(
    reading: Reading, position: Position, *, release_id: str, plan: Plan, at_s: float
) -> Look:
    """What the judge sees of the present step."""
    step, before = position.steps[-1], position.steps[-2:-1]
    releases = [name for name in (release_id, step.old) if name]
    loads = {name: in_flight_of(name, reading.records, reading.flights) for name in releases}
    records = [r for r in reading.records if r.started_s >= step.started_s]
    return Look(
        release=release_id,
        old_release=step.old,
        share=step.share,
        step_started_s=step.started_s,
        at_s=at_s,
        policy=plan.release,
        objectives=plan.objectives,
        samples=samples_of(records, new=release_id, old=step.old, loads=loads),
        baseline=_baseline(reading.records, before[0], step, plan) if before else None,
        pace=_pace(reading.records, step, loads),
    )


def _pace(records: Sequence[RequestRecord], step: Step, loads: Mapping[str, InFlight]) -> Pace:
    """What the old release's last live requests teach, the step's and those before it."""
    since_s = step.started_s - HISTORY_S
    recent = (
        r
        for r in reversed(records)
        if r.release == step.old and not r.probe and r.started_s >= since_s
    )
    return pace_of(samples_of(islice(recent, MOST_LEARNT), new="", old=step.old, loads=loads))


def _flights(site: Site) -> tuple[Flight, ...]:
    seen = flight(site.layout, http=site.http, at_s=site.clock.now_s())
    return (seen,) if seen else ()


def _baseline(
    records: Iterable[RequestRecord], before: Step, step: Step, plan: Plan
) -> Baseline | None:
    """What the old release did during the step before: its last traffic beside the new one."""
    if step.old is None:
        return None
    live = [
        r
        for r in records
        if before.started_s <= r.started_s < step.started_s
        and not r.probe
        and r.release == step.old
    ]
    return baseline_of(samples_of(live, new="", old=step.old), plan.objectives)
