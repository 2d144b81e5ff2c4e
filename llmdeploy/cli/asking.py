"""Asks the inventory's hosts for their facts, and shows how far each is."""

import os
import sys
from collections.abc import Iterator

import typer

from llmdeploy.cli.host_table import HostTable
from llmdeploy.cli.loading import Loaded
from llmdeploy.cli.transport import LOCAL, Shells
from llmdeploy.edge.clock import SystemClock
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.collect import Depth, collect
from llmdeploy.facts.collect_all import Ask, collect_all
from llmdeploy.inventory import Host, Inventory

REMOTE_PYTHON = "python3"
"""Where cluster.yaml names none for a host reached by SSH."""
_WHAT = {
    Depth.FIND: "facts",
    Depth.IMPORT: "facts and imports (about 10 s)",
    Depth.MEASURE: "facts, imports and speeds (about 10 s)",
}


def ask_hosts(loaded: Loaded, *, depth: Depth, timeout_s: float) -> Bundle:
    """All facts. One host that does not answer is an error; one of several is in the bundle."""
    clock = SystemClock()
    with Shells() as shells:
        asks = list(_asks(loaded, shells))
        shown = asks[0].host if len(asks) == 1 else f"{len(asks)} hosts"
        typer.echo(f"{shown}: asking for {_WHAT[depth]} ...", file=sys.stderr)
        if len(asks) == 1:
            return collect(
                asks[0].host,
                asks[0].python,
                loaded.paths,
                depth=depth,
                timeout_s=timeout_s,
                shell=asks[0].shell(),
                clock=clock,
            )
        with HostTable([ask.host for ask in asks]) as hosts:
            return collect_all(
                asks,
                loaded.paths,
                depth=depth,
                timeout_s=timeout_s,
                report=hosts.tell,
                clock=clock,
            )


def _asks(loaded: Loaded, shells: Shells) -> Iterator[Ask]:
    for host in loaded.inventory.hosts:
        for name in host.names:
            yield Ask(
                host=name,
                python=python_of(host, loaded.inventory),
                shell=lambda host=host, name=name: shells.of(host, name),  # type: ignore[misc]
            )


def python_of(host: Host, inventory: Inventory) -> str:
    """As cluster.yaml has it; where it names none, the CLI's own on this machine."""
    named = inventory.python_of(host)
    if host.address != LOCAL:
        return named or REMOTE_PYTHON
    return os.path.expanduser(named) if named else sys.executable
