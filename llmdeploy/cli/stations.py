"""The hosts of a service's cluster as releases act on them: by SSH, each with its supervisor."""

import pathlib

from llmdeploy.cli.loading import read
from llmdeploy.cli.transport import Shells
from llmdeploy.document import parse
from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import InputError, Unreachable
from llmdeploy.inventory import Host, Inventory
from llmdeploy.release.choose import choose_on_cluster
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Station
from llmdeploy.release.systemd import Systemd
from llmdeploy.release.together import together
from llmdeploy.store import absolute

PYTHON = "python3"
"""Of a host whose entry in cluster.yaml names none."""


def read_inventory(path: str) -> tuple[Inventory, str]:
    """The inventory in a file and its text; InputError where a path in it depends on the file."""
    file = pathlib.Path(path).expanduser()
    found = read(file, Inventory, example="cluster.yaml")
    for key, value in found.places:
        if not value.startswith(("/", "~")):
            raise InputError(
                f"{path}: {key}: found {value}, needed a path that begins with / or ~: the hosts "
                "do not know the folder of this file",
                fix=f"write {key} as ~/{value}",
            )
    return found, file.read_text(encoding="utf-8")


def remember(text: str, *, layout: ServiceLayout, shell: Shell) -> None:
    """The service's state holds the inventory: later commands reach the hosts without the file."""
    shell.write(_path(layout), text.encode(), mode=0o600)


def remembered(layout: ServiceLayout, *, shell: Shell) -> Inventory | None:
    """The inventory of the service's last launch, None for a service on one host."""
    text = shell.read(_path(layout))
    if text is None:
        return None
    return parse(text.decode(errors="replace"), Inventory, place=_path(layout))


def stations(
    inventory: Inventory, names: frozenset[str], *, service: str, shells: Shells, clock: Clock
) -> tuple[Station, ...]:
    """Those of the inventory's hosts; one that does not answer is there all the same, and says so
    when it is asked for something."""
    wanted = [(host, name) for host in inventory.hosts for name in host.names if name in names]
    return together(
        lambda one: _station(inventory, *one, service=service, shells=shells, clock=clock), wanted
    )


def _station(
    inventory: Inventory, host: Host, name: str, *, service: str, shells: Shells, clock: Clock
) -> Station:
    shell, python = shells.of(host, name), inventory.python_of(host) or PYTHON
    try:
        python = absolute(python, shell=shell)
        root = absolute(inventory.state_root, shell=shell)
        layout = ServiceLayout(root=f"{root}/{service}")
        supervisor = choose_on_cluster(layout, python=python, shell=shell, clock=clock)
    except Unreachable:
        layout = ServiceLayout(root=f"{inventory.state_root}/{service}")
        supervisor = Systemd(layout=layout, shell=shell, system=True)
    return Station(
        name=name,
        address=host.data_address,
        python=python,
        model_store=inventory.model_store,
        layout=layout,
        supervisor=supervisor,
        shell=shell,
        staging_bytes_per_s=inventory.staging.bandwidth_bytes_per_s,
    )


def _path(layout: ServiceLayout) -> str:
    return f"{layout.root}/cluster.yaml"
