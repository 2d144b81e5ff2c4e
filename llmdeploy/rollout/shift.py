"""Moving traffic: each move is written down, done, confirmed by the gateway, and written down."""

from llmdeploy.errors import Refused
from llmdeploy.gateway.apply import read_state, update
from llmdeploy.gateway.change import with_weights
from llmdeploy.gateway.confirm import confirm
from llmdeploy.release import journal, lock
from llmdeploy.release.site import Site
from llmdeploy.release.state import Standing
from llmdeploy.rollout.position import STEP, STEP_INTENT, Position
from llmdeploy.rollout.unmoved import check_undecided, check_unmoved
from llmdeploy.units import show_ratio

ROLLED_BACK = "rolled back"
"""All traffic went back: data has to, reason and took_s."""
PROMOTED = "promoted"
"""The release is live: data has old."""


def step_to(release_id: str, *, old: str | None, share: float, seen: Position, site: Site) -> float:
    """Seconds until the release has `share` of the traffic and `old` the rest, confirmed.

    Refused where another command moved the release since `seen`. A rollback takes no lock: one
    that comes in between wins, and `old` has all traffic again.
    """
    with lock.hold(
        site.layout,
        reason=f"give release {release_id} {show_ratio(share)} of the traffic",
        shell=site.shell,
        clock=site.clock,
    ):
        check_unmoved(release_id, seen, site=site)
        data = {"share": f"{share:g}", "old": old or ""}
        _note(site, STEP_INTENT, data, release_id)
        took_s = _set_weights(site, _shares(release_id, old, share))
        try:
            check_undecided(release_id, site=site)
        except Refused:
            _set_weights(site, {old: 1.0} if old else {})
            raise
        _note(site, STEP, {**data, "took_s": f"{took_s:.3f}"}, release_id)
    return took_s


def promote(release_id: str, *, old: str | None, seen: Position, site: Site) -> None:
    """The release is the live one; the old one stays ready to take the traffic back."""
    with lock.hold(
        site.layout,
        reason=f"promote release {release_id}",
        shell=site.shell,
        clock=site.clock,
    ):
        check_unmoved(release_id, seen, site=site)
        standings = {release_id: Standing.LIVE} | ({old: Standing.PREVIOUS} if old else {})
        journal.mark_standings(
            standings, release=release_id, layout=site.layout, shell=site.shell, clock=site.clock
        )
        _note(site, PROMOTED, {"old": old or ""}, release_id)


def go_back(release_id: str, *, to: str | None, reason: str, site: Site) -> float:
    """Seconds from now until the gateway confirmed that `to` has all traffic and the release none.

    Nothing is done before the weights: no lock, no journal, no check. Without `to` nobody gets
    traffic: clients are told so (503) instead of being served by a release that is harmful.
    A step of another command that came in between is undone: whichever of the two looks last,
    sees the other.
    """
    took_s = _set_weights(site, {to: 1.0} if to else {})
    standings = {release_id: Standing.ROLLED_BACK} | ({to: Standing.LIVE} if to else {})
    journal.mark_standings(
        standings, release=release_id, layout=site.layout, shell=site.shell, clock=site.clock
    )
    data = {"to": to or "", "reason": reason, "took_s": f"{took_s:.3f}"}
    _note(site, ROLLED_BACK, data, release_id)
    gateway = read_state(site.layout, site.shell)
    if gateway and gateway.share(release_id) > 0:
        _set_weights(site, {to: 1.0} if to else {})
    return took_s


def _set_weights(site: Site, shares: dict[str, float]) -> float:
    began_s = site.clock.monotonic_s()
    update(
        lambda state: with_weights(state, shares),
        layout=site.layout,
        shell=site.shell,
        clock=site.clock,
    )
    confirm(site.layout, shell=site.shell, http=site.http, clock=site.clock)
    return site.clock.monotonic_s() - began_s


def _shares(release_id: str, old: str | None, share: float) -> dict[str, float]:
    if old is None or share >= 1:
        return {release_id: 1.0}
    return {release_id: share, old: 1 - share}


def _note(site: Site, event: str, data: dict[str, str], release_id: str) -> None:
    journal.append(
        event, data, release=release_id, layout=site.layout, shell=site.shell, clock=site.clock
    )
