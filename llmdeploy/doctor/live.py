"""Looks at a running service: a few moments some seconds apart, and its latest requests."""

from dataclasses import dataclass

from llmdeploy.errors import LlmDeployError
from llmdeploy.facts.finding import Finding
from llmdeploy.observe.access_log import read_requests
from llmdeploy.observe.engine import EngineSample, engine_sample
from llmdeploy.observe.requests import RequestRecord
from llmdeploy.plan.document import Plan
from llmdeploy.release.site import Site
from llmdeploy.release.state import ReleaseState
from llmdeploy.rollout.overview import WINDOW_S, Overview, ReleaseView, overview
from llmdeploy.rollout.targets import engine_urls, plan_of, target_of
from llmdeploy.verdict.golden import golden

LOOKS, PAUSE_S = 3, 4.0
"""Moments that are looked at. Source: own choice: a step of a long prompt ends within 8 s."""
ASK_TIMEOUT_S = 5.0
"""Of one question to an engine. Source: own choice, as the guards of a gray release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The engines at one moment, in the order of the release's endpoints; None: no answer."""

    at_s: float
    engines: tuple[EngineSample | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """One release of a running service."""

    service: Overview
    release: ReleaseView
    plan: Plan
    moments: tuple[Moment, ...]
    """Oldest first."""
    requests: tuple[RequestRecord, ...]
    """Of clients, in the last five minutes."""
    golden: tuple[Finding, ...] | None
    """What golden prompts answered; None where they could not be asked."""


def look(release: ReleaseState, *, site: Site) -> Live:
    """The release now; sends its golden prompts, changes nothing else."""
    seen = overview(site=site)
    view = next(one for one in seen.releases if one.id == release.id)
    plan = plan_of(release.id, site=site)
    moments = [_moment(release, site)]
    for _ in range(LOOKS - 1):
        site.clock.sleep(PAUSE_S)
        moments.append(_moment(release, site))
    now_s = site.clock.now_s()
    records = read_requests(site.layout, since_s=now_s - WINDOW_S, shell=site.shell)
    return Live(
        service=seen,
        release=view,
        plan=plan,
        moments=tuple(moments),
        requests=tuple(r for r in records if r.release == release.id and not r.probe),
        golden=_golden(release, plan, site) if view.healthy and seen.gateway_running else None,
    )


def _moment(release: ReleaseState, site: Site) -> Moment:
    samples: list[EngineSample | None] = []
    for url in engine_urls(release):
        try:
            page = site.http.request("GET", f"{url}/metrics", timeout_s=ASK_TIMEOUT_S)
            samples.append(engine_sample(page.body.decode(errors="replace")))
        except LlmDeployError:
            samples.append(None)
    return Moment(at_s=site.clock.monotonic_s(), engines=tuple(samples))


def _golden(release: ReleaseState, plan: Plan, site: Site) -> tuple[Finding, ...] | None:
    try:
        return golden(
            target_of(release, plan, site=site), plan.release.golden, old=None, http=site.http
        )
    except LlmDeployError:
        return None
