"""Putting a gateway state in place: the state first, then Envoy's files, each by rename.

A command may die between any two writes: the next one reads the state and writes what differs.
"""

import json
from collections.abc import Callable

from llmdeploy.document import parse
from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import Refused
from llmdeploy.gateway.render import render
from llmdeploy.gateway.state import GatewayState
from llmdeploy.gateway.xds import resource_file
from llmdeploy.release.journal import sole_writer
from llmdeploy.release.layout import ServiceLayout


def read_state(layout: ServiceLayout, shell: Shell) -> GatewayState | None:
    """What the gateway must be; None where the service never had one."""
    return _read(state_path(layout), shell)


def apply(state: GatewayState, *, layout: ServiceLayout, shell: Shell) -> None:
    """Makes `state` what the gateway must be, and writes every file of it that differs.

    A release that comes is known to Envoy before a route names it; one that goes leaves the
    routes first. `confirm` says whether Envoy took it.
    """
    files = render(state, layout)  # refused here, nothing has changed
    shell.write(state_path(layout), _text(state), mode=0o600)
    before = shell.read(f"{layout.gateway}/cds.json")
    for name, text in _in_order(files, before):
        path = f"{layout.gateway}/{name}"
        if shell.read(path) != text.encode():
            shell.write(path, text.encode(), mode=0o600)
    for name in shell.entries(layout.gateway):
        if name.startswith(("eds-", "sds")) and name.endswith(".json") and name not in files:
            shell.remove(f"{layout.gateway}/{name}")


def update(
    change: Callable[[GatewayState], GatewayState],
    *,
    layout: ServiceLayout,
    shell: Shell,
    clock: Clock,
) -> GatewayState:
    """The new state, applied: read, changed and written with no other command in between."""
    with sole_writer(writer_path(layout), shell=shell, clock=clock):
        state = read_state(layout, shell)
        if state is None:
            raise Refused(
                f"{state_path(layout)}: the service has no gateway yet, needed one to change",
                fix="launch a release first: llmdeploy launch plans/<service>/<id>",
            )
        changed = change(state)
        apply(changed, layout=layout, shell=shell)
    return changed


def accepted_state(layout: ServiceLayout, shell: Shell) -> GatewayState | None:
    """The last state Envoy confirmed; None before the first."""
    return _read(_accepted_path(layout), shell)


def keep_accepted(state: GatewayState, *, layout: ServiceLayout, shell: Shell) -> None:
    """Remembers that Envoy runs `state`: what a refused change is taken back to."""
    if shell.read(_accepted_path(layout)) != _text(state):
        shell.write(_accepted_path(layout), _text(state), mode=0o600)


def state_path(layout: ServiceLayout) -> str:
    """Where the state lies."""
    return f"{layout.gateway}/state.json"


def writer_path(layout: ServiceLayout) -> str:
    """What a command holds while it reads, changes and writes the state."""
    return f"{layout.gateway}/state.writer"


def _in_order(files: dict[str, str], clusters_before: bytes | None) -> list[tuple[str, str]]:
    """Names and texts in the order of writing; clusters that go stay until the routes moved."""
    rank = {"cds.json": 2, "sds.json": 3, "rds.json": 5, "rds-dark.json": 6, "lds.json": 7}
    names = sorted(
        files, key=lambda name: (1 if name.startswith("eds") else rank.get(name, 4), name)
    )
    ordered = [(name, files[name]) for name in names]
    both = _with_former(files["cds.json"], clusters_before)
    if both is not None:
        at = names.index("cds.json")
        ordered[at] = ("cds.json", both)
        ordered.append(("cds.json", files["cds.json"]))
    return ordered


def _with_former(clusters: str, before: bytes | None) -> str | None:
    """The clusters and those before that are no longer among them; None where none goes."""
    try:
        former = json.loads(before or b"")["resources"]
        wanted = json.loads(clusters)["resources"]
        names = {cluster["name"] for cluster in wanted}
        going = [cluster for cluster in former if cluster["name"] not in names]
    except (ValueError, KeyError, TypeError):  # no file yet, or one broken by hand
        return None
    return resource_file([*wanted, *going]) if going else None


def _read(path: str, shell: Shell) -> GatewayState | None:
    text = shell.read(path)
    return parse(text.decode(errors="replace"), GatewayState, place=path) if text else None


def _text(state: GatewayState) -> bytes:
    return f"{state.model_dump_json(indent=1)}\n".encode()


def _accepted_path(layout: ServiceLayout) -> str:
    return f"{layout.gateway}/accepted.json"
