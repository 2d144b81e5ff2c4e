"""Runs the active tests of `preflight --level standard` and `deep`, and says which one runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import typer

from llmdeploy.cli.asking import ask_hosts, python_of
from llmdeploy.cli.loading import Loaded
from llmdeploy.cli.transport import Shells
from llmdeploy.edge.clock import SystemClock
from llmdeploy.facts.active.measure import Level, measure
from llmdeploy.facts.active.send import Seat
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.check import Planned
from llmdeploy.facts.collect import Depth
from llmdeploy.inventory import Inventory


def gather(
    loaded: Loaded, planned: Mapping[str, Planned] | None, *, level: Level, timeout_s: float
) -> Bundle:
    """What the hosts say and, beyond `quick`, do. Ports are the plan's, else those that the next
    release would get."""
    depth = Depth.FIND if level == Level.QUICK else Depth.MEASURE
    bundle = ask_hosts(loaded, depth=depth, timeout_s=timeout_s)
    if level == Level.QUICK or not bundle.hosts:
        return bundle
    ports = sorted({port for part in (planned or {}).values() for port in part.ports})
    return measured(loaded, bundle, level="deep" if level == Level.DEEP else "standard",
                    ports=tuple(ports) or free_ports(bundle, loaded.inventory))  # fmt: skip


def measured(
    loaded: Loaded, bundle: Bundle, *, level: Literal["standard", "deep"], ports: Sequence[int]
) -> Bundle:
    """The bundle with what its hosts do."""
    with Shells() as shells:
        found = measure(
            list(_seats(loaded.inventory, bundle, shells)),
            bundle,
            level=level,
            declared=dict(_declared(loaded.inventory)),
            ports=ports,
            report=lambda words: typer.echo(f"testing: {words} ...", err=True),
            clock=SystemClock(),
        )
    return bundle.model_copy(update={"measured": found})


def planned_by(plan: str | None) -> Callable[[Bundle | None], Mapping[str, Planned] | None]:
    """What the plan puts on each host; without one its stages are not loaded: that takes 0.3 s."""
    if plan is None:
        return lambda bundle: None
    from llmdeploy.cli.planned import planned_on
    from llmdeploy.cli.starting import read_plan

    made = read_plan(plan)
    return lambda bundle: planned_on(made, bundle)


def _seats(inventory: Inventory, bundle: Bundle, shells: Shells) -> Iterator[Seat]:
    answered = {facts.host for facts in bundle.hosts}
    for host in inventory.hosts:
        for name in host.names:
            if name in answered:
                python = python_of(host, inventory)
                yield Seat(host=name, python=python, shell=shells.of(host, name))


def _declared(inventory: Inventory) -> Iterator[tuple[str, str]]:
    """Data addresses; one address cannot be that of several equal hosts."""
    for host in inventory.hosts:
        for number, name in enumerate(host.names, start=1):
            if host.count == 1 or "{number}" in host.data_address:
                yield name, host.data_address.replace("{number}", str(number))


def free_ports(bundle: Bundle, inventory: Inventory) -> tuple[int, ...]:
    """The first block of ports on which no host listens, as a release would take it; the first
    block where there is none."""
    ports = inventory.ports
    taken = {listener.port for facts in bundle.hosts for listener in facts.listeners or ()}
    blocks = (_block(inventory, index) for index in range(ports.blocks))
    free = (block for block in blocks if taken.isdisjoint(block))
    return next(free, _block(inventory, 0))


def _block(inventory: Inventory, index: int) -> tuple[int, ...]:
    first = inventory.ports.first + index * inventory.ports.block_size
    return tuple(range(first, first + inventory.ports.block_size))
