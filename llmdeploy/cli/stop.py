"""`llmdeploy stop`: stops a release, or the whole service, and leaves nothing running."""

from typing import Annotated

import typer

from llmdeploy.cli import attach
from llmdeploy.cli.context import STATE_ROOT, Json, StateRoot, Yes, ask, service_site
from llmdeploy.errors import InputError, Refused
from llmdeploy.gateway.apply import read_state
from llmdeploy.gateway.process import drain_and_stop
from llmdeploy.release import journal, lock, room
from llmdeploy.release import stop as ending
from llmdeploy.release.site import Site
from llmdeploy.release.supervise import GATEWAY
from llmdeploy.units import show_ratio

app = typer.Typer()
DRAIN_TIMEOUT_S = 30.0


@app.command()
def stop(
    name: Annotated[str, typer.Argument(help="the service's name")],
    release: Annotated[str | None, typer.Option(help="stop this release alone")] = None,
    purge: Annotated[bool, typer.Option("--purge", help="delete the service's state")] = False,
    yes: Yes = False,
    as_json: Json = False,
    state_root: StateRoot = STATE_ROOT,
) -> None:
    """Stop a release, or the whole service.

    Requests in flight may end first, up to 30 s at the gateway and the engines' drain time.
    """
    if release and purge:
        raise InputError(
            "--purge: found together with --release, needed one of them",
            fix="leave out --release to stop the service and delete its state",
        )
    site = service_site(name, state_root, seek=release is None)
    what = f"release {release} of {name}" if release else f"{name} and all its releases"
    ask(f"Stop {what}{f' and delete {site.layout.root}' if purge else ''}?", yes=yes)
    with lock.hold(site.layout, reason=f"stop {what}", shell=site.shell, clock=site.clock):
        cut, stopped = stop_one(release, site) if release else stop_all(site, purge=purge)
    if as_json:
        state = journal.state(site.layout, shell=site.shell)
        typer.echo(state.model_dump_json())
        return
    typer.echo(f"{name}: stopped {', '.join(stopped) or 'nothing, none was running'}")
    if cut:
        typer.echo(f"{cut} requests had not ended after {DRAIN_TIMEOUT_S:g} s", err=True)


def stop_one(release_id: str, site: Site) -> tuple[int, tuple[str, ...]]:
    """Stops one release, which must have no traffic: 0 requests cut, and its id."""
    state = journal.state(site.layout, shell=site.shell)
    found = ending.check_stoppable(state, release_id)
    gateway = read_state(site.layout, site.shell)
    share = gateway.share(release_id) if gateway else 0.0
    if share > 0 and found.phase not in room.GONE:
        raise Refused(
            f"{site.service}: release {release_id} has {show_ratio(share)} of the traffic, "
            "needed 0 %",
            fix=f"llmdeploy rollback {site.service}, then stop it",
        )
    attach.detach(release_id, site)
    ending.stop_release(found, reason="stopped", site=site)
    return 0, (release_id,)


def stop_all(site: Site, *, purge: bool) -> tuple[int, tuple[str, ...]]:
    """Stops gateway and engines: how many requests did not end in time, and what was stopped."""
    gateway = (GATEWAY,) if site.supervisor.state(GATEWAY).running else ()
    cut = drain_and_stop(
        site.layout,
        drain_timeout_s=DRAIN_TIMEOUT_S,
        supervisor=site.supervisor,
        shell=site.shell,
        http=site.http,
        clock=site.clock,
    )
    return cut, (*ending.stop_service(purge=purge, site=site), *gateway)
