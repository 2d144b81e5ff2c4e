"""All active tests of a level, in the order in which one tells why the next cannot be done."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Literal

from llmdeploy.edge import Clock
from llmdeploy.facts.active import alone, group, network
from llmdeploy.facts.active.choose import choose
from llmdeploy.facts.active.measured import Choice, Measured, PortRow, Untested
from llmdeploy.facts.active.send import Seat
from llmdeploy.facts.active.tasks import Report, counted
from llmdeploy.facts.bundle import Bundle

SEND_S = {"standard": 1.0, "deep": 4.0}
"""How long each direction of a pair sends. Source: own choice; 1 s is 100 round trips of 10 ms."""
DEVICE_TEST_S = 2.0
"""For the products of one device. Source: own choice."""
FIRST = ("sto.disk.speed", *network.PORT_TESTS, group.CROSS)
"""What a host misses that does not even tell its time."""


class Level(StrEnum):
    """How much preflight does: what hosts say; also what they do; also what their devices do."""

    QUICK = "quick"
    STANDARD = "standard"
    DEEP = "deep"


def measure(
    seats: Sequence[Seat],
    bundle: Bundle,
    *,
    level: Literal["standard", "deep"],
    declared: Mapping[str, str],
    ports: Sequence[int],
    report: Report,
    clock: Clock,
) -> Measured:
    """What the hosts do, measured; hosts that gave no facts are left out.

    `declared` is each host's data address as cluster.yaml has it, `ports` are the plan's. A host
    that cannot be tested is in `untested` with the reason; nothing here raises for a host.
    """
    begun_s, monotonic_s = clock.now_s(), clock.monotonic_s()
    alone_here = len(seats) < 2
    facts = {host.host: host for host in bundle.hosts}
    seats = [seat for seat in seats if seat.host in facts]
    report(f"{counted(seats)}: clocks and disks")
    offsets, no_clock = alone.clocks(seats, clock=clock)
    mute = {one.host: one.reason for one in no_clock}
    seats = [seat for seat in seats if seat.host not in mute]  # no further deadline is spent on it
    rates, no_disk = alone.disks(seats, facts, clock=clock)
    untested = [*no_clock, *_untested(FIRST, mute), *no_disk]
    choices = () if alone_here else choose([facts[seat.host] for seat in seats], declared)
    seats = _seated(seats, choices)
    untested += _unplaced(choices)
    wired = _between(
        [seat for seat in seats if seat.address], ports, level=level, report=report, clock=clock
    )
    untested += wired.untested
    silent = {one.host: one.reason for one in wired.untested}
    untested += _untested([group.CROSS], silent)
    joining = [seat for seat in seats if seat.host not in silent]
    plans, no_group = group.plans(joining, facts, ports=_meeting_ports(wired.rows, joining, ports))
    groups = tuple(group.all_reduce(plan, report=report, clock=clock) for plan in plans)
    own = alone.Devices()
    if level == "deep":
        report(f"{counted(seats)}: products, memory and copies of their devices")
        own = alone.devices(seats, facts, test_s=DEVICE_TEST_S, clock=clock)
    return Measured(
        level=level,
        begun_s=begun_s,
        duration_s=clock.monotonic_s() - monotonic_s,
        ports=tuple(ports),
        choices=tuple(
            c.model_copy(update={"sources": wired.sources.get(c.host, ())}) for c in choices
        ),
        port_rows=wired.rows,
        links=wired.links,
        clocks=offsets,
        disks=rates,
        all_reduces=groups,
        products=own.products,
        patterns=own.patterns,
        copies=own.copies,
        untested=(*untested, *no_group, *own.untested),
    )


def _between(
    seats: Sequence[Seat],
    ports: Sequence[int],
    *,
    level: Literal["standard", "deep"],
    report: Report,
    clock: Clock,
) -> network.Network:
    """What the seats do to each other; nothing for none, and untested for one without a peer."""
    if len(seats) < 2:
        reasons = {seat.host: "no other host could be tested with it" for seat in seats}
        return network.Network(sources={}, untested=tuple(_untested(network.PORT_TESTS, reasons)))
    return network.between_hosts(
        seats,
        ports,
        send_s=SEND_S[level],
        token=f"{random.SystemRandom().getrandbits(96):024x}",
        report=report,
        clock=clock,
    )


def _seated(seats: Sequence[Seat], choices: Sequence[Choice]) -> list[Seat]:
    chosen = {choice.host: choice for choice in choices}
    return [
        replace(seat, address=chosen[seat.host].address, interface=chosen[seat.host].interface)
        if seat.host in chosen
        else seat
        for seat in seats
    ]


def _untested(tests: Sequence[str], reasons: Mapping[str, str]) -> list[Untested]:
    return [
        Untested(test=test, host=host, reason=reason)
        for host, reason in reasons.items()
        for test in tests
    ]


def _unplaced(choices: Sequence[Choice]) -> list[Untested]:
    lost = {choice.host: choice.reason for choice in choices if choice.address is None}
    return _untested(network.PORT_TESTS, lost)


def _meeting_ports(
    rows: Sequence[PortRow], seats: Sequence[Seat], ports: Sequence[int]
) -> dict[str, int]:
    """By host a port of the plan that all who tried it reached; one host alone may take any."""
    if len(seats) == 1:
        return {seats[0].host: ports[0]} if ports else {}
    found: dict[str, int] = {}
    for seat in seats:
        tried = [row for row in rows if row.target == seat.host]
        common: Collection[int] = set(ports)
        for row in tried:
            common = set(common) & set(row.opened)
        if tried and common:
            found[seat.host] = max(common)
    return found
