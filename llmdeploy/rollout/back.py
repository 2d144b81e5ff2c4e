"""Rollback: all traffic to the release before, at once; no engine is started for it."""

from dataclasses import dataclass

from llmdeploy.document import Document
from llmdeploy.errors import Refused, Unreachable
from llmdeploy.gateway.apply import read_state
from llmdeploy.release import journal
from llmdeploy.release.site import Site
from llmdeploy.release.state import Phase, ReleaseState, ServiceState, Standing
from llmdeploy.rollout.position import position
from llmdeploy.rollout.shift import go_back
from llmdeploy.rollout.targets import engine_urls

HEALTH_TIMEOUT_S = 2.0
"""How long the release to go back to may take to say that it lives: a rollback is in a hurry."""


class Returned(Document):
    """What a rollback did."""

    service: str
    release: str
    """The one that has all traffic now."""
    rolled_back: str
    reason: str
    took_s: float
    """From the start of the move until the gateway confirmed the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """Who gives the traffic to whom."""

    rolled_back: ReleaseState
    to: ReleaseState


def way_back(service: str, *, site: Site) -> WayBack:
    """From the gray release to the live one, else from the live one to the previous.

    Refused where there is nothing to go back to, or where it does not live.
    """
    state = journal.state(site.layout, shell=site.shell)
    live, gray = state.standing(Standing.LIVE), _gray(state, site)
    if gray and live:
        way = WayBack(rolled_back=gray, to=live)
    else:
        previous = state.standing(Standing.PREVIOUS)
        if live is None or previous is None:
            raise _nothing(state, live)
        way = WayBack(rolled_back=live, to=previous)
    _check_alive(way.to, site)
    return way


def rollback(way: WayBack, *, reason: str, site: Site) -> Returned:
    """All traffic is with `way.to`, as the gateway confirmed; the journal says why."""
    took_s = go_back(way.rolled_back.id, to=way.to.id, reason=reason, site=site)
    return Returned(
        service=site.service,
        release=way.to.id,
        rolled_back=way.rolled_back.id,
        reason=reason,
        took_s=took_s,
    )


def _gray(state: ServiceState, site: Site) -> ReleaseState | None:
    """The candidate that has traffic, or was about to get some when its command ended."""
    gateway = read_state(site.layout, site.shell)
    entries = journal.read(site.layout, site.shell)
    for release in reversed(state.releases):
        if release.standing != Standing.CANDIDATE:
            continue
        place = position(entries, release.id)
        share = gateway.share(release.id) if gateway else 0.0
        if share > 0 or place.steps or place.intended:
            return release
    return None


def _nothing(state: ServiceState, live: ReleaseState | None) -> Refused:
    gone = [r for r in state.releases if r.phase == Phase.STOPPED]
    has = f"release {live.id} is live" if live else "no release is live"
    stopped = f", {', '.join(r.id for r in gone)} stopped" if gone else ""
    return Refused(
        f"{state.service}: nothing to go back to: {has}{stopped}, needed a previous release "
        "that runs",
        fix=f"launch an earlier plan and verify it: llmdeploy launch plans/{state.service}/"
        f"{gone[-1].id if gone else '<id>'}",
    )


def _check_alive(release: ReleaseState, site: Site) -> None:
    for url in engine_urls(release):
        try:
            found = f"answers {_health(url, site)}"
        except Unreachable as error:
            found = str(error)
        if found != "answers 200":
            raise Refused(
                f"release {release.id}: its engine at {url} {found}, needed it alive; no traffic "
                "was moved",
                fix=f"{site.launch_command(release.id)}, then roll back again",
            )


def _health(url: str, site: Site) -> int:
    return site.http.request("GET", f"{url}/health", timeout_s=HEALTH_TIMEOUT_S).status
