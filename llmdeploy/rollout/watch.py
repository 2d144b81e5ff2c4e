"""Watching one step: looks every second until the evidence decides or time is over."""

from collections.abc import Callable
from dataclasses import dataclass

from llmdeploy.release import lock
from llmdeploy.release.site import Site
from llmdeploy.rollout.candidate import Candidate
from llmdeploy.rollout.evidence import first_reading, look_at, next_reading
from llmdeploy.rollout.guards import Vital, harm, log_ends, log_harm, vital
from llmdeploy.rollout.position import Position
from llmdeploy.rollout.probes import Prober, is_short
from llmdeploy.rollout.unmoved import check_unmoved
from llmdeploy.units import show_ratio
from llmdeploy.verdict.document import Decision, Verdict
from llmdeploy.verdict.judge import DecisionRecord, decide

LOOK_S = 1.0
"""Between two looks. Source: own choice: looks cost no evidence, and about 50 ms of a core."""

REPORT_S = 5.0
"""Between two lines of progress while nothing changes."""

VITALS = 120
"""Looks that are kept for the guards: more than the longest they ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How watching ended."""

    record: DecisionRecord

    def keep(self, *, site: Site) -> None:
        """Writes the record where it can be replayed from: runs/<release>/verdicts/."""
        verdict = self.record.verdict
        name = f"{verdict.share * 100:05.1f}-{verdict.decision}.json"
        path = f"{site.layout.run(verdict.release)}/verdicts/{name}"
        site.shell.write(path, self.record.model_dump_json(by_alias=True).encode())


def watch(
    candidate: Candidate,
    seen: Position,
    *,
    until_s: float,
    prober: Prober,
    report: Callable[[str], None],
    site: Site,
) -> Ending:
    """The last look at the present step: one that decides, or the one at `until_s` (monotonic).

    While another command holds the service, a release that could move on is watched further.
    """
    policy = candidate.plan.release
    release = candidate.release
    reading = first_reading(seen, site=site)
    ends = log_ends(release, site=site)
    vitals: list[Vital] = []
    probed: str | None = None
    told_s = site.clock.monotonic_s()
    while True:
        vitals = [*vitals, vital(release, site=site)][-VITALS:]
        guard = harm(vitals, accepted_pids=seen.accepted_pids or "") or probed
        guard = guard or log_harm(ends, site=site)
        look = look_at(
            reading, seen, release_id=release.id, plan=candidate.plan, at_s=site.clock.now_s()
        )
        verdict = decide(look, guard)
        now_s = site.clock.monotonic_s()
        busy = None
        if verdict.decision == Decision.PROMOTE:
            busy = lock.read(site.layout.lock, shell=site.shell, clock=site.clock)
        decided = verdict.decision != Decision.HOLD and busy is None
        if decided or now_s >= until_s:
            return Ending(record=DecisionRecord(look=look, guard=guard, verdict=verdict))
        if now_s - told_s >= REPORT_S:
            told_s = now_s
            report(waiting(verdict, busy) if busy else progress(verdict, least=policy.min_requests))
        short = policy.synthetic and is_short(verdict, elapsed_s=look.at_s - look.step_started_s)
        probed = prober.tick(now_s=now_s, top_up=short)
        site.clock.sleep(LOOK_S)
        check_unmoved(release.id, seen, site=site)
        reading = next_reading(reading, site=site)


def waiting(verdict: Verdict, busy: lock.Lock) -> str:
    """Why a release that could move on does not, in a line."""
    return (
        f"{show_ratio(verdict.share)}: {verdict.decision}, once {busy.holder} ends, who holds the "
        f"service to {busy.reason}"
    )


def progress(verdict: Verdict, *, least: int) -> str:
    """One look in a line."""
    values = ", ".join(
        f"{e.metric} {e.e_value:.2g}/{e.limit:.0f}" for e in verdict.evidence if e.new_requests
    )
    return (
        f"{show_ratio(verdict.share)}: {verdict.live_requests} live and "
        f"{verdict.synthetic_requests} synthetic of {least} requests; evidence of harm: "
        f"{values or 'none yet'}; {verdict.decision}: {verdict.reasons[0]}"
    )
