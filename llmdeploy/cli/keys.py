"""`llmdeploy keys`: adds, lists and revokes the gateway's API keys."""

import datetime
import json
from typing import Annotated

import typer

from llmdeploy.cli.context import STATE_ROOT, Json, StateRoot, Yes, ask, service_site
from llmdeploy.cli.values import with_unit
from llmdeploy.gateway import keys
from llmdeploy.gateway.take_keys import take_keys
from llmdeploy.release.site import Site
from llmdeploy.units import parse_rate_per_s, parse_seconds, show_seconds

app = typer.Typer(no_args_is_help=True, help="Add, list and revoke the gateway's API keys.")
Name = Annotated[str, typer.Argument(help="the service's name")]


@app.command()
def add(
    name: Name,
    client: Annotated[str, typer.Option(help="who gets the key, such as alice")],
    expires: Annotated[str, typer.Option(help="how long it is valid, with unit")] = "90d",
    rate: Annotated[str | None, typer.Option(help="the client's own limit, like 20/s")] = None,
    yes: Yes = False,
    as_json: Json = False,
    state_root: StateRoot = STATE_ROOT,
) -> None:
    """Add a key and print it once; it is kept nowhere. Clients send it as a bearer token."""
    expires_s = with_unit(parse_seconds, expires, option="--expires", example="90d")
    rate_per_s = (
        with_unit(parse_rate_per_s, rate, option="--rate", example="20/s") if rate else None
    )
    site = service_site(name, state_root)
    ask(f"Add a key of {client} for {name}, valid {show_seconds(expires_s)}?", yes=yes)
    issued = keys.add(
        client,
        service=name,
        expires_s=expires_s,
        rate_per_s=rate_per_s,
        layout=site.layout,
        shell=site.shell,
        clock=site.clock,
    )
    token = issued.token.get_secret_value()
    record = issued.record.model_dump(mode="json")
    typer.echo(json.dumps({**record, "token": token}) if as_json else token)
    typer.echo(f"key {issued.record.id} of {client}: {_in_effect(site)}", err=True)


@app.command("list")
def list_keys(name: Name, as_json: Json = False, state_root: StateRoot = STATE_ROOT) -> None:
    """List all keys ever issued, without the keys themselves."""
    site = service_site(name, state_root)
    found = keys.records(site.layout, shell=site.shell)
    if as_json:
        typer.echo(json.dumps([record.model_dump(mode="json") for record in found]))
        return
    typer.echo(f"{'id':16}  {'client':20}  {'standing':8}  {'expires':10}  rate")
    for record in found:
        own = f"{record.rate_per_s:g}/s" if record.rate_per_s else "-"
        row = (record.standing(site.clock.now_s()), _day(record.expires_s), own)
        typer.echo("  ".join((record.id, f"{record.client:20}", f"{row[0]:8}", *row[1:])))


@app.command()
def revoke(
    name: Name,
    key: Annotated[str, typer.Argument(help="the key's id, from `keys list`")],
    yes: Yes = False,
    as_json: Json = False,
    state_root: StateRoot = STATE_ROOT,
) -> None:
    """Revoke a key: the gateway answers it 403 from then on."""
    site = service_site(name, state_root)
    ask(f"Revoke key {key} of {name}?", yes=yes)
    record = keys.revoke(key, layout=site.layout, shell=site.shell, clock=site.clock)
    state = _in_effect(site)
    typer.echo(record.model_dump_json() if as_json else f"{record.id}: revoked, {state}")


def _in_effect(site: Site) -> str:
    taken = take_keys(
        site.layout, supervisor=site.supervisor, shell=site.shell, http=site.http, clock=site.clock
    )
    return "in effect" if taken else "in effect once the gateway runs"


def _day(at_s: float) -> str:
    """The day; of a key that outlives the calendar `never`: older versions gave such keys."""
    if at_s > datetime.datetime.max.replace(tzinfo=datetime.UTC).timestamp():
        return "never"
    return datetime.datetime.fromtimestamp(at_s, tz=datetime.UTC).strftime("%Y-%m-%d")
