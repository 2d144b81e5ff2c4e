"""Where a named service stands: state root, paths and real edges, without a cluster.yaml."""

import os
import sys
from typing import Annotated

import typer

from llmdeploy.cli.stations import remembered, stations
from llmdeploy.cli.transport import Shells
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.http import HttpxHttp
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError, LlmDeployError, Refused
from llmdeploy.inventory import Host, Inventory
from llmdeploy.release import journal, prepare, stage
from llmdeploy.release.choose import choose
from llmdeploy.release.hosts_in_use import hosts_in_use, knows_releases
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Site

StateRoot = Annotated[
    str,
    typer.Option(envvar="LLMDEPLOY_STATE_ROOT", help="folder that holds the services' states"),
]
"""Option of every command that takes a service's name."""
GATEWAY_HOST = Host()
"""Where a service's gateway and state are: the machine the CLI runs on."""
STATE_ROOT: str = Inventory.model_fields["state_root"].default
Json = Annotated[bool, typer.Option("--json", help="print the artefact itself")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]


def service_site(name: str, state_root: str, *, seek: bool = False) -> Site:
    """The service of that name under the state root; InputError listing the known ones.

    With `seek` all hosts of its cluster where the journal no longer tells which it runs on.
    """
    known = service_names(state_root)
    if name not in known:
        raise InputError(
            f"{whole(state_root)}: there is no service {name!r}, found: "
            f"{', '.join(known) or 'none'}",
            fix="launch a plan first, or give --state-root (or LLMDEPLOY_STATE_ROOT) where it lies",
        )
    layout = ServiceLayout(root=f"{whole(state_root)}/{name}")
    inventory, hosts = remembered(layout, shell=LocalShell()), frozenset[str]()
    if seek and inventory and not knows_releases(layout, shell=LocalShell()):
        hosts = frozenset(name for host in inventory.hosts for name in host.names)
    return make_site(layout, python=_python(layout), inventory=inventory, hosts=hosts)


def service_names(state_root: str) -> tuple[str, ...]:
    """Names of all services under the state root, sorted."""
    return prepare.services(whole(state_root), shell=LocalShell())


def make_site(
    layout: ServiceLayout,
    *,
    python: str | None,
    gateway_host: Host = GATEWAY_HOST,
    inventory: Inventory | None = None,
    hosts: frozenset[str] = frozenset(),
) -> Site:
    """The service at that place with real edges; the CLI's own Python where None is given.

    With an inventory also those of its hosts that releases run on, and `hosts`.
    """
    shells, clock = Shells(), SystemClock()
    shell = shells.of(gateway_host, gateway_host.name)
    if inventory is not None:
        hosts |= hosts_in_use(layout, shell=shell)
    name = layout.root.rpartition("/")[2]
    host_python = os.path.expanduser(python) if python else sys.executable
    return Site(
        layout=layout,
        python=host_python,
        supervisor=choose(layout, python=host_python, shell=shell, clock=clock),
        shell=shell,
        http=HttpxHttp(),
        clock=clock,
        stations=stations(inventory, hosts, service=name, shells=shells, clock=clock)
        if inventory is not None
        else (),
    )


def ask(question: str, *, yes: bool) -> None:
    """Goes on when the user says so; Refused otherwise, also where nobody is there to answer."""
    try:
        sure = yes or typer.confirm(question, err=True)
    except typer.Abort:  # standard input has ended
        typer.echo(err=True)
        sure = False
    if not sure:
        raise Refused("not confirmed, nothing changed", fix="answer y, or give --yes")


def whole(path: str) -> str:
    """The path without `~`, absolute."""
    return os.path.abspath(os.path.expanduser(path))


def _python(layout: ServiceLayout) -> str | None:
    """The Python of the newest release's plan; None where no plan can be read any more."""
    shell = LocalShell()
    try:
        for release in reversed(journal.state(layout, shell=shell).releases):
            plan = stage.staged(release.id, layout=layout, shell=shell)
            return plan.python if plan.cluster is None else None
    except LlmDeployError:  # a damaged journal or plan must not keep anyone from stopping it
        return None
    return None
