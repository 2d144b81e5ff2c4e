"""`llmdeploy environments`: makes, lists and removes the Python that engines run in on hosts."""

import functools
import json
import pathlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from llmdeploy.cli.context import Json, Yes, ask
from llmdeploy.cli.stations import PYTHON, read_inventory
from llmdeploy.cli.transport import Shells
from llmdeploy.edge import Shell
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError
from llmdeploy.inventory import Environment, Host, Inventory
from llmdeploy.release import environments as release
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Station
from llmdeploy.release.systemd import Systemd
from llmdeploy.release.together import together
from llmdeploy.release.wheels import Wheels, read_wheels
from llmdeploy.store import absolute

app = typer.Typer(no_args_is_help=True)
Cluster = Annotated[str, typer.Argument(help="cluster.yaml with `environments`")]
Only = Annotated[list[str] | None, typer.Option("--only", help="these environments alone")]


@app.callback()
def group() -> None:
    """Make the Python that engines run in on the hosts that name one."""


@app.command()
def make(cluster: Cluster, only: Only = None, yes: Yes = False, as_json: Json = False) -> None:
    """Make each environment on its hosts: the same packages on all; what is there stays.

    Wheels are sent once and passed on by the hosts. Without wheels the hosts' own package index
    is asked, and what the first host resolves to holds for the others.
    """
    inventory, _ = read_inventory(cluster)
    here = LocalShell()
    made: list[release.Made] = []
    with Shells() as shells:
        for environment in _wanted(inventory, only, place=cluster):
            stations = _stations(inventory, environment, shells)
            shown = ", ".join(station.name for station in stations)
            wheels = _wheels(environment, pathlib.Path(cluster).expanduser(), here)
            ask(f"Make environment {environment.name} on {shown}?", yes=yes)
            made += release.make(
                environment,
                stations,
                wheels=wheels,
                report=functools.partial(typer.echo, err=True),
                here=here,
                clock=SystemClock(),
            )
    _show(tuple(made), as_json=as_json)


@app.command("list")
def list_environments(cluster: Cluster, only: Only = None, as_json: Json = False) -> None:
    """Show on which hosts which environment is, and with which packages."""
    inventory, _ = read_inventory(cluster)
    found: list[release.Made] = []
    with Shells() as shells:
        for environment in _wanted(inventory, only, place=cluster):
            stations, title = _stations(inventory, environment, shells), environment.title
            there = together(functools.partial(release.look, title), stations)
            found += filter(None, there)
            for station, made in zip(stations, there, strict=True):
                if made is None:
                    typer.echo(f"{station.name}: {title}: not made", err=True)
    _show(tuple(found), as_json=as_json)


@app.command()
def remove(cluster: Cluster, only: Only = None, yes: Yes = False) -> None:
    """Delete environments from their hosts; refused where an engine runs from one."""
    inventory, _ = read_inventory(cluster)
    with Shells() as shells:
        for environment in _wanted(inventory, only, place=cluster):
            stations, title = _stations(inventory, environment, shells), environment.title
            ask(f"Delete environment {title} on {len(stations)} host(s)?", yes=yes)
            gone = together(functools.partial(release.remove, title), stations)
            for station, was_there in zip(stations, gone, strict=True):
                typer.echo(f"{station.name}: {title}: {'removed' if was_there else 'not there'}")


def _wanted(inventory: Inventory, only: list[str] | None, *, place: str) -> Iterator[Environment]:
    """Environments that hosts name, or those of `only`."""
    named = {host.environment for host in inventory.hosts}
    for name in only or ():
        if name not in named:
            known = ", ".join(sorted(filter(None, named))) or "none"
            raise InputError(
                f"{place}: no host names an environment {name}, found: {known}",
                fix="give one of these, or set `environment` of a host",
            )
    chosen = [one for one in inventory.environments if one.name in named]
    if not chosen:
        raise InputError(
            f"{place}: no host names an environment, needed one",
            fix="add `environments` and give hosts their `environment`, as examples/cluster.yaml "
            "shows",
        )
    return iter([one for one in chosen if only is None or one.name in only])


def _stations(
    inventory: Inventory, environment: Environment, shells: Shells
) -> tuple[Station, ...]:
    """The hosts that name the environment; its folder is their store."""
    return tuple(
        _station(inventory, host, shells.of(host, one), name=one, address=str(address))
        for host in inventory.hosts
        if host.environment == environment.name
        for one, address in zip(host.names, host.data_addresses, strict=True)
    )


def _station(inventory: Inventory, host: Host, shell: Shell, *, name: str, address: str) -> Station:
    store = absolute(inventory.environment_store, shell=shell)
    layout = ServiceLayout(root=f"{store}/.making")
    return Station(
        name=name,
        address=address,
        python=absolute(host.python or PYTHON, shell=shell),
        model_store=store,
        layout=layout,
        supervisor=Systemd(layout=layout, shell=shell, system=True),
        shell=shell,
        staging_bytes_per_s=inventory.staging.bandwidth_bytes_per_s,
    )


def _wheels(environment: Environment, file: pathlib.Path, here: Shell) -> Wheels | None:
    if environment.wheels is None:
        return None
    folder = file.parent / pathlib.Path(environment.wheels).expanduser()
    return read_wheels(environment.name, str(folder.absolute()), shell=here)


def _show(made: tuple[release.Made, ...], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in made]))
        return
    for one in made:
        named = [line.partition("==")[0].partition("[")[0] for line in one.requirements]
        shown = ", ".join(f"{n} {one.packages.get(release.plain(n), 'missing')}" for n in named)
        packages = f"{len(one.packages)} packages: {shown}"
        typer.echo(f"{one.host:12} {one.folder}/bin/python  Python {one.python}  {packages}")
