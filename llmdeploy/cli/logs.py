"""`llmdeploy logs`: shows the logs of a release or of the gateway."""

import json
from typing import Annotated

import typer

from llmdeploy.cli.context import STATE_ROOT, Json, StateRoot, service_site
from llmdeploy.cli.values import at_least
from llmdeploy.errors import InputError
from llmdeploy.gateway.confirm import envoy_log
from llmdeploy.release import journal
from llmdeploy.release.logs import Source, rank_sources, release_sources, tail
from llmdeploy.release.site import Site

app = typer.Typer()


@app.command()
def logs(
    name: Annotated[str, typer.Argument(help="the service's name")],
    release: Annotated[str | None, typer.Option(help="its id; the newest where left out")] = None,
    gateway: Annotated[bool, typer.Option("--gateway", help="the gateway's log")] = False,
    replica: Annotated[str | None, typer.Option(help="one replica; all where left out")] = None,
    host: Annotated[
        str | None, typer.Option(help="one host of a cluster; all where left out")
    ] = None,
    lines: Annotated[
        int, typer.Option(callback=at_least(0), help="lines from the end, 0 or more")
    ] = 100,
    follow: Annotated[bool, typer.Option("--follow", help="go on until Ctrl-C")] = False,
    as_json: Json = False,
    state_root: StateRoot = STATE_ROOT,
) -> None:
    """Show the logs of a release or of the gateway."""
    if gateway and (release or replica or host):
        raise InputError(
            "--gateway: found together with --release, --replica or --host, needed one of them",
            fix="leave out --gateway to see an engine's log",
        )
    site = service_site(name, state_root)
    sources = _sources(site, gateway=gateway, release=release, replica=replica, host=host)
    several = len(sources) > 1
    for source, line in tail(
        sources, lines=lines, follow=follow, shell=site.shell, clock=site.clock
    ):
        if as_json:
            typer.echo(json.dumps({"source": source.name, "line": line}))
        else:
            typer.echo(f"{source.name}: {line}" if several else line)


def _sources(
    site: Site, *, gateway: bool, release: str | None, replica: str | None, host: str | None
) -> tuple[Source, ...]:
    if gateway:
        return (Source(name="gateway", path=envoy_log(site.layout)),)
    state = journal.state(site.layout, shell=site.shell)
    if site.stations:
        return rank_sources(state, release=release, replica=replica, host=host, site=site)
    if host:
        raise InputError(
            f"--host: found {host}, needed none: {site.service} runs on one host",
            fix="leave out --host",
        )
    return release_sources(state, release=release, replica=replica, layout=site.layout)
