"""Brings releases into the gateway, dark, and takes them out of it."""

from collections.abc import Collection

from llmdeploy.errors import Refused
from llmdeploy.gateway import keys
from llmdeploy.gateway.apply import read_state, update
from llmdeploy.gateway.change import state_for, with_release, with_weights, without_release
from llmdeploy.gateway.confirm import confirm
from llmdeploy.gateway.process import ensure
from llmdeploy.gateway.state import GatewayRelease, GatewayState
from llmdeploy.observe.access_log import rotate
from llmdeploy.plan.document import Plan
from llmdeploy.release import journal, room
from llmdeploy.release.site import Site
from llmdeploy.release.state import ReleaseState, ServiceState, Standing
from llmdeploy.release.supervise import GATEWAY


def check(plan: Plan, site: Site) -> None:
    """Refused when the running gateway would have to move: live clients would lose it."""
    state = read_state(site.layout, site.shell)
    if state is None or not site.supervisor.state(GATEWAY).running:
        return
    found, needed = (state.host, state.port), (plan.gateway.host, plan.gateway.port)
    if found != needed:
        raise Refused(
            f"{plan.service}: its gateway listens on {found[0]}:{found[1]}, the plan wants "
            f"{needed[0]}:{needed[1]}",
            fix=f"put {found[0]}:{found[1]} into service.yaml and plan again, or stop the "
            f"service first: llmdeploy stop {plan.service}",
        )


def attach(plan: Plan, release: ReleaseState, site: Site) -> None:
    """The gateway runs and knows the release: health-checked and open to probes, no traffic yet."""
    before = read_state(site.layout, site.shell)
    rules = keys.rules(site.layout, shell=site.shell, clock=site.clock)
    state = state_for(plan, keys=rules, before=before)
    known = GatewayRelease(
        id=release.id,
        endpoints=release.endpoints,
        max_concurrency=plan.promises.max_concurrency,
    )
    ensure(
        with_release(pruned(state, keepers(journal.state(site.layout, shell=site.shell))), known),
        layout=site.layout,
        python=site.python,
        supervisor=site.supervisor,
        shell=site.shell,
        http=site.http,
        clock=site.clock,
    )
    rotate(site.layout, shell=site.shell, http=site.http)  # no gray step reads it now


def detach(release_id: str, site: Site) -> None:
    """The gateway no longer knows the release; a share it still had goes to the others."""
    state = read_state(site.layout, site.shell)
    if state is None or state.release(release_id) is None:
        return
    update(
        lambda now: pruned(now, {r.id for r in now.releases} - {release_id}),
        layout=site.layout,
        shell=site.shell,
        clock=site.clock,
    )
    if site.supervisor.state(GATEWAY).running:
        confirm(site.layout, shell=site.shell, http=site.http, clock=site.clock)


def forget_stopped(site: Site) -> None:
    """The gateway forgets releases that no longer run: launched again, they are dark again."""
    state = read_state(site.layout, site.shell)
    kept = keepers(journal.state(site.layout, shell=site.shell))
    for release in state.releases if state else ():
        if release.id not in kept:
            detach(release.id, site)


def keepers(state: ServiceState) -> frozenset[str]:
    """Ids that the gateway keeps: what runs, and a live release that is to start again."""
    live = (r for r in state.releases if r.standing == Standing.LIVE and r.phase != "stopped")
    return frozenset(release.id for release in (*room.running(state), *live))


def pruned(state: GatewayState, kept: Collection[str]) -> GatewayState:
    """The state with none but the kept releases; they share out what the others had."""
    shares = {w.release: w.share for w in state.weights if w.release in kept}
    total = sum(shares.values())
    if len(shares) != len(state.weights):
        state = with_weights(state, {name: share / total for name, share in shares.items()})
    for release in state.releases:
        if release.id not in kept:
            state = without_release(state, release.id)
    return state
